"""Rehearse one row: train the runs that it needs, train, kill, resume and score it; note an error in the row's line."""

import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from cse_core.run import Run
from cse_core.training.run_state import finished_history, load_history
from experiments.execution.job import ExecutionSettings
from tests.benchmarks.rehearsal.measured_run import rehearse
from tests.benchmarks.rehearsal.rehearsal_table import Line, with_measured
from tests.benchmarks.rehearsal.rehearsed_runs import Rehearsed, needed_jobs

APART = "not-killed"  # the store of runs that are trained without being killed


def rehearse_row(
    row: Rehearsed, line: Line, execution: ExecutionSettings, *, kill: bool = True, compare: bool = False
) -> Line:
    """Return the row's line of the table: `line`, with its forecast, plus what was measured or why it failed."""
    trained = row.run is not None
    try:
        _train_needed(row, execution)
        shutil.rmtree(execution.store / row.job.key, ignore_errors=True)  # of an earlier call
        measured = rehearse(row.job, execution, kill=kill and trained)
        line = with_measured(line, measured, killed=kill and trained)
        return replace(line, identical=_compare(row, execution)) if compare and trained else line
    except (RuntimeError, ValueError, OSError) as error:
        return replace(line, failed=" ".join(str(error).split()))


def _train_needed(row: Rehearsed, execution: ExecutionSettings) -> None:
    for job in needed_jobs(row):
        if isinstance(job.encoder, Run) and not finished_history(job.encoder, execution.store, job.rules):
            rehearse(job, execution, kill=False)


def _compare(row: Rehearsed, execution: ExecutionSettings) -> str:
    """Return "yes" if the run's weights equal those of a run that was not killed, in every bit, otherwise "no".

    Return "not repeatable" if two runs that were not killed differ too, as on a device that sums in no fixed order.
    """
    assert row.run
    resumed, whole = _weights(execution.store / row.run.key), _train_apart(row, execution)
    if resumed == whole:
        return "yes"
    return "no" if whole == _train_apart(row, execution) else "not repeatable"


def _train_apart(row: Rehearsed, execution: ExecutionSettings) -> dict[str, str]:
    """Train the run in a separate store, without killing it; return the SHA-256 of its checkpoints."""
    assert row.run
    apart = replace(execution, store=execution.store / APART)
    apart.store.mkdir(exist_ok=True)
    for job in needed_jobs(row):
        (apart.store / job.key).symlink_to(execution.store / job.key)
    rehearse(replace(row.job, scorings=(replace(row.job.scorings[0], tasks=()),)), apart, kill=False)
    weights = _weights(apart.store / row.run.key)
    shutil.rmtree(apart.store)
    return weights


def _weights(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of a finished run's checkpoints."""
    history = load_history(folder)
    if not history:
        raise FileNotFoundError(f"{folder}: no finished run to compare")
    return {rule: kept.weights for rule, kept in history.kept.items()}


def remove_unneeded(row: Rehearsed, store: Path, needed: Collection[str]) -> None:
    """Remove the row's run folder (gigabytes), unless a later row needs the run."""
    if row.job.key not in needed:
        shutil.rmtree(store / row.job.key, ignore_errors=True)
