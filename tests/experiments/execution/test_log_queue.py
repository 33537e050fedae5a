"""An unreachable server or storage delays nothing and loses nothing."""

import json
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.execution import log_queue
from experiments.execution.job import ExecutionSettings
from experiments.execution.log_queue import Logbook, record_results
from experiments.execution.tune_hooks import SweepCallback
from experiments.results import csv_record
from experiments.storage.shared_storage import Shared
from experiments.tracking.mlflow_log import Tracker
from tests.support import forked, tiny_study
from tests.support.mlflow_server import free_port, mlflow_server
from tests.support.polling import until
from tests.support.sweeps import command, environment, leave, result, scores


class Server:
    """A tracker that remembers what it logs, or raises if it is unreachable."""

    def __init__(self, mlruns: Path, *, reachable: bool = True) -> None:
        self.mlruns, self.reachable = mlruns, reachable
        self.tracked: list[str] = []

    def log(self, folder: Path) -> None:
        if not self.reachable:
            raise OSError("no connection")
        self.tracked.append(folder.name)


def logbook(server: Server) -> Logbook:
    """A logbook of the store in the server's folder."""
    return Logbook(server, ExecutionSettings(server.mlruns / "store"))  # ty: ignore[invalid-argument-type]


def keys(mlruns: Path) -> set[str]:
    return set(csv_record.read_results("tiny", mlruns)["key"])


def test_the_end_waits_for_storage_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([OSError("no route")] * 3)

    def fetch(key: str, place: ExecutionSettings) -> None:
        for error in left:
            raise error

    monkeypatch.setattr(log_queue, "RETRY_INTERVAL_SECONDS", 0.001)
    monkeypatch.setattr(log_queue, "fetch_recorded", fetch)
    leave(tmp_path / "store", "a")
    book = logbook(Server(tmp_path))
    book.add("a")
    assert "not recorded (no route)" in book.waiting["a"]
    assert book.settle() == {}
    assert keys(tmp_path) == {"a"}


def test_the_record_is_complete_while_mlflow_is_unreachable(tmp_path: Path) -> None:
    for key in "ab":
        leave(tmp_path / "store", key)
    book = logbook(Server(tmp_path, reachable=False))
    book.add("a")
    book.add("b")
    assert book.settle() == {}  # no failure
    assert keys(tmp_path) == {"a", "b"}
    assert set(book.live.unlogged) == {"a", "b"}


def test_a_run_whose_files_are_damaged_is_named_and_the_others_are_recorded(tmp_path: Path) -> None:
    for key in "ab":
        leave(tmp_path / "store", key)
    (tmp_path / "store/a/result.json").write_text("{")
    server = Server(tmp_path)
    book = logbook(server)
    book.add("a")
    book.add("b")
    failed = book.settle()
    assert set(failed) == {"a"}
    assert "result.json is damaged" in failed["a"]
    assert keys(tmp_path) == {"b"}
    assert server.tracked == ["b"]


def test_a_result_that_cannot_be_read_for_a_moment_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_queue, "RETRY_INTERVAL_SECONDS", 0.001)
    leave(tmp_path / "store", "a")
    shown = tmp_path / "store" / "a" / "result.json"
    hidden = shown.rename(tmp_path / "hidden")
    book = logbook(Server(tmp_path))
    book.add("a")
    assert set(book.waiting) == {"a"}
    hidden.rename(shown)
    assert book.settle() == {}
    assert keys(tmp_path) == {"a"}


def test_a_damaged_record_stops_the_sweep_and_blames_no_run(tmp_path: Path) -> None:
    leave(tmp_path / "store", "a")
    (tmp_path / "results.csv").write_text("key,select\na\n")
    book = logbook(Server(tmp_path))
    with pytest.raises(ValueError, match=r"results.csv"):
        book.add("a")
    assert not book.refused


def test_a_start_records_what_a_killed_driver_left_in_the_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    leave(store, "a")
    leave(store, "hand", studies=[])  # of no study, so not in the record
    leave(store, "other", key="a")  # another run's result in the folder
    (store / "torn").mkdir()
    (store / "torn" / "result.json").write_text('{"key": "to')
    record_results(store, tmp_path)
    assert keys(tmp_path) == {"a"}
    before = (tmp_path / "results.csv").read_bytes()
    changed = result("a")["cells"][0] | {"score": 0.9}  # ty: ignore
    (store / "a" / "result.json").write_text(json.dumps(result("a", cells=[changed])))
    record_results(store, tmp_path)
    assert (tmp_path / "results.csv").read_bytes() == before  # the earlier line stays


def test_a_users_study_and_the_project_record_only_their_own_results(tmp_path: Path) -> None:
    store = tmp_path / "store"
    leave(store, "projects")
    leave(store, "mine", file="/somewhere/mine.py")
    for file, expected in (("", "projects"), ("/somewhere/mine.py", "mine")):
        record_results(store, tmp_path / expected, file)
        assert keys(tmp_path / expected) == {expected}
    record_results(store, tmp_path / "other", "/somewhere/other.py")
    assert not (tmp_path / "other").exists()


