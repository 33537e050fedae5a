"""Run studies and searches.

    python experiments/sweep.py quickstart
    python experiments/sweep.py rankcse-table4 --scale small --data FOLDER
    python experiments/sweep.py --list
    python experiments/sweep.py --search rankcse --scale small
    python experiments/sweep.py --audit 5 --study rankcse-table4

A sweep does the runs of all its studies that the record lacks, first those that others need (teachers). Each run saves
its state under its key, so re-run the same command to resume after Ctrl-C, a kill or a lost worker.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import tyro

from cse_core.data.locate import data_folder
from cse_core.run import Run
from experiments.cli.cluster_form import print_form, read_form, sweep_words
from experiments.cli.command import INTERRUPTED, run_command
from experiments.cli.console import console
from experiments.cli.options import above_zero, at_least, check_device, whole_gpus
from experiments.execution import sweep_report
from experiments.execution.gpu_memory import fit
from experiments.execution.job import ExecutionSettings
from experiments.execution.log_queue import log_results, record_results
from experiments.execution.plan import Plan, jobs_of, make_plan, scored_cells
from experiments.execution.schedule_estimate import expected_seconds, forecast
from experiments.execution.shared_job import fetch_recorded
from experiments.results import csv_record
from experiments.schema.study import Study
from experiments.search import search_report
from experiments.search.spaces import choose_searches
from experiments.storage.retries import retry
from experiments.storage.shared_storage import Shared
from experiments.studies.catalogue import STUDIES, choose_studies
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker

if TYPE_CHECKING:
    import pandas as pd

    from experiments.execution.ray_sweep import RayConfig


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run studies: train and score what the record lacks, and add it to the record."""

    studies: tyro.conf.Positional[tuple[str, ...]] = ()
    """Names of studies, or of a paper for all of its studies, or `all`; without names, `quickstart`."""
    scale: str = "small"
    """Size of the runs: small, small-1m or paper. The study quickstart has a fixed scale."""
    data: Path | None = None
    """Folder with the data. If not given: CSE_DATA, the Hugging Face cache or the hub."""
    mlruns: Path = csv_record.MLRUNS
    """Folder of the record, MLflow's database and the run folders."""
    store: Path | None = Path(os.environ["CSE_STORE"]) if os.environ.get("CSE_STORE") else None
    """Folder of the run folders, if not in --mlruns; with --shared, on a local disk. If not given: CSE_STORE."""
    list: bool = False
    """List the studies and exit: rows, imported cells, runs, pending runs and their hours, state."""
    search: bool = False
    """Run hyperparameter searches by dev scores instead; names are searches, or a method for all of its searches."""
    audit: int | None = None
    """Retrain N recorded runs, drawn at random, in --store or a temporary folder, and compare them with the record. The
    exit status is 1 if a run differs."""
    audit_seed: int | None = None
    """Draw the same runs as the audit that printed this seed; with the same --store, resume an interrupted audit."""
    audit_report: Path | None = None
    """Write the results of --audit to this JSON file."""
    study: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Another way to name a study; can be repeated."""
    dry_run: bool = False
    """Show what would run and how long it may take, and exit."""
    cluster: Path | None = None
    """With --dry-run: also show what would start on which machine of a cluster (sweep.yaml, experiments/clusters/)."""
    plan: bool = False
    """Simulate the sweep on --gpus and exit: its length, use of the GPUs, longest chain of nested runs, cost."""
    gpus: int = 1
    """Number of GPUs for --plan."""
    price: float = 0.0
    """Price of a GPU-hour, for --plan."""
    gpu_memory: float | None = None
    """Memory of a GPU in GiB, for --plan: estimate how many of the largest runs fit on it."""
    seconds_per_run: float | None = None
    """Training time of every run in seconds, for --plan, instead of measured times and the papers'."""
    workers: int = 0
    """Number of runs at a time; 0 means one per core, or one per GPU."""
    gpus_per_run: float = 1.0
    """Share of a GPU for each run, or a whole number of GPUs. Ignored on CPUs."""
    device: str = os.environ.get("CSE_DEVICE", "")
    """cpu or cuda. If not given: CSE_DEVICE, or cuda if there is a GPU. Set it if GPUs may join later."""
    compiled: bool = False
    """Use torch.compile for training on GPUs: it takes minutes at the start and pays off in long runs."""
    address: str = os.environ.get("CSE_RAY", "local")
    """Address of the Ray cluster: `auto` on one of its machines, `local` for this machine. If not given: CSE_RAY."""
    shared: str = os.environ.get("CSE_SHARED", "")
    """URL of a folder that all machines of a cluster reach (s3://..., file://...), for the run folders. Without it,
    --mlruns must be on a disk that all machines share. If not given: CSE_SHARED."""
    share_seconds: float = ExecutionSettings.share_seconds
    """Seconds between uploads of a run's state to --shared: how much training a lost machine costs at most."""


