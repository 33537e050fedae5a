"""Print the list of studies, a plan, what it would take on GPUs or on a cluster, and the outcome of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from cse_core.evaluation.suite import GROUPS
from cse_core.run import Pretrained, Run
from experiments.cli.cluster_form import print_form, read_form, sweep_words
from experiments.cli.console import console, counted, print_failures
from experiments.cli.sweep_options import EstimateOptions, Options
from experiments.execution.gpu_shares import describe_shares, read_shares, slowdown
from experiments.execution.job import Job
from experiments.execution.plan import Done, Plan, jobs_of_study, make_plan, merge_jobs, scored_cells
from experiments.execution.schedule_estimate import (
    Forecast,
    expected_seconds,
    forecast,
    measured_seconds_of,
    runs_at_once,
    seconds_for,
    total_seconds,
)
from experiments.execution.step_cost import size_of
from experiments.results import csv_record
from experiments.schema.study import Study
from experiments.storage.credentials import redact_credentials
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.mlflow_notes import FILTER, experiment_name

if TYPE_CHECKING:
    import pandas as pd


UNTIMED = "unknown before the first steps, as the record has no run of SimCSE on this encoder at this scale"


def hours(seconds: float | None) -> str:
    """Format seconds as hours or minutes; "?" for None, a duration that was never measured."""
    if seconds is None:
        return "?"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def print_studies(chosen: Sequence[Study], results: pd.DataFrame, store: Path) -> None:
    """Print each study's claims, rows, imported cells, rows not run, runs, pending runs and their hours.

    A study's runs include teachers and bases; each counts once.
    """
    done = scored_cells(results)
    table = Table(title=f"Studies at scale {chosen[0].scale.name}")
    for heading, width in {"study": 21, "source": 20, "claims": 8}.items():
        table.add_column(heading, min_width=width)
    for heading in ("rows", "imported", "not run", "runs", "pending", "time left"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    groups = [jobs_of_study(study) for study in chosen]
    unique = merge_jobs(groups)
    pending = make_plan(unique, done, store).pending
    measured = measured_seconds_of(pending, results)
    for study, jobs in zip(chosen, groups, strict=True):
        table.add_row(*_study_line(study, jobs, done, measured, store))
    console.print(table)
    left = hours(total_seconds(measured.values()))
    console.print(f"together {counted(len(unique), 'unique run')}, {len(pending)} pending, {left}")


def _study_line(
    study: Study, jobs: Mapping[str, Job], done: Done, measured: Mapping[str, float | None], store: Path
) -> tuple[str, ...]:
    pending = make_plan(jobs, done, store).pending
    finished = len(jobs) - len(pending)
    without_encoder = [row for row in study.rows if row.encoder is None]
    imported = [row.published for row in without_encoder if row.why.startswith("imported") and row.published]
    not_run = sum(not row.why.startswith("imported") for row in without_encoder)
    cells = sum(published.line(name) is not None for published in imported for name in study.columns)
    left = total_seconds([measured[job.key] for job in pending])
    state = "no runs" if not jobs else "done" if not pending else "started" if finished else "to do"
    counts = (len(study.rows), cells, not_run, len(jobs), len(pending))
    return (study.name, study.source, " ".join(study.claims), *map(str, counts), hours(left), state)


def print_plan(plan: Plan, results: pd.DataFrame, workers: int, *, each: bool = False) -> None:
    """Print the runs to do, level by level; with `each`, print every job on its own line with what is missing."""
    pending = plan.pending
    seconds = seconds_for(pending, results)
    about = f", about {hours(seconds / workers)} with {workers} at a time" if seconds and workers else ""
    console.print(
        f"{counted(len(plan.declared), 'run')}, {len(plan.declared) - len(pending)} done, {len(pending)} to do{about}"
    )
    if each and seconds is None:
        console.print("time unknown: no time is recorded for runs like these on processors")
    for i, level in enumerate(plan.levels, 1):
        if each:
            console.print(f"  {i}.", *(_missing(plan, job) for job in level), sep="\n     ")
        else:
            retrained = dict.fromkeys(plan.retrained, " (again, for its weights)")
            console.print(f"  {i}. {', '.join(job.name + retrained.get(job.key, '') for job in level)}")


def print_cluster_plan(work: Plan, results: pd.DataFrame, options: Options) -> None:
    """Print the plan for the cluster that a file describes, and what would start on its machines."""
    form = read_form(options.cluster or Path("sweep.yaml"), sweep_words(options))
    at_once = options.workers or form.runs_at_once(options.gpus_per_run)
    print_plan(work, results, at_once, each=True)
    print_form(form, len(work.pending), at_once)


def _missing(plan: Plan, job: Job) -> str:
    """Describe a job: its key, row and studies, and what is missing (training; tasks by selection rule and scorer)."""
    first, *others = job.studies
    studies = f"{first} and {len(others)} more" if others else first
    missing = []
    if job.key in plan.untrained:
        missing.append("training, for its weights" if job.key in plan.retrained else "training")
    missing += [f"{s.select}, {s.scorer}: {' '.join(_groups(s.tasks))}" for s in job.scorings if s.tasks]
    return f"{job.key}  {job.name} ({studies}): {'; '.join(missing)}"


def _groups(tasks: Sequence[str]) -> list[str]:
    """Return task names, with the name of a group in place of all of its tasks."""
    left, names = dict.fromkeys(tasks), []
    for group, members in GROUPS.items():
        if len(members) > 1 and set(members) <= left.keys():
            names.append(group)
            left = {task: None for task in left if task not in members}
    return names + list(left)


def warn_slow_precision(encoders: Sequence[Run | Pretrained], device: str) -> None:
    """Warn of runs in fp16 on a CPU, which take many times as long as in fp32."""
    slow = [run for run in encoders if isinstance(run, Run) and run.precision == "fp16"]
    if slow and device == "cpu":
        console.print(
            f"warning: {len(slow)} of {len(encoders)} runs train in fp16, which is slow on a CPU; "
            "use a machine with a GPU, or a scale that trains in fp32",
            style="yellow",
        )


def print_forecast(work: Plan, results: pd.DataFrame, options: EstimateOptions) -> None:
    """Simulate the sweep on the given GPUs; a run that shares its GPU takes as much longer as was measured."""
    if options.seconds_per_run is None:
        seconds = _require_times(work, expected_seconds(work.pending, results))
    else:
        seconds = {job.key: options.seconds_per_run * isinstance(job.encoder, Run) for job in work.pending}
    shares, together = read_shares(), runs_at_once(1, options.gpus_per_run)
    slower = {job.key: slowdown(shares, _model(job), together) for job in work.pending if seconds[job.key]}
    longer = {key: value * (slower.get(key) or 1.0) for key, value in seconds.items()}
    for gpus in options.gpus:
        slots = runs_at_once(gpus, options.gpus_per_run)
        _print_simulated(work, forecast(work, longer, slots), gpus=gpus, price=options.price, slower=slower)
    print(*describe_shares(shares), sep="\n")


def _model(job: Job) -> str:
    """Return the size of a job's backbone, as shares of a GPU name it."""
    size = size_of(job.encoder.backbone.name) if isinstance(job.encoder, Run) else None
    return f"{size.layers} layers of {size.width}" if size else ""