def test_a_run_that_disagrees_with_its_recorded_lines_is_refused_and_they_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trained again for another task, it has other weights than those that were recorded."""
    leave(tmp_path / "store", "a")
    record_results(tmp_path / "store", tmp_path)
    before = (tmp_path / "results.csv").read_bytes()
    changed = result("a")["cells"][0] | {"score": 0.9}  # ty: ignore
    more = changed | {"task": "sts13"}
    (tmp_path / "store/a/result.json").write_text(json.dumps(result("a", cells=[changed, more])))
    book = logbook(Server(tmp_path))
    book.add("a")
    assert "disagree, nothing was written; put the recorded run's folder into the store" in book.refused["a"]
    assert "score is 0.5 here and 0.9 there" in book.refused["a"]
    assert (tmp_path / "results.csv").read_bytes() == before
    leave(tmp_path / "store", "b")
    leave(tmp_path / "store", "c")
    merged: list[list[dict[str, object]]] = []
    merge = csv_record.merge_lines
    monkeypatch.setattr(csv_record, "merge_lines", lambda *a, **b: (merged.append(a[2]), merge(*a, **b))[1])
    record_results(tmp_path / "store", tmp_path)  # the next start
    assert keys(tmp_path) == {"a", "b", "c"}
    assert [len(results) for results in merged] == [3, 2], "the files of a record take seconds: not once a run"
    assert "sts13" not in (tmp_path / "results.csv").read_text()
    assert "warning: run a is not recorded" in capsys.readouterr().out


def test_a_run_with_a_failed_task_is_named_and_its_other_scores_are_tracked(tmp_path: Path) -> None:
    server = Server(tmp_path)
    book = logbook(server)
    follow = SweepCallback(book, SimpleNamespace(end=lambda key, failed=False: None))  # ty: ignore[invalid-argument-type]
    leave(tmp_path / "store", "half")
    for key, scored in (("half", True), ("none", False)):
        outcome = {"failed": "why", "scored": scored}
        follow.on_trial_complete(1, [], SimpleNamespace(config={"key": key}, last_result=outcome))
    assert follow.failed == {"half": "why", "none": "why"}
    book.settle()
    assert server.tracked == ["half"]


@pytest.mark.slow
@pytest.mark.nightly
def test_an_unreachable_mlflow_causes_a_warning_and_the_next_sweep_logs_the_runs(tmp_path: Path) -> None:
    mlruns = tmp_path / "mlruns"
    no_server = environment(mlruns) | {"MLFLOW_TRACKING_URI": "http://ann:slash/and@at-sign@127.0.0.1:9"}
    given = command(mlruns, "healthy", "--rows", "b", ray=False)
    done = forked.run(given, env=no_server)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = {tiny_study.run(seed=2).key}
    assert keys(mlruns) == runs
    assert "1 run is not in MLflow" in " ".join(done.stdout.split())
    assert not any(secret in done.stdout + done.stderr for secret in ("slash/and", "at-sign", "ann:"))
    here = {name: value for name, value in environment(mlruns).items() if name != "MLFLOW_TRACKING_URI"}
    again = forked.run(given, env=here)
    assert again.returncode == 0, again.stdout + again.stderr
    assert Tracker(mlruns).keys() == runs


@pytest.mark.slow
@pytest.mark.nightly
def test_a_sweep_outlives_mlflows_server_and_the_storage_and_all_is_there_when_they_are_back(tmp_path: Path) -> None:
    port = free_port()
    mlruns = tmp_path / "mlruns"
    surroundings = environment(mlruns) | {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}"}
    shared = tmp_path / "shared"
    given = command(mlruns, "healthy", "--rows", "a", "b", "--shared", shared.as_uri(), workers=2)
    with (tmp_path / "log").open("wb") as log:
        with mlflow_server(tmp_path / "server", port):
            process = forked.Forked(given, env=surroundings, stdout=log, stderr=subprocess.STDOUT)
            begun = ("*/state.pt", "*/result.json")
            until(lambda: len({path.parent for name in begun for path in (mlruns / "store").glob(name)}) == 2)
        # Both runs have begun; they come to their end while nothing can be tracked or published.
        shared.rename(tmp_path / "unreachable")  # a mount that is gone
        until(lambda: len(list((mlruns / "store").glob("*/result.json"))) == 2)
        time.sleep(10)
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert not shared.exists()
        (tmp_path / "unreachable").rename(shared)
        with mlflow_server(tmp_path / "server", port):
            assert process.wait(timeout=600) == 0, (tmp_path / "log").read_text()
    runs = {tiny_study.run(seed=seed).key for seed in (1, 2)}
    assert {key for key, *_ in scores(mlruns)} == runs
    finished = {path.parent.name: json.loads(path.read_text()) for path in (mlruns / "store").glob("*/result.json")}
    assert set(finished) == runs
    lines = [line for result in finished.values() for line in csv_record.result_lines(result)]
    assert scores(mlruns) == {tuple(line[name] for name in csv_record.CELL): line["score"] for line in lines}
    for key in runs:
        assert Shared(shared.as_uri()).fetch(key, tmp_path / "fetched") == 1
        assert json.loads((tmp_path / "fetched" / key / "result.json").read_text()) == finished[key]
