"""Log runs to MLflow from their result.json, in the driver. Only this file imports MLflow.

All runs are in one MLflow experiment, so that its pages can compare methods. MLflow has copies to look at: nothing is
read from it into the record, and the next sweep logs what it lacks.
"""

import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from filelock import FileLock

from cse_core.data.atomic_write import atomic_path
from cse_core.evaluation.suite import GROUPS
from cse_core.methods import METHODS
from experiments.results import csv_record
from experiments.results.run_result import RESULT, read_result

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, RunTag
    from mlflow.entities import Run as Tracked

# MLflow reads these when it is first imported, in the functions below.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # two lines for each run, in the progress bar
# The driver must not block while a server is unreachable; log_queue.py retries later.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")  # it would report each table of a new database

EXPERIMENT = "cse-study"
CONTENT = ("cells", "studies")  # tags that say what a logged run has
MANUAL_SUFFIX, FINISHED = " (own)", "FINISHED"
KIND = {"mlflow.experimentKind": "custom_model_development"}  # with the default kind, MLflow's pages hide the metrics
MAX_METRICS_PER_CALL = 1000  # MLflow's limit


@contextmanager
def _os_errors() -> Generator[None]:
    """Raise what MLflow or its database raises as an OSError: nearly always a server or storage can't be reached."""
    from mlflow.exceptions import MlflowException  # lazy: slow import
    from sqlalchemy.exc import SQLAlchemyError  # lazy: slow import

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        raise OSError(str(error)) from error


