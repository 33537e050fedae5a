"""Write many finished runs into a local MLflow database at once; MLflow's client takes six transactions for each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from experiments.tracking.run_content import RunContent

FINISHED = "FINISHED"
MAX_DIGEST = 36  # MLflow's limit
SCORES = "scores.csv"
Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A finished run to write, with its id in MLflow, its tags, when it ended in milliseconds, and its command."""

    id: str
    content: RunContent
    tags: Mapping[str, str]
    ended: int
    command: str


def write_runs(database: str, artifacts: Path, experiment: str, runs: Iterable[NewRun]) -> None:
    """Write runs of an experiment, all or none, each with its scores and its command as artifacts."""
    import sqlalchemy  # lazy: slow import
    from mlflow.store.tracking.dbmodels import models  # lazy: slow import

    runs, engine = list(runs), sqlalchemy.create_engine(database)
    tables = models.Base.metadata.tables
    with engine.begin() as connection:
        table = tables["datasets"]
        known = connection.execute(table.select().where(table.c.experiment_id == int(experiment)))
        datasets = {(line.name, line.digest): line.dataset_uuid for line in known}
        rows: Rows = {}
        for run in runs:
            folder = artifacts / run.id / "artifacts"
            folder.mkdir(parents=True)
            (folder / "command.txt").write_text(run.command + "\n", encoding="utf-8")
            (folder / SCORES).write_text(run.content.table, encoding="utf-8")
            for name, line in _lines(run, experiment, folder.as_uri(), datasets):
                rows.setdefault(name, []).append(line)
        for name in ("runs", "tags", "params", "metrics", "latest_metrics", "datasets", "inputs", "input_tags"):
            if name in rows:
                connection.execute(tables[name].insert(), rows[name])
    engine.dispose()


def _lines(
    run: NewRun, experiment: str, artifacts: str, datasets: dict[tuple[str, str], str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a run's lines, each with the name of its table."""
    of_run = {"run_uuid": run.id}
    about = {"name": run.content.name, "artifact_uri": artifacts, "experiment_id": int(experiment), "status": FINISHED}
    started = run.ended - round(1000 * run.content.seconds)
    times = {"start_time": started, "end_time": run.ended, "deleted_time": None}
    unused = {"source_type": "UNKNOWN", "source_name": "", "entry_point_name": "", "source_version": ""}
    yield "runs", of_run | about | times | unused | {"user_id": "unknown", "lifecycle_stage": "active"}
    for key, value in {"mlflow.runName": run.content.name, **run.tags}.items():
        yield "tags", of_run | {"key": key, "value": value}
    for key, value in run.content.parameters.items():
        yield "params", of_run | {"key": key, "value": value}
    latest: dict[str, tuple[int, int, float]] = {}
    for (key, step), (value, at) in run.content.timed_points(started).items():
        yield "metrics", of_run | {"key": key, "value": value, "timestamp": at, "step": step, "is_nan": False}
        latest[key] = max(latest.get(key, (-1, 0, 0.0)), (step, at, value))
    for key, (step, at, value) in latest.items():
        yield "latest_metrics", of_run | {"key": key, "value": value, "timestamp": at, "step": step, "is_nan": False}
    yield from _input_lines(run, experiment, datasets)


def _input_lines(
    run: NewRun, experiment: str, datasets: dict[tuple[str, str], str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the lines of a run's data sets; one that the experiment already has is only linked to the run."""
    for each in run.content.inputs:
        named = (each.name, each.sha256[:MAX_DIGEST])
        if named not in datasets:
            datasets[named] = uuid4().hex
            about = {"dataset_uuid": datasets[named], "experiment_id": int(experiment)}
            source = {"dataset_source_type": "local", "dataset_source": each.source_of_hash}
            yield "datasets", about | dict(zip(("name", "digest"), named, strict=True)) | source
        read = uuid4().hex
        ends = {"source_type": "DATASET", "source_id": datasets[named], "destination_type": "RUN"}
        yield "inputs", {"input_uuid": read, "destination_id": run.id} | ends
        yield "input_tags", {"input_uuid": read, "name": "mlflow.data.context", "value": each.context}
