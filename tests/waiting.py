"""Waiting for what other processes do."""

import time
from collections.abc import Callable


def until(true: Callable[[], object], seconds: float = 180) -> None:
    """Return as soon as it is true; an error if it never is."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
