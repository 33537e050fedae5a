"""Curves arrive while a run trains. MLflow never delays training, and in the end it has every point once."""

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cse_core.training.run_state import History
from experiments.execution.job import ExecutionSettings, describe, execute
from experiments.tracking import live_log
from experiments.tracking.live_log import CurveReader, LiveLog
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.run_content import RunContent, run_content
from experiments.tracking.run_reports import Reporter
from tests.support.mlflow_server import free_port, mlflow_server
from tests.support.polling import until
from tests.support.tracked_job import JOB, points_of

pytestmark = pytest.mark.slow  # MLflow takes seconds to import and to make a database


def begun(key: str) -> RunContent:
    assert key == JOB.key
    return run_content(describe(JOB))


def id_of_whole_run(tracker: Tracker) -> str:
    """The id of the only run; asserts that it has every point of its curves once."""
    (run,) = tracker.client.search_runs([tracker.experiment("tiny")])
    assert run.info.status == "FINISHED"
    for name in ("Curves/loss", "Curves/loss contrastive", "Curves/synthetic_dev"):
        assert points_of(tracker, run.info.run_id, name).keys() == {4, 8, 12, 16, 20}
    return run.info.run_id


def test_curves_are_there_while_a_run_trains(tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_log, "POINTS_SHARE", 1.0)
    live = LiveLog(tracker, tmp_path / "store", begun)
    reporter = Reporter(JOB.eval_steps, lambda report: live.add_points(JOB.key, report["points"]))
    during: dict[int, float] = {}

    def step(at: int, history: History) -> None:
        nonlocal during
        reporter.step(at, history)
        if at == 17:

            def arrived() -> dict[int, float]:
                runs = tracker.client.search_runs([tracker.experiment("tiny")], "attributes.status = 'RUNNING'")
                points = points_of(tracker, runs[0].info.run_id, "Curves/loss contrastive") if runs else {}
                return points if 16 in points else {}

            during = until(arrived, seconds=60)

    execute(JOB, ExecutionSettings(tmp_path / "store"), on_step=step)
    assert during.keys() == {4, 8, 12, 16}
    live.finish(JOB.key)
    live.close()
    assert during.items() <= points_of(tracker, id_of_whole_run(tracker), "Curves/loss contrastive").items()


def test_a_run_that_resumes_sends_its_points_again_and_mlflow_has_each_once(tracker: Tracker, store: Path) -> None:
    history = History(steps=20, curves={"loss": [(step, 1 / step) for step in range(1, 13)]})
    for end in (8, 12):  # the second time in a new driver
        live = LiveLog(tracker, store, begun)
        live.add_points(JOB.key, CurveReader(4).read(end, history))
        live.close()
        assert tracker.runs("tiny")[JOB.key].info.status == "KILLED"
    assert points_of(tracker, tracker.runs("tiny")[JOB.key].info.run_id, "Curves/loss").keys() == {4, 8, 12}
    live = LiveLog(tracker, store, begun)
    live.add_points(JOB.key, [])
    live.stop(JOB.key)
    live.close()
    assert tracker.runs("tiny")[JOB.key].info.status == "FAILED"


def test_a_run_that_cannot_be_read_keeps_no_other_from_mlflow(tmp_path: Path) -> None:
    logged = []

    ended = {}

    class Refusing:
        def log(self, folder: Path) -> None:
            if folder.name == "damaged":
                raise ValueError("results.csv, line 3: expected a number")
            logged.append(folder.name)

        def begin(self, content: RunContent) -> str:
            return content.key

        def add_points(self, run_id: str, points: dict) -> None:
            pass

        def end(self, run_id: str, status: str) -> None:
            ended[run_id] = status

    live = LiveLog(Refusing(), tmp_path, begun)  # ty: ignore[invalid-argument-type]
    for key in ("damaged", "first", "second"):
        live.finish(key)
    until(lambda: logged == ["first", "second"])
    live.finish("third")
    live.add_points(JOB.key, [])
    live.close()
    assert logged == ["first", "second", "third"]
    assert ended == {JOB.key: "KILLED"}
    assert live.unlogged == {"damaged": "results.csv, line 3: expected a number"}


def test_points_take_a_hundredth_of_the_time(tracker: Tracker, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def slow(run_id: str, points: dict) -> None:
        calls.append(len(points))
        time.sleep(0.05)

    monkeypatch.setattr(tracker, "add_points", slow)
    live = LiveLog(tracker, store, begun)
    end, step = time.monotonic() + 3, 0
    while time.monotonic() < end:
        step += 4
        asked = time.monotonic()
        live.add_points(JOB.key, [("Curves/loss", step, 0.5)])
        assert time.monotonic() - asked < 1  # the caller never waits
        time.sleep(0.01)
    assert len(calls) <= 1
    live.close()
    assert sum(calls) == step // 4  # in one batch


@pytest.mark.nightly
def test_a_killed_server_delays_nothing_and_has_all_points_when_it_is_back(
    store: Path, result: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(live_log, "POINTS_SHARE", 1.0)
    tracker = Tracker(tmp_path)
    live = LiveLog(tracker, shutil.copytree(store, tmp_path / "store"), begun)
    points = [(name, step, value) for (name, step), value in run_content(result).points.items()]
    with mlflow_server(tmp_path / "server", port):
        live.add_points(JOB.key, [point for point in points if point[1] <= 8])
        until(lambda: tracker.runs("tiny").get(JOB.key))
        run_id = tracker.runs("tiny")[JOB.key].info.run_id
        until(lambda: "Curves/loss" in tracker.client.get_run(run_id).data.metrics)
    started = time.monotonic()
    live.add_points(JOB.key, points)
    live.finish(JOB.key)
    assert time.monotonic() - started < 0.5
    until(lambda: live.unlogged[JOB.key])
    live.close()
    assert JOB.key in live.unlogged
    with mlflow_server(tmp_path / "server", port):
        live.close()
        live.finish(JOB.key)
        live.close()
        assert live.unlogged == {}
        id_of_whole_run(tracker)
    assert threading.active_count() < 20
