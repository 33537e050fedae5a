"""Bootstrap statistics that resample pairs or seeds; each docstring begins with the question that is answered.

Intervals are percentile intervals: they assume no distribution, and are too short for few seeds (a 95 % interval covers
the mean of normal scores 92 times in 100 with 10 seeds, 84 with 5, 75 with 3). Units are the caller's. What cannot be
computed is None: the interval of one seed, a correlation with equal scores.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from analysis.stats.estimate import Estimate
from analysis.stats.rank_correlation import resampled_spearman, tau_b
from analysis.stats.resampling import RESAMPLES, blocks, generator, percentiles
from analysis.stats.significance import LEVEL, ROUNDING, Interval, check_numbers

Scores = Float[np.ndarray, "seeds tasks"]
Draws = Float[np.ndarray, "draws seeds tasks"]
DrawnValues = Float[np.ndarray, " draws"]
RunsPairs = Sequence[Float[np.ndarray, "seeds pairs"]]
Pairs = Sequence[float] | Sequence[Sequence[float]] | np.ndarray | Sequence[np.ndarray]


@dataclass(frozen=True)
class Difference:
    """A difference first - second, its interval and p (None if a correlation is undefined), and the number of pairs."""

    difference: float | None
    interval: Interval | None
    p: float | None
    n: int


def paired_bootstrap(
    first: Pairs, second: Pairs, gold: Pairs, resamples: int = RESAMPLES, seed: int = 0, *, level: float = LEVEL
) -> Difference:
    """Paired bootstrap: would first beat second on other pairs like these? It says nothing about other seeds.

    Each argument is the scores of one set's pairs, or a list of them for the mean over sets of Spearman's rho(scores,
    gold); pairs are drawn within each set. p is 2 (1 + count) / (1 + resamples), with the count of the rarer
    sign, so that it agrees with the interval (Davison and Hinkley, 1997, chapter 4). Draws with equal scores only have
    no rho and are left out; they only occur with very few pairs.
    """
    sets = _checked_sets(first, second, gold)
    return _on_drawn_pairs(sets, np.array([1.0, -1.0]), np.broadcast_to((1.0, -1.0), (resamples, 2)), seed, level)


def crossed_bootstrap(
    first: RunsPairs,
    second: RunsPairs,
    gold: Sequence[np.ndarray],
    resamples: int = RESAMPLES,
    seed: int = 0,
    *,
    paired: bool = False,
    level: float = LEVEL,
) -> Difference:
    """Would runs of first beat runs of second with other seeds and on other pairs, both drawn anew?

    The first two have a matrix (seeds, pairs) a set. A draw takes seeds of each method independently, or with `paired`
    the same of both, whose row i is seed i; they are the same in all sets. Pairs are drawn within each set, the same
    for all seeds and both methods (Owen, 2007: pigeonhole bootstrap). If a method has one seed there is neither an
    interval nor p. p and draws that are left out are as in `paired_bootstrap`.
    """
    sets, counts = _checked_runs(first, second, gold)
    if paired and counts[0] != counts[1]:
        raise ValueError(f"paired seeds: expected as many of second as of first, got {counts[0]} and {counts[1]}")
    random = np.random.default_rng((seed, 1))  # so that pairs are drawn as in `paired_bootstrap`
    shares = [random.multinomial(n, [1 / n] * n, resamples) / n for n in counts]
    weights = np.concatenate([shares[0], -shares[0 if paired else 1]], axis=1)
    plain = np.repeat((1 / counts[0], -1 / counts[1]), counts)
    both = _on_drawn_pairs(sets, plain, weights, seed, level)
    return both if min(counts) > 1 else Difference(both.difference, None, None, both.n)


def _on_drawn_pairs(
    sets: Sequence[tuple[np.ndarray, np.ndarray]],
    plain: Float[np.ndarray, " encoders"],
    weights: Float[np.ndarray, "draws encoders"],
    seed: int,
    level: float,
) -> Difference:
    """Return the weighted sum of encoders' correlations, as observed by `plain`, and on drawn pairs by `weights`."""
    random = generator(len(weights), seed)
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
    return Difference(observed, percentiles(drawn, level), min(1.0, 2 * (1 + count) / (1 + len(drawn))), pairs)


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
    a: Scores,
    b: Scores,
    statistic: Callable[[Draws], DrawnValues] = mean,
    resamples: int = RESAMPLES,
    seed: int = 0,
    *,
    paired: bool = False,
    whole_runs: bool = False,
    level: float = LEVEL,
) -> Estimate:
    """How much larger than b's would a's statistic be with other seeds? (Agarwal et al., NeurIPS 2021, section 4.1)

    Runs are drawn within each task, as if every task had separate runs. If one training gives the scores of all tasks,
    they rise and fall together and that interval is too short: `whole_runs` draws a run's row as a whole. With
    `paired`, row i of both is seed i, and a draw takes its whole rows of both.
    """
    both = _two_matrices(a, b)
    if paired and len(a) != len(b):
        raise ValueError(f"pairs need equally many seeds, got {len(a)} and {len(b)}")
    return _bootstrap(both, lambda x, y: statistic(x) - statistic(y), resamples, seed, whole_runs, paired, level)


