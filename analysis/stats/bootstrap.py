"""Bootstrap statistics that resample pairs or seeds; each docstring begins with the question that it answers.

Intervals are percentile intervals. They assume no distribution, and are too short for few seeds: a 95 % interval covers
the mean of normal scores 92 times in 100 with 10 seeds, 84 with 5, 75 with 3. Units are the caller's. What cannot be
computed is None: the interval of one seed, the correlation of constant scores.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float, Int

from analysis.stats.estimate import Estimate
from analysis.stats.significance import LEVEL, ROUNDING, Interval, check_numbers

RESAMPLES = 10_000
BLOCK = 2**18  # numbers drawn at a time, to fit the processor's cache
FEWEST_RUNGS = 3  # doses, called rungs; the order of fewer means nothing

Scores = Float[np.ndarray, "seeds tasks"]
Draws = Float[np.ndarray, "draws seeds tasks"]
DrawnValues = Float[np.ndarray, " draws"]
Sets = Sequence[Float[np.ndarray, " pairs"]]
RunsSets = Sequence[Float[np.ndarray, "seeds pairs"]]
SeedsOfMethods = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Difference:
    """A difference first - second, its interval and p (None if a correlation is undefined), and the number of pairs."""

    difference: float | None
    interval: Interval | None
    p: float | None
    n: int


def paired_bootstrap(first: Sets, second: Sets, gold: Sets, resamples: int = RESAMPLES) -> Difference:
    """Paired bootstrap: would first beat second on other pairs like these? It says nothing about other seeds.

    Each argument has an array of pair scores for each set. The statistic is the mean over sets of Spearman's
    rho(scores, gold). Pairs are drawn within each set. p is 2 (1 + count) / (1 + resamples), where count is the number
    of draws with the rarer sign, so that it agrees with the interval (Davison and Hinkley, 1997, chapter 4). Draws in
    which all scores are equal have no rho and are left out. They occur only with very few pairs.
    """
    sets = [(np.stack([a, b]), c) for a, b, c in zip(first, second, gold, strict=True)]
    return _resample_pairs(sets, np.array([1.0, -1.0]), np.broadcast_to((1.0, -1.0), (resamples, 2)))


def crossed_bootstrap(
    first: RunsSets, second: RunsSets, gold: Sets, resamples: int = RESAMPLES, *, paired: bool = False
) -> Difference:
    """Would first beat second with other seeds and on other pairs? Both seeds and pairs are resampled.

    `first` and `second` have a (seeds, pairs) matrix for each set. Seeds are drawn for each method independently, or
    with `paired` the same rows for both; the drawn seeds are the same in all sets. Pairs are drawn within each set, the
    same for all seeds and both methods (Owen, 2007: pigeonhole bootstrap). If a method has one seed, there is neither
    an interval nor p. p is computed as in `paired_bootstrap`, and the same draws are left out.
    """
    sets = [(np.concatenate([a, b]), c) for a, b, c in zip(first, second, gold, strict=True)]
    counts = (len(first[0]), len(second[0]))
    random = np.random.default_rng((0, 1))  # so that pairs are drawn as in `paired_bootstrap`
    shares = [random.multinomial(n, [1 / n] * n, resamples) / n for n in counts]
    weights = np.concatenate([shares[0], -shares[0 if paired else 1]], axis=1)
    both = _resample_pairs(sets, np.repeat((1 / counts[0], -1 / counts[1]), counts), weights)
    return both if min(counts) > 1 else Difference(both.difference, None, None, both.n)


def _resample_pairs(
    sets: Sequence[tuple[np.ndarray, np.ndarray]],
    plain: Float[np.ndarray, " encoders"],
    weights: Float[np.ndarray, "draws encoders"],
) -> Difference:
    """Bootstrap a weighted sum of encoders' correlations; `plain` weights the observed ones, `weights` the draws."""
    random = generator(len(weights))
    observed, drawn = 0.0, np.zeros(len(weights))
    for scores, gold in sets:
        n = len(gold)
        whole = resampled_spearman(scores, gold, np.ones((n, 1), dtype=np.int64))
        observed += float(plain @ whole[:, 0]) / len(sets)
        for block in blocks(len(weights), n):
            rho = resampled_spearman(scores, gold, _draw_counts(random, n, block.stop - block.start))
            drawn[block] += np.einsum("de,ed->d", weights[block], rho) / len(sets)
    pairs = sum(len(gold) for _, gold in sets)
    drawn = drawn[np.isfinite(drawn)]
    if math.isnan(observed) or not len(drawn):
        return Difference(None, None, None, pairs)
    count = min(int((drawn <= ROUNDING).sum()), int((drawn >= -ROUNDING).sum()))
    return Difference(observed, percentiles(drawn), min(1.0, 2 * (1 + count) / (1 + len(drawn))), pairs)


