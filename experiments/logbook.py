"""Tracks runs that have ended. While storage or MLflow's server is away a sweep goes on; what waits is tried again."""

import time

from experiments.job import Place
from experiments.sharing import fetch_recorded
from experiments.storage import PATIENCE, PAUSE
from experiments.tracking import AWAY, Tracker

REST = 30.0  # seconds after a failure in which nothing new is tried: a server that does not answer takes its time


class Logbook:
    """What has ended and is not tracked yet, by key, and why not."""

    def __init__(self, tracker: Tracker, place: Place) -> None:
        self.tracker, self.place = tracker, place
        self.waiting: dict[str, str] = {}
        self.again = 0.0

    def add(self, key: str) -> None:
        """A run that has ended."""
        self.waiting[key] = ""
        if time.monotonic() >= self.again:
            self.catch_up()

    def catch_up(self) -> None:
        """Track what waits until something is away; that goes to the end of the line."""
        for key in list(self.waiting):
            try:
                fetch_recorded(key, self.place)
                self.tracker.log(self.place.store / key)
            except AWAY as error:
                del self.waiting[key]
                self.waiting[key] = f"trained and scored, but not tracked ({error}): the same command tracks it"
                self.again = time.monotonic() + REST
                return
            del self.waiting[key]

    def settle(self, patience: float = PATIENCE) -> dict[str, str]:
        """Track what waits, and wait for what is away; what is not tracked in the end, and why."""
        until = time.monotonic() + patience
        self.catch_up()
        while self.waiting and time.monotonic() < until:
            time.sleep(PAUSE)
            self.catch_up()
        return self.waiting
