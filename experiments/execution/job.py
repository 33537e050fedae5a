"""One job: train a run if need be, score its checkpoints, and leave everything in the run's folder.

`result.json` in store/<key> is the handover: written atomically after training and scoring, read by whoever tracks it.
A driver that dies between the two finds it again.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from cse_core.data.atomic_write import atomic_write
from cse_core.data.corpora import enforce_corpus_pin
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Scorer
from cse_core.models.embedding_cache import CachedEncoder, Progress
from cse_core.models.encoder import Encoder
from cse_core.run import Pretrained, Run
from cse_core.training.run_state import HISTORY, STATE, History, read_json
from cse_core.training.teacher_embeddings import content_of_finished, load_finished
from cse_core.training.train import train
from experiments.results.provenance import environment
from experiments.results.run_arrays import discard_damaged, save_arrays
from experiments.results.run_result import RESULT, read_result
from experiments.schema.study import pretrained_key
from experiments.schema.teachers import teachers_of

ENVIRONMENT, UNKNOWN = "environment.json", "unknown"
logger = logging.getLogger(__name__)
AS_IS = "as is"  # the `select` of an encoder that was not trained here


class FailedTasksError(ValueError):
    """Some tasks failed, by name; `result` has what the others found, as the run's folder has it."""

    def __init__(self, failed: Mapping[str, str], result: dict[str, Any]) -> None:
        super().__init__(failed, result)  # as given: a worker's error is pickled on its way to the driver
        self.failed, self.result = failed, result

    def __str__(self) -> str:
        return "; ".join(self.failed.values())


@dataclass(frozen=True)
class Scoring:
    """Tasks to be scored on one kept checkpoint by one scorer."""

    select: str
    scorer: Scorer
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """A run, or an encoder as it is, with everything that the chosen studies want scored on it."""

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
        """The checkpoints that are kept, by selection rule."""
        return tuple(dict.fromkeys(scoring.select for scoring in self.scorings)) or ("last",)

    @property
    def name(self) -> str:
        """For people: the row's name and the seed."""
        return f"{self.label} s{self.encoder.seed}" if isinstance(self.encoder, Run) else self.label


@dataclass(frozen=True)
class ExecutionSettings:
    """Where a job works: the store of run folders, the data folder, the device, torch's threads.

    With `cache`, embeddings are kept on disk and found again by later processes; `compiled` as in train; `shared` is a
    URL that other machines reach (shared_job.py), to which a run brings its state every `share_seconds`.
    """

    store: Path
    data: Path | None = None
    device: str = "cpu"
    threads: int = 1
    save_seconds: float = 30.0
    cache: bool = False
    compiled: bool = False
    shared: str = ""
    share_seconds: float = 600.0  # a state of BERT-large is five gigabytes


def execute(
    job: Job,
    place: ExecutionSettings,
    *,
    on_step: Callable[[int, History], object] | None = None,
    on_score: Progress | None = None,
) -> dict[str, Any]:
    """Train and score what is missing in the run's folder; returns the content of its result.json."""
    place.store.mkdir(parents=True, exist_ok=True)
    # A worker that outlives its killed driver may still be at this run; it ends soon, and the lock goes with it.
    with FileLock(place.store / f"{job.key}.lock"):
        return _execute(job, place, on_step, on_score)


def _execute(
    job: Job, place: ExecutionSettings, on_step: Callable[[int, History], object] | None, on_score: Progress | None
) -> dict[str, Any]:
    torch.set_num_threads(place.threads)
    started = time.monotonic()
    folder = place.store / job.key
    done = read_result(folder) or {"cells": []}
    history = _train(job, place, on_step)
    cells, warnings = list(done["cells"]), {*history.warnings, *done.get("warnings", [])}
    history.data = done.get("data", {}) | history.data
    failures: dict[str, str] = {}
    for scoring in job.scorings:
        new = _score(job, scoring, history, place, on_score, _tasks_to_score(job, scoring, place, cells))
        cells += new.cells
        history.data |= new.files
        warnings.update(new.warnings)
        failures |= new.failures
    result = _described(job, history, place) | {
        "studies": list(dict.fromkeys([*done.get("studies", []), *job.studies])),
        "cells": cells,
        "warnings": sorted(warnings),
        "seconds": round(history.seconds, 3),
        "scoring_seconds": round(time.monotonic() - started, 3),
        "finished": done.get("finished", datetime.now(UTC).isoformat(timespec="seconds")),
    }
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / RESULT, json.dumps(result, indent=1, allow_nan=False))
    if failures:
        raise FailedTasksError(failures, result)
    return result


