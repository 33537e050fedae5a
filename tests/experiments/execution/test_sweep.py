"""Real sweeps in real processes name failures, never lose or repeat what is finished, and resume to the same bits."""

import contextlib
import re
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

import pandas as pd
import psutil
import pytest

from experiments.results import csv_record
from experiments.sweep import Options, main
from experiments.tracking.mlflow_log import Tracker
from tests.support import forked, tiny_study
from tests.support.polling import until
from tests.support.sweeps import command, environment, finished_at, scores, sweep, undisturbed_sweep

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return undisturbed_sweep(tmp_path_factory)[0]


def test_a_sweep_runs_teachers_first_and_fills_the_record(undisturbed: Path) -> None:
    runs = {one.key for row in tiny_study.healthy(tiny_study.SCALE).rows for one in row.runs()}
    frame = csv_record.read_results("tiny", undisturbed)
    assert set(frame["key"]) == runs
    assert set(frame["select"]) == {"synthetic_dev"}
    assert frame["score"].between(-1, 1).all()
    curves = csv_record.read_curves("tiny", undisturbed)
    assert set(curves["key"]) == runs
    assert "loss/rank" in set(curves["name"])


def test_failures_are_named_and_finished_runs_are_kept(tmp_path: Path) -> None:
    mlruns = tmp_path / "mlruns"
    done = sweep(mlruns, "faulty", ray=False)
    assert done.returncode == 1
    runs = {row.label: row.runs()[0] for row in tiny_study.faulty(tiny_study.SCALE).rows}
    said = re.sub(r"\s+", " ", done.stdout)
    assert f"failed: raises s42 ({runs['raises'].key}): RuntimeError: set to fail" in said
    assert f"failed: nan s42 ({runs['nan'].key}): DivergedError: run {runs['nan'].key}: loss is nan at step 6" in said
    assert f"failed: after s42 ({runs['after'].key}): not started: it needs run {runs['raises'].key}" in said
    assert "1 done, 3 failed, 0 pending" in said
    assert "1 of 4 runs done, 3 failed" in said
    assert set(csv_record.read_results("tiny", mlruns)["key"]) == {runs["well"].key}
    again = sweep(mlruns, "faulty", "--dry-run")
    assert "4 runs, 1 done, 3 to do" in again.stdout


def test_what_is_missing_is_named_before_anything_starts(tmp_path: Path) -> None:
    """Here the data folder is empty and a teacher does not exist."""
    (tmp_path / "data" / "senteval").mkdir(parents=True)
    mlruns = tmp_path / "mlruns"
    done = sweep(mlruns, "lacking", "--data", str(tmp_path / "data"))
    assert done.returncode == 1
    first, *lines = done.stderr.splitlines()
    assert first == "error: nothing was started: not all that the runs read is there"
    assert [line.split()[0] for line in lines] == ["backbone", "stsb:"]
    assert "nobody/nothing" in lines[0]
    assert not list((mlruns / "store").glob("*"))


