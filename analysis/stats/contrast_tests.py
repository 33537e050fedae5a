"""Sums and differences of several groups' means, groups that share seeds or groups of independent seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit  # Student's distribution and its quantiles

from analysis.stats.significance import LEVEL, ROUNDING, Interval, detectable_shift

Scores = Mapping[int, float]  # by seed


@dataclass(frozen=True)
class ContrastEstimate:
    """A contrast of means: `error` and `df` are None where no seed repeats; `n` is the smallest number of seeds."""

    mean: float
    error: float | None
    df: float | None
    n: int

    def interval(self, level: float = LEVEL) -> Interval | None:
        """Return the interval of the contrast, mean +- t error."""
        if self.error is None or self.df is None:
            return None
        half = float(stdtrit(self.df, (1 + level) / 2)) * self.error
        return Interval(self.mean - half, self.mean + half)

    def holds(self, value: float | None) -> bool | None:
        """Return whether the 95 % interval holds a value; None without either."""
        interval = self.interval()
        return None if interval is None or value is None else interval.low <= value <= interval.high

    def difference_p(self) -> float | None:
        """Return p of a two-sided t test against 0; without any spread it is 0 unless the contrast is 0."""
        if self.error is None or self.df is None:
            return None
        return float(2 * stdtr(self.df, -_ratio(abs(self.mean), self.error)))

    def equivalence_p(self, margin: float) -> float | None:
        """Return the larger p of two one-sided t tests: whether the contrast lies within the margin."""
        if self.error is None or self.df is None:
            return None
        return float(stdtr(self.df, -_ratio(margin - abs(self.mean), self.error)))

    def detectable(self, level: float) -> float | None:
        """Return the contrast that a two-sided test at this level detects with 80 % power, given this error."""
        if not self.error or self.df is None:
            return None
        return detectable_shift(self.df, level) * self.error


def estimate_contrast(groups: Sequence[Scores], weights: Sequence[float], *, paired: bool) -> ContrastEstimate | None:
    """Estimate the weighted sum of the groups, seed by seed or as independent samples."""
    return (paired_contrast if paired else welch_contrast)(groups, weights)


def paired_contrast(groups: Sequence[Scores], weights: Sequence[float]) -> ContrastEstimate | None:
    """Estimate the weighted sum of the groups, seed by seed, from the seeds that all have; None without such a seed."""
    seeds = [seed for seed in groups[0] if all(seed in group for group in groups)]
    if not seeds:
        return None
    sums = np.array([sum(w * g[s] for g, w in zip(groups, weights, strict=True)) for s in seeds])
    n = len(seeds)
    if n < 2:
        return ContrastEstimate(float(sums.mean()), None, None, n)
    return ContrastEstimate(float(sums.mean()), _deviation(sums) / math.sqrt(n), n - 1, n)


def welch_contrast(groups: Sequence[Scores], weights: Sequence[float]) -> ContrastEstimate | None:
    """Estimate the weighted sum of independent groups' means; degrees of freedom by Welch and Satterthwaite.

    None if a group is empty. With the weights 1 and -1 it is Welch's test.
    """
    values = [np.array(list(group.values())) for group in groups]
    if any(not len(group) for group in values):
        return None
    mean = float(sum(w * group.mean() for group, w in zip(values, weights, strict=True)))
    n = min(map(len, values))
    if n < 2:
        return ContrastEstimate(mean, None, None, n)
    shares = [(w * _deviation(group)) ** 2 / len(group) for group, w in zip(values, weights, strict=True)]
    total = sum(shares)
    if not total:
        return ContrastEstimate(mean, 0.0, n - 1, n)
    df = total**2 / sum(share**2 / (len(group) - 1) for share, group in zip(shares, values, strict=True))
    return ContrastEstimate(mean, math.sqrt(total), df, n)


def _ratio(size: float, error: float) -> float:
    """Return size / error; infinite without an error, 0 if there is no size either."""
    return size / error if error else math.copysign(math.inf, size) if size else 0.0


def _deviation(values: np.ndarray) -> float:
    """Return the sample deviation; rounding is no spread."""
    if float(np.ptp(values)) <= ROUNDING * max(1.0, float(np.abs(values).max())):
        return 0.0
    return float(np.std(values, ddof=1))
