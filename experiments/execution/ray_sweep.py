"""Run jobs as trials of Ray Tune. Only this file and ray_search.py import Ray."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

import pandas as pd
import ray
from ray import tune
from ray._private import ray_constants
from ray.tune.search import Searcher

from cse_core.run import Run
from experiments.cli.console import Bar, console
from experiments.execution import sweep_report
from experiments.execution.job import ExecutionSettings, FailedTasksError, Job
from experiments.execution.log_queue import Logbook
from experiments.execution.plan import Plan, blocking_reason, difference_from_record
from experiments.execution.schedule_estimate import expected_seconds, start_order
from experiments.execution.shared_job import execute_shared, fetch_recorded
from experiments.storage.credentials import redact_credentials
from experiments.storage.retries import retry
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.run_reports import Reporter

MOST_AT_ONCE = 200  # runs that Ray is asked to place at once, at least; those without a place make a cluster grow


@dataclass(frozen=True)
class RayConfig:
    """Ray's address, the number of trials at a time (0: one a core or GPU), the share of a GPU for each.

    `device` is needed on clusters that add machines with GPUs only on demand; `modules` are files that workers import.
    """

    address: str = "local"
    workers: int = 0
    gpus_per_run: float = 1.0
    device: str = ""
    modules: tuple[str, ...] = ()

    def start(self) -> str:
        """Join a cluster, or start Ray on this machine only; return the device of its trials."""
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.modules:  # Ray copies them to every machine
            quiet["runtime_env"] = {"py_modules": list(self.modules)}
        if self.address != "local":
            ray.init(address=self.address, **quiet)
            resources = ray.cluster_resources()
            console.print(f"cluster: {resources.get('CPU', 0):g} cores, {resources.get('GPU', 0):g} GPUs")
            if self.device == "cuda" and not resources.get("GPU"):
                console.print("--device cuda: runs wait until a machine with a GPU joins")
        else:
            cores = self.workers or os.cpu_count()
            # Ray listens on all network interfaces unless clusters are disabled; then only on the loopback one.
            ray_constants.ENABLE_RAY_CLUSTER = False
            # The object store holds small dictionaries only.
            ray.init(address="local", num_cpus=cores, include_dashboard=False, object_store_memory=128 * 2**20, **quiet)
        return self.device or ("cuda" if ray.cluster_resources().get("GPU") else "cpu")


def run_job(config: Mapping[str, Any], jobs: Mapping[str, Job], execution: ExecutionSettings) -> None:
    """Do one job in a Ray worker. Report an exception as a result: only lost workers are worth a retry."""
    job = jobs[config["key"]]
    reporter = Reporter(job.eval_steps, tune.report, until_trained=True)
    try:
        execute_shared(job, execution, on_step=reporter.step, progress=reporter.prepare)
    except Exception as error:  # noqa: BLE001 - the driver reports any error together with the run
        failed = redact_credentials(f"{type(error).__name__}: {error}")
        tune.report({"fraction": 1.0, "failed": failed, "scored": isinstance(error, FailedTasksError)})
    else:
        tune.report({"fraction": 1.0, "failed": ""})


class SweepCallback(tune.Callback):
    """Logs each job as it ends and moves the progress bar, in the driver."""

    def __init__(self, logbook: Logbook, bar: Bar) -> None:
        self.logbook, self.bar = logbook, bar
        self.failed: dict[str, str] = {}
        self.finished: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Tune pickles its callbacks, but a sweep resumes from the record and the run folders."""
        return {}

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Show the run's bar."""
        self.bar.move(trial.config["key"], 0.0, "starting")

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        """Move the run's bar, and hand new points of its curves to MLflow."""
        self.bar.move(trial.config["key"], result["fraction"], result.get("status", ""))
        if "points" in result:
            self.logbook.live.add_points(trial.config["key"], result["points"])

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Log the job that ended, or note why it failed."""
        key = trial.config["key"]
        reason = trial.last_result.get("failed", "it ended without a result")
        if reason:
            self.fail(key, reason)
            if trial.last_result.get("scored"):  # some of its tasks
                self.logbook.add(key)
            return
        self.finished.add(key)
        self.bar.end(key)
        self.logbook.add(key)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Note a job whose worker was lost too often."""
        self.fail(trial.config["key"], "its worker was lost more often than a run is retried")

    def fail(self, key: str, reason: str) -> None:
        """Note why a job gave no result."""
        self.failed[key] = reason
        self.bar.end(key)
        self.logbook.live.stop(key)


