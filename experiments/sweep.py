"""Run studies and searches.

    python experiments/sweep.py quickstart
    python experiments/sweep.py rankcse-table4 --scale small --data FOLDER
    python experiments/sweep.py --list
    python experiments/sweep.py --search rankcse --scale small
    python experiments/sweep.py --audit 5 --study rankcse-table4

A sweep is the union of the studies' runs, less those in the record. Runs that others need (teachers) go first. A run
finds its own newest state by its key, so the same command goes on after Ctrl-C, a kill or a lost worker.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd
import torch
import tyro

from cse_core.data.locate import data_folder
from cse_core.run import Run
from experiments.cli.command import INTERRUPTED, run_command
from experiments.cli.options import above_zero, at_least, check_device, whole_gpus
from experiments.execution import sweep_report
from experiments.execution.audit import audit
from experiments.execution.gpu_memory import fit
from experiments.execution.job import ExecutionSettings
from experiments.execution.log_queue import log_results, record_results
from experiments.execution.plan import Plan, jobs_of, plan
from experiments.execution.ray_sweep import RayConfig, run
from experiments.execution.schedule_estimate import expected, forecast
from experiments.execution.shared_job import fetch_recorded
from experiments.results import csv_record
from experiments.results.mlflow_log import UNREACHABLE_ERRORS, Tracker, check_database
from experiments.schema.study import Study
from experiments.search import search_report
from experiments.search.ray_search import run_search
from experiments.search.spaces import choose_searches as chosen_searches
from experiments.storage.retries import retry
from experiments.storage.shared_storage import Shared
from experiments.studies.catalogue import STUDIES, choose_studies


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run studies by name: a study, a paper for all of its studies, `all`, or `quickstart`, which is the default."""

    studies: tyro.conf.Positional[tuple[str, ...]] = ()
    scale: str = "small"
    """small, small-1m or paper; quickstart has its own."""
    data: Path | None = None
    """Folder with training sentences and evaluation sets; else CSE_DATA, the Hugging Face cache, the hub."""
    mlruns: Path = csv_record.MLRUNS
    """Where the record, MLflow's database and the runs' folders lie."""
    store: Path | None = Path(os.environ["CSE_STORE"]) if os.environ.get("CSE_STORE") else None
    """Another place for the runs' folders: with --shared, a disk of each machine's own. Else CSE_STORE."""
    list: bool = False
    """Only show every study: rows, imported cells, runs declared, runs left and their hours, state."""
    search: bool = False
    """Search settings by dev scores instead: the names are of searches, or of a method for all of its searches."""
    audit: int | None = None
    """Train so many recorded runs anew, drawn at random, in a store of their own (--store, else a temporary folder) and
    compare them with the record; the exit status is 1 if one differs."""
    audit_seed: int | None = None
    """Repeat the draw that --audit printed this seed for; with its --store, an interrupted audit goes on."""
    audit_report: Path | None = None
    """Write what --audit found to this file, as JSON."""
    study: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Like a name without an option."""
    dry_run: bool = False
    """Only show what would run and how long it may take."""
    plan: bool = False
    """Only simulate the sweep on --gpus: its length, the GPUs' use, the longest chain of nested runs, the cost."""
    gpus: int = 1
    """How many GPUs --plan has."""
    price: float = 0.0
    """Of a GPU-hour, for --plan."""
    gpu_memory: float | None = None
    """GiB of a GPU, for --plan: how many of the largest runs one holds, by an estimate."""
    seconds_per_run: float | None = None
    """For --plan: training seconds of every run, in place of measured ones and the papers' estimates."""
    workers: int = 0
    """Runs at a time; 0 for one a core, or one a GPU."""
    gpus_per_run: float = 1.0
    """Share of a GPU that a run takes, where there are GPUs."""
    device: str = os.environ.get("CSE_DEVICE", "")
    """cpu or cuda; cuda where there are GPUs now. Else CSE_DEVICE, for clusters whose GPUs come when asked for."""
    compiled: bool = False
    """Hand training passes to torch.compile, on GPUs: minutes at the start of a run, for long runs."""
    address: str = os.environ.get("CSE_RAY", "local")
    """Ray's address; `auto` on a cluster. Else CSE_RAY."""
    shared: str = os.environ.get("CSE_SHARED", "")
    """URL of a folder that every machine of a cluster reaches, s3://... or the like, for the runs' folders. Else
    CSE_SHARED. Without one, --mlruns must be on such a disk."""
    share_seconds: float = ExecutionSettings.share_seconds
    """How often a run under way brings its state there: about what a lost machine costs, beside scoring."""


def check(options: Options) -> None:
    """Refuse values that nothing could be done with, before anything is read or started."""
    at_least(0, workers=options.workers, price=options.price, share_seconds=options.share_seconds)
    at_least(1, gpus=options.gpus, audit=options.audit)
    above_zero(gpu_memory=options.gpu_memory, seconds_per_run=options.seconds_per_run)
    whole_gpus(gpus_per_run=options.gpus_per_run)
    check_device(options.device, options.address)


