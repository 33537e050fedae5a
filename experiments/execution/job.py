"""Do one job: train a run if need be, score its checkpoints, and write everything to the run's folder.

`result.json` in store/<key> is written atomically after training and scoring. The record and MLflow take their lines
from it, if need be in a later sweep.
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from cse_core.data.atomic_write import atomic_write, full_disk_named
from cse_core.data.corpora import enforce_corpus_pin
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Scorer
from cse_core.models.embedding_cache import CachedEncoder, Progress
from cse_core.models.encoder import Encoder
from cse_core.run import Pretrained, Run
from cse_core.training.process_memory import return_freed_memory
from cse_core.training.run_state import HISTORY, STATE, History, read_json
from cse_core.training.teacher_embeddings import content_of_finished, load_finished
from cse_core.training.train import OnStep, train
from experiments.results.provenance import UNKNOWN, environment
from experiments.results.run_arrays import discard_damaged, save_arrays
from experiments.results.run_card import write_card
from experiments.results.run_result import RESULT, read_result
from experiments.schema.study import pretrained_key, setting_of
from experiments.schema.teachers import teachers_of
from experiments.storage.retries import SHARE_SECONDS

ENVIRONMENT = "environment.json"
logger = logging.getLogger(__name__)


class FailedTasksError(ValueError):
    """Errors of tasks that failed, by name; `result` has the scores of the others, as written to the run's folder."""

    def __init__(self, failed: Mapping[str, str], result: dict[str, Any]) -> None:
        super().__init__(failed, result)  # unchanged: a worker's error is pickled on its way to the driver
        self.failed, self.result = failed, result

    def __str__(self) -> str:
        return "; ".join(self.failed.values())


@dataclass(frozen=True)
class Scoring:
    """Tasks to score on one saved checkpoint with one scorer."""

    select: str
    scorer: Scorer
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """A run, or an untrained encoder, with every scoring that the chosen studies need of it."""

    encoder: Run | Pretrained
    scale: str
    label: str
    scorings: tuple[Scoring, ...] = ()
    studies: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.encoder.key if isinstance(self.encoder, Run) else pretrained_key(self.encoder)

    @property
    def rules(self) -> tuple[str, ...]:
        """The selection rules of the checkpoints to save."""
        return tuple(dict.fromkeys(scoring.select for scoring in self.scorings)) or ("last",)

    @property
    def eval_steps(self) -> int:
        """The number of steps between evaluations; 1 if nothing is trained."""
        return self.encoder.eval_steps if isinstance(self.encoder, Run) else 1

    @property
    def name(self) -> str:
        """The name shown to people: the row's label and the seed."""
        return f"{self.label} s{self.encoder.seed}" if isinstance(self.encoder, Run) else self.label


@dataclass(frozen=True)
class ExecutionSettings:
    """Settings that no result depends on: the store of run folders, the data folder, the device, torch's threads.

    With `cache`, embeddings are saved on disk and reused by later processes; `compiled` as in train. `shared` is the
    URL of storage that all machines reach (shared_job.py); a run uploads its state there every `share_seconds`.
    """

    store: Path
    data: Path | None = None
    device: str = "cpu"
    threads: int = 1
    save_seconds: float = 30.0
    cache: bool = False
    compiled: bool = False
    shared: str = ""
    share_seconds: float = SHARE_SECONDS


