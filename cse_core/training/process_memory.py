"""Memory of a process that trains one run after another."""

import ctypes


def return_freed_memory() -> None:
    """Give the memory that was freed back to the system, where the C library can.

    glibc keeps it, in pieces that later runs fit into badly: without this a worker grows to gigabytes over fifty runs.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
