"""Represent a sentence by how it ranks a corpus (RankEncoder, Seonwoo et al., ACL 2023), or by its cosines to it."""

import math
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Float, Int
from torch import Tensor

from cse_core.functional.contrastive import cosine_matrix
from cse_core.graph import values_are_readable

THREADED_SIZE = 2**22  # smallest size for which threads save time, as torch's stay busy for a while after their work
BLOCK = 512  # rankings in memory at once, on either side


def rank_vectors(
    vectors: Float[Tensor, "n d"],
    corpus: Float[Tensor, "k d"],
    ties: str = "order",
    *,
    normalise: bool = True,
    similarity: str = "rank",
    places: Int[Tensor, " N"] | None = None,
) -> Float[Tensor, "n N"]:
    """Return each row's ranks of the corpus by cosine, centred, of unit norm: u @ v is Spearman's rho (Eq. 2, 3).

    `ties="order"` gives equal cosines different ranks, in sorted order (training). "average" gives them their mean rank
    (inference; exactly Spearman's rho); if all cosines are equal, the result is the zero vector. `normalise=False`
    ranks by the inner product with unnormalised corpus vectors (released inference). `places` are the rows of `corpus`
    that the N sentences use, so that several can share one. Without it, k is N, and rounding may part equal vectors.

    With similarity "centred", a control that is not in the paper, the cosines themselves take the place of their ranks,
    whatever `ties` is: u @ v is Pearson's r.
    """
    if ties not in ("order", "average"):
        raise ValueError(f"ties must be order or average, got {ties!r}")
    if similarity not in ("rank", "centred"):
        raise ValueError(f"similarity must be one of rank, centred, got {similarity!r}")
    size = len(corpus) if places is None else len(places)
    if size < 2:
        raise ValueError(f"a ranking needs at least two corpus sentences, got {size}")
    scores = cosine_matrix(vectors, corpus) if normalise else F.normalize(vectors, dim=-1) @ corpus.T
    if values_are_readable(scores) and not bool(scores.isfinite().all()):
        raise ValueError("a ranking needs finite vectors, got one with NaN or infinity")
    scores = scores if places is None else scores[:, places]
    if similarity == "centred":
        mean = scores.mean(1, keepdim=True, dtype=torch.float64)  # exact if all are equal, so that differences are 0
        return F.normalize(scores - mean.to(scores.dtype), dim=-1)
    ranks = torch.arange(size, dtype=scores.dtype, device=scores.device) - (size - 1) / 2
    ranks /= math.sqrt(size * (size**2 - 1) / 12)
    if ties == "order":
        return _assign_ranks(scores, ranks)
    return F.normalize(_assign_ranks(scores, ranks, average=True), dim=-1)


def _assign_ranks(
    scores: Float[Tensor, "n N"], ranks: Float[Tensor, " N"], *, average: bool = False
) -> Float[Tensor, "n N"]:
    """Return each score's entry of the ascending `ranks`; equal scores get entries in row order, or their mean."""
    if not values_are_readable(scores):
        return _assign_ranks_by_sorting(scores, ranks, average=average)
    rows, ascending = scores.detach().numpy(), ranks.numpy()
    result = np.empty_like(rows)

    def fill(row: Float[np.ndarray, " N"], into: Float[np.ndarray, " N"]) -> None:
        order = _radix_argsort(row)
        into[order] = _average_ties(row[order], ascending) if average else ascending

    if rows.size < THREADED_SIZE:
        deque(map(fill, rows, result), maxlen=0)
    else:  # numpy sorts without Python's lock
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            deque(threads.map(fill, rows, result), maxlen=0)
    return torch.from_numpy(result)


