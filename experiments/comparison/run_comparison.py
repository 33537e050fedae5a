"""Run a comparison's stages, one after the other, as sweeps; resume from the record."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cse_core.evaluation import suite
from cse_core.training.loop import DivergedError
from experiments.cli.console import console
from experiments.comparison.comparison import STAGES, Comparison, Entrant, Scores, Trial
from experiments.comparison.recorded import read_scores, record_trials
from experiments.execution.job import ExecutionSettings, FailedTasksError
from experiments.execution.plan import Plan, make_plan, scored_cells
from experiments.execution.ray_sweep import RayConfig, run_plan
from experiments.execution.sweep_setup import check_room, require_inputs
from experiments.tracking.mlflow_log import Tracker

if TYPE_CHECKING:
    import pandas as pd


def run_comparison(
    comparison: Comparison,
    execution: ExecutionSettings,
    cluster: RayConfig,
    tracker: Tracker,
    entrants: Sequence[Entrant] = (),
) -> tuple[dict[str, str], bool]:
    """Run what is not recorded yet of all or some entrants.

    Return the reasons of failures by key, and whether it ran to the end.

    A run that diverges, or whose dev score is undefined, is a result: it is recorded as failed, and can't win. After
    one that fails for another reason, or whose teacher or base fails, its method waits, and the same command tries it
    again: the winner may depend on it, and no test score is read before. After a failure of the machine (its disk, its
    memory, its network, a lost worker) the comparison stops.
    """
    failed: dict[str, str] = {}
    left = list(entrants or comparison.entrants)
    if waiting := not_ready(comparison, left, tracker.mlruns):
        for name, reason in waiting.items():
            console.print(f"not run: {name}: {reason}", style="yellow", highlight=False)
        left = [each for each in left if each.name not in waiting]
    for number, stage in enumerate(STAGES, 1):
        while left:
            results, scores = read_scores(comparison, tracker.mlruns, failed)
            trials = comparison.stage(stage, scores, left)
            record_trials(comparison, trials, scores, set(), tracker.mlruns)  # those of a command that was killed
            work = _left(comparison, stage, [t for t in trials if t.run.key not in scores.failed], results, execution)
            if not work.pending:
                break
            _say_stage(number, stage, trials, scores)
            reasons, ended = _run(work, results, execution, cluster, tracker)
            failed |= reasons
            scores = read_scores(comparison, tracker.mlruns, failed)[1]
            for_good = {key for key, reason in failed.items() if _is_result(reason)}
            record_trials(comparison, trials, scores, for_good, tracker.mlruns)
            if not ended or any(map(is_of_machine, reasons.values())):
                return failed, False
            unclear = failed.keys() - {trial.run.key for trial in trials if trial.run.key in for_good}
            unclear_of = {t.entrant.name for t in trials if unclear & {t.run.key, *_needed(t)}}
            left = [each for each in left if each.name not in unclear_of]
    return failed, True


def not_ready(comparison: Comparison, entrants: Sequence[Entrant], mlruns: Path) -> dict[str, str]:
    """Return why methods can't be drawn yet, by name."""
    scores, baseline = read_scores(comparison, mlruns)[1], comparison.entrants[0]
    waiting: dict[str, str] = {}
    if not comparison.has_chosen(baseline, scores):
        reason = (
            f"its teachers or bases have the settings that win {baseline.name}'s searches, which have not ended: "
            f"run {baseline.name} too"
        )
        waiting = {each.name: reason for each in entrants if comparison.needs_baseline(each)}
    for each in entrants:
        if comparison.transfers and not comparison.has_settings(each, scores):
            other = comparison.transfers.name
            waiting[each.name] = (
                f"its settings are those that win in the comparison {other}, which has not chosen "
                "them: run that one first"
            )
    return waiting


def _left(
    comparison: Comparison, stage: str, trials: Sequence[Trial], results: pd.DataFrame, execution: ExecutionSettings
) -> Plan:
    """Return the plan of what is left of these trials; it is empty if only teachers and bases are left."""
    work = make_plan(
        comparison.jobs(trials, final=stage == "finals"), scored_cells(results), execution.store, execution.shared
    )
    return work if {job.key for job in work.pending} & {t.run.key for t in trials} else replace(work, levels=())


def _run(
    work: Plan, results: pd.DataFrame, execution: ExecutionSettings, cluster: RayConfig, tracker: Tracker
) -> tuple[dict[str, str], bool]:
    require_inputs(work.pending, work.untrained, execution.data)
    if cluster.address == "local":
        check_room([job for job in work.pending if job.keeps_weights], work.untrained, execution, cluster.workers)
    return run_plan(work, results, execution, cluster, tracker, {})


def _needed(trial: Trial) -> set[str]:
    """Return the keys of a trial's teachers and bases."""
    return {run.key for run in trial.run.required_checkpoints()}


def _is_result(reason: str) -> bool:
    """Return whether a run diverged, or its encoder has no score."""
    kind, _, reasons = reason.partition(": ")
    no_score = (each.endswith((suite.UNDEFINED, suite.NOT_FINITE)) for each in reasons.split("; "))
    return kind == DivergedError.__name__ or (kind == FailedTasksError.__name__ and all(no_score))


def is_of_machine(reason: str) -> bool:
    """Return whether a run failed for a reason that has nothing to do with its method."""
    kind = getattr(builtins, reason.partition(":")[0], None)
    of_system = isinstance(kind, type) and issubclass(kind, OSError | MemoryError)
    of_system &= kind is not FileNotFoundError  # a method of one's own may look for a file
    of_memory = "out of memory" in reason or "can't allocate memory" in reason  # of a GPU, of torch
    return (
        of_system
        or of_memory
        or reason.startswith(("its worker was lost", "trained and scored, but not recorded", "its files"))
    )


def _say_stage(number: int, stage: str, trials: Sequence[Trial], scores: Scores) -> None:
    ended = Counter(trial.entrant.name for trial in trials if scores.has_ended(trial))
    every = Counter(trial.entrant.name for trial in trials)
    counts = ", ".join(f"{name} {ended[name]} of {count}" for name, count in every.items())
    console.print(f"stage {number} of {len(STAGES)}, {stage}: {counts}", highlight=False)
