"""The study's statistics on plain arrays of scores, one score a seed; each docstring says which question is answered.

Units are the caller's. Deviations are sample deviations (ddof 1), intervals come from Student's t with n - 1 degrees of
freedom, p values are two-sided but for equivalence's. Whatever cannot be computed is None: a deviation of one score, a
test without spread.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy

LEVEL = 0.95
ALPHA = 0.05
POWER = 0.8
# Scores have the units shown, mostly points: this is a share of the largest, or of 1 where that is more. Values that
# differ by less are equal and were merely summed in another order.
ROUNDING = 1e-12
NOT_TESTED = "not tested"


class Interval(NamedTuple):
    """A range of values, both ends included."""

    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """Mean, sample deviation (None for one score) and number of scores."""

    mean: float
    sd: float | None
    n: int


@dataclass(frozen=True)
class Paired:
    """The differences of pairs; interval and p are None for fewer than two pairs or without spread."""

    mean: float
    sd: float | None
    n: int
    interval: Interval | None
    p: float | None


@dataclass(frozen=True)
class Spread:
    """A ratio of two deviations with its interval and p; all are None where a deviation is missing or zero."""

    ratio: float | None
    interval: Interval | None
    p: float | None
    n: tuple[int, int]


def summary(scores: Sequence[float]) -> Summary:
    """What was measured: mean and sample deviation of the scores of n seeds."""
    values = checked(scores, "scores")
    mean = float(np.mean(values))
    if len(values) < 2:
        return Summary(mean, None, 1)
    return Summary(mean, 0.0 if _constant(values) else float(np.std(values, ddof=1)), len(values))


def prediction_interval(scores: Sequence[float], *, runs: int = 1, level: float = LEVEL) -> Interval | None:
    """Where would the mean of `runs` further runs lie, if they were like ours? mean +- t sd sqrt(1/n + 1/runs)."""
    if runs < 1:
        raise ValueError(f"runs must be at least 1, got {runs}")
    found = summary(scores)
    return _around(found, math.sqrt(1 / found.n + 1 / runs), level)


def paired(first: Sequence[float], second: Sequence[float], *, level: float = LEVEL) -> Paired:
    """Is first better than second on the same seeds? Differences first - second and their paired t test.

    Differences that are the same for every seed have no spread to test against: no interval or p.
    """
    a, b = checked(first, "first"), checked(second, "second")
    if len(a) != len(b):
        raise ValueError(f"pairs need equally many scores, got {len(a)} and {len(b)}")
    found = summary(a - b)
    if not found.sd:
        return Paired(found.mean, found.sd, found.n, None, None)
    test = scipy.stats.ttest_rel(a, b)
    low, high = map(float, test.confidence_interval(level))
    return Paired(found.mean, found.sd, found.n, Interval(low, high), float(test.pvalue))


def detectable(found: Paired, tests: int) -> float | None:
    """How large a true difference would have been found in 80 of 100 such tables, were the observed deviation true?

    By a two-sided paired test at ALPHA / tests, Holm's level for the smallest of so many p values.
    """
    if found.p is None or not found.sd:
        return None
    return detectable_shift(found.n - 1, ALPHA / tests) * found.sd / math.sqrt(found.n)


@cache
def detectable_shift(df: float, level: float) -> float:
    """Which true effect, in standard errors, does a two-sided t test at this level find with 80 % power?

    P(|t| > c) for a noncentral t is a mean over chi squared, here of its quantiles: scipy's own distribution gives NaN
    for two degrees of freedom.
    """
    critical, draws = scipy.stats.t(df).ppf(1 - level / 2), 20_000
    cuts = critical * np.sqrt(scipy.stats.chi2(df).ppf((np.arange(draws) + 0.5) / draws) / df)

    def lacking(shift: float) -> float:
        return POWER - float(np.mean(scipy.stats.norm.sf(cuts - shift) + scipy.stats.norm.cdf(-cuts - shift)))

    return float(scipy.optimize.brentq(lacking, 0, cuts[-1] + 10))


def spread(first: Sequence[float], second: Sequence[float], *, level: float = LEVEL) -> Spread:
    """Does first vary less than second? sd(first) / sd(second) with the F test of two independent normal samples."""
    a, b = summary(first), summary(second)
    if not a.sd or not b.sd:
        return Spread(None, None, None, (a.n, b.n))
    ratio = a.sd / b.sd
    law = scipy.stats.f(a.n - 1, b.n - 1)
    tail = (1 - level) / 2
    low, high = (ratio / math.sqrt(float(law.ppf(q))) for q in (1 - tail, tail))
    p = float(min(1.0, 2 * min(law.cdf(ratio**2), law.sf(ratio**2))))
    return Spread(ratio, Interval(low, high), p, (a.n, b.n))


def expected_maximum(scores: Sequence[float]) -> np.ndarray:
    """What is the best of k of these n trials expected to score? (n,), for k = 1 to n.

    Trials are drawn without replacement, P(max <= i-th smallest) = C(i, k) / C(n, k): unbiased (Tang et al., ACL 2020),
    where the estimate of Dodge et al. (EMNLP 2019) draws with replacement and is too low.
    """
    values = np.sort(checked(scores, "scores"))
    n = len(values)
    below, found = np.ones(n + 1), np.empty(n)
    for k in range(n):
        below *= np.maximum(np.arange(n + 1) - k, 0) / (n - k)
        found[k] = np.diff(below) @ values
    return found


def equivalence(first: Sequence[float], second: Sequence[float], margin: float) -> tuple[float | None, bool]:
    """Are the two means the same within a margin? p of the two one-sided paired tests (the larger) and True; where the
    mean difference is beyond the margin, p that it differs from the margin, and False. No p where paired has none.
    """
    found = paired(first, second)
    within = abs(found.mean) <= margin
    if found.p is None or not found.sd:
        return None, within
    error = found.sd / math.sqrt(found.n)
    tail = float(scipy.stats.t(found.n - 1).sf(abs(abs(found.mean) - margin) / error))
    return tail if within else 2 * tail, within  # which side of the margin is seen first and tested then


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rho of two lists; None where one of them is constant."""
    a, b = checked(first, "first"), checked(second, "second")
    return None if _constant(a) or _constant(b) else float(scipy.stats.spearmanr(a, b).statistic)


