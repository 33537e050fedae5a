"""`compare.py`: short real comparisons, killed and resumed, with a method that fails, and what is refused."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.results import csv_record
from tests.support import forked
from tests.support.sweeps import add_empty_database

ROOT = Path(__file__).parents[3]
METHOD = """
from dataclasses import dataclass

from cse_core.methods.simcse import SimCSE


@dataclass(frozen=True, kw_only=True)
class Own(SimCSE):
    name = "own"
    version = 1

    def loss(self, encode, batch, modules, targets):
        {body}
"""
SHORT = ("--scale", "quickstart", "--trials", "2", "--searches", "1", "--finals", "1", "--corpus-lines", "512")


def command(mlruns: Path, *words: str) -> list[str]:
    add_empty_database(mlruns)
    return [sys.executable, str(ROOT / "experiments/compare.py"), *words, "--mlruns", str(mlruns)]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "RAY_worker_niceness": "0"}


def compare(mlruns: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.run(command(mlruns, *words), env=environment())


def own_method(folder: Path, body: str = "return super().loss(encode, batch, modules, targets)") -> str:
    folder.mkdir(exist_ok=True)
    (folder / "own_method.py").write_text(METHOD.format(body=body))
    return f"{folder / 'own_method.py'}:Own"


def without_costs(report: str) -> str:
    """A report without its last column, core-hours, and the model cards' paths."""
    return re.sub(r"\| [\d.]+ \|$", "|", report, flags=re.MULTILINE)


@pytest.mark.slow
def test_a_comparison_that_was_killed_resumes_to_the_same_report(tmp_path: Path) -> None:
    methods = ("simcse", own_method(tmp_path / "method"), "--name", "pair")
    undisturbed = compare(tmp_path / "undisturbed", *methods, *SHORT)
    assert undisturbed.returncode == 0, undisturbed.stdout + undisturbed.stderr
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        command(killed, *methods, *SHORT), env=environment(), start_new_session=True, stdout=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 240
        while not len(csv_record.read_runs("quickstart", killed)) and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.2)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = set(csv_record.read_runs("quickstart", killed)["key"])
    assert before
    resumed = compare(killed, *methods, *SHORT)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    reports = [(folder / "comparison.md").read_text() for folder in (tmp_path / "undisturbed", killed)]
    assert without_costs(reports[0]) == without_costs(reports[1])
    assert before < set(csv_record.read_runs("quickstart", killed)["key"])
    assert re.search(r"^\| simcse .*\| baseline \|", reports[0], re.MULTILINE)
    # Own is SimCSE: with the same seeds its published settings give the same scores.
    published = re.findall(r"^\| (\w+) \| published setting (\|.*)$", reports[0], re.MULTILINE)
    assert [name for name, _ in published] == ["simcse", "own"]
    assert published[0][1] == published[1][1]
    checkpoints = {path.parent.parent.name for path in killed.glob("store/*/synthetic_dev/model.safetensors")}
    searches = csv_record.read_searches("quickstart", killed)
    finals = set(searches.loc[searches["trial"].str.contains(r'"seed": 8\d\d'), "keys"])
    assert checkpoints == finals, "trials' weights are deleted, those of finals stay"
    assert len(finals) == 2 * (1 + 1)


@pytest.mark.slow
def test_a_method_that_fails_is_a_row_that_says_so_and_the_others_go_on(tmp_path: Path) -> None:
    broken = own_method(tmp_path, "raise RuntimeError('no loss today')")
    short = (*SHORT[:2], "--trials", "1", "--searches", "1", "--finals", "1", "--corpus-lines", "256")
    done = compare(tmp_path / "mlruns", "simcse", broken, "--name", "pair", *short)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "RuntimeError: no loss today" in done.stdout
    report = (tmp_path / "mlruns/comparison.md").read_text()
    row = next(line for line in report.splitlines() if line.startswith("| own "))
    assert "failed: no trial ended with a dev score" in row
    assert re.search(r"\| simcse \| \d\d\.\d\d \|", report)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("simcse",), "two or more different methods"),
        (("simcse", "rankse"), "did you mean 'rankcse'|rankcse"),
        (("simcse", "nowhere.py:Own"), "nowhere.py: no such file"),
        (("simcse", "rankcse", "--trials", "0"), "--trials"),
        (("simcse", "rankcse", "--margin", "0"), "--margin"),
        (("simcse", "rankcse", "--sampler", "grid"), "sampler must be one of random, tpe"),
        (("simcse", "rankcse", "--dev", "last"), "selects by dev scores"),
        (("simcse", "rankcse", "--scale", "quickstart", "--evaluate", "synthetic_dev"), "--evaluate synthetic_dev"),
        (("tuned", "--trials", "3"), "expected no --trials"),
        (("simcse", "rankcse", "--columns", "a"), "requires --corpus"),
    ],
)
def test_what_is_refused_before_anything_starts(tmp_path: Path, words: Sequence[str], expected: str) -> None:
    done = compare(tmp_path / "mlruns", *words)
    assert done.returncode == 1
    assert re.search(expected, done.stderr), done.stderr
    assert not (tmp_path / "mlruns/store").exists()


@pytest.mark.slow
def test_a_dry_run_shows_spaces_runs_time_and_disk_and_writes_nothing(tmp_path: Path) -> None:
    done = compare(tmp_path / "mlruns", "simcse", "compcse", "--scale", "small", "--dry-run")
    assert done.returncode == 0, done.stderr
    for part in ("136 runs for each method", "dims 32 or 43 or 64 or 128", "time with", "checkpoints of the finals"):
        assert part in done.stdout
    assert not (tmp_path / "mlruns/store").exists()
