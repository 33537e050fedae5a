"""Statistics on arrays of scores, one score a seed; each docstring begins with the question that it answers.

Units are the caller's. Deviations are sample deviations (ddof 1), intervals come from Student's t with n - 1 degrees of
freedom. What cannot be computed is None: a deviation of one score, a ratio without spread.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy
from scipy.special import ndtr, stdtrit  # scipy.stats.norm's and t's, without checks of arguments

LEVEL = 0.95
ALPHA = 0.05
POWER = 0.8
# Values are equal if they differ by less than this share of the largest one (or of 1, if that is larger): only the
# order of summation differs.
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


def summary(scores: Sequence[float]) -> Summary:
    """Return mean and sample deviation of the scores of n seeds."""
    values = check_numbers(scores, "scores")
    mean = float(np.mean(values))
    if len(values) < 2:
        return Summary(mean, None, 1)
    return Summary(mean, deviation(values), len(values))


def deviation(values: np.ndarray) -> float:
    """Return the sample deviation; rounding is no spread."""
    return 0.0 if _constant(values) else float(np.std(values, ddof=1))


def prediction_interval(scores: Sequence[float], *, runs: int = 1) -> Interval | None:
    """Which interval would hold the mean of `runs` further runs like ours? mean +- t sd sqrt(1/n + 1/runs)."""
    if runs < 1:
        raise ValueError(f"runs must be at least 1, got {runs}")
    measured = summary(scores)
    if measured.sd is None:
        return None
    half = float(stdtrit(measured.n - 1, (1 + LEVEL) / 2)) * measured.sd * math.sqrt(1 / measured.n + 1 / runs)
    return Interval(measured.mean - half, measured.mean + half)


@cache
def detectable_shift(df: float, level: float) -> float:
    """Return the true effect, in standard errors, that a two-sided t test at this level detects with 80 % power.

    P(|t| > c) of a noncentral t is a mean over chi squared, computed here from quantiles: scipy's distribution gives
    NaN for two degrees of freedom.
    """
    critical, draws = -stdtrit(df, level / 2), 20_000
    cuts = critical * np.sqrt(scipy.stats.chi2(df).ppf((np.arange(draws) + 0.5) / draws) / df)

    def power_gap(shift: float) -> float:
        return POWER - float(np.mean(ndtr(shift - cuts) + ndtr(-cuts - shift)))

    return float(scipy.optimize.brentq(power_gap, 0, cuts[-1] + 10))


def spread(first: Sequence[float], second: Sequence[float]) -> tuple[float, Interval] | None:
    """Does first vary less than second? sd(first) / sd(second) with the F test's interval of two independent samples.

    None where a deviation is missing or zero.
    """
    a, b = summary(first), summary(second)
    if not a.sd or not b.sd:
        return None
    ratio, law, tail = a.sd / b.sd, scipy.stats.f(a.n - 1, b.n - 1), (1 - LEVEL) / 2
    low, high = (ratio / math.sqrt(float(law.ppf(q))) for q in (1 - tail, tail))
    return ratio, Interval(low, high)


def detectable_spread(first: int, second: int) -> tuple[float, float]:
    """Which sd(first) / sd(second) below 1 can these numbers of seeds show? The largest ratio that is significant when
    observed, and the true ratio that is detected with 80 % power.
    """
    law = scipy.stats.f(first - 1, second - 1)
    significant = float(law.ppf(ALPHA / 2))
    return math.sqrt(significant), math.sqrt(significant / float(law.ppf(POWER)))


def expected_maximum(scores: Sequence[float]) -> np.ndarray:
    """What is the best of k of these n trials expected to score? (n,), for k = 1 to n.

    Trials are drawn without replacement, P(max <= i-th smallest) = C(i, k) / C(n, k): unbiased (Tang et al., ACL 2020).
    The estimate of Dodge et al. (EMNLP 2019) draws with replacement and is too low.
    """
    return expected_choice(scores, scores)


def expected_choice(criterion: Sequence[float], scores: Sequence[float]) -> np.ndarray:
    """What score is expected of the trial with the highest criterion among k of these n? (n,), for k = 1 to n.

    Exact over all draws without replacement, as in `expected_maximum`. Trials that tie for the highest criterion of a
    draw are equally likely to be chosen.
    """
    measured, given = check_numbers(scores, "scores"), check_numbers(criterion, "criterion")
    if len(given) != len(measured):
        raise ValueError(f"expected a criterion a score, got {len(given)} for {len(measured)}")
    _, tied, counts = np.unique(given, return_inverse=True, return_counts=True)
    values = np.repeat(np.bincount(tied, measured) / counts, counts)  # by rising criterion; ties share their mean
    n = len(values)
    below, expected = np.ones(n + 1), np.empty(n)
    for k in range(n):
        below *= np.maximum(np.arange(n + 1) - k, 0) / (n - k)
        expected[k] = np.diff(below) @ values
    return expected


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rho of two lists; None if one of them is constant."""
    a, b = check_numbers(first, "first"), check_numbers(second, "second")
    return None if _constant(a) or _constant(b) else float(scipy.stats.spearmanr(a, b).statistic)


def holm(p_values: Sequence[float]) -> list[float]:
    """Which of a table's comparisons remain significant if all are tested together? Holm's adjusted p values."""
    if not len(p_values):
        return []
    values = check_numbers(p_values, "p values")
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


def least_rank_correlation(points: int) -> float:
    """What is the smallest rank correlation of this number of points that differs from 0? By normal approximation."""
    return float(scipy.stats.norm.ppf(1 - ALPHA / 2)) / math.sqrt(points - 1)


def check_numbers(values: Sequence[float] | np.ndarray, name: str) -> np.ndarray:
    """Return the values as a one-dimensional array; refuse empty and non-finite ones by name."""
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name}: expected a list of at least one number, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, got {array.tolist()}")
    return array


def _constant(values: np.ndarray) -> bool:
    return float(np.ptp(values)) <= ROUNDING * max(1.0, float(np.abs(values).max()))