def check(options: Options) -> None:
    """Refuse invalid values before anything is read or started."""
    at_least(0, workers=options.workers, price=options.price, share_seconds=options.share_seconds)
    at_least(1, gpus=options.gpus, audit=options.audit)
    above_zero(gpu_memory=options.gpu_memory, seconds_per_run=options.seconds_per_run)
    whole_gpus(gpus_per_run=options.gpus_per_run)
    if options.cluster and (not options.dry_run or options.search or options.audit):
        raise ValueError(f"--cluster {options.cluster}: expected --dry-run beside it, and studies")
    check_device(options.device, options.address)


def print_forecast(work: Plan, results: "pd.DataFrame", options: Options) -> None:
    """Simulate the sweep on the given GPUs; runs that share a GPU count as fast as runs that do not."""
    if options.gpus_per_run > options.gpus:
        raise ValueError(
            f"--gpus-per-run {options.gpus_per_run:g}: expected no more GPUs than --plan has, --gpus {options.gpus}"
        )
    if options.seconds_per_run is None:
        seconds = _require_times(work, expected_seconds(work.pending, results))
    else:
        seconds = {job.key: options.seconds_per_run * isinstance(job.encoder, Run) for job in work.pending}
    if options.gpus_per_run <= 1:
        slots = options.gpus * int(1 / options.gpus_per_run)  # with 2/3 of a GPU for each run, 1/3 is idle
    else:
        slots = options.gpus // int(options.gpus_per_run)
    sweep_report.print_forecast(work, forecast(work, seconds, slots), gpus=options.gpus, price=options.price)
    if options.gpu_memory is not None:
        runs = [job.encoder for job in work.pending if isinstance(job.encoder, Run)]
        sweep_report.print_memory(fit(runs, options.gpu_memory), gib=options.gpu_memory, share=options.gpus_per_run)


def _require_times(work: Plan, seconds: Mapping[str, float | None]) -> dict[str, float]:
    """Return the times of runs; raise if one is unknown."""
    unknown = [job.name for job in work.pending if seconds[job.key] is None]
    if unknown:
        raise ValueError(
            f"the time of {len(unknown)} runs is unknown, the first is {unknown[0]}: neither it nor SimCSE on its "
            "backbone was measured at this scale; give --seconds-per-run"
        )
    return {key: value for key, value in seconds.items() if value is not None}


def _run_pending(work: Plan, results: "pd.DataFrame", options: Options) -> tuple[dict[str, str], bool]:
    from experiments.execution.ray_sweep import run_plan  # lazy: slow import

    _prepare(options)
    return run_plan(work, results, _execution_settings(options), _ray_config(options), Tracker(options.mlruns))


def _copy_arrays(studies: Sequence[Study], options: Options) -> dict[str, str]:
    """Copy the arrays of figures into the record, from local and shared run folders; return failures."""
    missing, execution = csv_record.missing_arrays(studies, options.mlruns), _execution_settings(options)
    try:
        local = partial(csv_record.arrays_in_run_folder, execution.store)
        for key in dict.fromkeys(key for key, target in missing if not local(key, target).is_file()):
            retry(partial(fetch_recorded, key, execution))
    except OSError as error:
        return {"figure_data": f"not up to date ({error}): re-run the same command"}
    csv_record.copy_arrays(missing, execution.store)
    return {}


def _ray_config(options: Options) -> "RayConfig":
    from experiments.execution.ray_sweep import RayConfig  # lazy: slow import

    return RayConfig(options.address, options.workers, options.gpus_per_run, options.device)


