"""Semantic textual similarity: correlations of pair scores with gold scores, in the three aggregations."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import ConstantInputWarning, NearConstantInputWarning, pearsonr, spearmanr

METRICS = tuple(f"{kind}.{how}" for kind in ("spearman", "pearson") for how in ("all", "mean", "wmean"))
VERSION = 1  # a column of every score: bump with any change that could move one


def correlations(
    scores: Float[np.ndarray, " n"], gold: Float[np.ndarray, " n"], parts: Sequence[str]
) -> dict[str, float]:
    """Spearman and Pearson of scores with gold as {"spearman.all": ..., "pearson.wmean": ...}.

    `all`: one correlation over all parts together, what the four papers report. `mean`, `wmean`: the mean of the parts'
    correlations, plain or weighted by size (SentEval). They differ by points. Undefined (a constant list) is nan.
    """
    if not len(scores) == len(gold) == len(parts) or len(gold) == 0:
        raise ValueError(f"one score, gold and part a pair wanted, got {len(scores)}, {len(gold)} and {len(parts)}")
    labels = np.asarray(parts)
    members = [labels == part for part in dict.fromkeys(parts)]
    sizes = [int(m.sum()) for m in members]
    found = {}
    for name, correlate in (("spearman", _rho), ("pearson", _r)):
        each = [correlate(scores[m], gold[m]) for m in members]
        found[f"{name}.all"] = correlate(scores, gold)
        found[f"{name}.mean"] = float(np.mean(each))
        found[f"{name}.wmean"] = float(np.average(each, weights=sizes))
    return found


def _rho(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    return _defined(spearmanr, a, b)


def _r(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    return _defined(pearsonr, a, b)


def _defined(correlate: Callable[..., Any], a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    if len(a) < 2:
        return float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)  # nan says it already
        warnings.simplefilter("ignore", NearConstantInputWarning)  # a collapsed encoder; its score says it
        return float(correlate(a, b).statistic)
