"""Execute one job: train the run if needed, score its checkpoints, and write everything to the run's folder.

`result.json` in store/<key> is written atomically after training and scoring. The record and MLflow are filled from it,
if needed by a later sweep.
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from cse_core.data import own_pairs
from cse_core.data.atomic_write import atomic_write, full_disk_named
from cse_core.evaluation import suite
from cse_core.models.embedding_cache import CachedEncoder, Progress
from cse_core.run import Pretrained, Run
from cse_core.training.loop import Execution
from cse_core.training.named_inputs import check_named_inputs
from cse_core.training.process_memory import return_freed_memory
from cse_core.training.run_state import HISTORY, STATE, History, load_history, read_json
from cse_core.training.teacher_embeddings import content_of_finished, load_finished
from cse_core.training.train import OnStep, train
from experiments.results.provenance import UNKNOWN, environment
from experiments.results.run_arrays import discard_arrays, save_arrays
from experiments.results.run_card import write_card
from experiments.results.run_result import RESULT
from experiments.results.stored_scores import Inputs, Scoring, Stored, read_stored, still_valid, tasks_to_score
from experiments.schema.study import pretrained_key, setting_of
from experiments.schema.teachers import teachers_of
from experiments.storage.retries import SHARE_SECONDS

ENVIRONMENT = "environment.json"
logger = logging.getLogger(__name__)


class FailedTasksError(ValueError):
    """Errors of the tasks that failed, by name; `result` has the scores of the others, as in the run's folder."""

    def __init__(self, failed: Mapping[str, str], result: dict[str, Any]) -> None:
        super().__init__(failed, result)  # unchanged: a worker's error is pickled on its way to the driver
        self.failed, self.result = failed, result

    def __str__(self) -> str:
        return "; ".join(self.failed.values())


@dataclass(frozen=True)
class Job:
    """A run, or an untrained encoder, with all scorings of it that the chosen studies need."""

    encoder: Run | Pretrained
    scale: str
    label: str
    scorings: tuple[Scoring, ...] = ()
    studies: tuple[str, ...] = ()
    file: str = ""  # of the user's own study
    keeps_weights: bool = True  # otherwise its checkpoints are deleted after scoring

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
class ExecutionSettings(Execution):
    """Settings of training and scoring that change no result.

    `threads` are torch's. With `cache`, embeddings are saved on disk and reused by later processes. `shared` is the
    URL of storage that all machines reach (shared_job.py); a run uploads its state there every `share_seconds`.
    `pair_files` are the user's own evaluation sets with their columns (own_pairs.add), which each process has to read.
    """

    threads: int = 1
    cache: bool = False
    shared: str = ""
    share_seconds: float = SHARE_SECONDS
    pair_files: tuple[tuple[Path, tuple[str, ...]], ...] = ()


def execute(
    job: Job,
    execution: ExecutionSettings,
    *,
    on_step: OnStep | None = None,
    progress: Progress | None = None,
    again: bool = False,
) -> dict[str, Any]:
    """Train and score what is missing in the run's folder; return the content of its result.json.

    Stored scores of other data, weights or code are made again, with a warning that says why. With `again`, so are
    all others of the job. `progress` is called while examples and teachers' vectors are made, and while sentences
    are embedded.
    """
    execution.store.mkdir(parents=True, exist_ok=True)
    # A worker that outlives its killed driver may still work on this run; the lock is free when that worker ends.
    with full_disk_named(execution.store / job.key), FileLock(execution.store / f"{job.key}.lock"):
        try:
            return _execute(job, execution, on_step, progress, again)
        finally:
            return_freed_memory()


