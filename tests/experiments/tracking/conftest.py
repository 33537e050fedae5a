"""A finished run and an empty database."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.execution.job import ExecutionSettings, execute
from experiments.tracking.mlflow_log import Tracker
from tests.support.sweeps import add_empty_database
from tests.support.tracked_job import JOB


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the folder of the finished JOB."""
    place = ExecutionSettings(tmp_path_factory.mktemp("done") / "store")
    execute(JOB, place)
    return place.store


@pytest.fixture(scope="session")
def result(store: Path) -> dict[str, Any]:
    """The result of JOB."""
    return json.loads((store / JOB.key / "result.json").read_text())


@pytest.fixture
def tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    """A tracker of an empty database."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    add_empty_database(tmp_path)
    return Tracker(tmp_path)
