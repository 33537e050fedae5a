"""Moderated variances: deviations estimated from few seeds, drawn towards those of similar contrasts (Smyth, 2004).

A contrast's variance s^2 with d degrees of freedom is taken for a draw s0^2 F(d, d0). The prior s0^2 with d0 degrees of
freedom is estimated from all contrasts together; each is then tested with (d0 s0^2 + d s^2) / (d0 + d), d0 + d degrees.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import scipy

from analysis.stats.estimate import Estimate, t_estimate

FEWEST = 4  # variances from which a prior can be estimated
K = TypeVar("K")


class Prior(NamedTuple):
    """The variance that contrasts have in common, and what it is worth; infinite where they don't differ by more."""

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
    """Return the estimates with moderated errors; those of one column and one number of seeds belong together.

    Estimates without spread or degrees of freedom stay as they are, and all do if there are fewer than four.
    """
    usable = {key: e for key, e in estimates.items() if e.error and e.df}
    if len(usable) < FEWEST:
        return dict(estimates)
    squares = {key: float(e.error or 0) ** 2 for key, e in usable.items()}
    dfs = {key: float(e.df or 0) for key, e in usable.items()}
    prior = fit_prior(list(squares.values()), list(dfs.values()))
    most = sum(dfs.values())  # the prior knows no more than all contrasts do
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
