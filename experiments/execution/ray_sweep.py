"""Jobs as Ray Tune's trials, of studies and of searches. Ray is imported here and in ray_search.py alone."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

import pandas as pd
import ray
from ray import tune
from ray._private import ray_constants
from ray.tune.search.basic_variant import BasicVariantGenerator

from cse_core.run import Run
from cse_core.training.run_state import History
from experiments.cli.console import Bar, console
from experiments.execution import sweep_report
from experiments.execution.job import ExecutionSettings, FailedTasksError, Job
from experiments.execution.log_queue import Logbook
from experiments.execution.plan import Plan, blocking_reason, verify_reproduces_record
from experiments.execution.schedule_estimate import expected, longest_first
from experiments.execution.shared_job import execute_shared, fetch_recorded
from experiments.results.mlflow_log import Tracker
from experiments.storage.credentials import redact_credentials
from experiments.storage.retries import retry


@dataclass(frozen=True)
class RayConfig:
    """Ray's address, how many trials at a time (0: one a core or GPU), the share of a GPU that each takes.

    `device` is for a cluster whose GPUs come only when they are asked for.
    """

    address: str = "local"
    workers: int = 0
    gpus_per_run: float = 1.0
    device: str = ""

    def start(self) -> str:
        """Join a cluster, or start Ray on this machine alone; returns the device that its trials have."""
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.address != "local":
            ray.init(address=self.address, **quiet)
            resources = ray.cluster_resources()
            console.print(f"cluster: {resources.get('CPU', 0):g} cores, {resources.get('GPU', 0):g} GPUs")
            if self.device == "cuda" and not resources.get("GPU"):
                console.print("--device cuda: runs wait until a machine with a GPU joins")
        else:
            cores = self.workers or os.cpu_count()
            # Ray listens on all interfaces, but where it holds clusters for impossible: there on the loopback alone.
            ray_constants.ENABLE_RAY_CLUSTER = False
            # Nothing but small dictionaries travels through the object store.
            ray.init(address="local", num_cpus=cores, include_dashboard=False, object_store_memory=128 * 2**20, **quiet)
        return self.device or ("cuda" if ray.cluster_resources().get("GPU") else "cpu")


def trial(config: Mapping[str, Any], jobs: Mapping[str, Job], place: ExecutionSettings) -> None:
    """One job in a Ray worker. What it raises is a result, for it would raise it again; a lost worker is retried."""
    job = jobs[config["key"]]
    try:
        execute_shared(job, place, on_step=_reporter(job))
    except Exception as error:  # noqa: BLE001 - whatever it is, the driver names it with the run
        failed = redact_credentials(f"{type(error).__name__}: {error}")
        tune.report({"fraction": 1.0, "failed": failed, "scored": isinstance(error, FailedTasksError)})
    else:
        tune.report({"fraction": 1.0, "failed": ""})


def _reporter(job: Job) -> Callable[[int, History], None]:
    every = getattr(job.encoder, "eval_steps", 1)

    def report(step: int, history: History) -> None:
        if step % every == 0 and step < history.steps:
            tune.report({"fraction": 0.8 * step / history.steps, "failed": ""})  # scoring takes the rest

    return report


class SweepCallback(tune.Callback):
    """Tracks each job as it ends and moves the progress bar; all of it in the driver."""

    def __init__(self, logbook: Logbook, bar: Bar) -> None:
        self.logbook, self.bar = logbook, bar
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
            if trial.last_result.get("scored"):  # by some of its tasks
                self.logbook.add(key)
            return
        self.finished.add(key)
        self.bar.end(key)
        self.logbook.add(key)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Ray Tune's hook."""
        self.fail(trial.config["key"], "its worker was lost more often than it is retried")

    def fail(self, key: str, reason: str) -> None:
        """A job that gave no result."""
        self.failed[key] = reason
        self.bar.end(key)


def tuner(
    trainable: Callable[..., None],
    cluster: RayConfig,
    place: ExecutionSettings,
    callback: tune.Callback,
    *,
    space: Any,
    **how: Any,
) -> tune.Tuner:
    """Ray Tune over a space, with what trials of studies and of searches have in common."""
    gpu = cluster.gpus_per_run if place.device == "cuda" else 0.0
    return tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1.0, "gpu": gpu}),
        param_space=space,
        tune_config=tune.TuneConfig(
            reuse_actors=True,  # a fresh worker spends seconds on imports
            **how,
        ),
        run_config=tune.RunConfig(
            name="sweep",
            storage_path=str(place.store / "ray"),
            failure_config=tune.FailureConfig(max_failures=3),  # lost workers; a run's own error is a result
            callbacks=[callback],
            verbose=0,
        ),
    )


def names() -> dict[str, Callable[[Any], str]]:
    """Trials are called by their runs' keys."""
    return dict.fromkeys(("trial_name_creator", "trial_dirname_creator"), lambda started: started.config["key"])


def fixed_list_search(keys: Sequence[str], workers: int) -> dict[str, Any]:
    """Trials of these keys in this order, so many at a time. Of a grid of them Tune would copy the whole for each."""
    points = BasicVariantGenerator(points_to_evaluate=[{"key": key} for key in keys], max_concurrent=workers)
    return {"space": {"key": ""}, "num_samples": len(keys), "search_alg": points}


def run_level(jobs: Sequence[Job], place: ExecutionSettings, cluster: RayConfig, follow: SweepCallback) -> None:
    """Hand jobs that need nothing of each other to Ray Tune and wait for them."""
    by_key = {job.key: job for job in jobs}
    trainable = tune.with_parameters(trial, jobs=by_key, place=place)
    tuner(trainable, cluster, place, follow, **fixed_list_search(list(by_key), cluster.workers), **names()).fit()


def run(
    work: Plan, results: pd.DataFrame, place: ExecutionSettings, cluster: RayConfig, tracker: Tracker
) -> tuple[dict[str, str], bool]:
    """Run a plan level by level; returns key -> reason of what failed, and whether it came to its end."""
    place = replace(place, device=cluster.start())
    sweep_report.slow_precision([job.encoder for job in work.pending], place.device)
    with Bar([job.key for job in work.pending]) as bar:
        follow = SweepCallback(Logbook(tracker, place), bar)
        for level in work.levels:
            ready = []
            for job in level:
                reason = blocking_reason(job, follow.failed)
                if reason:
                    follow.fail(job.key, reason)
                else:
                    ready.append(job)
            nested = {run.key for job in ready if isinstance(job.encoder, Run) for run in job.encoder.nested()}
            for key in nested:
                retry(partial(fetch_recorded, key, place))
            verify_reproduces_record({key: work.declared[key].name for key in nested}, results, place.store)
            if ready:
                by_key = {job.key: job for job in ready}
                first = [by_key[key] for key in longest_first(expected(ready, results))]
                run_level(first, place, cluster, follow)
            if not all(job.key in follow.finished | set(follow.failed) for job in level):
                return follow.failed, False
    return follow.failed | follow.logbook.settle(), True
