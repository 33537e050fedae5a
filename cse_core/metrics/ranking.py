"""RankCSE's ranking task (Liu et al., ACL 2023, Appendix G): how well a model ranks the pairs of a frequent sentence.

Each sentence in more than three pairs of a set gives a group: its pairs, ranked by the model's score. The ranking is
compared with gold by Kendall's tau-b (the paper's KCC) and NDCG, both averaged over the groups. Arrays have one number
per pair of the set, and a group holds indices into them. Where the task leaves a choice (gain, ties, constant lists),
the docstrings state it. Sums are rounded once (math.fsum), and logarithms and powers correctly (decimal), so the
numbers depend neither on BLAS nor on a processor's vector library.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int

from cse_core.metrics.correlation import dot

VERSION = 1  # recorded with every score: bump with any change that could move one by more than rounding

# The dimension has no name, because groups differ in size.
Groups = Mapping[str, Int[np.ndarray, " _"]]


@cache
def _power_of_two(exponent: float) -> float:
    return float(Decimal(2) ** Decimal(exponent))


GAINS = {"linear": lambda gold: gold, "exponential": lambda gold: np.array([_power_of_two(g) - 1 for g in gold])}


class Ranking(NamedTuple):
    """A measure's mean over the groups where it is defined (nan if none), their number, and that of the dropped groups.

    `random` is the expected value for a uniformly random order, averaged over the same groups.
    """

    score: float
    groups: int
    dropped: int
    random: float


def groups(pairs: Sequence[tuple[str, str]], more_than: int = 3) -> dict[str, Int[np.ndarray, " _"]]:
    """Return the pairs (as indices) of each sentence in more than `more_than` pairs, in order of first occurrence.

    Sentences are the same if their strings are. Repeated pairs all count; a sentence paired with itself counts once.
    """
    # Both positions count: no sentence of STS15 comes first in more than three pairs, yet the paper scores STS15.
    members: dict[str, list[int]] = {}
    for index, pair in enumerate(pairs):
        for sentence in dict.fromkeys(pair):
            members.setdefault(sentence, []).append(index)
    return {sentence: np.array(rows) for sentence, rows in members.items() if len(rows) > more_than}


def kendall(scores: Float[np.ndarray, " n"], gold: Float[np.ndarray, " n"], groups: Groups) -> Ranking:
    """Return the mean of Kendall's tau-b over the groups (Kendall, Biometrika 1945), in [-1, 1]; 0 for a random order.

    tau_b = (C - D) / sqrt((N - T_scores)(N - T_gold)): of N pairs of items, C are in the same order, D in opposite,
    and T tied. Groups with constant gold are dropped, as tau_b is undefined. Groups with constant scores, which are the
    model's doing, count as 0: dropping them would favour a collapsed encoder.
    """
    _check(scores, gold, groups)
    defined = [rows for rows in groups.values() if not _constant(gold[rows])]
    taus = [_group_tau(scores[rows], gold[rows]) for rows in defined]
    return Ranking(_mean_or_nan(taus), len(taus), len(groups) - len(taus), 0.0)


def ndcg(
    scores: Float[np.ndarray, " n"], gold: Float[np.ndarray, " n"], groups: Groups, gain: str = "linear"
) -> Ranking:
    """Return the mean over the groups of normalised discounted cumulative gain of the whole list, in [0, 1].

    NDCG = DCG by scores / DCG by gold, DCG = sum_r gain(gold_r) / log2(r + 1), ranks r from 1. `gain` is linear, gold
    itself (Järvelin and Kekäläinen, TOIS 2002), or exponential, 2^gold - 1 (Burges et al., ICML 2005, who have this
    discount). Tied scores share the mean discount of their ranks, the average over all their orders (McSherry and
    Najork, ECIR 2008), so the order of a file has no effect. Groups whose gold is all zeros are dropped, as NDCG is
    undefined. Other constant gold gives 1 for any order. `random` is mean gain * sum of discounts / ideal DCG.
    """
    if gain not in GAINS:
        raise ValueError(f"gain {gain!r}: not among {', '.join(GAINS)}")
    _check(scores, gold, groups)
    if (negative := np.flatnonzero(gold < 0)).size:
        raise ValueError(
            f"expected gold of at least 0, {len(negative)} of {len(gold)} are less, first at {negative[0]}"
        )
    gains = GAINS[gain](gold)
    defined = [rows for rows in groups.values() if gains[rows].any()]
    values = [_group_ndcg(scores[rows], gains[rows]) for rows in defined]
    measured, expected = _mean_or_nan([v[0] for v in values]), _mean_or_nan([v[1] for v in values])
    return Ranking(measured, len(defined), len(groups) - len(defined), expected)


def summary(
    scores: Float[np.ndarray, " n"], gold: Float[np.ndarray, " n"], pairs: Sequence[tuple[str, str]]
) -> dict[str, float]:
    """Return one set's `kendall`, `ndcg.GAIN`, `ndcg.GAIN.random`, number of groups, and how many are dropped."""
    if len(pairs) != len(scores):
        raise ValueError(f"expected one score a pair, got {len(scores)} scores and {len(pairs)} pairs")
    members = groups(pairs)
    tau = kendall(scores, gold, members)
    result = {"kendall": tau.score, "kendall.dropped": float(tau.dropped), "groups": float(len(members))}
    for gain in GAINS:
        measured = ndcg(scores, gold, members, gain)
        result |= {f"ndcg.{gain}": measured.score, f"ndcg.{gain}.random": measured.random}
        result["ndcg.dropped"] = float(measured.dropped)  # the same for every gain: gold of 0 is a gain of 0
    return result


def _group_tau(scores: Float[np.ndarray, " k"], gold: Float[np.ndarray, " k"]) -> float:
    if _constant(scores):
        return 0.0
    # `method` affects only the p-value, which is unused here; the exact one takes longer.
    return float(scipy.stats.kendalltau(scores, gold, method="asymptotic").statistic)


def _constant(values: Float[np.ndarray, " k"]) -> bool:
    return bool((values == values[0]).all())


def _group_ndcg(scores: Float[np.ndarray, " k"], gains: Float[np.ndarray, " k"]) -> tuple[float, float]:
    """Return one group's NDCG and its expected value for a random order."""
    discounts = np.array([_discount(rank) for rank in range(1, len(gains) + 1)])
    _, tie, sizes = np.unique(-scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    shared = np.array([math.fsum(discounts[end - size : end]) / size for end, size in zip(ends, sizes, strict=True)])
    ideal = dot(np.sort(gains)[::-1], discounts)
    chance = math.fsum(gains) / len(gains) * math.fsum(discounts)
    return dot(gains, shared[tie]) / ideal, chance / ideal


@cache
def _discount(rank: int) -> float:
    """Return 1 / log2(rank + 1)."""
    return float(Decimal(2).ln() / Decimal(rank + 1).ln())


def _mean_or_nan(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _check(scores: Float[np.ndarray, " n"], gold: Float[np.ndarray, " m"], groups: Groups) -> None:
    if len(scores) != len(gold):
        raise ValueError(f"expected one score and gold a pair, got {len(scores)} and {len(gold)}")
    for name, values in (("scores", scores), ("gold", gold)):
        if (wrong := np.flatnonzero(~np.isfinite(values))).size:
            raise ValueError(f"expected finite {name}, {len(wrong)} of {len(values)} are not, first at {wrong[0]}")
    last = max((int(rows.max()) for rows in groups.values()), default=-1)
    if last >= len(scores):
        raise ValueError(f"expected groups of pairs below {len(scores)}, got pair {last}: they belong to another set")