def mean(scores: Float[np.ndarray, "*draws seeds tasks"]) -> Float[np.ndarray, "*draws"]:
    """Return the mean of all seeds' scores on all tasks."""
    return scores.mean(axis=(-2, -1))


def interquartile_mean(scores: Float[np.ndarray, "*draws seeds tasks"]) -> Float[np.ndarray, "*draws"]:
    """Return the mean of the middle half of all seed x task scores (Agarwal et al., NeurIPS 2021, section 4.3).

    A quarter of the scores, rounded down, is cut at each end. With few seeds these are the easiest and hardest tasks.
    """
    ordered = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)


def difference_bootstrap(
    a: Scores, b: Scores, statistic: Callable[[Draws], DrawnValues] = mean, resamples: int = RESAMPLES
) -> Estimate:
    """How much larger than b's would a's statistic be with other seeds? (Agarwal et al., NeurIPS 2021, section 4.1)

    Row i of both is seed i, and a draw takes the same whole rows of both: a run scores on all tasks, and these scores
    rise and fall together. Drawing runs within each task, as in the paper, would give an interval that is too short.
    """
    return _bootstrap(a, b, lambda x, y: statistic(x) - statistic(y), resamples, paired=True)


def probability_of_improvement(a: Scores, b: Scores, resamples: int = RESAMPLES) -> Estimate:
    """How likely does a run of a beat a run of b on a task? P(X > Y) + P(X = Y) / 2, its mean over tasks.

    A task's value is Mann and Whitney's U / (seeds of a x seeds of b) (Agarwal et al., NeurIPS 2021, section 4.3).
    """
    return _bootstrap(a, b, _wins, resamples, paired=False)


def order_bootstrap(first: SeedsOfMethods, second: SeedsOfMethods, resamples: int = RESAMPLES) -> Estimate:
    """Do two measures order the methods alike, and would they with other seeds? Kendall's tau-b of their mean scores.

    Each measure has a list of scores by seed for each method. Seed i is the same run in both measures, and is drawn for
    both. Resampling adds to the noise of the seeds and swaps close methods, so the interval is biased towards less
    agreement. There is no value if a measure ties all methods.
    """
    a, b = ([np.array(seeds) for seeds in measure] for measure in (first, second))
    value = float(tau_b(*(np.array([[x.mean() for x in methods]]) for methods in (a, b)))[0])
    if math.isnan(value):
        return Estimate(None, None)
    # The draws for b aren't used; without them recorded intervals would change.
    interval = _order_interval(
        [*a, *b], len(a) ** 2, lambda picks: tau_b(*(_means(x, picks[: len(a)]) for x in (a, b))), resamples
    )
    return Estimate(value, interval)


def dose_response(
    doses: Sequence[float], responses: Sequence[Sequence[float]], resamples: int = RESAMPLES
) -> Estimate | None:
    """Do higher doses give higher responses, and would they with other seeds?

    `responses` has a list by seed for each dose. The value is Spearman's rho of doses and mean responses, `n` the
    number of doses. Seeds are drawn within each dose. Resampling adds to the noise of the seeds, so the interval is
    biased towards no order. It says nothing about other doses. There is no interval if a dose has one seed. Return None
    for fewer than three doses.
    """
    if len(doses) != len(responses):
        raise ValueError(f"expected one list of responses a dose, got {len(responses)} for {len(doses)}")
    if len(doses) < FEWEST_RUNGS:
        return None
    given = check_numbers(doses, "doses")
    measured = [check_numbers(seeds, f"responses, dose {i}") for i, seeds in enumerate(responses, 1)]
    observed = float(_rho(given, np.array([[seeds.mean() for seeds in measured]]))[0])
    if not np.isfinite(observed) or min(map(len, measured)) < 2:
        return Estimate(observed if np.isfinite(observed) else None, None, len(given))
    interval = _order_interval(measured, len(given) ** 2, lambda picks: _rho(given, _means(measured, picks)), resamples)
    return Estimate(observed, interval, len(given))


