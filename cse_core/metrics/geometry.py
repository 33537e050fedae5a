"""Geometry of embeddings: alignment, uniformity, cosines by gold score, the effect of length, a 2-D projection.

As in SimCSE, alignment is over STS-B's pairs with a gold score above 4, and uniformity over all its sentences.
"""

import warnings
from collections import Counter
from collections.abc import Sequence, Sized

import numpy as np
import scipy
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cse_core.metrics.correlation import correlations

VERSION = 1  # recorded with every score: bump with any change that could move one
BLOCK = 256  # rows whose distances to all others are in memory at once
EQUAL_DISTANCE = 0.01  # on the unit sphere; vectors of one string may differ by this much, from padding and rounding


def directions(vectors: Float[Tensor, "n d"], name: str) -> Float[Tensor, "n d"]:
    """Return the rows scaled to unit length, in double precision; refuse a zero or non-finite row of `name`."""
    x = vectors.double()
    norms = x.norm(dim=-1, keepdim=True)
    wrong = ~(norms.isfinite() & (norms > 0)).squeeze(-1)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise ValueError(f"{name}, row {row}: expected a finite vector other than zero, got norm {float(norms[row]):g}")
    return x / norms


def alignment(x: Float[Tensor, "p d"], y: Float[Tensor, "p d"]) -> float:
    """Return the mean of || x/|x| - y/|y| ||^2 over positive pairs, in [0, 4] (Wang & Isola, ICML 2020, alpha 2)."""
    if len(x) == 0:
        raise ValueError("alignment needs at least one positive pair, got 0")
    return float((directions(x, "x") - directions(y, "y")).square().sum(-1).mean())


def uniformity(x: Float[Tensor, "n d"], counts: Int[Tensor, " n"] | None = None) -> float:
    """Return log mean_{i<j} exp(-2 || x_i/|x_i| - x_j/|x_j| ||^2), in [-8, 0] (Wang & Isola, ICML 2020, t 2).

    The mean is over all pairs at once: averaging such logs over batches gives another number. `counts` says how often
    each row occurs. The result is that of the repeated rows, including their pairs of equal rows (distance 0).
    """
    unit = directions(x, "uniformity")
    weights = torch.ones(len(x), dtype=torch.double) if counts is None else counts.double()
    if len(weights) and weights.min() < 1:
        raise ValueError(f"counts must be at least 1, got {int(weights.min())} for row {int(weights.argmin())}")
    total = int(weights.sum())
    if total < 2:
        raise ValueError(f"uniformity needs at least two vectors, got {total}")
    return float(torch.log1p(_sum_expm1(unit, weights.to(x.device), x.dtype) / (total * (total - 1) / 2)))


def _sum_expm1(unit: Float[Tensor, "n d"], weights: Float[Tensor, " n"], precision: torch.dtype) -> Float[Tensor, ""]:
    """Return sum_{i<j} w_i w_j (exp(-2 d_ij^2) - 1), with matrix products in `precision` and sums in double."""
    # Subtracting the mean changes no distance, but keeps the digits of distances between nearly identical vectors. So
    # does expm1. It needs double precision: in single precision it would lose those between distant vectors.
    centred = (unit - unit.mean(0)).to(precision)
    squares = 2 * centred.double().square().sum(-1).to(precision)
    total = weights.new_zeros(())
    for i in range(0, len(unit), BLOCK):
        rows = slice(i, i + BLOCK)
        terms = (4 * centred[rows]) @ centred[i:].T
        terms = terms.sub_(squares[rows, None]).sub_(squares[i:]).clamp_(max=0).double().expm1_()
        total += weights[rows] @ (terms.triu_(1) @ weights[i:])
    return total


def positives(gold: Float[np.ndarray, " n"], above: float = 4.0) -> Int[np.ndarray, " p"]:
    """Return the pairs whose gold score is strictly above a threshold (SimCSE, CompCSE, RankEncoder: above 4)."""
    return np.flatnonzero(gold > above)


def cosine_bins(scores: Float[np.ndarray, " n"], gold: Float[np.ndarray, " n"]) -> dict[str, Float[np.ndarray, " _"]]:
    """Group scores by gold in [0, 1], (1, 2], ... (4, 5], as {"0-1": ..., "4-5": ...} (RankCSE, Fig. 5)."""
    _check_lengths(scores=scores, gold=gold)
    wrong = np.flatnonzero(~((gold >= 0) & (gold <= 5)))
    if len(wrong):
        raise ValueError(f"expected gold scores from 0 to 5, got {gold[wrong[0]]:g} for pair {wrong[0]}")
    group = np.maximum(np.ceil(gold), 1)
    return {f"{top - 1}-{top}": scores[group == top] for top in range(1, 6)}