@pytest.mark.parametrize(
    "kinds",
    [(signal.SIGINT,), pytest.param((signal.SIGINT, signal.SIGKILL), marks=pytest.mark.nightly)],
    ids=["Ctrl-C", "Ctrl-C and a kill"],
)
def test_a_stopped_sweep_resumes_with_the_same_command(
    tmp_path: Path, undisturbed: Path, kinds: tuple[int, ...]
) -> None:
    """Each signal stops it in another run. Meanwhile it listens only on this machine."""
    mlruns = tmp_path / "mlruns"
    before: dict[str, int] = {}
    for begun, kind in enumerate(kinds, 1):
        stop_a_sweep(mlruns, begun, kind)
        assert before.items() <= finished_at(mlruns).items()
        before = finished_at(mlruns)
    done = sweep(mlruns, "healthy", ray=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert scores(mlruns) == scores(undisturbed)
    assert before.items() <= finished_at(mlruns).items()
    assert curves_in_mlflow(mlruns) == curves_in_mlflow(undisturbed)


def stop_a_sweep(mlruns: Path, begun: int, kind: int) -> None:
    """Send the sweep a signal when `begun` runs have saved a checkpoint and MLflow has an open run."""
    log = mlruns.with_suffix(f".{kind}")
    with log.open("w") as output:
        process = forked.Forked(
            command(mlruns, "healthy"), env=environment(mlruns), stdout=output, stderr=subprocess.STDOUT
        )
        try:
            until(lambda: len(list((mlruns / "store").glob("*/synthetic_dev"))) >= begun)
            until(lambda: stopped_in_a_run(process, mlruns))
            listening = listening_below(process)
        finally:
            workers = workers_of(process)
            process.send_signal(kind)
            process.send_signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a run that ends before would be a finished one
                process.wait(timeout=120)
            signal_all(workers, signal.SIGCONT)
            process.wait(timeout=600)
    assert process.returncode == (-signal.SIGKILL if kind == signal.SIGKILL else 130), log.read_text()
    if kind == signal.SIGINT:
        assert "re-run the same command to resume" in log.read_text()
    assert len(listening) > 3  # Ray's own servers
    assert set(listening) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    statuses = {run.info.status for run in Tracker(mlruns).runs("tiny").values()}
    assert statuses - {"FINISHED"} == ({"RUNNING"} if kind == signal.SIGKILL else {"KILLED"})


def stopped_in_a_run(process: forked.Forked, mlruns: Path) -> bool:
    """Stop a sweep with its workers, but continue it unless MLflow has an open run that is not scored yet."""
    process.send_signal(signal.SIGSTOP)
    workers = workers_of(process)
    signal_all(workers, signal.SIGSTOP)
    if any(not (mlruns / "store" / key / "result.json").exists() for key in open_in_mlflow(mlruns)):
        return True
    signal_all(workers, signal.SIGCONT)
    process.send_signal(signal.SIGCONT)
    return False


def listening_below(process: forked.Forked) -> list[str]:
    """Return the addresses at which a driver and the processes below it listen."""
    found = []
    for each in (driver := psutil.Process(process.pid), *driver.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            connections = each.net_connections(kind="inet")
            found += [one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN]
    return found


def workers_of(process: forked.Forked) -> list[psutil.Process]:
    """Return Ray's processes below a driver; none if it has ended."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                found += [each] if "ray::" in "".join(each.cmdline()) else []
    return found


def signal_all(workers: list[psutil.Process], kind: int) -> None:
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.send_signal(kind)


def open_in_mlflow(mlruns: Path) -> list[str]:
    """Return the keys of MLflow's open runs, read without its client, which writes when it opens."""
    query = "SELECT value FROM tags JOIN runs USING (run_uuid) WHERE status = 'RUNNING' AND key = 'key'"
    with (
        contextlib.suppress(sqlite3.OperationalError),  # no database yet, or one that the sweep is writing
        contextlib.closing(sqlite3.connect(f"file:{mlruns}/mlflow.db?mode=ro", uri=True)) as database,
    ):
        return [key for (key,) in database.execute(query)]
    return []


def curves_in_mlflow(mlruns: Path) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """All points by run and curve; asserts that each of three runs is there once and finished."""
    tracker = Tracker(mlruns)
    runs = tracker.client.search_runs([tracker.experiment("tiny")])
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len({run.data.tags["key"] for run in runs}) == len(runs) == 3
    return {
        (run.data.tags["key"], name): sorted(
            (point.step, point.value) for point in tracker.client.get_metric_history(run.info.run_id, name)
        )
        for run in runs
        for name in run.data.metrics
        if name.startswith("Curves/")
    }


def test_a_teacher_that_does_not_reproduce_its_record_is_not_used(tmp_path: Path, undisturbed: Path) -> None:
    mlruns = tmp_path / "mlruns"
    mlruns.mkdir()
    frame = pd.read_csv(undisturbed / "results.csv", dtype=str)
    runs = (tiny_study.run(seed=1), tiny_study.taught(tiny_study.run(seed=1)), tiny_study.run(seed=2))
    teacher, student, other = (run.key for run in runs)
    frame.loc[frame["key"] == teacher, "score"] = "0.123"
    frame[~frame["key"].isin([student, other])].to_csv(mlruns / "results.csv", index=False)
    shutil.copy(undisturbed / "runs.csv", mlruns)
    done = sweep(mlruns, "healthy", ray=False)
    said = re.sub(r"\s+", " ", done.stdout)
    assert done.returncode == 1
    assert f"run {teacher} (a s1), retrained for its weights, does not reproduce its recorded scores" in said
    assert f"({student}): not started: it needs run {teacher}, which failed" in said
    assert finished_at(mlruns).keys() == {teacher, other}


def test_dry_run_and_list_start_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Options(studies=("rankcse-table4",), dry_run=True, mlruns=tmp_path)) == 0
    assert "34 runs, 0 done, 34 to do" in capsys.readouterr().out
    assert main(Options(list=True, mlruns=tmp_path)) == 0
    listed = [line.split("│") for line in capsys.readouterr().out.splitlines()]
    claims = {cells[1].strip(): cells[3].split() for cells in listed if len(cells) > 3}
    assert "R4" in claims["rankcse-table4"]
    assert claims["plan-ranks"] == ["E3", "E8", "E12", "E13"]  # not its controls
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "mlflow.db").exists()
