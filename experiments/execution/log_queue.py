"""Brings results of runs where people look: from each result.json into the record, and a copy into MLflow.

`result.json` in a run's folder is the fact. Both sinks take each result once, whenever and however often it is handed
in, so a driver that was killed in between, or a server that could not be reached, is made up for by the next sweep.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.cli.console import console
from experiments.execution.job import ExecutionSettings
from experiments.execution.shared_job import fetch_recorded
from experiments.results import csv_record
from experiments.results.mlflow_log import Tracker
from experiments.results.run_result import read_result
from experiments.storage.credentials import redact_credentials
from experiments.storage.retries import RETRY_INTERVAL_SECONDS, RETRY_TIMEOUT_SECONDS

BACKOFF_SECONDS = (
    30.0  # seconds after a failure in which nothing new is tried: a server that does not answer takes its time
)


class Logbook:
    """Results of runs that have ended, by key: `waiting` are those that the record lacks, and why."""

    def __init__(self, tracker: Tracker, place: ExecutionSettings) -> None:
        self.tracker, self.place = tracker, place
        self.waiting: dict[str, str] = {}
        self.unlogged: dict[str, str] = {}
        self.again = self.log_again = 0.0

    def add(self, key: str) -> None:
        """Take a run that has ended."""
        self.waiting[key] = ""
        if time.monotonic() >= self.again:
            self.catch_up()

    def catch_up(self) -> None:
        """Record what waits until storage can't be reached; what failed goes to the end of the line."""
        for key in list(self.waiting):
            try:
                fetch_recorded(key, self.place)
                self._record(key)
            except OSError as error:
                del self.waiting[key]
                self.waiting[key] = f"trained and scored, but not recorded ({error}): re-run the same command"
                self.again = time.monotonic() + BACKOFF_SECONDS
                return
            del self.waiting[key]
            self.unlogged[key] = ""
        if time.monotonic() >= self.log_again:
            self.log()

    def _record(self, key: str) -> None:
        result = read_result(self.place.store / key)
        if result and result["studies"]:
            csv_record.merge_lines(result["scale"], self.tracker.mlruns, [result])

    def log(self) -> None:
        """Log what is recorded until MLflow can't be reached."""
        for key in list(self.unlogged):
            try:
                self.tracker.log(self.place.store / key)
            except OSError as error:
                del self.unlogged[key]
                self.unlogged[key] = str(error)
                self.log_again = time.monotonic() + BACKOFF_SECONDS
                return
            del self.unlogged[key]

    def settle(self, patience: float = RETRY_TIMEOUT_SECONDS) -> dict[str, str]:
        """Wait for storage that can't be reached, then log; return what is not recorded in the end, and why."""
        until = time.monotonic() + patience
        self.catch_up()
        while self.waiting and time.monotonic() < until:
            time.sleep(RETRY_INTERVAL_SECONDS)
            self.catch_up()
        self.log()
        return self.waiting


def results_in(store: Path) -> list[dict[str, Any]]:
    """Return every result of a store's runs, the one that finished first at the front."""
    results = [read_result(path.parent) for path in sorted(store.glob("*/result.json"))]
    return sorted((result for result in results if result), key=lambda result: result["finished"])


def record_results(store: Path, mlruns: Path) -> None:
    """Add to the record what a driver that was killed left only in the store; an earlier line stays as it is."""
    by_scale: dict[str, list[Mapping[str, Any]]] = {}
    for result in results_in(store):
        if result["studies"]:
            by_scale.setdefault(result["scale"], []).append(result)
    for scale, results in by_scale.items():
        csv_record.merge_lines(scale, mlruns, results)


def log_results(store: Path, tracker: Tracker) -> None:
    """Log every result of the store that MLflow lacks. The record has them all, so a failure is only a warning."""
    left = results = results_in(store)
    if not results:
        return
    try:
        left = tracker.lacks(results)
        for result in tuple(left):
            tracker.log(store / result["key"])
            left = left[1:]
    except OSError as error:
        say_not_logged(len(left), error)


def say_not_logged(runs: int, error: object) -> None:
    """Warn that MLflow lacks runs; the reason without its secrets."""
    many = "1 run is" if runs == 1 else f"up to {runs} runs are"
    console.print(
        f"warning: {many} not in MLflow ({redact_credentials(error)}). Their scores are kept; "
        "re-run the same command to log them.",
        style="yellow",
        markup=False,
    )
