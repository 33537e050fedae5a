"""After a failure during a sweep nothing finished is lost or repeated, and all bits are those of an undisturbed one."""

import random
import re
import subprocess
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from cse_core.training.train import train
from experiments.results import csv_record
from tests.support import forked, tiny_study
from tests.support.polling import until
from tests.support.sweeps import command, environment, finished_at, scores, sweep, undisturbed_sweep
from tests.support.training import equal, weights

pytestmark = pytest.mark.slow
KILLS, RULE = 6, "synthetic_dev"


@pytest.mark.nightly
def test_workers_killed_in_a_write_and_in_scoring_and_a_full_disk(tmp_path: Path) -> None:
    mlruns = tmp_path / "mlruns"
    runs = {row.label: row.runs()[0] for row in tiny_study.lost(tiny_study.SCALE).rows}
    done = sweep(mlruns, "lost")
    assert done.returncode == 1, done.stdout + done.stderr
    assert {fault for fault in runs if Path(f"{mlruns.with_suffix('.came')}-{fault}").exists()} == set(runs)
    said = re.sub(r"\s+", " ", done.stdout)
    assert f"failed: full s42 ({runs['full'].key}): OSError: [Errno 28] No space left on device (" in said
    assert f"make room there, then run the same command again: '{mlruns}/store/{runs['full'].key}/state.pt'" in said
    assert said.count("failed:") == 1
    killed = {runs["kill_saving"].key, runs["kill_scoring"].key}
    assert set(csv_record.read_results("tiny", mlruns)["key"]) == killed
    before = finished_at(mlruns)
    again = sweep(mlruns, "lost", ray=False)  # there is room now
    assert again.returncode == 0, again.stdout + again.stderr
    assert "3 runs, 2 done, 1 to do" in again.stdout
    assert before.items() <= finished_at(mlruns).items()
    train(tiny_study.run(), tmp_path, rules=(RULE,))
    expected = weights(tmp_path, tiny_study.run(), RULE)
    assert all(equal(weights(mlruns / "store", run, RULE), expected) for run in runs.values())


def held(mlruns: Path) -> list[list[str]]:
    """The process ids of each worker that waits, and of its node."""
    path = Path(f"{mlruns.with_suffix('.came')}-held")
    return [line.split() for line in path.read_text().splitlines()] if path.is_file() else []


@pytest.mark.nightly
def test_a_node_that_is_removed_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlruns = tmp_path / "mlruns"
    for name, value in environment(mlruns).items():  # which workers have of their node, not of the driver
        monkeypatch.setenv(name, value)
    cluster = Cluster(initialize_head=True)
    node = cluster.add_node()
    try:
        with (tmp_path / "log").open("wb") as log:
            process = forked.Forked(
                [*command(mlruns, "held", workers=2), "--address", cluster.address],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until(lambda: len(held(mlruns)) == 2)
        raylet = str(node.all_processes["raylet"][0].process.pid)
        assert [above for _, above in held(mlruns)].count(raylet) == 1  # one on each node
        cluster.remove_node(node)
        Path(f"{mlruns.with_suffix('.came')}-released").touch()
        assert process.wait(timeout=600) == 0, (tmp_path / "log").read_text()
    finally:
        cluster.shutdown()
    assert [above for _, above in held(mlruns)].count(raylet) == 1
    assert len(held(mlruns)) == 3  # the run on the node came there again, on the other one
    train(tiny_study.run(), tmp_path, rules=(RULE,))
    expected = weights(tmp_path, tiny_study.run(), RULE)
    for row in tiny_study.held(tiny_study.SCALE).rows:
        assert equal(weights(mlruns / "store", row.runs()[0], RULE), expected)


@pytest.mark.nightly
def test_a_driver_killed_at_random_moments_loses_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    expected, takes = undisturbed_sweep(tmp_path_factory)
    takes *= 0.8  # that sweep made MLflow's database too
    chance, kills, folder = random.Random(7), 0, 0
    mlruns = tmp_path / "0"
    while kills < KILLS:
        before = finished_at(mlruns)
        process = forked.Forked(command(mlruns, "healthy", workers=2), env=environment(mlruns))
        try:
            assert process.wait(timeout=chance.uniform(0, takes)) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
        else:  # it came to its end in spite of all
            assert scores(mlruns) == scores(expected)
            folder += 1
            mlruns = tmp_path / str(folder)
            continue
        assert before.items() <= finished_at(mlruns).items()  # none of them was trained again
    last = sweep(mlruns, "healthy", workers=2)
    assert last.returncode == 0, last.stdout + last.stderr
    assert scores(mlruns) == scores(expected)
    for row in tiny_study.healthy(tiny_study.SCALE).rows:
        run = row.runs()[0]
        assert equal(weights(mlruns / "store", run, RULE), weights(expected / "store", run, RULE))
