"""Contrasts: weighted sums of groups' means, where the groups share seeds or have independent seeds.

Deviations estimated from few seeds are moderated: shrunk towards those of similar contrasts (Smyth, 2004). A contrast's
variance s^2 with d degrees of freedom is modelled as a draw from s0^2 F(d, d0). The prior s0^2 with d0 degrees of
freedom is estimated from all contrasts together. Each is then tested with (d0 s0^2 + d s^2) / (d0 + d) and d0 + d
degrees of freedom.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import scipy

from analysis.stats.estimate import Estimate, t_estimate
from analysis.stats.significance import deviation

FEWEST = 4  # variances from which a prior can be estimated
Scores = Mapping[int, float]  # by seed
K = TypeVar("K")


def difference(plus: Scores, minus: Scores, *, paired: bool) -> Estimate | None:
    """Estimate the mean of one group minus another's, seed by seed or by Welch's test; None without scores of both."""
    return estimate_contrast((plus, minus), (1.0, -1.0), paired=paired)


def estimate_contrast(groups: Sequence[Scores], weights: Sequence[float], *, paired: bool) -> Estimate | None:
    """Estimate the weighted sum of the groups' means, seed by seed or from independent samples."""
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
    return t_estimate(float(sums.mean()), deviation(sums) / math.sqrt(n), n - 1, n)


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
    shares = [(w * deviation(group)) ** 2 / len(group) for group, w in zip(values, weights, strict=True)]
    total = sum(shares)
    if not total:
        return t_estimate(mean, 0.0, n - 1, n)
    df = total**2 / sum(share**2 / (len(group) - 1) for share, group in zip(shares, values, strict=True))
    return t_estimate(mean, math.sqrt(total), df, n)


class Prior(NamedTuple):
    """The common variance of contrasts and its degrees of freedom, infinite if they differ by no more than chance."""

    variance: float
    df: float


def fit_prior(variances: Sequence[float], dfs: Sequence[float]) -> Prior:
    """Estimate the prior from the mean and the variance of log s^2 over contrasts (Smyth, 2004, section 6.2)."""
    d = np.asarray(dfs) / 2
    e = np.log(variances) - scipy.special.digamma(d) + np.log(d)
    excess = float(np.var(e, ddof=1) - np.mean(scipy.special.polygamma(1, d)))
    if excess <= 0:
        return Prior(math.exp(float(np.mean(e))), math.inf)
    half = _inverse_trigamma(excess)
    return Prior(math.exp(float(np.mean(e) + scipy.special.digamma(half) - math.log(half))), 2 * half)


def moderate(estimates: Mapping[K, Estimate]) -> dict[K, Estimate]:
    """Return the estimates, which must share a column and a number of seeds, with moderated errors.

    Estimates without spread or degrees of freedom stay as they are. All do if fewer than four others remain.
    """
    usable = {key: e for key, e in estimates.items() if e.error and e.df}
    if len(usable) < FEWEST:
        return dict(estimates)
    squares = {key: float(e.error or 0) ** 2 for key, e in usable.items()}
    dfs = {key: float(e.df or 0) for key, e in usable.items()}
    prior = fit_prior(list(squares.values()), list(dfs.values()))
    most = sum(dfs.values())  # the prior can't know more than all contrasts together
    worth = min(prior.df, most)
    moderated = {
        key: t_estimate(
            estimate.mean,
            math.sqrt((worth * prior.variance + dfs[key] * squares[key]) / (worth + dfs[key])),
            min(worth + dfs[key], most),
            estimate.n,
        )
        for key, estimate in usable.items()
    }
    return {**estimates, **moderated}


def _inverse_trigamma(value: float) -> float:
    """Return x with trigamma(x) = value."""
    return float(scipy.optimize.brentq(lambda x: scipy.special.polygamma(1, x) - value, 1e-8, 1e8))