def length_shortcut(
    scores: Float[np.ndarray, " n"], gold: Float[np.ndarray, " n"], first: Sequence[str], second: Sequence[str]
) -> float:
    """Return Spearman of | words(first) - words(second) | with rank(score) - rank(gold) (after CompCSE, Fig. 5).

    Words are split at white space, and equal scores share their mean rank. A negative value means that pairs of unequal
    length are scored too low: the model takes length for dissimilarity. Undefined (a constant list) is nan.
    """
    _check_lengths(scores=scores, gold=gold, first=first, second=second)
    unequal = [abs(len(a.split()) - len(b.split())) for a, b in zip(first, second, strict=True)]
    # Ranks, not percentiles: the order is the same, and differences of ranks are exact, so that equal ones tie.
    error = scipy.stats.rankdata(scores) - scipy.stats.rankdata(gold)
    return correlations(np.array(unequal, float), error, ["all"] * len(error))["spearman.all"]


def _check_lengths(**columns: Sized) -> None:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ValueError(f"expected one value a pair and at least one pair, got lengths {lengths}")


def summary(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "n d"],
    gold: Float[np.ndarray, " n"],
    first: Sequence[str],
    second: Sequence[str],
) -> dict[str, float]:
    """Return all measures of one scored set; x and y are the vectors of its first and second sentences.

    `alignment` is over pairs with gold above 4, `uniformity` over all 2n sentences, and `uniformity.unique` over the
    distinct strings. `cosine.0-1` to `cosine.4-5` are mean cosines by gold, nan for a group without pairs.
    """
    _check_lengths(x=x, y=y, gold=gold, first=first, second=second)
    units = directions(x, "first sentences"), directions(y, "second sentences")
    cosines = (units[0] * units[1]).sum(-1).cpu().numpy()
    means = {f"cosine.{k}": float(v.mean()) if len(v) else float("nan") for k, v in cosine_bins(cosines, gold).items()}
    chosen = positives(gold)
    rows, counts = _distinct_rows([*first, *second], torch.cat(units))
    vectors = torch.cat([x, y])[rows]
    return {
        "alignment": alignment(x[chosen], y[chosen]),
        "uniformity": uniformity(vectors, counts),
        "uniformity.unique": uniformity(vectors),
        "length_shortcut": length_shortcut(cosines, gold, first, second),
        **means,
    }


def _distinct_rows(texts: Sequence[str], units: Float[Tensor, "n d"]) -> tuple[Int[Tensor, " m"], Int[Tensor, " m"]]:
    """Return each distinct string's first index and its count; refuse a string with two vectors."""
    index: dict[str, int] = {}
    firsts = [index.setdefault(text, i) for i, text in enumerate(texts)]
    distances = (units - units[firsts]).norm(dim=-1)
    if distances.max() > EQUAL_DISTANCE:
        i = int(distances.argmax())
        raise ValueError(
            f"expected one vector a string, got two at distance {float(distances[i]):.3g} for {texts[i]!r}"
        )
    tally = Counter(firsts)
    return torch.tensor(list(tally)), torch.tensor(list(tally.values()))


def project(
    vectors: Float[Tensor, "n d"], seed: int = 42, neighbours: int = 15, min_dist: float = 0.1
) -> Float[np.ndarray, "n 2"]:
    """Project vectors to two coordinates by UMAP with cosine distance (McInnes et al., 2018), as in CompCSE, Fig. 5.

    The same seed gives the same bits on one kind of processor. The defaults are UMAP's own.
    """
    least = max(neighbours, 3) + 1  # the spectral initialisation needs four
    if len(vectors) < least:
        raise ValueError(f"UMAP with {neighbours} neighbours needs at least {least} vectors, got {len(vectors)}")
    units = directions(vectors, "UMAP").float().cpu().numpy()
    with warnings.catch_warnings():
        # About UMAP's neural variant, which is not used.
        warnings.filterwarnings("ignore", "Tensorflow not installed", ImportWarning)
        import umap  # lazy: slow import
    model = umap.UMAP(n_neighbors=neighbours, min_dist=min_dist, metric="cosine", random_state=seed, n_jobs=1)
    return model.fit_transform(units)
