"""Log runs to MLflow, one for each key: curves while it trains, then a whole run, which replaces the one in progress.

Each scale has an MLflow experiment, so that its pages can compare methods; runs made by hand have one too. MLflow only
has copies to look at: nothing is read from it into the record, and the next sweep logs what is missing.
"""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from experiments.results.csv_record import MANUAL_RUNS
from experiments.results.run_result import RESULT, as_recorded, read_result
from experiments.tracking.bulk_log import FINISHED, MAX_DIGEST, SCORES, NewRun, write_runs
from experiments.tracking.mlflow_database import artifact_folder, make_database, tracking_uri
from experiments.tracking.mlflow_notes import command_line, experiment_name, experiment_note, run_note, scale_of
from experiments.tracking.run_content import Point, RunContent, joined, run_content

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput
    from mlflow.entities import Run as Tracked

KIND = {"mlflow.experimentKind": "custom_model_development"}  # with the default kind, MLflow's pages hide the metrics
NOTE = "mlflow.note.content"
MAX_METRICS_PER_CALL = 1000  # MLflow's limit
NOT_LOGGED = (".part", ".lock")


@contextmanager
def os_errors() -> Generator[None]:
    """Turn errors of MLflow and its database into OSError: nearly always, a server or storage can't be reached."""
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
        self.mlruns, self.uri = mlruns, tracking_uri(mlruns)
        self._experiments: dict[str, str] = {}  # ids by scale, and by `own`
        self._ids: dict[tuple[str, str], str] = {}  # of MLflow's runs, by experiment and key

    @cached_property
    def client(self) -> "MlflowClient":
        """MLflow's client; first use makes the local database if there is none."""
        from mlflow import MlflowClient  # lazy: slow import

        if self.has_local_database:
            make_database(self.mlruns)
        return MlflowClient(self.uri)

    def experiment(self, scale: str) -> str:
        """Return the id of a scale's experiment; make it, with its description, if there is none."""
        if scale not in self._experiments:
            present = self.client.get_experiment_by_name(experiment_name(scale))
            if present and present.lifecycle_stage != "active":  # deleted by hand; its name is still taken
                self.client.restore_experiment(present.experiment_id)
            self._experiments[scale] = present.experiment_id if present else self._make_experiment(scale)
        return self._experiments[scale]

    def _make_experiment(self, scale: str) -> str:
        from mlflow.exceptions import MlflowException  # lazy: slow import

        # A server chooses where artifacts go; a local database would put them into the current folder.
        location = artifact_folder(self.mlruns) if self.uri.startswith("sqlite") else None
        name, tags = experiment_name(scale), KIND | {NOTE: experiment_note(scale)}
        try:
            return self.client.create_experiment(name, artifact_location=location, tags=tags)
        except MlflowException:
            if not (other := self.client.get_experiment_by_name(name)):  # otherwise another driver was first
                raise
            return other.experiment_id

    @os_errors()
    def runs(self, scale: str) -> "dict[str, Tracked]":
        """Return an experiment's runs by key, a finished one rather than one in progress."""
        by_key: dict[str, Tracked] = {}
        for run in sorted(self._search(scale), key=lambda run: run.info.status == FINISHED):
            by_key[run.data.tags.get("key", "")] = run
        self._ids |= {(scale, key): run.info.run_id for key, run in by_key.items()}
        return by_key

    def _search(self, scale: str, where: str = "") -> "Iterator[Tracked]":
        token, order = None, ["attributes.start_time ASC"]
        while True:
            page = self.client.search_runs([self.experiment(scale)], where, order_by=order, page_token=token)
            yield from page
            token = page.token
            if not token:
                return

    @os_errors()
    def missing(self, contents: Iterable[RunContent]) -> list[RunContent]:
        """Return the contents for which MLflow has no finished run, or one with fewer studies."""
        contents = list(contents)
        runs = {name: self.runs(name) for name in {content.experiment for content in contents}}
        return [
            content
            for content in contents
            if not ((run := runs[content.experiment].get(content.key)) and _is_of(run, content))
            or not {*content.studies} <= {*_studies(run)}
        ]

    @os_errors()
    def begin(self, content: RunContent) -> str:
        """Begin a run and return its id; return an empty string if there is a finished run, which stays."""
        same = list(self._search(content.experiment, f"tags.key = '{content.key}'"))
        if any(run.info.status == FINISHED for run in same):
            return ""
        self._delete(same, content)
        return self._create(content, round(1000 * time.time()), command_line())

    def _create(self, content: RunContent, started: int, command: str) -> str:
        from mlflow.entities import Param  # lazy: slow import

        tags, experiment = self._run_tags(content, command), self.experiment(content.experiment)
        run_id = self.client.create_run(experiment, started, run_name=content.name, tags=tags).info.run_id
        params = [Param(name, value) for name, value in content.parameters.items()]
        self.client.log_batch(run_id, params=params)
        return run_id

    @os_errors()
    def add_points(self, run_id: str, points: Mapping[Point, tuple[float, int]]) -> None:
        """Log points, each with its value and time, in as few calls as MLflow allows."""
        from mlflow.entities import Metric  # lazy: slow import

        metrics = [Metric(name, value, at, step) for (name, step), (value, at) in points.items()]
        for start in range(0, len(metrics), MAX_METRICS_PER_CALL):
            self.client.log_batch(run_id, metrics=metrics[start : start + MAX_METRICS_PER_CALL])

    @os_errors()
    def end(self, run_id: str, status: str) -> None:
        """Mark a run that was begun as killed or failed."""
        self.client.set_terminated(run_id, status)

    def log(self, folder: Path) -> str:
        """Log the run of a folder, with its recorded scores; return MLflow's run id."""
        result = read_result(folder)
        if result is None:
            raise FileNotFoundError(f"{folder / RESULT}: no result to log")
        (recorded,) = as_recorded([result], self.mlruns)
        return self.write(run_content(recorded), run_files(folder))

    @os_errors()
    def write(self, content: RunContent, files: Iterable[Path] = (), command: str = "") -> str:
        """Write a finished run unless there is one of this content; delete others of its key; return its id."""
        same, command = list(self._search(content.experiment, f"tags.key = '{content.key}'")), command or command_line()
        present = next((run for run in same if _is_of(run, content)), None)
        run_id = present.info.run_id if present else self._write_new(content, files, command)
        self._ids[content.experiment, content.key] = run_id
        studies = dict.fromkeys(chain(content.studies, *map(_studies, same)))
        if studies.keys() - (_studies(present) if present else content.studies):
            self.client.set_tag(run_id, "studies", joined(studies))
        self._delete([run for run in same if run is not present], content, run_id)
        return run_id

    def _write_new(self, content: RunContent, files: Iterable[Path], command: str) -> str:
        ended = content.finished or round(1000 * time.time())
        started = ended - round(1000 * content.seconds)
        run_id = self._create(content, started, command)
        for path in files:
            self.client.log_artifact(run_id, str(path))
        self.client.log_text(run_id, command + "\n", "command.txt")
        self.client.log_text(run_id, content.table, SCORES)
        if content.inputs:
            self.client.log_inputs(run_id, list(_inputs(content)))
        self.add_points(run_id, content.timed_points(started))
        self.client.set_terminated(run_id, FINISHED, ended)  # last: only a finished run counts
        return run_id

    def _delete(self, runs: "Iterable[Tracked]", content: RunContent, run_id: str = "") -> None:
        """Delete runs; link their students to the run `run_id` in their place, if there is one."""
        for run in runs:
            old = run.info.run_id
            for child in self._search(content.experiment, f"tags.teachers LIKE '%{old}%'") if run_id else ():
                for name, text in child.data.tags.items():
                    if old in text:
                        self.client.set_tag(child.info.run_id, name, text.replace(old, run_id))
            self.client.delete_run(old)

    @property
    def has_local_database(self) -> bool:
        """Whether runs are logged to the database in the mlruns folder."""
        return self.uri == f"sqlite:///{self.mlruns.resolve() / 'mlflow.db'}"

    @os_errors()
    def write_all(self, contents: Iterable[tuple[RunContent, str]]) -> None:
        """Write runs of one experiment that `missing` returned, each with its command, teachers and bases first."""
        contents = list(contents)
        if not contents or not self.has_local_database:
            for content, command in contents:
                self.write(content, command=command)
            return
        experiment, now = contents[0][0].experiment, round(1000 * time.time())
        earlier, runs = set(self._ids), []
        for content, command in contents:
            run_id = self._ids[experiment, content.key] = uuid4().hex
            tags = self._run_tags(content, command)
            ended = content.finished or now
            runs.append(NewRun(id=run_id, content=content, tags=tags, ended=ended, command=command))
        write_runs(self.uri, self.mlruns.resolve() / "artifacts", self.experiment(experiment), runs)
        for run in runs:
            if (experiment, run.content.key) in earlier:
                self.write(run.content)

    def _run_tags(self, content: RunContent, command: str) -> dict[str, str]:
        experiment = self.experiment(content.experiment)
        ids = {key: run_id for key in content.teachers if (run_id := self._id_of(key, content.experiment))}
        pages = {key: f"#/experiments/{experiment}/runs/{run_id}" for key, run_id in ids.items()}
        tags = {"key": content.key, "content": content.hash, **content.tags, NOTE: run_note(content, pages, command)}
        if ids:
            tags |= {"teachers": " ".join(ids.values()), "mlflow.parentRunId": next(iter(ids.values()))}
        return tags

    def _id_of(self, key: str, experiment: str) -> str:
        """Return the id of MLflow's run of a key; empty if there is none."""
        if (experiment, key) not in self._ids:
            for run in self._search(experiment, f"tags.key = '{key}'"):
                self._ids[experiment, key] = run.info.run_id
        return self._ids.get((experiment, key), "")

    @os_errors()
    def ids(self, keys: Iterable[str], *, own: bool = False) -> list[str]:
        """Return the ids of all runs of these keys, in every experiment, or with `own` only those made by hand."""
        named = {e.experiment_id: scale_of(e.name) for e in self.client.search_experiments()}
        places = [place for place, scale in named.items() if scale and (not own or scale == MANUAL_RUNS)]
        found = (self.client.search_runs(places, f"tags.key = '{key}'") for key in keys) if places else ()
        return [run.info.run_id for runs in found for run in runs]

    @os_errors()
    def keys(self) -> set[str]:
        """Return the keys of all finished runs, also those of no study."""
        scales = [scale for each in self.client.search_experiments() if (scale := scale_of(each.name))]
        return {key for s in scales for key, run in self.runs(s).items() if run.info.status == FINISHED}


def run_files(folder: Path) -> list[Path]:
    """Return the paths in a run's folder that MLflow gets."""
    return [p for p in sorted(folder.iterdir()) if not p.name.startswith(".") and p.suffix not in NOT_LOGGED]


def _is_of(run: "Tracked", content: RunContent) -> bool:
    return run.info.status == FINISHED and run.data.tags.get("content") == content.hash


def _studies(run: "Tracked") -> list[str]:
    return run.data.tags.get("studies", "").split()


def _inputs(content: RunContent) -> "Iterator[DatasetInput]":
    from mlflow.entities import Dataset, DatasetInput, InputTag  # lazy: slow import

    for each in content.inputs:
        data = Dataset(each.name, each.sha256[:MAX_DIGEST], "local", each.source_of_hash)
        yield DatasetInput(data, [InputTag("mlflow.data.context", each.context)])
