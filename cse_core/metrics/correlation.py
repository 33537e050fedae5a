"""Correlations of pair scores with gold scores, for semantic textual similarity (STS), in three aggregations.

Sums over pairs are rounded once (math.fsum). They avoid BLAS, whose order of additions depends on the processor and on
OPENBLAS_CORETYPE. So equal pair scores have equal correlations, to the bit, on every machine.
"""

import math
from collections.abc import Sequence

import numpy as np
import scipy
from jaxtyping import Float

METRICS = tuple(f"{kind}.{how}" for kind in ("spearman", "pearson") for how in ("all", "mean", "wmean"))
VERSION = 1  # recorded with every score: bump with any change that could move one by more than rounding


def correlations(
    scores: Float[np.ndarray, " n"], gold: Float[np.ndarray, " n"], parts: Sequence[str]
) -> dict[str, float]:
    """Return the Spearman and Pearson correlations of scores with gold, as {"spearman.all": ..., "pearson.wmean": ...}.

    `all` is one correlation over all parts together, as the four papers report. `mean` and `wmean` average the parts'
    correlations, plain or weighted by size (SentEval). They differ by points. A constant or non-finite list gives nan.
    """
    if not len(scores) == len(gold) == len(parts) or len(gold) == 0:
        raise ValueError(f"expected one score, gold and part a pair, got {len(scores)}, {len(gold)} and {len(parts)}")
    labels = np.asarray(parts)
    members = [labels == part for part in dict.fromkeys(parts)]
    sizes = [int(m.sum()) for m in members]
    result = {}
    for name, correlate in (("spearman", _spearman), ("pearson", _pearson)):
        each = [correlate(scores[m], gold[m]) for m in members]
        result[f"{name}.all"] = correlate(scores, gold)
        result[f"{name}.mean"] = float(np.mean(each))
        result[f"{name}.wmean"] = float(np.average(each, weights=sizes))
    return result


def _spearman(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    return _pearson(scipy.stats.rankdata(a), scipy.stats.rankdata(b))


def _pearson(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    if not all(np.isfinite(side).all() and (side != side[0]).any() for side in (a, b)):
        return float("nan")
    x, y, share = _centre(a), _centre(b), 1 / (len(a) - 1)
    # The operations of numpy.corrcoef, in its order. Sums of ranks are exact, so Spearman equals scipy's to the bit.
    r = dot(x, y) * share / math.sqrt(dot(y, y) * share) / math.sqrt(dot(x, x) * share)
    return min(1.0, max(-1.0, r))


def _centre(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Subtract the mean, and scale by a power of two, which is exact, so that no square under- or overflows."""
    x = values - math.fsum(values.tolist()) / len(values)
    return np.ldexp(x, -math.frexp(np.abs(x).max())[1])


def dot(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """Return the inner product: products are rounded one by one, their sum once."""
    return math.fsum((x * y).tolist())
