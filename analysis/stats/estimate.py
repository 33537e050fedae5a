"""A number from the record with its interval: a contrast of means, a ratio, a correlation or a bootstrap statistic."""

import math
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit  # Student's distribution and its quantiles

from analysis.stats.significance import LEVEL, Interval, detectable_shift


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval; None where it can't be computed.

    `n` is the smallest number of seeds, or of the units that `of` names. Only t tests have a standard `error` and `df`.
    """

    value: float | None
    interval: Interval | None
    n: int = 0
    of: str = ""
    error: float | None = None
    df: float | None = None

    @property
    def mean(self) -> float:
        """The value of a contrast, which is never None."""
        assert self.value is not None
        return self.value

    @property
    def seeds(self) -> str:
        """The number of seeds or of other units, as text."""
        return f"{self.n}{self.of}"

    def holds(self, value: float | None) -> bool | None:
        """Return whether the interval contains a value; None if either is missing."""
        return None if self.interval is None or value is None else self.interval.low <= value <= self.interval.high

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


def t_estimate(mean: float, error: float | None, df: float | None, n: int) -> Estimate:
    """Return an estimate with the interval mean +- t error; without an error it has none."""
    if error is None or df is None:
        return Estimate(mean, None, n)
    half = float(stdtrit(df, (1 + LEVEL) / 2)) * error
    return Estimate(mean, Interval(mean - half, mean + half), n, error=error, df=df)


def _ratio(size: float, error: float) -> float:
    """Return size / error; infinite without an error, 0 if there is no size either."""
    return size / error if error else math.copysign(math.inf, size) if size else 0.0