def _require_times(work: Plan, seconds: Mapping[str, float | None]) -> dict[str, float]:
    """Return the times of runs; raise if one is unknown."""
    unknown = [job.name for job in work.pending if seconds[job.key] is None]
    if unknown:
        raise ValueError(
            f"the time of {counted(len(unknown), 'run')} is unknown, the first is {unknown[0]}: neither it nor "
            "SimCSE on its backbone was measured at this scale; give --seconds-per-run"
        )
    return {key: value for key, value in seconds.items() if value is not None}


def _print_simulated(
    work: Plan, simulated: Forecast, *, gpus: int, price: float, slower: Mapping[str, float | None]
) -> None:
    """Print a simulated sweep: its length in each order, when its first study is complete, and its longest chain."""
    slots, assumed = next(iter(simulated.ways.values())).slots, sum(times is None for times in slower.values())
    how = f"; {counted(assumed, 'run')} assumed as fast as with a whole GPU" if assumed else ", slowed as measured"
    shared = f"{slots} at a time{how}" if slots > gpus else None
    table = Table(title=f"{counted(len(work.pending), 'run')} on {counted(gpus, 'GPU')}", caption=shared)
    table.add_column("order")
    for heading in ("time", "first study", "GPUs used", "GPU-hours", *(["cost"] if price else [])):
        table.add_column(heading, justify="right")
    for name, way in simulated.ways.items():
        spent = gpus * way.makespan / 3600
        cost = [f"{price * spent:,.0f}"] if price else []
        times = (hours(way.makespan), hours(simulated.first[name]))
        table.add_row(name, *times, f"{100 * way.utilisation:.0f} %", f"{spent:,.1f}", *cost)
    console.print(table)
    names = {job.key: job.name for job in work.pending}
    console.print("training only, without scoring")
    console.print(
        f"longest chain: {hours(simulated.critical)}, {', then '.join(names[key] for key in simulated.chain)}"
    )


def print_outcome(
    names: Sequence[str],
    studies: Sequence[Study],
    jobs: Mapping[str, Job],
    failed: Mapping[str, str],
    ended: bool,
    mlruns: Path,
) -> None:
    """Print how to make the tables of the named studies, where MLflow has the runs, and what failed."""
    if names:
        scale = studies[0].scale.name
        elsewhere = "" if csv_record.is_project_record(mlruns) else f" --mlruns {mlruns}"
        console.print(f"tables: python analysis/make_tables.py {' '.join(names)} --scale {scale}{elsewhere}")
    _print_mlflow_hint(studies, mlruns)
    names_of = {key: f"{job.name} ({key})" for key, job in jobs.items()}
    print_failures({names_of.get(key, key): reason for key, reason in failed.items()}, ended)
    if ended and (lost := len(failed.keys() & jobs.keys())):
        console.print(f"{len(jobs) - lost} of {counted(len(jobs), 'run')} done, {lost} failed", style="red")


def print_mlflow_command(tracker: Tracker) -> None:
    """Print how to open MLflow's pages."""
    command = "mlflow ui --backend-store-uri " if tracker.uri.startswith("sqlite") else ""
    uri = tracker.uri.replace(f"sqlite:///{Path.cwd()}/", "sqlite:///")  # as short as what was typed
    console.print(f"runs in MLflow: {command}{redact_credentials(uri)}")


def _print_mlflow_hint(studies: Sequence[Study], mlruns: Path) -> None:
    tracker = Tracker(mlruns)
    if tracker.uri.startswith("sqlite") and not (mlruns / "mlflow.db").is_file():
        return  # a record from elsewhere: nothing was trained here
    print_mlflow_command(tracker)
    place, filters = experiment_name(studies[0].scale.name), [FILTER.format(study.name) for study in studies[:3]]
    console.print(f"compare them in {place}: search {' or '.join(filters)}, sort by STS average", highlight=False)