def show_forecast(work: Plan, results: pd.DataFrame, options: Options) -> None:
    """The sweep simulated on the GPUs asked for; runs that share one are taken to be as fast as by themselves."""
    if options.gpus_per_run > options.gpus:
        raise ValueError(
            f"--gpus-per-run {options.gpus_per_run:g}: expected no more GPUs than --plan has, --gpus {options.gpus}"
        )
    if options.seconds_per_run is None:
        seconds = _known(work, expected(work.pending, results))
    else:
        seconds = {job.key: options.seconds_per_run * isinstance(job.encoder, Run) for job in work.pending}
    # Two thirds of a GPU leave a third unused.
    slots = options.gpus * int(1 / options.gpus_per_run) or options.gpus // int(options.gpus_per_run)
    sweep_report.forecast(work, forecast(work, seconds, slots), gpus=options.gpus, price=options.price)
    if options.gpu_memory is not None:
        runs = [job.encoder for job in work.pending if isinstance(job.encoder, Run)]
        sweep_report.memory(fit(runs, options.gpu_memory), gib=options.gpu_memory, share=options.gpus_per_run)


def _known(work: Plan, seconds: Mapping[str, float | None]) -> dict[str, float]:
    """Return the times of runs; raise if one is unknown."""
    unknown = [job.name for job in work.pending if seconds[job.key] is None]
    if unknown:
        raise ValueError(
            f"the time of {len(unknown)} runs is unknown, the first is {unknown[0]}: neither it nor SimCSE on its "
            "backbone was measured at this scale; give --seconds-per-run"
        )
    return {key: value for key, value in seconds.items() if value is not None}


def _run(work: Plan, results: pd.DataFrame, options: Options) -> tuple[dict[str, str], bool]:
    _prepare(options)
    return run(work, results, _place(options), _cluster(options), Tracker(options.mlruns))


def _keep_arrays(studies: Sequence[Study], options: Options) -> dict[str, str]:
    """Bring what figures draw into the record, from this machine's store and the shared one; what could not be had."""
    lacking, place = csv_record.lacking_arrays(studies, options.mlruns), _place(options)
    try:
        there = partial(csv_record.arrays_in, place.store)
        for key in dict.fromkeys(key for key, target in lacking if not there(key, target).is_file()):
            retry(partial(fetch_recorded, key, place))
    except OSError as error:
        return {"figure_data": f"not brought up to date ({error}): the same command does it"}
    csv_record.keep_arrays(lacking, place.store)
    return {}


def _cluster(options: Options) -> RayConfig:
    return RayConfig(options.address, options.workers, options.gpus_per_run, options.device)


def _place(options: Options) -> ExecutionSettings:
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


def search(options: Options) -> int:
    """Run searches one after the other; the exit status as of `main`."""
    searches = chosen_searches(options.studies, options.scale)
    if options.dry_run or options.list:
        search_report.searches(searches, options.mlruns)
        return 0
    csv_record.check_writable(options.mlruns)
    check_database(options.mlruns)
    _prepare(options)
    cluster = _cluster(options)
    place, tracker = replace(_place(options), device=cluster.start()), Tracker(options.mlruns)
    status = 0
    for one in searches:
        failed, ended = run_search(one, place, cluster, tracker)
        search_report.searched(one, failed, ended, options.mlruns)
        if not ended:
            return INTERRUPTED
        status |= bool(failed)
    log_results(place.store, tracker)
    return status


def audit_record(options: Options) -> int:
    """Audit the runs of the chosen studies, or of all; the exit status as of `main`."""
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


def main(options: Options) -> int:
    """Returns the exit status: 0, 1 if a run failed or differs from its record, 130 if interrupted."""
    options = replace(options, studies=(*options.studies, *options.study))
    check(options)
    if options.audit is not None:
        return audit_record(options)
    if options.search:
        return search(options)
    names = list(options.studies) or (list(STUDIES) if options.list else ["quickstart"])
    studies = choose_studies(names, options.scale)
    scales = {study.scale.name for study in studies}
    if len(scales) > 1:
        raise ValueError("quickstart runs at a scale of its own; run it by itself")
    if not (options.list or options.dry_run or options.plan):
        csv_record.check_writable(options.mlruns)
        check_database(options.mlruns)
        record_results(_store(options), options.mlruns)
    scale = scales.pop()
    results = csv_record.read_results(scale, options.mlruns)
    if options.list:
        sweep_report.studies(studies, results, _store(options))
        return 0
    jobs = jobs_of(studies)
    work = plan(jobs, results, _store(options), options.shared)
    if options.plan:
        show_forecast(work, results, options)
        return 0
    here = os.cpu_count() or 1 if options.address == "local" else 0  # of a cluster nobody knows it before it is joined
    sweep_report.work(work, results, options.workers or here, each=options.dry_run)
    if options.dry_run:
        return 0
    failed, ended = _run(work, results, options) if work.pending else ({}, True)
    failed |= _keep_arrays(studies, options)
    log_results(_store(options), Tracker(options.mlruns))
    sweep_report.outcome(names, scale, jobs, failed, ended, options.mlruns)
    return 1 if failed else 0 if ended else INTERRUPTED


if __name__ == "__main__":
    run_command(lambda: main(tyro.cli(Options)), (ValueError, *UNREACHABLE_ERRORS))