def _train(job: Job, place: ExecutionSettings, on_step: Callable[[int, History], object] | None) -> History:
    if isinstance(job.encoder, Pretrained):
        return History(steps=0)
    _remember_environment(job.encoder, place)
    return train(
        job.encoder,
        place.store,
        data=place.data,
        rules=job.rules,
        device=place.device,
        compiled=place.compiled,
        save_seconds=place.save_seconds,
        on_step=on_step,
    )


def _remember_environment(run: Run, place: ExecutionSettings) -> None:
    """What a run was trained with, written as it starts: scores may be added much later by other code."""
    folder = place.store / run.key
    if not any((folder / name).is_file() for name in (STATE, HISTORY)):
        atomic_write(folder / ENVIRONMENT, json.dumps(environment(place.device, place.threads)))


def _trained_with(folder: Path, present: Mapping[str, str]) -> Mapping[str, str]:
    """Return what a run was trained with: not the present environment, where weights are there and its file is not."""
    known = read_json(folder / ENVIRONMENT)
    if known and known.keys() >= {"commit", "dirty", "device"}:
        return known
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
    job: Job, scoring: Scoring, place: ExecutionSettings, cells: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the tasks of a scoring that are not among the cells, and those whose arrays are damaged."""
    scorer, select = str(scoring.scorer), scoring.select
    done = _done([cell for cell in cells if (cell["select"], cell["scorer"]) == (select, scorer)])
    again = discard_damaged(place.store / job.key, select, scorer, done)
    return [task for task in dict.fromkeys((*scoring.tasks, *again)) if task not in done or task in again]


def _score(
    job: Job,
    scoring: Scoring,
    history: History,
    place: ExecutionSettings,
    on_score: Progress | None,
    tasks: Sequence[str],
) -> _Scored:
    """Score tasks on the scoring's checkpoint; arrays go beside it."""
    if not tasks:
        return _Scored()
    scorer, select = str(scoring.scorer), scoring.select
    encoder = load_encoder(job.encoder, select, place)
    enforce_corpus_pin(
        getattr(scoring.scorer, "corpus", None), place.store, place.data, f"run {job.key}, scored by {scorer}"
    )
    found = suite.evaluate(encoder, scoring.scorer, tasks, data=place.data, progress=on_score)
    kept = history.kept.get(select)
    cells: list[dict[str, Any]] = []
    for name, outcome in found.outcomes.items():
        about = {"select": select, "scorer": scorer, "task": name, "pairs": outcome.rows}
        about |= {"step": kept.step if kept else 0, "version": suite.version(name)}
        cells += [about | {"metric": metric, "score": score} for metric, score in outcome.metrics.items()]
        save_arrays(place.store / job.key, select, scorer, name, outcome.arrays)
    warnings = [w for dataset in found.datasets.values() for w in dataset.warnings]
    warnings += [w for outcome in found.outcomes.values() for w in outcome.warnings]
    files = {name: sha for dataset in found.datasets.values() for name, sha in dataset.files.items()}
    return _Scored(cells, files, warnings, found.failures)


def _done(cells: Sequence[Mapping[str, Any]]) -> set[str]:
    """Tasks that one scorer has scored on one checkpoint in full."""
    have: dict[tuple[str, int], set[str]] = {}
    for cell in cells:
        have.setdefault((cell["task"], cell["version"]), set()).add(cell["metric"])
    return {task for (task, version), metrics in have.items() if suite.complete(task, version, metrics)}


def load_encoder(encoder: Run | Pretrained, select: str, place: ExecutionSettings) -> CachedEncoder:
    """A run's kept checkpoint, a pre-trained encoder or word vectors, ready to embed each sentence once."""
    finished = load_finished(place.store, encoder, select)
    content = f"{content_of_finished(place.store, encoder, select)} {place.device}" if place.cache else ""
    if isinstance(finished, Encoder):
        return CachedEncoder(finished.to(place.device), content)
    return CachedEncoder(finished, content)


def _described(job: Job, history: History, place: ExecutionSettings) -> dict[str, Any]:
    run = job.encoder
    settings = run.settings() if isinstance(run, Run) else {"method": "none", "backbone": run.name}
    changed = run.non_defaults() if isinstance(run, Run) else {}
    told = [name for name in changed if name not in ("backbone", "corpus") and "teachers" not in name]
    return {
        "key": job.key,
        "scale": job.scale,
        "name": job.name,
        "label": job.label,
        "method": settings["method"],
        "backbone": settings["backbone"],
        "seed": settings.get("seed", 0),
        "settings": " ".join(f"{name}={changed[name]}" for name in told),
        "teachers": teachers_of(run),
        "parameters": settings,
        "curves": history.curves,
        "kept": {rule: {"step": kept.step, "score": kept.score} for rule, kept in history.kept.items()},
        "skipped_steps": history.skipped,
        "eval_steps": run.eval_steps if isinstance(run, Run) else 0,
        "data": history.data,
        "environment": _trained_with(place.store / job.key, environment(place.device, place.threads)),
    }
