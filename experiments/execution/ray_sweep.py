"""Run jobs as trials of Ray Tune. Only this file, tune_hooks.py and ray_search.py import Ray."""

import logging
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

import pandas as pd
import ray
from ray import tune
from ray._private import ray_constants

from experiments.cli.console import Bar, console
from experiments.execution import sweep_report
from experiments.execution.job import ExecutionSettings, FailedTasksError, Job
from experiments.execution.log_queue import Logbook
from experiments.execution.plan import Plan
from experiments.execution.schedule_estimate import expected_seconds, runs_at_once, start_order
from experiments.execution.shared_job import execute_shared
from experiments.execution.tune_hooks import MAX_FAILURES, ReadyRuns, SweepCallback, unusable_runs
from experiments.storage.credentials import redact_credentials
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.run_reports import Reporter


@dataclass(frozen=True)
class RayConfig:
    """Ray's address, the number of trials at a time (0: one per core or GPU), the share of a GPU for each.

    `device` is needed on clusters that add machines with GPUs only on demand; `modules` are files that workers import.
    """

    address: str = "local"
    workers: int = 0
    gpus_per_run: float = 1.0
    device: str = ""
    modules: tuple[str, ...] = ()

    def start(self) -> str:
        """Join a cluster, or start Ray on this machine only, once; return the device of its trials."""
        if not ray.is_initialized():
            self._start()
        return self.device or ("cuda" if ray.cluster_resources().get("GPU") else "cpu")

    def _start(self) -> None:
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
            here: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 128 * 2**20} | quiet
            try:
                ray.init(address="local", num_cpus=cores, **here)
            except Exception as error:  # Ray has no specific class for it
                raise OSError(
                    f"Ray did not start; the same command tries again, on a less busy machine: {error}"
                ) from error

    def places(self, device: str) -> int:
        """Return how many runs Ray should have at a time; on a cluster more than it has room for, so that it grows."""
        if self.workers:
            return self.workers
        resources = ray.cluster_resources()
        cores, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        room = runs_at_once(gpus, self.gpus_per_run) if device == "cuda" else cores
        return room if self.address == "local" else 2 * room + 8


def run_job(config: Mapping[str, Any], jobs: Mapping[str, Job], execution: ExecutionSettings) -> None:
    """Execute one job in a Ray worker. Report an exception as a result: only lost workers are worth a retry."""
    job = jobs[config["key"]]
    reporter = Reporter(job.eval_steps, tune.report, until_trained=True)
    try:
        execute_shared(job, execution, on_step=reporter.step, progress=reporter.prepare)
    except Exception as error:  # noqa: BLE001 - the driver reports any error together with the run
        failed = redact_credentials(f"{type(error).__name__}: {error}{_place(error, job.file)}")
        tune.report({"fraction": 1.0, "failed": failed, "scored": isinstance(error, FailedTasksError)})
    else:
        tune.report({"fraction": 1.0, "failed": ""})


def _place(error: Exception, file: str) -> str:
    """Return the line of the user's own file in which an error arose; empty if none is in its traceback."""
    module, frames = Path(file).stem, traceback.walk_tb(error.__traceback__)  # the file is imported under this name
    lines = [line for frame, line in frames if file and frame.f_globals.get("__name__") == module]
    return f" ({Path(file).name}, line {lines[-1]})" if lines else ""


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
            failure_config=tune.FailureConfig(MAX_FAILURES),
            callbacks=[callback],
            verbose=0,
        ),
    )


def run_jobs(
    jobs: Sequence[Job],
    execution: ExecutionSettings,
    cluster: RayConfig,
    callback: SweepCallback,
    unusable: Callable[[str], str],
) -> None:
    """Run jobs in order, each after the jobs of its teachers and bases, and wait for all."""
    trainable = tune.with_parameters(run_job, jobs={job.key: job for job in jobs}, execution=execution)
    ready = ReadyRuns(jobs, callback, lambda: cluster.places(execution.device), unusable)
    # ReadyRuns determines how many run at a time, and when there are no more.
    how: dict[str, Any] = {"search_alg": ready, "max_concurrent_trials": len(jobs), "num_samples": -1, "space": {}}
    how |= dict.fromkeys(("trial_name_creator", "trial_dirname_creator"), lambda started: started.config["key"])
    tuner(trainable, cluster, execution, callback, **how).fit()


def run_plan(
    work: Plan,
    results: pd.DataFrame,
    execution: ExecutionSettings,
    cluster: RayConfig,
    tracker: Tracker,
    lost: Mapping[str, str],
) -> tuple[dict[str, str], bool]:
    """Run a plan; return the reasons of failures by key, and whether it ran to the end.

    The jobs in `lost` count as failed before it starts, for the reasons given.
    """
    execution = replace(execution, device=cluster.start())
    sweep_report.warn_slow_precision([job.encoder for job in work.pending], execution.device)
    logbook = Logbook(tracker, execution, work.pending)
    by_key = {job.key: job for job in work.pending}
    order = [by_key[key] for key in start_order(work, expected_seconds(work.pending, results))]
    unusable = unusable_runs({key: job.name for key, job in work.declared.items()}, results, execution)
    with closing(logbook.live), Bar({job.key: job.name for job in order}) as bar:
        callback = SweepCallback(logbook, bar)
        for key, reason in lost.items():
            callback.fail(key, reason)
        run_jobs([job for job in order if job.key not in lost], execution, cluster, callback, unusable)
        if not callback.have_ended(order):
            return callback.failed, False
    logbook.settle()
    return logbook.refused | callback.failed | logbook.waiting, True