def tuner(
    trainable: Callable[..., None],
    cluster: RayConfig,
    execution: ExecutionSettings,
    callback: tune.Callback,
    *,
    space: Any,
    **how: Any,
) -> tune.Tuner:
    """Return a Ray Tune tuner over a space, with the settings that sweeps and searches share."""
    gpu = cluster.gpus_per_run if execution.device == "cuda" else 0.0
    return tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1.0, "gpu": gpu}),
        param_space=space,
        tune_config=tune.TuneConfig(
            reuse_actors=True,  # a new worker takes seconds for imports
            **how,
        ),
        run_config=tune.RunConfig(
            name="sweep",
            storage_path=str(execution.store / "ray"),
            failure_config=tune.FailureConfig(max_failures=3),  # for lost workers; an error in a run is a result
            callbacks=[callback],
            verbose=0,
        ),
    )


def trial_names() -> dict[str, Callable[[Any], str]]:
    """Return options for Ray Tune that name each trial after its run's key."""
    return dict.fromkeys(("trial_name_creator", "trial_dirname_creator"), lambda started: started.config["key"])


class ReadyRuns(Searcher):
    """The jobs in order for Ray Tune, each to start when the jobs that train its nested runs have ended.

    A job is failed if `unusable` returns why one of its nested runs can't be used; empty if it can.
    """

    def __init__(self, jobs: Sequence[Job], callback: SweepCallback, unusable: Callable[[str], str]) -> None:
        super().__init__()
        self.waiting = {job.key: job for job in jobs}
        self.nested = {job.key: _nested_keys(job) for job in jobs}
        self.callback, self.unusable = callback, unusable

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Tune pickles its searcher, but a sweep resumes from the record and the run folders."""
        return {}

    def suggest(self, trial_id: str) -> Any:
        """Return the key of the first job that can start, None if none can yet, or that there are no more."""
        failed = self.callback.failed
        running = self.nested.keys() - self.callback.finished - failed.keys()  # or waiting
        for key, job in tuple(self.waiting.items()):
            if not running.isdisjoint(self.nested[key]):
                continue
            del self.waiting[key]
            for nested in self.nested[key]:
                if nested not in failed and (reason := self.unusable(nested)):
                    failed[nested] = reason
            if not (reason := blocking_reason(job, failed)):
                return {"key": key}
            self.callback.fail(key, reason)
        return None if self.waiting else Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing: the callback notes how a job ended."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing, for the same reason."""


def _nested_keys(job: Job) -> list[str]:
    return [run.key for run in job.encoder.nested()] if isinstance(job.encoder, Run) else []


def unusable_runs(
    names: Mapping[str, str], results: pd.DataFrame, execution: ExecutionSettings
) -> Callable[[str], str]:
    """Return a function of a key that returns why other runs can't use that run, empty if they can; it asks once."""

    @cache
    def unusable(key: str) -> str:
        try:
            retry(partial(fetch_recorded, key, execution))
        except (OSError, ValueError) as error:
            return f"its files can't be fetched: {redact_credentials(error)}"
        return difference_from_record(key, names[key], results, execution.store)

    return unusable


def run_jobs(
    jobs: Sequence[Job],
    execution: ExecutionSettings,
    cluster: RayConfig,
    callback: SweepCallback,
    unusable: Callable[[str], str],
) -> None:
    """Run jobs in order, each when those that train its nested runs have ended, and wait for them."""
    trainable = tune.with_parameters(run_job, jobs={job.key: job for job in jobs}, execution=execution)
    how: dict[str, Any] = {"search_alg": ReadyRuns(jobs, callback, unusable), "num_samples": len(jobs), "space": {}}
    how["max_concurrent_trials"] = cluster.workers or max(MOST_AT_ONCE, int(ray.cluster_resources().get("CPU", 0)))
    tuner(trainable, cluster, execution, callback, **how, **trial_names()).fit()


def run_plan(
    work: Plan, results: pd.DataFrame, execution: ExecutionSettings, cluster: RayConfig, tracker: Tracker
) -> tuple[dict[str, str], bool]:
    """Run a plan; return the reasons of failures by key, and whether it ran to the end."""
    execution = replace(execution, device=cluster.start())
    sweep_report.warn_slow_precision([job.encoder for job in work.pending], execution.device)
    logbook = Logbook(tracker, execution, work.pending)
    by_key = {job.key: job for job in work.pending}
    order = [by_key[key] for key in start_order(work, expected_seconds(work.pending, results))]
    unusable = unusable_runs({key: job.name for key, job in work.declared.items()}, results, execution)
    with closing(logbook.live), Bar({job.key: job.name for job in order}) as bar:
        callback = SweepCallback(logbook, bar)
        run_jobs(order, execution, cluster, callback, unusable)
        if by_key.keys() - callback.finished - callback.failed.keys():
            return callback.failed, False
    return callback.failed | logbook.settle(), True
