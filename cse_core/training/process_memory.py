"""Memory of a process that trains one run after another."""

import ctypes


def return_freed_memory() -> None:
    """Return freed memory to the operating system, if the C library can.

    glibc keeps it in pieces that later runs can hardly reuse. Without this, a worker grows to gigabytes in fifty runs.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
