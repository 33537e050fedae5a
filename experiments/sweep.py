"""Run studies: the one file that imports Ray.

    python experiments/sweep.py quickstart
    python experiments/sweep.py rankcse-table4 --scale small --data FOLDER
    python experiments/sweep.py --list

A sweep is the union of the studies' runs, less those in the record. Runs that others need (teachers) go first. A run
finds its own newest state by its key, so the same command goes on after Ctrl-C, a kill or a lost worker.
"""

import logging
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

import pandas as pd
import ray
import tyro
from ray import tune

from cse_core.data import data_folder
from cse_core.run import Run
from experiments import record, show
from experiments.capacity import expected, forecast, longest_first
from experiments.catalogue import STUDIES, chosen
from experiments.job import Job, Place, execute
from experiments.plan import Plan, blocked, differences, jobs_of, plan
from experiments.tracking import Tracker, export


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run studies by name: a study, a paper for all of its studies, `all`, or `quickstart`, which is the default."""

    studies: tyro.conf.Positional[tuple[str, ...]] = ()
    scale: str = "small"
    """small, small-1m or paper; quickstart has its own."""
    data: Path | None = None
    """Folder with training sentences and evaluation sets; else CSE_DATA, the Hugging Face cache, the hub."""
    mlruns: Path = record.MLRUNS
    """Where the record, MLflow's database and the runs' folders lie."""
    list: bool = False
    """Only show every study: runs declared, unique, finished, pending, hours."""
    dry_run: bool = False
    """Only show what would run and how long it may take."""
    plan: bool = False
    """Only simulate the sweep on --gpus: its length, the GPUs' use, the longest chain of nested runs, the cost."""
    gpus: int = 1
    """How many GPUs --plan has."""
    price: float = 0.0
    """Of a GPU-hour, for --plan."""
    seconds_per_run: float | None = None
    """For --plan: training seconds of every run, in place of measured ones and the papers' estimates."""
    workers: int = 0
    """Runs at a time; 0 for one a core, or one a GPU."""
    gpus_per_run: float = 1.0
    """Share of a GPU that a run takes, where there are GPUs."""
    compiled: bool = False
    """Hand training passes to torch.compile, on GPUs: minutes at the start of a run, for long runs."""
    address: str = "local"
    """Ray's address; `auto` on a cluster."""


def trial(config: Mapping[str, Any], jobs: Mapping[str, Job], place: Place) -> None:
    """One job in a Ray worker. What it raises is a result, for it would raise it again; a lost worker is retried."""
    job = jobs[config["key"]]
    try:
        execute(job, place, on_step=_reporter(job))
    except Exception as error:  # noqa: BLE001 - whatever it is, the driver names it with the run
        tune.report({"fraction": 1.0, "failed": f"{type(error).__name__}: {error}"})
    else:
        tune.report({"fraction": 1.0, "failed": ""})


def _reporter(job: Job) -> Callable[[int, int], None]:
    every = getattr(job.encoder, "eval_steps", 1)

    def report(step: int, steps: int) -> None:
        if step % every == 0 and step < steps:
            tune.report({"fraction": 0.8 * step / steps, "failed": ""})  # scoring takes the rest

    return report


class Follow(tune.Callback):
    """Tracks each job as it ends and moves the progress bar; all of it in the driver."""

    def __init__(self, tracker: Tracker, store: Path, bar: show.Bar) -> None:
        self.tracker, self.store, self.bar = tracker, store, bar
        self.failed: dict[str, str] = {}
        self.finished: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Tune snapshots its callbacks; a sweep never restores them, it reads the record and the runs' folders."""
        return {}

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        """Ray Tune's hook."""
        self.bar.move(trial.config["key"], result["fraction"])

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Ray Tune's hook."""
        key = trial.config["key"]
        reason = trial.last_result.get("failed", "it ended without a result")
        if reason:
            self.fail(key, reason)
            return
        self.tracker.log(self.store / key)
        self.finished.add(key)
        self.bar.end(key)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Ray Tune's hook."""
        self.fail(trial.config["key"], "its worker was lost more often than it is retried")

    def fail(self, key: str, reason: str) -> None:
        """A job that gave no result."""
        self.failed[key] = reason
        self.bar.end(key)


