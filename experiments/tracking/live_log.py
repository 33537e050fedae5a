"""Log runs to MLflow in a thread of the driver: points of curves while runs train, whole runs when they end.

Nothing waits for MLflow. While it can't be reached, points are dropped: result.json has all of them when a run ends.
Whole runs are kept and tried again.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

from cse_core.training.run_state import History
from experiments.results import csv_record
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.run_content import Point, RunContent, curve_name

BACKOFF_SECONDS = 30.0  # pause after a failure: each attempt at a server that does not answer takes long
POINTS_SHARE = 0.01  # fraction of the time to spend on points at most
FAILED, KILLED = "FAILED", "KILLED"
NewPoints = list[tuple[str, int, float]]  # name, step, value


class CurveReader:
    """Reads the points that a run's curves have gained since the last call, in the form that is recorded."""

    def __init__(self, eval_steps: int) -> None:
        self.eval_steps, self.step = eval_steps, 0

    def read(self, step: int, history: History) -> NewPoints:
        """Return the new points at a step with an evaluation; otherwise none, as means are not complete."""
        if step % self.eval_steps:
            return []
        new = {
            name: list(takewhile(lambda point: point[0] > self.step, reversed(points)))[::-1]
            for name, points in history.curves.items()
        }
        self.step = step
        lines = csv_record.curve_lines({"scale": "", "key": "", "eval_steps": self.eval_steps, "curves": new})
        return [(curve_name(line["name"]), line["step"], line["value"]) for line in lines]


class LiveLog:
    """Logs runs of a store, by key; `content_of` returns what is known of a run before it ends.

    `unlogged` has the keys of ended runs that are not in MLflow yet, and why.
    """

    def __init__(self, tracker: Tracker, store: Path, content_of: Callable[[str], RunContent]) -> None:
        self.tracker, self.store, self.content_of = tracker, store, content_of
        self.unlogged: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}  # ended runs that can't be read, and why
        self._points: dict[str, dict[Point, tuple[float, int]]] = {}
        self._running: set[str] = set()
        self._stopped: dict[str, str] = {}  # statuses of runs that have no result
        self._begun: dict[str, tuple[str, set[Point]]] = {}  # MLflow's run ids, and the points that they have
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._retry_at = self._points_at = 0.0

    def add_points(self, key: str, points: Iterable[tuple[str, int, float]]) -> None:
        """Queue points of a run in progress; without points, only begin the run in MLflow."""
        now = round(1000 * time.time())
        with self._change():
            self._running.add(key)
            self._points.setdefault(key, {}).update({(name, step): (value, now) for name, step, value in points})

    def finish(self, key: str) -> None:
        """Queue a run with a result."""
        with self._change():
            self._running.discard(key)
            self.unlogged[key] = ""

    def stop(self, key: str) -> None:
        """Mark a run as failed, if it was begun."""
        with self._change():
            if key in self._running:
                self._running.discard(key)
                self._stopped[key] = FAILED

    def close(self) -> None:
        """Log what is queued, unless MLflow can't be reached, and mark what is still in progress as killed."""
        with self._changed:
            self._stopped |= dict.fromkeys(self._running, KILLED)
            self._running.clear()
            self._closing = True
            self._changed.notify()
        if self._thread:
            self._thread.join()
            self._thread = None
        self._closing = False
        self.unlogged |= self._unreadable
        self._unreadable = {}

    @contextmanager
    def _change(self) -> Generator[None]:
        """Hold the queues' lock, then wake the thread, which is started first if needed."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        with self._changed:
            yield
            self._changed.notify()

    def _work(self) -> None:
        failures = 0
        while task := self._next_task():
            try:
                task()
                failures = 0
            except OSError:
                failures += 1
                self._retry_at = time.monotonic() + BACKOFF_SECONDS
                if self._closing and failures > 1:  # a single failure may be temporary
                    return

    def _next_task(self) -> Callable[[], None] | None:
        """Wait for a task and return it; return None when closing and everything is done."""
        with self._changed:
            while True:
                now = time.monotonic()
                times: dict[Callable[[], None], float] = {}
                if self.unlogged:
                    times[self._log_runs] = self._retry_at
                if self._points or self._stopped:
                    times[self._log_points] = max(self._retry_at, self._points_at)
                ready = [task for task, at in times.items() if self._closing or at <= now]
                if ready or self._closing:
                    return ready[0] if ready else None
                self._changed.wait(min(times.values()) - now if times else None)

    def _log_runs(self) -> None:
        for key in list(self.unlogged):
            try:
                self.tracker.log(self.store / key)
            except OSError as error:
                with self._changed:
                    del self.unlogged[key]
                    self.unlogged[key] = str(error)  # behind the others
                raise
            except Exception as error:  # noqa: BLE001 - of this run alone; a later command tries it again
                with self._changed:
                    del self.unlogged[key]
                    self._unreadable[key] = str(error)
                continue
            with self._changed:
                del self.unlogged[key]
                for queue in (self._points, self._stopped, self._begun):
                    queue.pop(key, None)

    def _log_points(self) -> None:
        with self._changed:
            points, self._points = self._points, {}
            stopped, self._stopped = self._stopped, {}
        for key in points.keys() - self._begun.keys():
            try:
                content = self.content_of(key)
            except ValueError:  # it can't be read; the error that ends the run says so
                del points[key]
            else:
                self._begun[key] = self.tracker.begin(content), set()
        started = time.monotonic()
        for key, new in points.items():
            run_id, has = self._begun[key]
            if run_id:
                self.tracker.add_points(run_id, {point: value for point, value in new.items() if point not in has})
                has |= new.keys()
        ended = time.monotonic()
        self._points_at = ended + (ended - started) * (1 / POINTS_SHARE - 1)
        for key, status in stopped.items():
            run_id, _ = self._begun.pop(key, ("", set()))
            if run_id:
                self.tracker.end(run_id, status)
