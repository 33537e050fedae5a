"""Ray Tune's hooks in the driver: a callback that shows and logs jobs, and a searcher that chooses the next one."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import pandas as pd
from ray import tune
from ray.tune.search import Searcher

from experiments.cli.console import Bar
from experiments.execution.job import ExecutionSettings, Job
from experiments.execution.log_queue import Logbook
from experiments.execution.plan import blocking_reason, difference_from_record
from experiments.execution.shared_job import fetch_recorded
from experiments.storage.credentials import redact_credentials
from experiments.storage.retries import RETRY_INTERVAL_SECONDS, RETRY_TIMEOUT_SECONDS, is_temporary

MAX_FAILURES = 3  # lost workers of a run; an error in a run is a result


class SweepCallback(tune.Callback):
    """Logs each job as it ends and moves the progress bar, in the driver."""

    def __init__(self, logbook: Logbook, bar: Bar) -> None:
        self.logbook, self.bar = logbook, bar
        self.failed: dict[str, str] = {}
        self.finished: set[str] = set()
        self.lost: list[str] = []  # keys of jobs that Tune gave up before they started

    def have_ended(self, jobs: Iterable[Job]) -> bool:
        """Return whether all of these finished or failed."""
        return {job.key for job in jobs} <= self.finished | self.failed.keys()

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
        """Note a job whose worker was lost too often; queue a job again that Tune gave to a lost worker."""
        key = trial.config["key"]
        if trial.num_failures <= MAX_FAILURES:
            self.lost.append(key)
        else:
            self.fail(key, "its worker was lost more often than a run is retried")

    def fail(self, key: str, reason: str) -> None:
        """Note why a job gave no result."""
        self.failed[key] = reason
        self.bar.end(key, failed=True)
        self.logbook.live.stop(key)


class ReadyRuns(Searcher):
    """Gives Ray Tune the jobs in order, each after the jobs that train its nested runs have ended.

    Tune gets at most `places()` of them at a time. It starts them in the order given, so a job that is
    ready later would wait for all others. `unusable` returns why a nested run can't be used, or an empty string. It
    raises OSError while storage is unreachable. Jobs that need an unusable run fail.
    """

    def __init__(
        self, jobs: Sequence[Job], callback: SweepCallback, places: Callable[[], int], unusable: Callable[[str], str]
    ) -> None:
        super().__init__()
        self.jobs = {job.key: job for job in jobs}
        self.waiting = list(self.jobs)
        self.nested = {job.key: [run.key for run in job.encoder.nested()] for job in jobs}
        self.callback, self.places, self.unusable = callback, places, unusable
        self.retry_at = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Tune pickles its searcher, but a sweep resumes from the record and the run folders."""
        return {}

    def suggest(self, trial_id: str) -> Any:
        """Return the settings of the first job that can start, None if none can yet, FINISHED if all have ended."""
        while self.callback.lost:
            self.waiting.insert(0, self.callback.lost.pop())
        not_ended = self.jobs.keys() - self.callback.finished - self.callback.failed.keys()
        if not not_ended:
            return Searcher.FINISHED
        if len(not_ended) - len(self.waiting) >= self.places() or time.monotonic() < self.retry_at:
            return None
        for key in tuple(self.waiting):
            if not_ended.isdisjoint(self.nested[key]):
                try:
                    startable = self._check(key)
                except OSError:  # storage is unreachable, also for runs that could start
                    self.retry_at = time.monotonic() + RETRY_INTERVAL_SECONDS
                    return None
                self.waiting.remove(key)
                if startable:
                    return {"key": key}
        return None

    def _check(self, key: str) -> bool:
        """Return whether a job's nested runs can be used; if not, the job fails."""
        failed = self.callback.failed
        for nested in self.nested[key]:
            if nested not in failed and (reason := self.unusable(nested)):
                failed[nested] = reason
        reason = blocking_reason(self.jobs[key], failed)
        if reason:
            self.callback.fail(key, reason)
        return not reason

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing: the callback notes how a job ended."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing, as nothing is restored."""


def unusable_runs(
    names: Mapping[str, str], results: pd.DataFrame, execution: ExecutionSettings
) -> Callable[[str], str]:
    """Return the function `unusable` of `ReadyRuns`; it says why others can't use a run, and caches its answers."""
    first_error: dict[str, float] = {}  # when fetching a run's files first failed

    @cache
    def unusable(key: str) -> str:
        try:
            fetch_recorded(key, execution)
        except (OSError, ValueError) as error:
            now = time.monotonic()
            if is_temporary(error) and now - first_error.setdefault(key, now) < RETRY_TIMEOUT_SECONDS:
                raise
            return f"its files can't be fetched: {redact_credentials(error)}"
        return difference_from_record(key, names[key], results, execution.store)

    return unusable
