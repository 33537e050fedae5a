"""Corpus neighbours that two sentences share, and pairs binned by similarity (RankEncoder, Fig. 6)."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cse_core.metrics.correlation import correlations
from cse_core.metrics.geometry import directions

VERSION = 1  # recorded with every score: bump with any change that could move one
# This times a sentence's position in the corpus is subtracted from its cosine: the earlier of two equal ones is nearer.
# It exceeds rounding in double precision, and adds up to half a step of float32 over a million positions.
TIE_BREAK = 2.0**-45


def overlap(
    x: Float[Tensor, "n d"], y: Float[Tensor, "n d"], corpus: Float[Tensor, "N d"], k: int = 100, block: int = 256
) -> Int[np.ndarray, " n"]:
    """Return |top_k(x_i) and top_k(y_i)|: how many of its k nearest corpus sentences a pair shares, by cosine (Fig. 6).

    Cosines are in double precision, and of equal ones the earlier corpus sentence is nearer. So the result depends
    neither on `block` nor on rounding. At most block x N cosines are in memory at once.
    """
    if not 1 <= k <= len(corpus):
        raise ValueError(f"k nearest of {len(corpus)} corpus sentences: expected k from 1 to {len(corpus)}, got {k}")
    if block < 1:
        raise ValueError(f"block must be at least 1, got {block}")
    left, right, units = directions(x, "x"), directions(y, "y"), directions(corpus, "corpus")
    shared = np.zeros(len(x), dtype=np.int64)
    for i in range(0, len(x), block):
        rows = slice(i, i + block)
        both = torch.cat([_nearest(side[rows], units, k) for side in (left, right)], dim=1).sort(dim=1).values
        shared[rows] = (both[:, 1:] == both[:, :-1]).sum(1).cpu().numpy()  # no side has an index twice
    return shared


def _nearest(rows: Float[Tensor, "b d"], corpus: Float[Tensor, "N d"], k: int) -> Int[Tensor, "b k"]:
    """Return the indices of the k largest cosines of each row, in any order."""
    order = torch.arange(len(corpus), dtype=corpus.dtype, device=corpus.device)
    keys = (rows @ corpus.T).sub_(order, alpha=TIE_BREAK)
    return keys.topk(k, dim=1, sorted=False).indices


def bins(similarity: Float[np.ndarray, " n"], count: int = 10, least: int = 20) -> list[Int[np.ndarray, " _"]]:
    """Return the indices of pairs in bins of equal width over the range of similarity, in ascending order (Fig. 6).

    The smallest bin is merged into the smaller of its neighbours until each has at least `least` pairs or one is left;
    of equal bins the lower one is taken. A bin includes its lower edge, the last one both edges.
    """
    if count < 1 or least < 1:
        raise ValueError(f"count and least must be at least 1, got {count} and {least}")
    if len(similarity) == 0:
        raise ValueError("bins need at least one pair, got 0")
    if not np.isfinite(similarity).all():
        pair = int(np.flatnonzero(~np.isfinite(similarity))[0])
        raise ValueError(f"pair {pair}: expected a finite similarity, got {similarity[pair]}")
    low, width = similarity.min(), np.ptp(similarity)
    bin_of = np.zeros(len(similarity)) if width == 0 else np.floor((similarity - low) / width * count)
    groups = [np.flatnonzero(np.minimum(bin_of, count - 1) == b) for b in range(count)]
    while len(groups) > 1 and min(map(len, groups)) < least:
        sizes = [len(group) for group in groups]
        smallest = sizes.index(min(sizes))
        neighbour = min((i for i in (smallest - 1, smallest + 1) if 0 <= i < len(sizes)), key=sizes.__getitem__)
        lower = min(smallest, neighbour)
        groups[lower : lower + 2] = [np.sort(np.concatenate(groups[lower : lower + 2]))]
    return groups


def gains(
    cosines: Float[np.ndarray, " n"],
    scores: Float[np.ndarray, " n"],
    gold: Float[np.ndarray, " n"],
    shared: Int[np.ndarray, " n"],
) -> Float[np.ndarray, "b 2"]:
    """Return the mean number of shared neighbours and the `gain` of each cosine bin with a defined gain (Fig. 6)."""
    points = [(float(shared[rows].mean()), gain(cosines[rows], scores[rows], gold[rows])) for rows in bins(cosines)]
    table = np.array(points).reshape(-1, 2)
    return table[np.isfinite(table).all(1)]


def gain(cosines: Float[np.ndarray, " n"], scores: Float[np.ndarray, " n"], gold: Float[np.ndarray, " n"]) -> float:
    """Return Spearman of scores with gold minus Spearman of cosines with gold; nan if either is undefined."""
    ours, plain = (correlations(x, gold, ["all"] * len(gold))["spearman.all"] for x in (scores, cosines))
    return ours - plain


def gain_trend(table: Float[np.ndarray, "b 2"]) -> float:
    """Return Spearman between shared neighbours and gain over the bins; nan for fewer than three bins."""
    if len(table) < 3:
        return float("nan")
    return correlations(table[:, 0], table[:, 1], ["all"] * len(table))["spearman.all"]
