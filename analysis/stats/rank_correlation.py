"""Rank correlations of many resamples at once; tests compare each one with scipy's."""

import numpy as np
from jaxtyping import Float, Int

from analysis.stats.significance import ROUNDING


def resampled_spearman(
    scores: Float[np.ndarray, "encoders pairs"],
    gold: Float[np.ndarray, " pairs"],
    counts: Int[np.ndarray, "pairs draws"],
) -> Float[np.ndarray, "encoders draws"]:
    """Return Spearman's rho with gold in every resample; pair i occurs counts[i, draw] times; nan if all are equal.

    Ties have their mean rank. The sums are whole numbers below 2^53 (up to 200,000 pairs), so rho is exact to rounding.
    """
    gold_ranks = _centred_ranks(gold, counts)
    weighted = counts * gold_ranks
    norm = np.sqrt(np.einsum("pd,pd->d", weighted, gold_ranks))
    rho = np.empty((len(scores), counts.shape[1]))
    for i, values in enumerate(scores):
        ranks = _centred_ranks(values, counts)
        norm_of_scores = np.sqrt(np.einsum("pd,pd,pd->d", counts.astype(float), ranks, ranks))
        with np.errstate(invalid="ignore"):
            rho[i] = np.einsum("pd,pd->d", weighted, ranks) / (norm_of_scores * norm)
    return rho


def tau_b(a: Float[np.ndarray, "draws methods"], b: Float[np.ndarray, "draws methods"]) -> Float[np.ndarray, " draws"]:
    """Return Kendall's tau-b (Kendall, 1945) of every draw's two orders of the methods; nan if all are tied.

    Means that differ only by rounding are tied: they may have been summed in another order.
    """
    x, y = _signs(a), _signs(b)
    with np.errstate(invalid="ignore"):
        return (x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))


def _centred_ranks(values: Float[np.ndarray, " pairs"], counts: Int[np.ndarray, "pairs draws"]) -> np.ndarray:
    # Twice the centred mean rank, in whole numbers: (smaller values) + (smaller or equal values) - (all values).
    order = np.argsort(values, kind="stable")
    smaller = np.zeros((len(values) + 1, counts.shape[1]), dtype=counts.dtype)
    np.cumsum(counts[order], axis=0, out=smaller[1:])
    ordered = values[order]
    ranks = smaller[np.searchsorted(ordered, values)] + smaller[np.searchsorted(ordered, values, side="right")]
    return (ranks - smaller[-1]).astype(float)


def _signs(means: Float[np.ndarray, "draws methods"]) -> Float[np.ndarray, "draws pairs"]:
    first, second = np.triu_indices(means.shape[1], 1)
    gap = means[:, first] - means[:, second]
    return np.where(np.abs(gap) <= ROUNDING * max(1.0, float(np.abs(means).max())), 0.0, np.sign(gap))
