"""Whether responses rise with doses that are known without error, each response measured on several seeds."""

from collections.abc import Sequence

import numpy as np
import scipy
from jaxtyping import Float

from analysis.stats.estimate import Estimate
from analysis.stats.resampling import RESAMPLES, blocks, generator, percentiles
from analysis.stats.significance import check_numbers

FEWEST = 3  # rungs that have an order worth the name


def dose_response(
    doses: Sequence[float], responses: Sequence[Sequence[float]], resamples: int = RESAMPLES
) -> Estimate | None:
    """Do higher doses give higher responses, and would they with other seeds? One list of seeds' responses a dose.

    The value is Spearman's rho of doses and mean responses, `n` the number of rungs. Seeds are drawn within each rung.
    Resampling adds noise to that of the seeds, so the interval is biased towards no order; it says nothing about other
    rungs. If a rung has one seed there is none; fewer than three rungs: None.
    """
    if len(doses) != len(responses):
        raise ValueError(f"expected one list of responses a dose, got {len(responses)} for {len(doses)}")
    if len(doses) < FEWEST:
        return None
    given = check_numbers(doses, "doses")
    measured = [check_numbers(seeds, f"responses, dose {i}") for i, seeds in enumerate(responses, 1)]
    observed = float(_rho(given, np.array([[seeds.mean() for seeds in measured]]))[0])
    if not np.isfinite(observed) or min(map(len, measured)) < 2:
        return Estimate(observed if np.isfinite(observed) else None, None, len(given))
    random = generator(resamples)
    drawn = np.empty(resamples)
    for block in blocks(resamples, len(given) ** 2 + sum(map(len, measured))):
        size = block.stop - block.start
        means = np.stack([x[random.integers(0, len(x), (size, len(x)))].mean(axis=1) for x in measured], axis=1)
        drawn[block] = _rho(given, means)
    defined = drawn[np.isfinite(drawn)]  # a draw that ties all rungs has no order
    return Estimate(observed, percentiles(defined) if len(defined) else None, len(given))


def _rho(doses: Float[np.ndarray, " rungs"], means: Float[np.ndarray, "draws rungs"]) -> Float[np.ndarray, " draws"]:
    x, y = (scipy.stats.rankdata(values, axis=-1) for values in (doses, means))
    x, y = x - x.mean(), y - y.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return (y @ x) / np.sqrt((y**2).sum(axis=-1) * (x @ x))
