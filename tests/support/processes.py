"""Several processes that begin the same work at the same moment."""

import multiprocessing
from collections.abc import Callable
from typing import Any


def at_once(work: Callable[[int], Any], count: int) -> list[Any]:
    """Call `work` with 0, 1, ... in as many forks of this process, and return the results in any order.

    Tests that use it ignore Python's DeprecationWarning about forks of a process with several threads.
    """
    fork = multiprocessing.get_context("fork")  # a new interpreter would spend seconds on imports
    barrier, results = fork.Barrier(count), fork.Queue()

    def child(number: int) -> None:
        barrier.wait(30)
        results.put(work(number))

    children = [fork.Process(target=child, args=(number,), daemon=True) for number in range(count)]
    for each in children:
        each.start()
    found = [results.get(timeout=30) for _ in children]
    for each in children:
        each.join(30)
    return found
