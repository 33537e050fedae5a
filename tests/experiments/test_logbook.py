"""A server or storage that is away holds nothing up and loses nothing."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments import logbook, record, show
from experiments import sweep as sweep_command
from experiments.job import Place
from experiments.logbook import Logbook
from experiments.storage import Shared
from experiments.sweep import Options
from experiments.tracking import MlflowException
from experiments.trials import Follow
from tests.experiments import tiny
from tests.experiments.test_sweep import ROOT, command, environment, scores
from tests.waiting import until


class Server:
    """Stands for the tracker: while it is away it raises."""

    def __init__(self, *, away: int = 0, without: str = "") -> None:
        self.away, self.without, self.tracked = away, without, []

    def log(self, folder: Path) -> None:
        if self.away or folder.name == self.without:
            self.away = max(0, self.away - 1)
            raise MlflowException("no connection")
        self.tracked.append(folder.name)


def kept(server: Server, tmp_path: Path) -> Logbook:
    return Logbook(server, Place(tmp_path))  # ty: ignore[invalid-argument-type]


def test_what_could_not_be_tracked_is_with_a_later_one(tmp_path: Path) -> None:
    server = Server(away=1)
    book = kept(server, tmp_path)
    book.add("a")
    assert "no connection" in book.waiting["a"]
    book.add("b")  # a server that does not answer is left alone for a while
    assert server.tracked == []
    book.again = 0.0
    book.add("c")
    assert server.tracked == ["a", "b", "c"]
    assert not book.waiting


def test_the_end_waits_for_what_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(logbook.time, "sleep", pauses.append)
    server = Server(away=5)
    book = kept(server, tmp_path)
    book.add("a")
    assert book.settle() == {}
    assert server.tracked == ["a"]
    assert len(pauses) == 4  # of five failures one was at its end, one before the first pause


def test_one_that_never_can_be_tracked_keeps_none_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logbook, "PAUSE", 0.001)
    server = Server(without="b")
    book = kept(server, tmp_path)
    for key in "abcd":
        book.add(key)
    left = book.settle(patience=0.05)
    assert sorted(server.tracked) == ["a", "c", "d"]
    assert list(left) == ["b"]
    assert "not tracked (no connection): the same command tracks it" in left["b"]


def test_a_run_of_which_a_task_failed_is_named_and_its_other_scores_are_tracked(tmp_path: Path) -> None:
    server = Server()
    follow = Follow(kept(server, tmp_path), SimpleNamespace(end=lambda key: None))  # ty: ignore[invalid-argument-type]
    for key, scored in (("half", True), ("none", False)):
        told = {"failed": "why", "scored": scored}
        follow.on_trial_complete(1, [], SimpleNamespace(config={"key": key}, last_result=told))
    assert follow.failed == {"half": "why", "none": "why"}
    assert server.tracked == ["half"]


def test_a_server_that_stays_away_is_told_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def away(*given: object) -> None:
        raise MlflowException("no connection to http://ann:secret@host")

    tracked = {"c0ffee": "trained and scored, but not tracked"}
    monkeypatch.setattr(sweep_command, "run", lambda *given: (tracked, True))
    monkeypatch.setattr(sweep_command, "Tracker", lambda mlruns: None)
    monkeypatch.setattr(sweep_command, "export", away)
    monkeypatch.setattr(show, "Tracker", away)
    assert sweep_command.main(Options(studies=("overlap",), mlruns=tmp_path)) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "MLflow is away: no connection to http://***@host" in said
    assert "failed: c0ffee: trained and scored, but not tracked" in said
    assert "failed: record: not brought up to date" in said
    assert "secret" not in said


@contextmanager
def mlflow_server(folder: Path, port: int) -> Generator[subprocess.Popen[bytes]]:
    folder.mkdir(exist_ok=True)
    given = ["server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    given += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "kept")]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *given], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        until(lambda: answers(port))
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.mark.slow
def test_a_sweep_outlives_mlflows_server_and_the_storage_and_all_is_there_when_they_are_back(tmp_path: Path) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    mlruns = tmp_path / "mlruns"
    surroundings = environment(mlruns) | {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}"}
    shared = tmp_path / "shared"
    given = [*command(mlruns, "healthy"), "--shared", shared.as_uri()]
    with (tmp_path / "log").open("wb") as log:
        with mlflow_server(tmp_path / "server", port):
            process = subprocess.Popen(given, env=surroundings, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
            until(lambda: any((mlruns / "store").glob("*/state.pt")))
        # A first run has begun; its level comes to its end while nothing can be tracked or published.
        shared.rename(tmp_path / "away")  # a mount that is gone
        until(lambda: len(list((mlruns / "store").glob("*/result.json"))) == 2)
        time.sleep(10)
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert not shared.exists()
        (tmp_path / "away").rename(shared)
        with mlflow_server(tmp_path / "server", port):
            assert process.wait(timeout=600) == 0, (tmp_path / "log").read_text()
    runs = {one.key for row in tiny.healthy(tiny.SCALE).rows for one in row.runs()}
    assert {key for key, *_ in scores(mlruns)} == runs
    finished = {path.parent.name: json.loads(path.read_text()) for path in (mlruns / "store").glob("*/result.json")}
    assert set(finished) == runs
    lines = [line for result in finished.values() for line in record.result_lines(result)]
    assert scores(mlruns) == {tuple(line[name] for name in record.CELL): line["score"] for line in lines}
    for key in runs:
        assert Shared(shared.as_uri()).fetch(key, tmp_path / "fetched") == 1
        assert json.loads((tmp_path / "fetched" / key / "result.json").read_text()) == finished[key]
