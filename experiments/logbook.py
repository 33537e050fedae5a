"""Tracks runs that have ended. While storage or MLflow's server is away a sweep goes on; what waits is tried again."""

import time

from experiments.job import Place
from experiments.sharing import fetch_recorded
from experiments.tracking import AWAY, Tracker

PATIENCE = 600.0  # seconds, at the end of a level of runs
PAUSE = 5.0


class Logbook:
    """What has ended and is not tracked yet, by key, and why not."""

    def __init__(self, tracker: Tracker, place: Place) -> None:
        self.tracker, self.place = tracker, place
        self.waiting: dict[str, str] = {}

    def add(self, key: str) -> list[str]:
        """A run that has ended; the keys that are tracked now."""
        self.waiting[key] = ""
        return self.catch_up()

    def catch_up(self) -> list[str]:
        """Track what waits until something is away; that goes to the end of the line. The keys that are tracked now."""
        tracked = []
        for key in list(self.waiting):
            del self.waiting[key]
            try:
                fetch_recorded(key, self.place)
                self.tracker.log(self.place.store / key)
            except AWAY as error:
                self.waiting[key] = f"trained and scored, but not tracked ({error}): the same command tracks it"
                break
            tracked.append(key)
        return tracked

    def settle(self, patience: float = PATIENCE) -> list[str]:
        """Track what waits, and wait for what is away; the keys that are tracked now."""
        until = time.monotonic() + patience
        tracked = self.catch_up()
        while self.waiting and time.monotonic() < until:
            time.sleep(PAUSE)
            tracked += self.catch_up()
        return tracked