def holm(p_values: Sequence[float]) -> list[float]:
    """Which of a table's comparisons stand when all are tested together? Holm's adjusted p values."""
    if not len(p_values):
        return []
    values = checked(p_values, "p values")
    if values.min() < 0 or values.max() > 1:
        raise ValueError(f"p values must be in [0, 1], got {p_values}")
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted.tolist()


def published_verdict(published: float, interval: Interval | None) -> str:
    """Is a published number what our runs would predict? within, above or below the prediction interval."""
    if math.isnan(published):
        raise ValueError("the published number is NaN")
    if interval is None:
        return NOT_TESTED
    if published > interval.high:
        return "above"
    return "below" if published < interval.low else "within"


def comparison_verdict(effect: float, adjusted_p: float | None) -> str:
    """Does a claim hold? `effect` is positive in the claim's direction, `adjusted_p` is Holm's (None: not tested)."""
    if math.isnan(effect):
        raise ValueError("the effect is NaN")
    if adjusted_p is None:
        return NOT_TESTED
    if adjusted_p >= ALPHA or effect == 0:
        return "undecided"
    return "supported" if effect > 0 else "contradicted"


def checked(values: Sequence[float] | np.ndarray, name: str) -> np.ndarray:
    """The values as an array in a row, refused by name if there is none or one is not finite."""
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name}: wanted at least one number in a row, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: wanted finite numbers, got {array.tolist()}")
    return array


def _around(found: Summary, factor: float, level: float) -> Interval | None:
    if found.sd is None:
        return None
    half = float(scipy.stats.t(found.n - 1).ppf((1 + level) / 2)) * found.sd * factor
    return Interval(found.mean - half, found.mean + half)


def _constant(values: np.ndarray) -> bool:
    return float(np.ptp(values)) <= ROUNDING * max(1.0, float(np.abs(values).max()))
