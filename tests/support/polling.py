"""Waiting for what other processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(true: Callable[[], T], seconds: float = 600) -> T:
    """Return its first true value; fail after a time that no machine takes, however slow."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
    return found
