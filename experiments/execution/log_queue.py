"""Log finished runs: merge each result.json into the record, and copy it to MLflow.

Adding a result a second time changes nothing, so the next sweep adds what a killed driver or an unreachable server left
out.
"""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from experiments.cli.console import console
from experiments.execution.job import ExecutionSettings, Job, describe
from experiments.execution.shared_job import fetch_recorded
from experiments.results import csv_record
from experiments.results.csv_table import DisagreementError
from experiments.results.run_result import as_recorded, load_result, read_result
from experiments.storage.credentials import redact_credentials
from experiments.storage.retries import RETRY_INTERVAL_SECONDS, RETRY_TIMEOUT_SECONDS
from experiments.tracking.live_log import BACKOFF_SECONDS, LiveLog
from experiments.tracking.mlflow_log import Tracker, run_files
from experiments.tracking.run_content import run_content

SEPARATE = "put the recorded run's folder into the store, or start a separate record with --mlruns FOLDER"


class DamagedResultError(Exception):
    """A run's files are there but not what they should be."""


class Logbook:
    """Records finished runs, retrying while storage is unreachable, and has them logged to MLflow (live_log.py).

    `waiting` has the keys of runs that are not recorded yet, and why; `refused` those that can't be, and why.
    """

    def __init__(self, tracker: Tracker, execution: ExecutionSettings, jobs: Iterable[Job] = ()) -> None:
        self.tracker, self.execution = tracker, execution
        by_key = {job.key: job for job in jobs}
        self.live = LiveLog(tracker, execution.store, lambda key: run_content(describe(by_key[key])))
        self.waiting: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.retry_at = 0.0

    def add(self, key: str) -> None:
        """Queue a finished run for the record and for MLflow."""
        self.waiting[key] = ""
        if time.monotonic() >= self.retry_at:
            self.catch_up()

    def catch_up(self) -> None:
        """Record the waiting runs until storage is unreachable; a run that failed moves to the end of the queue.

        A run with damaged files is not tried again.
        """
        for key in list(self.waiting):
            try:
                self._record(key)
            except OSError as error:
                del self.waiting[key]
                self.waiting[key] = f"trained and scored, but not recorded ({error}): re-run the same command"
                self.retry_at = time.monotonic() + BACKOFF_SECONDS
                return
            except DamagedResultError as error:
                del self.waiting[key]
                self.refused[key] = f"trained and scored, but not recorded: {error}"
                self.live.stop(key)
                continue
            del self.waiting[key]
            self.live.finish(key)

    def _record(self, key: str) -> None:
        try:
            fetch_recorded(key, self.execution)
            result = load_result(self.execution.store / key)
        except ValueError as error:
            raise DamagedResultError(str(error)) from error
        if result["studies"]:
            try:
                csv_record.merge_lines(result["scale"], self.tracker.mlruns, [result], unless=SEPARATE)
            except DisagreementError as error:
                raise DamagedResultError(str(error)) from error

    def settle(self) -> dict[str, str]:
        """Wait for unreachable storage, then for MLflow; return the keys of runs still not recorded, and why."""
        until = time.monotonic() + RETRY_TIMEOUT_SECONDS
        self.catch_up()
        while self.waiting and time.monotonic() < until:
            time.sleep(RETRY_INTERVAL_SECONDS)
            self.catch_up()
        self.live.close()
        return self.waiting | self.refused


def results_in(store: Path, file: str = "") -> list[dict[str, Any]]:
    """Return a store's results, of the project or of the user's own study in `file`, in the order of their ends."""
    results = [read_result(path.parent) for path in sorted(store.glob("*/result.json"))]
    of_file = [result for result in results if result and result.get("file", "") == file]
    return sorted(of_file, key=lambda result: result["finished"])


def record_results(store: Path, mlruns: Path, file: str = "") -> None:
    """Add to the record the results that a killed driver left only in the store; recorded lines stay unchanged.

    A run that disagrees with its recorded lines is not added, with a warning: it may have been trained again. `file` is
    the user's own study, if the record belongs to it.
    """
    by_scale: dict[str, list[Mapping[str, Any]]] = {}
    for result in results_in(store, file):
        if result["studies"]:
            by_scale.setdefault(result["scale"], []).append(result)
    for scale, results in by_scale.items():
        try:
            csv_record.merge_lines(scale, mlruns, results, unless=SEPARATE)
        except DisagreementError as error:
            for key, (first, *others) in error.differing.items():
                more = f", and {len(others):,} more" if others else ""
                console.print(f"warning: run {key} is not recorded: {first}{more}", style="yellow")
            console.print(f"warning: what it has disagrees with its recorded lines; {SEPARATE}", style="yellow")
            agreeing = [result for result in results if result["key"] not in error.differing]
            csv_record.merge_lines(scale, mlruns, agreeing, unless=SEPARATE)


def log_results(store: Path, tracker: Tracker, file: str = "") -> None:
    """Log the store's results that are not in MLflow. The record has them, so a failure is only a warning."""
    unlogged = contents = [run_content(result) for result in as_recorded(results_in(store, file), tracker.mlruns)]
    if not contents:
        return
    try:
        unlogged = tracker.missing(contents)
        for content in tuple(unlogged):
            tracker.write(content, run_files(store / content.key))
            unlogged = unlogged[1:]
    except OSError as error:
        say_not_logged(len(unlogged), error)


def say_not_logged(runs: int, error: object) -> None:
    """Warn that runs are not in MLflow; print the reason without credentials."""
    count = "1 run is" if runs == 1 else f"up to {runs} runs are"
    console.print(
        f"warning: {count} not in MLflow ({redact_credentials(error)}). Their scores are saved; "
        "re-run the same command to log them.",
        style="yellow",
    )