def probability_of_improvement(
    a: Scores, b: Scores, resamples: int = RESAMPLES, seed: int = 0, *, whole_runs: bool = False, level: float = LEVEL
) -> Estimate:
    """How likely does a run of a beat a run of b on a task? P(X > Y) + P(X = Y) / 2, its mean over tasks.

    A task's value is Mann and Whitney's U / (seeds of a x seeds of b) (Agarwal et al., NeurIPS 2021, section 4.3).
    """
    return _bootstrap(_two_matrices(a, b), _wins, resamples, seed, whole_runs, False, level)


def order_agreement(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Do two measures order the methods alike? Kendall's tau-b of their mean scores; None if one ties them all."""
    a, b = check_numbers(first, "first"), check_numbers(second, "second")
    if len(a) != len(b):
        raise ValueError(f"first and second: expected the same methods, got {len(a)} and {len(b)}")
    tau = float(tau_b(a[None], b[None])[0])
    return None if math.isnan(tau) else tau


def order_bootstrap(
    first: Sequence[Sequence[float]],
    second: Sequence[Sequence[float]],
    resamples: int = RESAMPLES,
    seed: int = 0,
    *,
    paired: bool = False,
    level: float = LEVEL,
) -> Estimate:
    """Would the orders agree as well with other seeds? One list of seeds' scores a method, drawn within the method.

    With `paired`, seed i of a method is the same run in both measures and is drawn for both. Resampling adds noise to
    that of the seeds and swaps close methods, so the interval is biased towards less agreement. If a method has one
    seed, there is no interval.
    """
    a, b = _checked_methods(first, "first"), _checked_methods(second, "second")
    value = order_agreement([x.mean() for x in a], [x.mean() for x in b])
    seeds = [len(x) for x in a], [len(x) for x in b]
    if paired and seeds[0] != seeds[1]:
        raise ValueError(f"pairs need equally many seeds, got {seeds[0]} and {seeds[1]}")
    random = generator(resamples, seed)
    if value is None or min(*seeds[0], *seeds[1]) < 2:
        return Estimate(value, None)
    drawn = np.empty(resamples)
    for block in blocks(resamples, len(a) ** 2 + sum(seeds[0] + seeds[1])):
        picks = [[random.integers(0, n, (block.stop - block.start, n)) for n in counts] for counts in seeds]
        drawn[block] = tau_b(_means(a, picks[0]), _means(b, picks[0 if paired else 1]))
    drawn = drawn[np.isfinite(drawn)]  # a draw that ties all methods has no order
    return Estimate(value, percentiles(drawn, level) if len(drawn) else None)


def _bootstrap(
    arrays: list[Scores],
    statistic: Callable[..., DrawnValues],
    resamples: int,
    seed: int,
    whole_runs: bool,
    paired: bool,
    level: float,
) -> Estimate:
    random = generator(resamples, seed)
    value = float(statistic(*(x[None] for x in arrays))[0])
    if min(len(x) for x in arrays) < 2:
        return Estimate(value, None)
    tasks = arrays[0].shape[1]
    drawn = np.empty(resamples)
    for block in blocks(resamples, math.prod(len(x) for x in arrays) * tasks):
        shapes = [(block.stop - block.start, len(x), 1 if whole_runs or paired else tasks) for x in arrays]
        picks = [random.integers(0, shape[1], shape) for shape in shapes]
        drawn[block] = statistic(*(x[picks[0 if paired else i], np.arange(tasks)] for i, x in enumerate(arrays)))
    return Estimate(value, percentiles(drawn, level))


def _draw_counts(random: np.random.Generator, pairs: int, draws: int) -> Int[np.ndarray, "pairs draws"]:
    picks = random.integers(0, pairs, (pairs, draws)) * draws + np.arange(draws)
    return np.bincount(picks.ravel(), minlength=pairs * draws).reshape(pairs, draws).astype(np.int32)


def _wins(a: Draws, b: Draws) -> DrawnValues:
    return (1 + np.sign(a[:, :, None] - b[:, None]).mean(axis=(1, 2, 3))) / 2


def _means(methods: list[np.ndarray], picks: list[np.ndarray]) -> Float[np.ndarray, "draws methods"]:
    return np.stack([x[p].mean(axis=1) for x, p in zip(methods, picks, strict=True)], axis=1)


def _checked_sets(first: Pairs, second: Pairs, gold: Pairs) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for every set, two encoders' scores (2, pairs) and the gold scores (pairs,)."""
    lists = [[scores] if len(scores) and np.ndim(scores[0]) == 0 else list(scores) for scores in (first, second, gold)]
    if len({len(scores) for scores in lists}) > 1 or not lists[0]:
        raise ValueError(f"first, second and gold: expected the same sets, at least one, got {[len(x) for x in lists]}")
    sets = []
    for i, (a, b, c) in enumerate(zip(*lists, strict=True), 1):
        a, b, c = (
            check_numbers(a, f"first, set {i}"),
            check_numbers(b, f"second, set {i}"),
            check_numbers(c, f"gold, set {i}"),
        )
        if not len(a) == len(b) == len(c):
            sizes = f"{len(a)}, {len(b)} and {len(c)}"
            raise ValueError(f"first, second and gold, set {i}: expected one score a pair, got {sizes}")
        sets.append((np.stack([a, b]), c))
    return sets


def _checked_runs(
    first: RunsPairs, second: RunsPairs, gold: Sequence[np.ndarray]
) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[int, int]]:
    """Return, for every set, all runs' scores (runs, pairs) and the gold scores, and the methods' numbers of seeds."""
    if not len(first) == len(second) == len(gold) or not len(gold):
        sizes = [len(first), len(second), len(gold)]
        raise ValueError(f"first, second and gold: expected the same sets, at least one, got {sizes}")
    sets = []
    for i, (a, b, c) in enumerate(zip(first, second, gold, strict=True), 1):
        a, b = _checked_matrix(a, f"first, set {i}", "pairs"), _checked_matrix(b, f"second, set {i}", "pairs")
        c = check_numbers(c, f"gold, set {i}")
        if not a.shape[1] == b.shape[1] == len(c):
            sizes = f"{a.shape[1]}, {b.shape[1]} and {len(c)}"
            raise ValueError(f"first, second and gold, set {i}: expected one score a pair, got {sizes}")
        sets.append((np.concatenate([a, b]), c))
    counts = {(len(a), len(b)) for a, b in zip(first, second, strict=True)}
    if len(counts) > 1:
        raise ValueError(f"first and second: expected the same seeds in every set, got {sorted(counts)}")
    return sets, counts.pop()


def _checked_methods(scores: Sequence[Sequence[float]], name: str) -> list[np.ndarray]:
    return [check_numbers(seeds, f"{name}, method {i}") for i, seeds in enumerate(scores, 1)]


def _two_matrices(a: Scores, b: Scores) -> list[Scores]:
    both = [_checked_matrix(a, "a"), _checked_matrix(b, "b")]
    if both[0].shape[1] != both[1].shape[1]:
        raise ValueError(f"a and b: expected the same tasks, got {both[0].shape[1]} and {both[1].shape[1]}")
    return both


def _checked_matrix(scores: Scores, name: str, across: str = "tasks") -> Scores:
    array = np.asarray(scores, dtype=float)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"{name}: expected a (seeds, {across}) matrix, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, got {array.tolist()}")
    return array
