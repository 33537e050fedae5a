"""Memory that was freed goes back to the system, also from below memory that is still in use."""

import gc
import platform
from pathlib import Path

import numpy as np
import pytest

from cse_core.training.process_memory import return_freed_memory


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no malloc_trim")
def test_freed_memory_goes_back_to_the_system() -> None:
    pieces = [np.ones(8_000) for _ in range(4_000)]  # of 62 KiB each, which glibc takes from its heap
    kept = pieces[-1]  # the heap's top can't sink below it
    pieces.clear()
    gc.collect()
    before = resident_mib()
    return_freed_memory()
    assert resident_mib() < before - 200
    assert kept.sum() == 8_000