def _execution_settings(options: Options) -> ExecutionSettings:
    data = data_folder(options.data)  # resolved here, because Ray's workers have another current folder
    return ExecutionSettings(
        _store(options),
        data.resolve() if data else None,
        compiled=options.compiled,
        shared=options.shared,
        share_seconds=options.share_seconds,
    )


def _prepare(options: Options) -> None:
    if options.shared:
        Shared(options.shared).prepare()


def _store(options: Options) -> Path:
    return (options.store or options.mlruns / "store").resolve()


def print_cluster_plan(work: Plan, results: "pd.DataFrame", options: Options) -> None:
    """Print the plan as the cluster that a file describes would run it, and what would start on its machines."""
    form = read_form(options.cluster or Path("sweep.yaml"), sweep_words(options))
    at_once = options.workers or form.runs_at_once(options.gpus_per_run)
    sweep_report.print_plan(work, results, at_once, each=True)
    print_form(form, len(work.pending), at_once)


def search(options: Options) -> int:
    """Run searches one after the other; return the exit status, as `main` does."""
    from experiments.search.ray_search import run_search  # lazy: slow import

    searches = choose_searches(options.studies, options.scale)
    if options.dry_run or options.list:
        search_report.print_searches(searches, options.mlruns)
        return 0
    csv_record.check_writable(options.mlruns)
    check_database(options.mlruns)
    _prepare(options)
    cluster = _ray_config(options)
    execution, tracker = replace(_execution_settings(options), device=cluster.start()), Tracker(options.mlruns)
    status = 0
    for each in searches:
        failed, ended = run_search(each, execution, cluster, tracker)
        search_report.print_outcome(each, failed, ended, options.mlruns)
        if not ended:
            return INTERRUPTED
        if failed:
            status = 1
    log_results(execution.store, tracker)
    return status


def audit_record(options: Options) -> int:
    """Audit the runs of the chosen studies, or of all; return the exit status, as `main` does."""
    from experiments.execution.audit import audit  # lazy: slow import

    studies = choose_studies(list(options.studies) or ["all"], options.scale)
    return audit(
        studies,
        options.audit or 0,
        options.audit_seed,
        mlruns=options.mlruns,
        store=options.store,
        data=data_folder(options.data),
        device=options.device or ("cuda" if torch.cuda.is_available() else "cpu"),
        report=options.audit_report,
    )


def study_names(options: Options) -> list[str]:
    """Return the named studies; without names all for --list, else quickstart, with a message."""
    if options.studies or options.list:
        return list(options.studies or STUDIES)
    console.print("no study named: quickstart, a few tiny runs to test everything; --list shows the papers' studies")
    return ["quickstart"]


def main(options: Options) -> int:
    """Run the command; return 0, 1 if a run failed or differs from its record, or 130 if interrupted."""
    options = replace(options, studies=(*options.studies, *options.study))
    check(options)
    if options.audit is not None:
        return audit_record(options)
    if options.search:
        return search(options)
    names = study_names(options)
    studies = choose_studies(names, options.scale)
    scales = {study.scale.name for study in studies}
    if len(scales) > 1:
        raise ValueError("quickstart has a scale of its own; run it without other studies")
    if not (options.list or options.dry_run or options.plan):
        csv_record.check_writable(options.mlruns)
        check_database(options.mlruns)
        record_results(_store(options), options.mlruns)
    scale = scales.pop()
    results = csv_record.read_results(scale, options.mlruns)
    if options.list:
        sweep_report.print_studies(studies, results, _store(options))
        return 0
    jobs = jobs_of(studies)
    work = make_plan(jobs, scored_cells(results), _store(options), options.shared)
    if options.plan:
        print_forecast(work, results, options)
        return 0
    if options.cluster:
        print_cluster_plan(work, results, options)
        return 0
    cores = os.cpu_count() or 1 if options.address == "local" else 0  # a cluster's are unknown before joining it
    sweep_report.print_plan(work, results, options.workers or cores, each=options.dry_run)
    if options.dry_run:
        return 0
    failed, ended = _run_pending(work, results, options) if work.pending else ({}, True)
    failed |= _copy_arrays(studies, options)
    log_results(_store(options), Tracker(options.mlruns))
    sweep_report.print_outcome(names, scale, jobs, failed, ended, options.mlruns)
    if failed:
        return 1
    return 0 if ended else INTERRUPTED


if __name__ == "__main__":
    run_command(lambda: main(tyro.cli(Options)))
