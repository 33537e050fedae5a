"""Sums and differences of several groups' means, groups that share seeds or groups of independent seeds."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.stats.estimate import Estimate, t_estimate
from analysis.stats.significance import ROUNDING

Scores = Mapping[int, float]  # by seed


def estimate_contrast(groups: Sequence[Scores], weights: Sequence[float], *, paired: bool) -> Estimate | None:
    """Estimate the weighted sum of the groups, seed by seed or as independent samples."""
    return (paired_contrast if paired else welch_contrast)(groups, weights)


def paired_contrast(groups: Sequence[Scores], weights: Sequence[float]) -> Estimate | None:
    """Estimate the weighted sum of the groups, seed by seed, from the seeds that all have; None without such a seed."""
    seeds = [seed for seed in groups[0] if all(seed in group for group in groups)]
    if not seeds:
        return None
    sums = np.array([sum(w * g[s] for g, w in zip(groups, weights, strict=True)) for s in seeds])
    n = len(seeds)
    if n < 2:
        return t_estimate(float(sums.mean()), None, None, n)
    return t_estimate(float(sums.mean()), _deviation(sums) / math.sqrt(n), n - 1, n)


def welch_contrast(groups: Sequence[Scores], weights: Sequence[float]) -> Estimate | None:
    """Estimate the weighted sum of independent groups' means; degrees of freedom by Welch and Satterthwaite.

    None if a group is empty. With the weights 1 and -1 it is Welch's test.
    """
    values = [np.array(list(group.values())) for group in groups]
    if any(not len(group) for group in values):
        return None
    mean = float(sum(w * group.mean() for group, w in zip(values, weights, strict=True)))
    n = min(map(len, values))
    if n < 2:
        return t_estimate(mean, None, None, n)
    shares = [(w * _deviation(group)) ** 2 / len(group) for group, w in zip(values, weights, strict=True)]
    total = sum(shares)
    if not total:
        return t_estimate(mean, 0.0, n - 1, n)
    df = total**2 / sum(share**2 / (len(group) - 1) for share, group in zip(shares, values, strict=True))
    return t_estimate(mean, math.sqrt(total), df, n)


def _deviation(values: np.ndarray) -> float:
    """Return the sample deviation; rounding is no spread."""
    if float(np.ptp(values)) <= ROUNDING * max(1.0, float(np.abs(values).max())):
        return 0.0
    return float(np.std(values, ddof=1))