def start_ray(options: Options) -> None:
    """Join a cluster, or start Ray on this machine alone."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if options.address != "local":
        ray.init(address=options.address, **quiet)
        return
    cores = options.workers or os.cpu_count()
    # Nothing but small dictionaries travels through the object store.
    ray.init(address="local", num_cpus=cores, include_dashboard=False, object_store_memory=128 * 2**20, **quiet)


def run_level(jobs: Sequence[Job], place: Place, options: Options, follow: Follow) -> None:
    """Hand jobs that need nothing of each other to Ray Tune and wait for them."""
    by_key = {job.key: job for job in jobs}
    gpu = options.gpus_per_run if place.device == "cuda" else 0.0
    trainable = tune.with_resources(tune.with_parameters(trial, jobs=by_key, place=place), {"cpu": 1.0, "gpu": gpu})
    tune.Tuner(
        trainable,
        param_space={"key": tune.grid_search(list(by_key))},
        tune_config=tune.TuneConfig(
            reuse_actors=True,  # a fresh worker spends seconds on imports
            max_concurrent_trials=options.workers or None,
            trial_name_creator=lambda started: started.config["key"],
            trial_dirname_creator=lambda started: started.config["key"],
        ),
        run_config=tune.RunConfig(
            name="sweep",
            storage_path=str((options.mlruns / "ray").resolve()),
            failure_config=tune.FailureConfig(max_failures=3),  # lost workers; a run's own error is a result
            callbacks=[follow],
            verbose=0,
        ),
    ).fit()


def run(work: Plan, results: pd.DataFrame, options: Options) -> tuple[dict[str, str], bool]:
    """Run a plan level by level; returns key -> reason of what failed, and whether it came to its end."""
    store = (options.mlruns / "store").resolve()
    tracker = Tracker(options.mlruns)
    start_ray(options)
    device = "cuda" if ray.cluster_resources().get("GPU") else "cpu"
    data = data_folder(options.data)  # resolved here, because Ray's workers have another current folder
    place = Place(store, data.resolve() if data else None, device=device, compiled=options.compiled)
    with show.Bar([job.key for job in work.pending]) as bar:
        follow = Follow(tracker, store, bar)
        for level in work.levels:
            ready = []
            for job in level:
                reason = blocked(job, follow.failed)
                if reason:
                    follow.fail(job.key, reason)
                else:
                    ready.append(job)
            _insist_on_the_record(ready, work, results, store)
            if ready:
                by_key = {job.key: job for job in ready}
                first = [by_key[key] for key in longest_first(expected(ready, results))]
                run_level(first, place, options, follow)
            if not all(job.key in follow.finished | set(follow.failed) for job in level):
                return follow.failed, False
    return follow.failed, True


def show_forecast(work: Plan, results: pd.DataFrame, options: Options) -> None:
    """The sweep simulated on the GPUs asked for; runs that share one are taken to be as fast as by themselves."""
    if options.gpus < 1 or not 0 < options.gpus_per_run <= options.gpus:
        raise ValueError(
            f"--plan wants at least one GPU and a share of them for each run, got --gpus {options.gpus} and "
            f"--gpus-per-run {options.gpus_per_run:g}"
        )
    seconds = expected(work.pending, results)
    if options.seconds_per_run is not None:
        seconds = dict.fromkeys(seconds, options.seconds_per_run)
    # A share of more than one GPU takes whole ones of as many; two thirds leave a third unused.
    slots = options.gpus * int(1 / options.gpus_per_run) or options.gpus // math.ceil(options.gpus_per_run)
    show.forecast(work, forecast(work, seconds, slots), gpus=options.gpus, price=options.price)


def _insist_on_the_record(ready: Sequence[Job], work: Plan, results: pd.DataFrame, store: Path) -> None:
    """Stop before anything is built on a nested run whose weights do not give its recorded scores."""
    for nested in {run.key for job in ready if isinstance(job.encoder, Run) for run in job.encoder.nested()}:
        found = differences(store / nested, results)
        if found:
            name = work.declared[nested].name
            raise SystemExit(
                f"run {nested} ({name}), trained again for its weights, does not give its recorded scores: "
                f"{found[0]}. Nothing was built on it. Put the recorded run's folder into mlruns/store in its place, "
                "or make a study of your own with --mlruns FOLDER."
            )


def main(options: Options) -> int:
    """Returns the exit status: 0, 1 if a run failed, 130 if interrupted."""
    names = list(options.studies) or (list(STUDIES) if options.list else ["quickstart"])
    studies = chosen(names, options.scale)
    scales = {study.scale.name for study in studies}
    if len(scales) > 1:
        raise ValueError("quickstart runs at a scale of its own; run it by itself")
    if not (options.list or options.dry_run or options.plan):
        record.check_writable(options.mlruns)
        if (options.mlruns / "mlflow.db").exists() or os.environ.get("MLFLOW_TRACKING_URI"):
            export(options.mlruns)
    results = record.read_results(scales.pop(), options.mlruns)
    if options.list:
        show.studies(studies, results, options.mlruns / "store")
        return 0
    jobs = jobs_of(studies)
    work = plan(jobs, results, options.mlruns / "store")
    if options.plan:
        show_forecast(work, results, options)
        return 0
    show.work(work, results, options.workers or os.cpu_count() or 1)
    if options.dry_run:
        return 0
    failed, ended = run(work, results, options) if work.pending else ({}, True)
    if work.pending:
        export(options.mlruns)
    record.keep_arrays(studies, options.mlruns)
    show.outcome(studies, jobs, failed, ended, options.mlruns)
    return 1 if failed else 0 if ended else 130


if __name__ == "__main__":
    try:
        sys.exit(main(tyro.cli(Options)))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
