"""How long a piece of work takes."""

import time
from collections.abc import Callable


def seconds(work: Callable[[], object]) -> float:
    """By the wall clock."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