def _execute(
    job: Job, execution: ExecutionSettings, on_step: OnStep | None, progress: Progress | None, again: bool
) -> dict[str, Any]:
    torch.set_num_threads(execution.threads)
    for path, columns in execution.pair_files:
        own_pairs.add(path, columns)
    folder = execution.store / job.key
    done = read_stored(folder)
    if not job.keeps_weights and not again and _has_all_scores(job, done, execution):
        # Another command may have deleted the weights, which are not needed.
        done["studies"] = list(dict.fromkeys([*done.get("studies", []), *job.studies]))
        atomic_write(folder / RESULT, json.dumps(done, indent=1, allow_nan=False))
        return done
    history = _train(job, execution, on_step, progress)
    started = time.monotonic()
    inputs, valid = _valid_part(job, done, history, execution)
    for change in valid.changes:
        logger.warning("run %s: %s", job.key, change)
    discard_arrays(folder, valid.gone)
    cells = list((valid.without(job.scorings) if again else valid).cells)
    warnings = {*history.warnings, *done.get("warnings", [])}
    history.data |= {**valid.data, **inputs.data}
    failures: dict[str, str] = {}
    for scoring in job.scorings:
        new = _score(job, scoring, history, execution, progress, tasks_to_score(scoring, cells, folder))
        cells += new.cells
        history.data |= new.files
        warnings.update(new.warnings)
        failures |= new.failures
    result = _description(job, history, execution) | {
        "studies": list(dict.fromkeys([*done.get("studies", []), *job.studies])),
        "cells": cells,
        "code": done.get("code", {}) | inputs.code,
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


def _has_all_scores(job: Job, done: Mapping[str, Any], execution: ExecutionSettings) -> bool:
    """Whether a stored result has all that the job asks for, so that its weights are not needed."""
    folder = execution.store / job.key
    history = load_history(folder)
    if not history or not {*job.rules} <= history.kept.keys() or done.get("scale") != job.scale:
        return False
    _, valid = _valid_part(job, done, history, execution)
    return not valid.changes and not any(tasks_to_score(each, valid.cells, folder) for each in job.scorings)


def _valid_part(
    job: Job, done: Mapping[str, Any], history: History, execution: ExecutionSettings
) -> tuple[Inputs, Stored]:
    """Return what the job's scores depend on now, and the part of a stored result that would be the same now."""
    inputs = Inputs.of(job.scorings, {rule: kept.weights for rule, kept in history.kept.items()}, execution.data)
    return inputs, still_valid(done, job.scorings, inputs)


def _train(job: Job, execution: ExecutionSettings, on_step: OnStep | None, progress: Progress | None) -> History:
    by = f"run {job.key} ({job.name})"
    check_named_inputs(tuple(scoring.scorer for scoring in job.scorings), execution.store, execution.data, by)
    if isinstance(job.encoder, Pretrained):
        check_named_inputs(job.encoder, execution.store, execution.data, by)
        return History(steps=0)
    _remember_environment(job.encoder, execution)
    earlier = load_history(execution.store / job.key)
    history = train(job.encoder, execution, rules=job.rules, on_step=on_step, progress=progress)
    if earlier and history.kept != earlier.kept:  # trained again, with other weights
        _write_environment(job.encoder, execution)
    return history


def _remember_environment(run: Run, execution: ExecutionSettings) -> None:
    """Save the environment in which a run is trained, before it starts: other code may add scores much later."""
    folder = execution.store / run.key
    if not any((folder / name).is_file() for name in (STATE, HISTORY)):
        _write_environment(run, execution)
    saved = read_json(folder / ENVIRONMENT) or {}
    before = saved.get("threads", str(execution.threads))
    if before != str(execution.threads) and execution.device == "cpu":
        text = "run %s: trained so far with threads=%s, now %d: the last bits of its weights depend on it"
        logger.warning(text, run.key, before, execution.threads)
    now = _environment(execution)["compiled"]
    if saved.get("compiled", now) != now and (folder / STATE).is_file():
        atomic_write(folder / ENVIRONMENT, json.dumps(saved | {"compiled": "in part"}))
        logger.warning(
            "run %s: trained so far with compiled=%s, now %s: dropout differs", run.key, saved["compiled"], now
        )


def _write_environment(run: Run, execution: ExecutionSettings) -> None:
    path = execution.store / run.key / ENVIRONMENT
    atomic_write(path, json.dumps(_environment(execution)))


def _environment(execution: ExecutionSettings) -> dict[str, str]:
    return environment(execution.device, execution.threads, compiled=execution.compiled)


def _trained_with(folder: Path, present: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment in which a run was trained; "unknown" values if a trained run has no file of it."""
    saved = read_json(folder / ENVIRONMENT)
    if saved and saved.keys() >= {"commit", "dirty", "device"}:
        return saved
    if not (folder / HISTORY).is_file():  # an encoder that was not trained here
        return present
    logger.warning("%s: missing or damaged; what the run was trained with is recorded as unknown", folder / ENVIRONMENT)
    return dict.fromkeys(present, UNKNOWN) | {"dirty": "false"}


@dataclass(frozen=True)
class _Scored:
    """New cells of one scoring, the hashes of the data files that were read, warnings, why tasks failed."""

    cells: Sequence[Mapping[str, Any]] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


def _score(
    job: Job,
    scoring: Scoring,
    history: History,
    execution: ExecutionSettings,
    progress: Progress | None,
    tasks: Sequence[str],
) -> _Scored:
    """Score tasks on the scoring's checkpoint; save their arrays in the run's folder."""
    if not tasks:
        return _Scored()
    scorer, select = str(scoring.scorer), scoring.select
    encoder = load_encoder(job.encoder, select, execution)
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


def load_encoder(encoder: Run | Pretrained, select: str, execution: ExecutionSettings) -> CachedEncoder:
    """Load a run's checkpoint, a pre-trained encoder or word vectors, with a cache of embeddings."""
    finished, content = load_finished(execution.store, encoder, select, execution.device), ""
    if execution.cache:
        content = f"{content_of_finished(execution.store, encoder, select)} {execution.device} {execution.threads}"
    return CachedEncoder(finished, content)


def _description(job: Job, history: History, execution: ExecutionSettings) -> dict[str, Any]:
    return describe(job) | {
        "curves": history.curves,
        "kept": {rule: asdict(kept) for rule, kept in history.kept.items()},
        "skipped_steps": history.skipped,
        "data": history.data,
        "environment": _trained_with(execution.store / job.key, _environment(execution)),
    }


def changed_settings(run: Run | Pretrained) -> str:
    """Return the settings of a run that differ from their defaults, without its backbone, corpus and teachers."""
    changed = run.non_defaults() if isinstance(run, Run) else {}
    shown = [name for name in changed if name not in ("backbone", "corpus") and "teachers" not in name]
    return " ".join(f"{name}={changed[name]}" for name in shown)


def describe(job: Job) -> dict[str, Any]:
    """Return the part of a result that is known before the run: its names and settings, no scores and no curves."""
    run = job.encoder
    settings = run.settings() if isinstance(run, Run) else {"method": "none", "backbone": run.name}
    return {
        "key": job.key,
        "scale": job.scale,
        "file": job.file,
        "name": job.name,
        "label": job.label,
        "method": settings["method"],
        "backbone": settings["backbone"],
        "seed": settings.get("seed", 0),
        "setting": setting_of(run),
        "settings": changed_settings(run),
        "teachers": teachers_of(run),
        "parameters": settings,
        "eval_steps": job.eval_steps,
        **{"studies": list(job.studies), "cells": [], "curves": {}, "kept": {}, "warnings": [], "data": {}},
        **{"environment": {}, "seconds": 0.0, "scoring_seconds": 0.0},
    }
