"""What fails while a sweep runs: nothing that finished is lost or done twice, and the bits are an undisturbed run's."""

import random
import re
import subprocess
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cse_core.train import train
from experiments import record
from tests.cse_core.test_train import equal
from tests.experiments import tiny
from tests.experiments.test_sweep import command, environment, finished_at, scores, sweep

pytestmark = pytest.mark.slow
KILLS = 10


def weights(store: Path, key: str) -> dict[str, torch.Tensor]:
    return load_file(store / key / "synthetic_dev" / "model.safetensors")


def test_workers_killed_in_a_write_and_in_scoring_and_a_full_disk(tmp_path: Path) -> None:
    mlruns, runs = tmp_path / "mlruns", {row.label: row.runs()[0] for row in tiny.lost(tiny.SCALE).rows}
    done = sweep(mlruns, "lost")
    assert done.returncode == 1, done.stdout + done.stderr
    assert {fault for fault in runs if Path(f"{mlruns.with_suffix('.came')}-{fault}").exists()} == set(runs)
    said = re.sub(r"\s+", " ", done.stdout)
    assert f"failed: full s42 ({runs['full'].key}): OSError: [Errno 28] No space left on device" in said
    assert said.count("failed:") == 1
    killed = {runs["kill_saving"].key, runs["kill_scoring"].key}
    assert set(record.read_results("tiny", mlruns)["key"]) == killed
    before = finished_at(mlruns)
    again = sweep(mlruns, "lost")  # there is room now
    assert again.returncode == 0, again.stdout + again.stderr
    assert "3 runs, 2 done, 1 to do" in again.stdout
    assert before.items() <= finished_at(mlruns).items()
    torch.set_num_threads(1)
    train(tiny.run(), tmp_path, keep=("synthetic_dev",))
    expected = weights(tmp_path, tiny.run().key)
    assert all(equal(weights(mlruns / "store", run.key), expected) for run in runs.values())


def test_a_driver_killed_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    started = time.monotonic()
    undisturbed = tmp_path / "undisturbed"
    assert sweep(undisturbed, "healthy").returncode == 0
    takes = time.monotonic() - started
    chance, kills, folder = random.Random(7), 0, 0
    mlruns = tmp_path / "0"
    while kills < KILLS:
        before = finished_at(mlruns)
        process = subprocess.Popen(
            command(mlruns, "healthy"),
            env=environment(mlruns),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert process.wait(timeout=chance.uniform(0, takes)) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
        else:  # it came to its end in spite of all
            assert scores(mlruns) == scores(undisturbed)
            folder += 1
            mlruns = tmp_path / str(folder)
            continue
        assert before.items() <= finished_at(mlruns).items()  # none of them was trained again
    last = sweep(mlruns, "healthy")
    assert last.returncode == 0, last.stdout + last.stderr
    assert scores(mlruns) == scores(undisturbed)
    for row in tiny.healthy(tiny.SCALE).rows:
        assert equal(weights(mlruns / "store", row.runs()[0].key), weights(undisturbed / "store", row.runs()[0].key))
