"""A finished run's folder, and an empty database."""

from pathlib import Path

import pytest

from experiments.execution.job import ExecutionSettings, execute
from experiments.tracking.mlflow_log import Tracker
from tests.support.sweeps import add_empty_database
from tests.support.tracked_job import JOB


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = ExecutionSettings(tmp_path_factory.mktemp("done") / "store")
    execute(JOB, place)
    return place.store


@pytest.fixture
def tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    add_empty_database(tmp_path)
    return Tracker(tmp_path)
