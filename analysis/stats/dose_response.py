"""Whether responses rise with doses that are known without error, each response measured on several seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float

from analysis.stats.estimate import Estimate
from analysis.stats.rank_correlation import tau_b
from analysis.stats.resampling import RESAMPLES, blocks, generator, percentiles
from analysis.stats.significance import LEVEL, check_numbers

FEWEST = 3  # rungs that have an order worth the name


@dataclass(frozen=True)
class DoseResponse:
    """Spearman's rho and Kendall's tau-b of doses and mean responses with their intervals, and the number of rungs."""

    rho: Estimate
    tau: Estimate
    rungs: int


def dose_response(
    doses: Sequence[float],
    responses: Sequence[Sequence[float]],
    resamples: int = RESAMPLES,
    seed: int = 0,
    *,
    level: float = LEVEL,
) -> DoseResponse | None:
    """Do higher doses give higher responses, and would they with other seeds? One list of seeds' responses a dose.

    Seeds are drawn within each rung. Resampling adds noise to that of the seeds, so the intervals are biased towards
    no order; they say nothing about other rungs. If a rung has one seed there are none; fewer than three rungs: None.
    """
    if len(doses) != len(responses):
        raise ValueError(f"expected one list of responses a dose, got {len(responses)} for {len(doses)}")
    if len(doses) < FEWEST:
        return None
    given = check_numbers(doses, "doses")
    measured = [check_numbers(seeds, f"responses, dose {i}") for i, seeds in enumerate(responses, 1)]
    means = np.array([[seeds.mean() for seeds in measured]])
    observed = [_or_none(correlate(given, means)[0]) for correlate in (_rho, _tau)]
    if min(map(len, measured)) < 2:
        return DoseResponse(*(Estimate(value, None) for value in observed), len(given))
    random = generator(resamples, seed)
    drawn = np.empty((2, resamples))
    for block in blocks(resamples, len(given) ** 2 + sum(map(len, measured))):
        size = block.stop - block.start
        means = np.stack([x[random.integers(0, len(x), (size, len(x)))].mean(axis=1) for x in measured], axis=1)
        drawn[:, block] = _rho(given, means), _tau(given, means)
    return DoseResponse(*map(_estimate, observed, drawn, [level] * 2), len(given))


def _estimate(value: float | None, drawn: Float[np.ndarray, " draws"], level: float) -> Estimate:
    defined = drawn[np.isfinite(drawn)]  # a draw that ties all rungs has no order
    return Estimate(value, percentiles(defined, level) if value is not None and len(defined) else None)


def _rho(doses: Float[np.ndarray, " rungs"], means: Float[np.ndarray, "draws rungs"]) -> Float[np.ndarray, " draws"]:
    x, y = (scipy.stats.rankdata(values, axis=-1) for values in (doses, means))
    x, y = x - x.mean(), y - y.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return (y @ x) / np.sqrt((y**2).sum(axis=-1) * (x @ x))


def _tau(doses: Float[np.ndarray, " rungs"], means: Float[np.ndarray, "draws rungs"]) -> Float[np.ndarray, " draws"]:
    return tau_b(np.broadcast_to(doses, means.shape), means)


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