class Tracker:
    """Logs runs to the server MLFLOW_TRACKING_URI, or to the database in the mlruns folder if that is not set.

    The connection is opened at first use, so a sweep starts even if the server is unreachable. An unreachable server
    raises OSError.
    """

    def __init__(self, mlruns: Path) -> None:
        self.mlruns = mlruns
        self.uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{_database(mlruns)}"

    @cached_property
    def client(self) -> "MlflowClient":
        """MLflow's client; first use makes the local database if there is none."""
        from mlflow import MlflowClient  # lazy: slow import

        if not os.environ.get("MLFLOW_TRACKING_URI"):
            make_database(self.mlruns)
        return MlflowClient(self.uri)

    @cached_property
    def experiment(self) -> str:
        """The id of the MLflow experiment of all runs."""
        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        if experiment:
            return experiment.experiment_id
        # A server chooses where artifacts go; a local database would put them into the current folder.
        location = (self.mlruns / "artifacts").resolve().as_uri() if self.uri.startswith("sqlite") else None
        return self.client.create_experiment(EXPERIMENT, artifact_location=location, tags=KIND)

    @_os_errors()
    def missing(self, results: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the results that are not logged, or not with all of their scores and studies."""
        logged = {run.data.tags.get("key"): run.data.tags for run in self._finished_runs()}
        return [result for result in results if not _is_logged(logged.get(_key(result), {}), result)]

    def earlier_run(self, key: str) -> "Tracked | None":
        """Return MLflow's earliest finished run of a key; delete runs that a killed driver logged in part."""
        runs = self.client.search_runs([self.experiment], f"tags.key = '{key}'", order_by=["attributes.start_time ASC"])
        for run in runs:
            if run.info.status != FINISHED:
                self.client.delete_run(run.info.run_id)
        return next((r for r in runs if r.info.status == FINISHED), None)

    @_os_errors()
    def log(self, folder: Path) -> str:
        """Log a run's folder, or only the scores that a logged run of its key lacks; return MLflow's run id."""
        from mlflow.entities import Param  # lazy: slow import

        result = read_result(folder)
        if result is None:
            raise FileNotFoundError(f"{folder / RESULT}: no result to log")
        earlier = self.earlier_run(_key(result))
        if earlier and _is_logged(earlier.data.tags, result):
            return earlier.info.run_id
        now = int(time.time() * 1000)
        if earlier:
            run_id = earlier.info.run_id
            self.client.log_batch(run_id, metrics=list(_scores(result, now)))
        else:
            started = now - int(1000 * (result["seconds"] or result["scoring_seconds"]))
            key = {"key": _key(result)}
            created = self.client.create_run(self.experiment, started, run_name=result["name"], tags=key)
            run_id = created.info.run_id
            params = [Param(name, str(value)[:500]) for name, value in parameters(result).items()]
            self.client.log_batch(run_id, params=params)
            metrics = [*_scores(result, now), *_curves(result, now)]
            for start in range(0, len(metrics), MAX_METRICS_PER_CALL):
                self.client.log_batch(run_id, metrics=metrics[start : start + MAX_METRICS_PER_CALL])
        for path in sorted(folder.iterdir()):
            if not path.name.startswith(".") and path.suffix not in (".part", ".lock"):
                self.client.log_artifact(run_id, str(path))
        self.client.log_batch(run_id, tags=_tags(result))  # last, so that they only claim what is logged
        self.client.set_terminated(run_id)
        return run_id

    @_os_errors()
    def keys(self) -> set[str]:
        """Return the keys of all finished runs, also those of no study."""
        return {run.data.tags.get("key", "").removesuffix(MANUAL_SUFFIX) for run in self._finished_runs()}

    def _finished_runs(self) -> "Iterator[Tracked]":
        token = None
        while True:
            page = self.client.search_runs(
                [self.experiment],
                f"attributes.status = '{FINISHED}'",
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
            yield from page
            token = page.token
            if not token:
                return

    @_os_errors()
    def compare_page(self, keys: Iterable[str], address: str = "http://127.0.0.1:5000") -> str:
        """Return the address of MLflow's page that compares these runs, on a local server."""
        compared = set(keys)  # trained runs only: one without parameters would make every parameter differ
        ids = [run.info.run_id for run in self._finished_runs() if run.data.tags.get("key") in compared]
        chosen = ",".join(f'"{run_id}"' for run_id in ids)
        return f'{address}/#/compare-runs?runs=[{chosen}]&experiments=["{self.experiment}"]'.replace('"', "%22")


def parameters(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings under flat names, the same on every run, as the compare page plots what differs.

    `arm` is the run's label without its seed; the page sorts it first.
    """
    defaults = {f.name: "none" for method in METHODS.values() for f in fields(cast(Any, method))}
    given = {name: "none" if value in ("", None) else value for name, value in result["parameters"].items()}
    return {"arm": result["label"]} | defaults | given


def _key(result: Mapping[str, Any]) -> str:
    """Return the key to log; a run made by hand gets a suffix, so it is never mistaken for a study's run."""
    return result["key"] if result["studies"] else result["key"] + MANUAL_SUFFIX


def _tags(result: Mapping[str, Any]) -> "list[RunTag]":
    from mlflow.entities import RunTag  # lazy: slow import

    environment = {f"env.{name}": value for name, value in result["environment"].items()}
    tags = {
        "key": _key(result),
        "scale": result["scale"],
        "method": result["method"],
        "backbone": result["backbone"],
        "studies": " ".join(result["studies"]),
        "cells": str(len(list(csv_record.result_lines(result)))),
        "changed": result["settings"],
        **{f"kept.{rule}": f"step {kept['step']}" for rule, kept in result["kept"].items()},
        "warnings": "; ".join(result["warnings"])[:4000],
        "data": json.dumps(result["data"])[:4000],
        "mlflow.source.git.commit": result["environment"]["commit"],
        "mlflow.source.name": Path(sys.argv[0]).name,
        **environment,
    }
    return [RunTag(name, value) for name, value in tags.items()]


def _scores(result: Mapping[str, Any], now: int) -> "Iterator[Metric]":
    """Yield scores as `test/<task>`, with metric, checkpoint and scorer in the name where they are not the default."""
    from mlflow.entities import Metric  # lazy: slow import

    cells = [c for c in result["cells"] if c["metric"] == "spearman.all"]
    first = result["cells"][0]["select"] if result["cells"] else ""
    sets = GROUPS["synthetic"] + GROUPS["sts"] + GROUPS["dev"]
    averaged = [c["score"] for c in cells if c["select"] == first and c["scorer"] == "cosine" and c["task"] in sets]
    if averaged:
        yield Metric("avg", sum(averaged) / len(averaged), now, 0)  # sorts first, so the compare page plots it
    for cell in result["cells"]:
        checkpoint = [] if cell["select"] == first else [cell["select"]]
        scorer = [] if cell["scorer"] == "cosine" else [cell["scorer"]]
        aggregate = [] if cell["metric"] == "spearman.all" else [cell["metric"]]
        name = "/".join(["test", cell["task"], *aggregate, *checkpoint, *scorer])
        yield Metric(re.sub(r"[^\w. :/-]", "", name), cell["score"], now, 0)  # MLflow allows no other characters
    yield Metric("seconds/train", result["seconds"], now, 0)
    yield Metric("seconds/all", result["scoring_seconds"], now, 0)


def _curves(result: Mapping[str, Any], now: int) -> "Iterator[Metric]":
    from mlflow.entities import Metric  # lazy: slow import

    for name, points in result["curves"].items():
        shown = name if "/" in name else f"{name}/total"
        yield from (Metric(shown, value, now, step) for step, value in points)


def _is_logged(tags: Mapping[str, str], result: Mapping[str, Any]) -> bool:
    return all(tags.get(tag.key) == tag.value for tag in _tags(result) if tag.key in CONTENT)


def _database(mlruns: Path) -> Path:
    return mlruns.resolve() / "mlflow.db"


def make_database(mlruns: Path) -> None:
    """Make the local database if there is none; a kill leaves no database or a complete one."""
    from mlflow.entities import ExperimentTag  # lazy: slow import
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
            artifacts = (path.parent / "artifacts").as_uri()
            store = SqlAlchemyStore(f"sqlite:///{part}", artifacts)
            try:
                store.create_experiment(EXPERIMENT, artifacts, tags=[ExperimentTag(k, v) for k, v in KIND.items()])
            finally:
                store.engine.dispose()


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


def _is_database(path: Path) -> bool:
    try:
        with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as database:
            names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        database.close()
    except sqlite3.DatabaseError as error:
        return "locked" in str(error)  # another process is writing to it
    return {"alembic_version", "experiments", "runs"} <= names
