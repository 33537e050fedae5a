"""A sentence as its ranking of a corpus (RankEncoder, Seonwoo et al., ACL 2023), or as its cosines to it."""

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

LARGE = 2**22  # numbers from which threads pay: for a while after its own work torch's threads keep the cores busy
BLOCK = 512  # rankings held at once on either side
PROFILES = ("rank", "centred")


def rank_vectors(
    vectors: Float[Tensor, "n d"], corpus: Float[Tensor, "N d"], ties: str = "order", *, normalise: bool = True
) -> Float[Tensor, "n N"]:
    """Each row's ranking of the corpus by cosine, centred, of unit norm: u @ v is Spearman's rho (Eq. 2, 3).

    `ties="order"` gives equal cosines different ranks, as sorting leaves them (training); "average" their mean rank
    (inference; exactly Spearman's rho). A ranking without any order is the zero vector. `normalise=False` ranks by the
    inner product with the corpus vectors as they are (released inference).
    """
    if ties not in ("order", "average"):
        raise ValueError(f"ties must be order or average, got {ties!r}")
    scores, size = _scores(vectors, corpus, normalise), len(corpus)
    ranks = torch.arange(size, dtype=scores.dtype, device=scores.device) - (size - 1) / 2
    ranks /= math.sqrt(size * (size**2 - 1) / 12)
    if ties == "order":
        return _ranked(scores, ranks)
    return F.normalize(_ranked(scores, ranks, average=True), dim=-1)


def centred_vectors(
    vectors: Float[Tensor, "n d"], corpus: Float[Tensor, "N d"], *, normalise: bool = True
) -> Float[Tensor, "n N"]:
    """Each row's cosines to the corpus less their mean, of unit norm: u @ v is Pearson's r of two rows' cosines.

    `rank_vectors` without the ranking, to tell what ranks add: not in the paper. Cosines that are all the same give
    the zero vector. `normalise` as in rank_vectors.
    """
    scores = _scores(vectors, corpus, normalise)
    mean = scores.mean(1, keepdim=True, dtype=torch.float64)  # exact where all are equal, so that nothing is left
    return F.normalize(scores - mean.to(scores.dtype), dim=-1)


def _scores(vectors: Float[Tensor, "n d"], corpus: Float[Tensor, "N d"], normalise: bool) -> Float[Tensor, "n N"]:
    if len(corpus) < 2:
        raise ValueError(f"a ranking needs at least two corpus sentences, got {len(corpus)}")
    scores = cosine_matrix(vectors, corpus) if normalise else F.normalize(vectors, dim=-1) @ corpus.T
    return scores.nan_to_num_(0.0)  # an undefined vector ranks nothing


def profile_vectors(
    vectors: Float[Tensor, "n d"],
    corpus: Float[Tensor, "N d"],
    ties: str = "order",
    *,
    normalise: bool = True,
    similarity: str = "rank",
) -> Float[Tensor, "n N"]:
    """`rank_vectors`, or with similarity "centred" `centred_vectors`, which has no ties."""
    if similarity not in PROFILES:
        raise ValueError(f"similarity must be one of {', '.join(PROFILES)}, got {similarity!r}")
    if similarity == "centred":
        return centred_vectors(vectors, corpus, normalise=normalise)
    return rank_vectors(vectors, corpus, ties, normalise=normalise)


def _ranked(scores: Float[Tensor, "n N"], ranks: Float[Tensor, " N"], *, average: bool = False) -> Float[Tensor, "n N"]:
    """Each score's entry of the ascending `ranks`; equals by their places in the row, or all with their mean."""
    if scores.device.type != "cpu":
        return _ranked_on_gpu(scores, ranks, average=average)
    rows, ascending = scores.detach().numpy(), ranks.numpy()
    found = np.empty_like(rows)

    def fill(row: Float[np.ndarray, " N"], into: Float[np.ndarray, " N"]) -> None:
        order = _ascending(row)
        into[order] = _shared(row[order], ascending) if average else ascending

    if rows.size < LARGE:
        deque(map(fill, rows, found), maxlen=0)
    else:  # numpy sorts without Python's lock
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            deque(threads.map(fill, rows, found), maxlen=0)
    return torch.from_numpy(found)