def _order_interval(
    groups: Sequence[np.ndarray], size: int, correlation: Callable[[list[np.ndarray]], DrawnValues], resamples: int
) -> Interval | None:
    """Draw seeds within each group; return the interval of the means' rank correlation, which takes `size` numbers."""
    random, drawn = generator(resamples), np.empty(resamples)
    for block in blocks(resamples, size + sum(map(len, groups))):
        drawn[block] = correlation([random.integers(0, len(x), (block.stop - block.start, len(x))) for x in groups])
    drawn = drawn[np.isfinite(drawn)]  # a draw that ties all means has no order
    return percentiles(drawn) if len(drawn) else None


def _bootstrap(
    a: Scores, b: Scores, statistic: Callable[[Draws, Draws], DrawnValues], resamples: int, *, paired: bool
) -> Estimate:
    value = float(statistic(a[None], b[None])[0])
    if min(len(a), len(b)) < 2:
        return Estimate(value, None)
    random, drawn = generator(resamples), np.empty(resamples)
    for block in blocks(resamples, len(a) * len(b) * a.shape[1]):
        first, second = (random.integers(0, len(x), (block.stop - block.start, len(x))) for x in (a, b))
        drawn[block] = statistic(a[first], b[first if paired else second])
    return Estimate(value, percentiles(drawn))


def _draw_counts(random: np.random.Generator, pairs: int, draws: int) -> Int[np.ndarray, "pairs draws"]:
    picks = random.integers(0, pairs, (pairs, draws)) * draws + np.arange(draws)
    return np.bincount(picks.ravel(), minlength=pairs * draws).reshape(pairs, draws).astype(np.int32)


def _wins(a: Draws, b: Draws) -> DrawnValues:
    return (1 + np.sign(a[:, :, None] - b[:, None]).mean(axis=(1, 2, 3))) / 2


def _means(methods: list[np.ndarray], picks: list[np.ndarray]) -> Float[np.ndarray, "draws methods"]:
    return np.stack([x[p].mean(axis=1) for x, p in zip(methods, picks, strict=True)], axis=1)


def resampled_spearman(
    scores: Float[np.ndarray, "encoders pairs"],
    gold: Float[np.ndarray, " pairs"],
    counts: Int[np.ndarray, "pairs draws"],
) -> Float[np.ndarray, "encoders draws"]:
    """Return Spearman's rho with gold in each resample; nan if all scores are equal.

    Pair i occurs counts[i, draw] times. Ties have their mean rank. The sums are whole numbers below 2^53 (up to 200,000
    pairs), so rho is exact to rounding.
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
    """Return Kendall's tau-b (Kendall, 1945) of the two orders of methods in each draw; nan if all are tied.

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


def _rho(doses: Float[np.ndarray, " rungs"], means: Float[np.ndarray, "draws rungs"]) -> Float[np.ndarray, " draws"]:
    x, y = (scipy.stats.rankdata(values, axis=-1) for values in (doses, means))
    x, y = x - x.mean(), y - y.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return (y @ x) / np.sqrt((y**2).sum(axis=-1) * (x @ x))


def percentiles(drawn: Float[np.ndarray, " draws"]) -> Interval:
    """Return the percentile interval of the draws."""
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def blocks(resamples: int, size: int) -> Iterator[slice]:
    """Yield slices of the resamples that fit the cache, if one resample draws `size` numbers."""
    step = max(1, BLOCK // size)
    return (slice(start, min(start + step, resamples)) for start in range(0, resamples, step))


def generator(resamples: int) -> np.random.Generator:
    """Return the seeded generator of the draws; refuse fewer than one."""
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    return np.random.default_rng(0)
