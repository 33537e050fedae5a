"""Log runs to MLflow, each once: while it trains, when it ends, or from the record.

Each scale has an MLflow experiment, so that its pages can compare methods. MLflow has copies to look at: nothing is
read from it into the record, and the next sweep logs what it lacks.
"""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from experiments.results.run_result import RESULT, read_result
from experiments.tracking.bulk_log import MAX_DIGEST, NewRun, write_runs
from experiments.tracking.mlflow_database import artifact_folder, make_database, tracking_uri
from experiments.tracking.mlflow_notes import (
    OLD_EXPERIMENT,
    OLD_NOTE,
    command_line,
    experiment_name,
    experiment_note,
    run_note,
    scale_of,
)
from experiments.tracking.run_content import MANUAL_SUFFIX, Point, RunContent, is_curve, run_content
from experiments.tracking.run_differences import FINISHED, holds, lacking

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput
    from mlflow.entities import Run as Tracked

RUNNING = "RUNNING"
KIND = {"mlflow.experimentKind": "custom_model_development"}  # with the default kind, MLflow's pages hide the metrics
NOTE = "mlflow.note.content"
MAX_METRICS_PER_CALL = 1000  # MLflow's limit
NOT_LOGGED = (".part", ".lock")


@contextmanager
def os_errors() -> Generator[None]:
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
        self.mlruns, self.uri = mlruns, tracking_uri(mlruns)
        self._experiments: dict[str, str] = {}  # ids by scale
        self._ids: dict[str, str] = {}  # of MLflow's runs, by our keys

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
            made = self.client.create_experiment(name, artifact_location=location, tags=tags)
        except MlflowException:
            if not (other := self.client.get_experiment_by_name(name)):  # else another driver was first
                raise
            return other.experiment_id
        if old := self.client.get_experiment_by_name(OLD_EXPERIMENT):
            self.client.set_experiment_tag(old.experiment_id, NOTE, OLD_NOTE)
        return made

    @os_errors()
    def runs(self, scale: str) -> "dict[str, Tracked]":
        """Return a scale's runs by key, the earliest finished one of each, else the latest begun."""
        by_key: dict[str, Tracked] = {}
        for run in self._search(scale):
            earlier = by_key.get(run.data.tags.get("key", ""))
            if earlier is None or earlier.info.status != FINISHED:
                by_key[run.data.tags.get("key", "")] = run
        self._ids |= {key: run.info.run_id for key, run in by_key.items()}
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
    def missing(self, results: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the results that are not logged, or not with all of their scores, curves and studies."""
        by_content = [(run_content(result), result) for result in results]
        runs = {scale: self.runs(scale) for scale in {content.scale for content, _ in by_content}}
        return [result for content, result in by_content if not holds(runs[content.scale].get(content.key), content)]

    @os_errors()
    def begin(self, content: RunContent) -> tuple[str, set[Point]]:
        """Return the id of a run that is in progress, begun now or earlier, and the points that it has.

        A finished run that is trained again, for its weights, is left as it is: the id is empty.
        """
        run = self._find(content)
        if run is None:
            return self._create(content, round(1000 * time.time()), command_line()), set()
        if run.info.status == FINISHED:
            return "", set()
        self.client.update_run(run.info.run_id, status=RUNNING)
        self._log_parameters(run, content)
        return run.info.run_id, set(self._points(run))

    def _find(self, content: RunContent) -> "Tracked | None":
        """Return MLflow's run of a key, finished or not; delete others of it that are not finished."""
        same = list(self._search(content.scale, f"tags.key = '{content.key}'"))
        chosen = next((run for run in same if run.info.status == FINISHED), same[-1] if same else None)
        for run in same:
            if run is not chosen and run.info.status != FINISHED:
                self.client.delete_run(run.info.run_id)
        return chosen

    def _create(self, content: RunContent, started: int, command: str) -> str:
        tags = self._run_tags(content, command, {})
        run = self.client.create_run(self.experiment(content.scale), started, run_name=content.name, tags=tags)
        self._log_parameters(run, content)
        self._ids[content.key] = run.info.run_id
        return run.info.run_id

    def _log_parameters(self, run: "Tracked", content: RunContent) -> None:
        """Log parameters if a run has none yet: a driver may be killed before it logs them."""
        from mlflow.entities import Param  # lazy: slow import

        if not run.data.params:
            params = [Param(name, value) for name, value in content.parameters.items()]
            self.client.log_batch(run.info.run_id, params=params)

    @os_errors()
    def add_points(self, run_id: str, points: Mapping[Point, tuple[float, int]]) -> None:
        """Log points of curves, each with its value and time, in as few calls as MLflow allows."""
        from mlflow.entities import Metric  # lazy: slow import

        metrics = [Metric(name, value, at, step) for (name, step), (value, at) in points.items()]
        for start in range(0, len(metrics), MAX_METRICS_PER_CALL):
            self.client.log_batch(run_id, metrics=metrics[start : start + MAX_METRICS_PER_CALL])

    @os_errors()
    def end(self, run_id: str, status: str) -> None:
        """Mark a run that was begun as killed or failed; a later one of its key continues it."""
        self.client.set_terminated(run_id, status)

    @os_errors()
    def log(self, folder: Path) -> str:
        """Log a run's folder, or only what a logged run of its key lacks; return MLflow's run id."""
        result = read_result(folder)
        if result is None:
            raise FileNotFoundError(f"{folder / RESULT}: no result to log")
        content = run_content(result)
        earlier = self._find(content)
        if earlier and holds(earlier, content):
            return earlier.info.run_id
        files = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
        return self.complete(content, earlier, [path for path in files if path.suffix not in NOT_LOGGED])

    @os_errors()
    def complete(
        self, content: RunContent, earlier: "Tracked | None", files: Iterable[Path] = (), command: str = ""
    ) -> str:
        """Log what MLflow's run of this key lacks, or all of a new one; return MLflow's run id.

        MLflow can't delete points: a run that was begun with points that are not among these is logged anew.
        """
        from mlflow.entities import RunTag  # lazy: slow import

        command = command or command_line()
        begun = self._points(earlier) if earlier and earlier.info.status != FINISHED else {}
        if earlier and begun.items() - content.points.items():
            self.client.delete_run(earlier.info.run_id)
            earlier = None
        now = round(1000 * time.time())
        started = earlier.info.start_time if earlier else now - round(1000 * content.seconds)
        run_id = earlier.info.run_id if earlier else self._create(content, started, command)
        for path in files:
            self.client.log_artifact(run_id, str(path))
        self.client.log_text(run_id, command + "\n", "command.txt")
        if content.inputs:
            self.client.log_inputs(run_id, list(_inputs(content)))
        self.add_points(run_id, lacking(earlier, begun, content, started, now))
        if earlier:  # last, so that studies only claim what is logged
            self._log_parameters(earlier, content)
            tags = self._run_tags(content, command, earlier.data.tags)
            self.client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items()])
        if not earlier or earlier.info.status != FINISHED:  # else its duration would end now
            self.client.set_terminated(run_id, FINISHED, now)
        return run_id

    @property
    def has_local_database(self) -> bool:
        """Whether runs are logged to the database in the mlruns folder."""
        return self.uri == f"sqlite:///{self.mlruns.resolve() / 'mlflow.db'}"

    @os_errors()
    def log_new(self, scale: str, contents: Iterable[tuple[RunContent, str]]) -> None:
        """Log finished runs that the local database lacks, each with its command, first those that others need."""
        experiment, now = self.experiment(scale), round(1000 * time.time())
        runs = []
        for content, command in contents:
            started, run_id = now - round(1000 * content.seconds), uuid4().hex
            tags, points = self._run_tags(content, command, {}), lacking(None, {}, content, started, now)
            times = {"started": started, "ended": now}
            runs.append(NewRun(id=run_id, content=content, tags=tags, points=points, command=command, **times))
            self._ids[content.key] = run_id
        write_runs(self.uri, self.mlruns.resolve() / "artifacts", experiment, runs)

    def _points(self, run: "Tracked") -> dict[Point, float]:
        """Return the points of a run's curves; metrics without a slash, and scores, are none."""
        names = [name for name in run.data.metrics if is_curve(name)]
        histories = {name: self.client.get_metric_history(run.info.run_id, name) for name in names}
        return {(name, point.step): point.value for name, history in histories.items() for point in history}

    def _run_tags(self, content: RunContent, command: str, earlier: Mapping[str, str]) -> dict[str, str]:
        studies = dict.fromkeys([*earlier.get("studies", "").split(), *content.tags["studies"].split()])
        ids = {key: run_id for key in content.teachers if (run_id := self._id_of(key, content.scale))}
        pages = {key: f"#/experiments/{self.experiment(content.scale)}/runs/{run_id}" for key, run_id in ids.items()}
        tags = (
            {"key": content.key}
            | dict(content.tags)
            | {"studies": " ".join(studies), NOTE: run_note(content, pages, command)}
        )
        return tags | ({"teachers": " ".join(ids.values())} if ids else {})

    def _id_of(self, key: str, scale: str) -> str:
        """Return the id of MLflow's run of a key; empty if there is none."""
        if key not in self._ids:
            for run in self._search(scale, f"tags.key = '{key}'"):
                self._ids[key] = run.info.run_id
        return self._ids.get(key, "")

    @os_errors()
    def ids(self, keys: Iterable[str], *, own: bool = False) -> list[str]:
        """Return the ids of all runs of these keys, at every scale, also those made by hand; with `own`, only those."""
        experiments = self.client.search_experiments()
        places = [e.experiment_id for e in experiments if scale_of(e.name) or e.name == OLD_EXPERIMENT]
        wheres = [f"tags.key = '{name}'" for key in keys for name in (key, key + MANUAL_SUFFIX)[own:]]
        runs = [run for where in wheres for run in self.client.search_runs(places, where)] if places else []
        return [run.info.run_id for run in runs]

    @os_errors()
    def keys(self) -> set[str]:
        """Return the keys of all finished runs, also those of no study."""
        scales = [scale for each in self.client.search_experiments() if (scale := scale_of(each.name))]
        runs = (run for scale in scales for run in self.runs(scale).values() if run.info.status == FINISHED)
        return {run.data.tags["key"].removesuffix(MANUAL_SUFFIX) for run in runs}

    @os_errors()
    def compare_page(self, scale: str, keys: Iterable[str], address: str = "http://127.0.0.1:5000") -> str:
        """Return the address of MLflow's page that compares these runs, on a local server."""
        runs = self.runs(scale)
        ids = ",".join(f'"{runs[key].info.run_id}"' for key in keys if key in runs)
        return f'{address}/#/compare-runs?runs=[{ids}]&experiments=["{self.experiment(scale)}"]'.replace('"', "%22")


def _inputs(content: RunContent) -> "Iterator[DatasetInput]":
    from mlflow.entities import Dataset, DatasetInput, InputTag  # lazy: slow import

    for each in content.inputs:
        data = Dataset(each.name, each.sha256[:MAX_DIGEST], "local", each.source_of_hash)
        yield DatasetInput(data, [InputTag("mlflow.data.context", each.context)])