def _ascending(row: Float[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """What sorts a row, equals in their order (-0 before 0): two radix sorts of 16 bits, faster than a comparing one.

    A float's bits, all flipped if it is negative and the sign alone if not, count up as the numbers do.
    """
    if row.dtype != np.float32:
        return np.argsort(row, kind="stable")
    bits = row.view(np.int32)
    halves = (bits ^ (bits >> 31 & 0x7FFFFFFF) ^ np.int32(-(2**31))).view(np.uint16).reshape(-1, 2)
    low, high = (0, 1) if sys.byteorder == "little" else (1, 0)
    order = np.argsort(halves[:, low], kind="stable")
    return order[np.argsort(halves[order, high], kind="stable")]


def _shared(scores: Float[np.ndarray, " N"], ranks: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Evenly spaced ranks, those of equal scores replaced by their mean; both ascending."""
    starts = np.flatnonzero(np.append(True, scores[1:] != scores[:-1]))
    ends = np.append(starts[1:], len(scores)) - 1
    return ranks if len(starts) == len(ranks) else np.repeat((ranks[starts] + ranks[ends]) / 2, ends - starts + 1)


def _ranked_on_gpu(scores: Float[Tensor, "n N"], ranks: Float[Tensor, " N"], *, average: bool) -> Float[Tensor, "n N"]:
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
    """Spearman's rho of every row of `a` with every row of `b` over the corpus, holding at most 2 * block rankings.

    With similarity "centred", Pearson's r of their cosines to it.
    """
    rank = partial(profile_vectors, corpus=corpus, ties=ties, normalise=normalise, similarity=similarity)
    if a is b:
        return _own_similarity(rank, a, block)
    found = a.new_empty(len(a), len(b))
    for i in range(0, len(a), block):
        left = rank(a[i : i + block])
        for j in range(0, len(b), block):
            found[i : i + block, j : j + block] = left @ rank(b[j : j + block]).T  # no name: gone before the next one
    return found.clamp_(-1, 1)  # rounding must not put a sentence with itself above an `upper` of 1


def _own_similarity(
    rank: Callable[[Float[Tensor, "k d"]], Float[Tensor, "k N"]], a: Float[Tensor, "n d"], block: int
) -> Float[Tensor, "n n"]:
    """`rank_similarity` of `a` with itself: each pair of blocks once, the last on the right being the next left."""
    found = a.new_empty(len(a), len(a))
    left, right = None, None
    for i in range(0, len(a), block):
        rows = slice(i, i + block)
        left = rank(a[rows]) if right is None else right
        found[rows, rows] = left @ left.T
        for j in reversed(range(i + block, len(a), block)):
            right = None  # gone before the next one is made
            right = rank(a[j : j + block])
            found[rows, j : j + block] = left @ right.T
            found[j : j + block, rows] = found[rows, j : j + block].T
    return found.clamp_(-1, 1)


def pair_rank_similarity(
    a: Float[Tensor, "n d"],
    b: Float[Tensor, "n d"],
    corpus: Float[Tensor, "N d"],
    ties: str = "average",
    block: int = BLOCK,
    *,
    normalise: bool = True,
    similarity: str = "rank",
) -> Float[Tensor, " n"]:
    """Spearman's rho (or Pearson's r) of a[i] with b[i] over the corpus, holding at most 2 * block rankings."""
    rank = partial(profile_vectors, corpus=corpus, ties=ties, normalise=normalise, similarity=similarity)
    parts = [(rank(left) * rank(right)).sum(-1) for left, right in zip(a.split(block), b.split(block), strict=True)]
    return torch.cat(parts).clamp_(-1, 1)


def interpolate(
    rank_similarity: Float[Tensor, "*n"], cosine: Float[Tensor, "*n"], weight: float
) -> Float[Tensor, "*n"]:
    """weight * rho + (1 - weight) * cosine (Eq. 7)."""
    return weight * rank_similarity + (1 - weight) * cosine
