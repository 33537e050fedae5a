"""Make and check the local database of MLflow."""

import os
import sqlite3
from pathlib import Path

from filelock import FileLock

from cse_core.data.atomic_write import atomic_path

# MLflow reads these when it is first imported, in functions of this folder.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # two lines for each run, in the progress bar
# The driver must not wait long for an unreachable server; live_log.py retries later.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")  # it would report each table of a new database


def tracking_uri(mlruns: Path) -> str:
    """Return the address of the server MLFLOW_TRACKING_URI, or of the database in the mlruns folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{_database(mlruns)}"


def artifact_folder(mlruns: Path) -> str:
    """Return the URL of the artifacts' folder next to the local database."""
    return (mlruns.resolve() / "artifacts").as_uri()


def make_database(mlruns: Path) -> None:
    """Make the local database if there is none; a kill leaves no database or a complete one."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # lazy: slow import

    check_database(mlruns)
    path = _database(mlruns)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if path.exists():
            return
        for left in path.parent.glob(f"{path.name}.part*"):  # left by a killed process, with its journal
            left.unlink()
        with atomic_path(path) as part:
            SqlAlchemyStore(f"sqlite:///{part}", artifact_folder(mlruns)).engine.dispose()


def check_database(mlruns: Path) -> None:
    """Refuse a damaged local database, and a folder whose path MLflow can't use."""
    path = _database(mlruns)
    if os.environ.get("MLFLOW_TRACKING_URI"):
        return
    if set("?%") & set(str(path)):  # special characters in a database's URL
        raise ValueError(f"--mlruns {mlruns}: MLflow needs a folder without ? and % in its path, {path.parent} has one")
    if path.exists() and not _is_database(path):
        raise ValueError(
            f"{path}: expected MLflow's database, found another or a damaged file. Move it to another folder: the "
            "next sweep makes a new one and logs the runs of the store again. No run and no score is lost"
        )


def _database(mlruns: Path) -> Path:
    return mlruns.resolve() / "mlflow.db"


def _is_database(path: Path) -> bool:
    try:
        # Opening it for writing rolls back what a killed driver was writing.
        with sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True) as database:
            names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        database.close()
    except sqlite3.DatabaseError as error:
        return "locked" in str(error)  # another process is writing to it
    return {"alembic_version", "experiments", "runs"} <= names