def execute(
    job: Job,
    execution: ExecutionSettings,
    *,
    on_step: OnStep | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train and score what is missing in the run's folder; return the content of its result.json.

    `progress` is called while examples and teachers' vectors are made, and while sentences are embedded to be scored.
    """
    execution.store.mkdir(parents=True, exist_ok=True)
    # A worker that outlives its killed driver may still work on this run; the lock is free when that worker ends.
    with full_disk_named(execution.store / job.key), FileLock(execution.store / f"{job.key}.lock"):
        try:
            return _execute(job, execution, on_step, progress)
        finally:
            return_freed_memory()


def _execute(
    job: Job, execution: ExecutionSettings, on_step: OnStep | None, progress: Progress | None
) -> dict[str, Any]:
    torch.set_num_threads(execution.threads)
    folder = execution.store / job.key
    done = read_result(folder) or {"cells": []}
    history = _train(job, execution, on_step, progress)
    started = time.monotonic()
    cells, warnings = list(done["cells"]), {*history.warnings, *done.get("warnings", [])}
    history.data = done.get("data", {}) | history.data
    failures: dict[str, str] = {}
    for scoring in job.scorings:
        new = _score(job, scoring, history, execution, progress, _tasks_to_score(job, scoring, execution, cells))
        cells += new.cells
        history.data |= new.files
        warnings.update(new.warnings)
        failures |= new.failures
    result = _description(job, history, execution) | {
        "studies": list(dict.fromkeys([*done.get("studies", []), *job.studies])),
        "cells": cells,
        "warnings": sorted(warnings),
        "seconds": round(history.seconds, 3),
        "scoring_seconds": round(time.monotonic() - started, 3),
        "finished": done.get("finished", datetime.now(UTC).isoformat(timespec="seconds")),
    }
    folder.mkdir(parents=True, exist_ok=True)
    if history.kept and cells != done["cells"]:
        write_card(result, folder, next(iter(job.rules)))
    atomic_write(folder / RESULT, json.dumps(result, indent=1, allow_nan=False))
    if failures:
        raise FailedTasksError(failures, result)
    return result


def _train(job: Job, execution: ExecutionSettings, on_step: OnStep | None, progress: Progress | None) -> History:
    if isinstance(job.encoder, Pretrained):
        return History(steps=0)
    _remember_environment(job.encoder, execution)
    return train(
        job.encoder,
        execution.store,
        data=execution.data,
        rules=job.rules,
        device=execution.device,
        compiled=execution.compiled,
        save_seconds=execution.save_seconds,
        on_step=on_step,
        progress=progress,
    )


def _remember_environment(run: Run, execution: ExecutionSettings) -> None:
    """Write down what a run is trained with before it starts; its scores may be added much later, by other code."""
    folder = execution.store / run.key
    if not any((folder / name).is_file() for name in (STATE, HISTORY)):
        atomic_write(folder / ENVIRONMENT, json.dumps(environment(execution.device, execution.threads)))


def _trained_with(folder: Path, present: Mapping[str, str]) -> Mapping[str, str]:
    """Return what a run was trained with; "unknown" values if it was trained before and its file is missing."""
    saved = read_json(folder / ENVIRONMENT)
    if saved and saved.keys() >= {"commit", "dirty", "device"}:
        return saved
    if not (folder / HISTORY).is_file():  # an encoder that was not trained here
        return present
    logger.warning("%s: missing or damaged; what the run was trained with is recorded as unknown", folder / ENVIRONMENT)
    return dict.fromkeys(present, UNKNOWN) | {"dirty": "false"}


@dataclass(frozen=True)
class _Scored:
    """New cells of one scoring, the hashes of the data files that they came from, warnings, why tasks failed."""

    cells: Sequence[Mapping[str, Any]] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


def _tasks_to_score(
    job: Job, scoring: Scoring, execution: ExecutionSettings, cells: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the tasks of a scoring that are not among the cells, and those whose arrays are damaged."""
    scorer, select = str(scoring.scorer), scoring.select
    done = _complete_tasks([cell for cell in cells if (cell["select"], cell["scorer"]) == (select, scorer)])
    again = discard_damaged(execution.store / job.key, select, scorer, done)
    return [task for task in dict.fromkeys((*scoring.tasks, *again)) if task not in done or task in again]


def _score(
    job: Job,
    scoring: Scoring,
    history: History,
    execution: ExecutionSettings,
    progress: Progress | None,
    tasks: Sequence[str],
) -> _Scored:
    """Score tasks on the scoring's checkpoint; save arrays beside it."""
    if not tasks:
        return _Scored()
    scorer, select = str(scoring.scorer), scoring.select
    encoder = load_encoder(job.encoder, select, execution)
    enforce_corpus_pin(
        getattr(scoring.scorer, "corpus", None), execution.store, execution.data, f"run {job.key}, scored by {scorer}"
    )
    evaluated = suite.evaluate(encoder, scoring.scorer, tasks, data=execution.data, progress=progress)
    checkpoint = history.kept.get(select)
    cells: list[dict[str, Any]] = []
    for name, outcome in evaluated.outcomes.items():
        about = {"select": select, "scorer": scorer, "task": name, "pairs": outcome.rows}
        about |= {"step": checkpoint.step if checkpoint else 0, "version": suite.version(name)}
        cells += [about | {"metric": metric, "score": score} for metric, score in outcome.metrics.items()]
        save_arrays(execution.store / job.key, select, scorer, name, outcome.arrays)
    warnings = [w for dataset in evaluated.datasets.values() for w in dataset.warnings]
    warnings += [w for outcome in evaluated.outcomes.values() for w in outcome.warnings]
    files = {name: sha for dataset in evaluated.datasets.values() for name, sha in dataset.files.items()}
    return _Scored(cells, files, warnings, evaluated.failures)


def _complete_tasks(cells: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the tasks that are scored with all of their metrics, among the cells of one scorer and checkpoint."""
    metrics_of: dict[tuple[str, int], set[str]] = {}
    for cell in cells:
        metrics_of.setdefault((cell["task"], cell["version"]), set()).add(cell["metric"])
    return {task for (task, version), metrics in metrics_of.items() if suite.complete(task, version, metrics)}


def load_encoder(encoder: Run | Pretrained, select: str, execution: ExecutionSettings) -> CachedEncoder:
    """Load a run's checkpoint, a pre-trained encoder or word vectors, with a cache of embeddings."""
    finished = load_finished(execution.store, encoder, select)
    content = f"{content_of_finished(execution.store, encoder, select)} {execution.device}" if execution.cache else ""
    if isinstance(finished, Encoder):
        return CachedEncoder(finished.to(execution.device), content)
    return CachedEncoder(finished, content)


def _description(job: Job, history: History, execution: ExecutionSettings) -> dict[str, Any]:
    return describe(job) | {
        "curves": history.curves,
        "kept": {rule: {"step": kept.step, "score": kept.score} for rule, kept in history.kept.items()},
        "skipped_steps": history.skipped,
        "data": history.data,
        "environment": _trained_with(execution.store / job.key, environment(execution.device, execution.threads)),
    }


def describe(job: Job) -> dict[str, Any]:
    """Return the part of a result that is known before the run: its names and settings, no scores and no curves."""
    run = job.encoder
    settings = run.settings() if isinstance(run, Run) else {"method": "none", "backbone": run.name}
    changed = run.non_defaults() if isinstance(run, Run) else {}
    shown = [name for name in changed if name not in ("backbone", "corpus") and "teachers" not in name]
    return {
        "key": job.key,
        "scale": job.scale,
        "name": job.name,
        "label": job.label,
        "method": settings["method"],
        "backbone": settings["backbone"],
        "seed": settings.get("seed", 0),
        "setting": setting_of(run),
        "settings": " ".join(f"{name}={changed[name]}" for name in shown),
        "teachers": teachers_of(run),
        "parameters": settings,
        "eval_steps": job.eval_steps,
        **{"studies": list(job.studies), "cells": [], "curves": {}, "kept": {}, "warnings": [], "data": {}},
        **{"environment": {}, "seconds": 0.0, "scoring_seconds": 0.0},
    }
