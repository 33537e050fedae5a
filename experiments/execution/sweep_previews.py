"""What a sweep would take: simulated on a number of GPUs, or on a cluster's machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cse_core.run import Run
from experiments.cli.cluster_form import print_form, read_form, sweep_words
from experiments.cli.console import counted
from experiments.cli.sweep_options import EstimateOptions, Options
from experiments.execution import sweep_report
from experiments.execution.gpu_shares import describe_shares, read_shares
from experiments.execution.plan import Plan
from experiments.execution.schedule_estimate import expected_seconds, forecast, runs_at_once

if TYPE_CHECKING:
    import pandas as pd


def print_forecast(work: Plan, results: pd.DataFrame, options: EstimateOptions) -> None:
    """Simulate the sweep on the given GPUs; runs that share a GPU count as fast as runs that do not."""
    if options.seconds_per_run is None:
        seconds = _require_times(work, expected_seconds(work.pending, results))
    else:
        seconds = {job.key: options.seconds_per_run * isinstance(job.encoder, Run) for job in work.pending}
    for gpus in options.gpus:
        slots = runs_at_once(gpus, options.gpus_per_run)
        sweep_report.print_forecast(work, forecast(work, seconds, slots), gpus=gpus, price=options.price)
    print(*describe_shares(read_shares()), sep="\n")


def _require_times(work: Plan, seconds: Mapping[str, float | None]) -> dict[str, float]:
    """Return the times of runs; raise if one is unknown."""
    unknown = [job.name for job in work.pending if seconds[job.key] is None]
    if unknown:
        raise ValueError(
            f"the time of {counted(len(unknown), 'run')} is unknown, the first is {unknown[0]}: neither it nor "
            "SimCSE on its backbone was measured at this scale; give --seconds-per-run"
        )
    return {key: value for key, value in seconds.items() if value is not None}


def print_cluster_plan(work: Plan, results: pd.DataFrame, options: Options) -> None:
    """Print the plan as the cluster that a file describes would run it, and what would start on its machines."""
    form = read_form(options.cluster or Path("sweep.yaml"), sweep_words(options))
    at_once = options.workers or form.runs_at_once(options.gpus_per_run)
    sweep_report.print_plan(work, results, at_once, each=True)
    print_form(form, len(work.pending), at_once)
