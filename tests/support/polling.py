"""Wait for other processes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(true: Callable[[], T], seconds: float = 600) -> T:
    """Return the function's first true value; fail after a time that even a slow machine does not need."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
    return found
