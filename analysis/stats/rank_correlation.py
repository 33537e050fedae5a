"""Rank correlations of many resamples at once, on plain arrays; the tests hold them against scipy's, one by one."""

import numpy as np
from jaxtyping import Float, Int

from analysis.stats.significance import ROUNDING


def resampled_spearman(
    scores: Float[np.ndarray, "encoders pairs"],
    gold: Float[np.ndarray, " pairs"],
    counts: Int[np.ndarray, "pairs draws"],
) -> Float[np.ndarray, "encoders draws"]:
    """Spearman's rho with gold in every resample, where pair i occurs counts[i, draw] times; nan for equal values only.

    Ties have their mean rank. The sums are whole numbers below 2^53 (up to 200,000 pairs), so rho is exact to rounding.
    """
    wanted = _centred_ranks(gold, counts)
    weighted = counts * wanted
    norm = np.sqrt(np.einsum("pd,pd->d", weighted, wanted))
    found = np.empty((len(scores), counts.shape[1]))
    for i, one in enumerate(scores):
        ranks = _centred_ranks(one, counts)
        own = np.sqrt(np.einsum("pd,pd,pd->d", counts.astype(float), ranks, ranks))
        with np.errstate(invalid="ignore"):
            found[i] = np.einsum("pd,pd->d", weighted, ranks) / (own * norm)
    return found


def tau_b(a: Float[np.ndarray, "draws methods"], b: Float[np.ndarray, "draws methods"]) -> Float[np.ndarray, " draws"]:
    """Kendall's tau-b (Kendall, 1945) of every draw's two orders of the methods; nan where one ties them all.

    Means that differ by rounding are tied: they may have been summed in another order.
    """
    x, y = _signs(a), _signs(b)
    with np.errstate(invalid="ignore"):
        return (x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))


def _centred_ranks(values: Float[np.ndarray, " pairs"], counts: Int[np.ndarray, "pairs draws"]) -> np.ndarray:
    # Twice the mean rank less its mean: (smaller ones) + (smaller or equal ones) - (all), whole numbers.
    order = np.argsort(values, kind="stable")
    smaller = np.zeros((len(values) + 1, counts.shape[1]), dtype=counts.dtype)
    np.cumsum(counts[order], axis=0, out=smaller[1:])
    ordered = values[order]
    ranks = smaller[np.searchsorted(ordered, values)] + smaller[np.searchsorted(ordered, values, side="right")]
    return (ranks - smaller[-1]).astype(float)


def _signs(means: Float[np.ndarray, "draws methods"]) -> Float[np.ndarray, "draws pairs"]:
    one, other = np.triu_indices(means.shape[1], 1)
    gap = means[:, one] - means[:, other]
    return np.where(np.abs(gap) <= ROUNDING * max(1.0, float(np.abs(means).max())), 0.0, np.sign(gap))
