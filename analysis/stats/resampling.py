"""What all bootstraps share: percentile intervals, and draws in blocks that fit into memory."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from analysis.stats.significance import LEVEL, Interval

RESAMPLES = 10_000
BLOCK = 2**18  # numbers drawn at a time, to fit the processor's cache


def percentiles(drawn: Float[np.ndarray, " draws"]) -> Interval:
    """Return the percentile interval of the draws."""
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def blocks(resamples: int, size: int) -> Iterator[slice]:
    """Yield the resamples in slices, given the numbers that one resample draws."""
    step = max(1, BLOCK // size)
    return (slice(start, min(start + step, resamples)) for start in range(0, resamples, step))


def generator(resamples: int) -> np.random.Generator:
    """Return the generator of the draws; refuse no resample."""
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    return np.random.default_rng(0)
