"""Test a study at several looks: O'Brien-Fleming bounds in the spending form of Lan and DeMets (1983).

Once the share t of all information is available, each side of a two-sided test at total level alpha may spend
2 - 2 Phi(z / sqrt(t)), where z is the upper quantile of alpha / 4. p values of t tests are compared with each look's
nominal level, as if they came from normal statistics with independent increments (significance level approach: Jennison
and Turnbull, 2000).
"""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from scipy.special import ndtr, ndtri  # scipy.stats.norm's, without checks of arguments

NODES = 301  # of the grid on which densities between bounds are integrated
ALPHAS = np.geomspace(1e-10, 1.0, 101)  # total levels between which a sequential p is interpolated
WIDEST = 16.0  # bound, in standard deviations at full information


def spending(alpha: float, share: float) -> float:
    """Return how much of alpha may be spent by the time that `share` of the information is available."""
    return float(4 * ndtr(ndtri(alpha / 4) / np.sqrt(share)))


@cache
def nominal_levels(alpha: float, shares: tuple[float, ...]) -> tuple[float, ...]:
    """Return the two-sided level at which each look's own p value rejects, so that all looks together spend alpha.

    With S(t) = sqrt(t) Z(t), a Brownian motion, the density of paths that have stayed within the bounds is carried from
    look to look (Armitage, McPherson and Rowe, 1969).
    """
    if not shares or any(a >= b for a, b in pairwise((0.0, *shares))) or shares[-1] > 1:
        raise ValueError(f"shares of information must rise within (0, 1], got {shares}")
    levels: list[float] = []
    grid, weights = np.zeros(1), np.ones(1)  # the path starts at 0
    for i, share in enumerate(shares):
        step = np.sqrt(share - (shares[i - 1] if i else 0.0))
        more = spending(alpha, share) - (spending(alpha, shares[i - 1]) if i else 0.0)
        bound = _find_bound(grid, weights, step, more)
        levels.append(float(2 * ndtr(-bound / np.sqrt(share))))
        inner = np.linspace(-bound, bound, NODES)
        density = _density((inner[:, None] - grid) / step) @ weights / step
        grid, weights = inner, density * _simpson(inner)
    return tuple(levels)


def _find_bound(grid: np.ndarray, weights: np.ndarray, step: float, more: float) -> float:
    """Return the bound that the path crosses for the first time with probability `more`, on either side."""
    low, high = 0.0, WIDEST
    for _ in range(60):
        middle = (low + high) / 2
        crossing = (ndtr((grid - middle) / step) + ndtr((-middle - grid) / step)) @ weights
        low, high = (middle, high) if crossing > more else (low, middle)
    return high


def _density(x: np.ndarray) -> np.ndarray:
    """Return the standard normal density."""
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def _simpson(grid: np.ndarray) -> np.ndarray:
    weights = np.full(len(grid), 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    return weights * (grid[1] - grid[0]) / 3


def sequential_p(p_values: Sequence[float], shares: Sequence[float]) -> float:
    """Return the smallest total level at which one of these looks would have rejected; 1 without a look.

    For a one-sided test, pass twice the p and halve the result.
    """
    return min([1.0, *total_levels(p_values, shares)])


def total_levels(p_values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return for each look the smallest total level at which it would have rejected.

    `p_values` has a two-sided p for each look, `shares` the share of the information.
    """
    if len(p_values) != len(shares):
        raise ValueError(f"{len(p_values)} p values for {len(shares)} looks; expected one a look")
    if not shares:
        return []
    tables = _nominal_table(tuple(shares))
    return [
        float(np.exp(np.interp(np.log(max(p, 1e-300)), np.log(table), np.log(ALPHAS))))
        for p, table in zip(p_values, tables.T, strict=True)
    ]


@cache
def _nominal_table(shares: tuple[float, ...]) -> np.ndarray:
    """Return nominal levels by total level and look, none of them 0."""
    return np.maximum([nominal_levels(float(alpha), shares) for alpha in ALPHAS], 1e-300)