def _radix_argsort(row: Float[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """Return the indices that sort a row stably (-0 before 0), by two 16-bit radix sorts: faster than comparing.

    Floats sort like unsigned integers once all bits of negative ones and the sign bit of others are flipped.
    """
    if row.dtype != np.float32:
        return np.argsort(row, kind="stable")
    bits = row.view(np.int32)
    halves = (bits ^ (bits >> 31 & 0x7FFFFFFF) ^ np.int32(-(2**31))).view(np.uint16).reshape(-1, 2)
    low, high = (0, 1) if sys.byteorder == "little" else (1, 0)
    order = np.argsort(halves[:, low], kind="stable")
    return order[np.argsort(halves[order, high], kind="stable")]


def _average_ties(scores: Float[np.ndarray, " N"], ranks: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return the evenly spaced ranks with those of equal scores replaced by their mean; both are ascending."""
    starts = np.flatnonzero(np.append(True, scores[1:] != scores[:-1]))
    ends = np.append(starts[1:], len(scores)) - 1
    return ranks if len(starts) == len(ranks) else np.repeat((ranks[starts] + ranks[ends]) / 2, ends - starts + 1)


def _assign_ranks_by_sorting(
    scores: Float[Tensor, "n N"], ranks: Float[Tensor, " N"], *, average: bool
) -> Float[Tensor, "n N"]:
    if not average:
        return ranks[scores.argsort(dim=1, stable=True).argsort(dim=1)]
    ascending = scores.sort(dim=1).values
    first, last = (torch.searchsorted(ascending, scores, right=right) for right in (False, True))
    return (ranks[first] + ranks[last - 1]) / 2


def rank_similarity(
    a: Float[Tensor, "n d"],
    b: Float[Tensor, "m d"],
    corpus: Float[Tensor, "N d"],
    ties: str = "average",
    block: int = BLOCK,
    *,
    normalise: bool = True,
    similarity: str = "rank",
) -> Float[Tensor, "n m"]:
    """Return Spearman's rho of every row of `a` with every row of `b`, with at most 2 * block rankings in memory.

    With similarity "centred", Pearson's r of their cosines to the corpus.
    """
    rank = partial(rank_vectors, corpus=corpus, ties=ties, normalise=normalise, similarity=similarity)
    if a is b:
        return _self_similarity(rank, a, block)
    result = a.new_empty(len(a), len(b))
    for i in range(0, len(a), block):
        left = rank(a[i : i + block])
        for j in range(0, len(b), block):
            result[i : i + block, j : j + block] = left @ rank(b[j : j + block]).T  # unnamed, so freed before the next
    return result.clamp_(-1, 1)  # rounding must not lift a sentence's rho with itself above an `upper` of 1


def _self_similarity(
    rank: Callable[[Float[Tensor, "k d"]], Float[Tensor, "k N"]], a: Float[Tensor, "n d"], block: int
) -> Float[Tensor, "n n"]:
    """Return `rank_similarity` of `a` with itself: each pair of blocks once."""
    result = a.new_empty(len(a), len(a))
    left, right = None, None  # the last block on the right is the next one on the left
    for i in range(0, len(a), block):
        rows = slice(i, i + block)
        left = rank(a[rows]) if right is None else right
        result[rows, rows] = left @ left.T
        for j in reversed(range(i + block, len(a), block)):
            right = None  # freed before the next one is made
            right = rank(a[j : j + block])
            result[rows, j : j + block] = left @ right.T
            result[j : j + block, rows] = result[rows, j : j + block].T
    return result.clamp_(-1, 1)


def pair_rank_similarity(
    a: Float[Tensor, "n d"],
    b: Float[Tensor, "n d"],
    corpus: Float[Tensor, "k d"],
    ties: str = "average",
    block: int = BLOCK,
    *,
    normalise: bool = True,
    similarity: str = "rank",
    places: Int[Tensor, " N"] | None = None,
) -> Float[Tensor, " n"]:
    """Return Spearman's rho (or Pearson's r) of a[i] with b[i], with at most 2 * block rankings in memory."""
    rank = partial(rank_vectors, corpus=corpus, ties=ties, normalise=normalise, similarity=similarity, places=places)
    parts = [(rank(left) * rank(right)).sum(-1) for left, right in zip(a.split(block), b.split(block), strict=True)]
    return torch.cat(parts).clamp_(-1, 1)


def interpolate(
    rank_similarity: Float[Tensor, "*n"], cosine: Float[Tensor, "*n"], weight: float
) -> Float[Tensor, "*n"]:
    """Return weight * rho + (1 - weight) * cosine (Eq. 7)."""
    return weight * rank_similarity + (1 - weight) * cosine
