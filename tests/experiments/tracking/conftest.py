"""A finished run's folder, and an empty database."""

import shutil
from pathlib import Path

import pytest

from experiments.execution.job import ExecutionSettings, execute
from experiments.tracking.mlflow_database import make_database
from experiments.tracking.mlflow_log import Tracker
from tests.support.tracked_job import JOB


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = ExecutionSettings(tmp_path_factory.mktemp("done") / "store")
    execute(JOB, place)
    return place.store


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: a new database takes MLflow seconds."""
    folder = tmp_path_factory.mktemp("database")
    make_database(folder)
    return folder / "mlflow.db"


@pytest.fixture
def tracker(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return Tracker(tmp_path)
