"""Estimate what a study tests, by a method for each kind, and say whether an interval supports a claim."""

import math
from collections.abc import Callable

from analysis import benchmark_ratios
from analysis.cells import Cell, Results
from analysis.stats import significance
from analysis.stats.bootstrap import order_bootstrap
from analysis.stats.contrast_tests import estimate_contrast
from analysis.stats.estimate import Estimate
from analysis.stats.significance import Interval
from analysis.verdicts.verdict import CONTRADICTED, INCONCLUSIVE, SUPPORTED, Verdict
from experiments.schema.contrasts import BINS, SPREAD, Contrast
from experiments.schema.hypotheses import Cost, Finding, Order, Trend, Untested

FEWEST_BINS = 6  # that remain of ten at scale `small`, after small ones are merged (neighbours.bins)
COST_TOLERANCE = 0.1  # a measured ratio within this share of the paper's is the same
AGREES = 0.8  # Kendall's tau from which two orders count as the same: nine of ten pairs of methods keep their order


def measure(results: Results, tested: Contrast | Finding) -> Verdict:
    """Estimate what is tested from all recorded seeds, without judging it."""
    found = _MEASURES[type(tested)](results, tested)
    published = published_effect(results, tested)
    if isinstance(found, str):
        return Verdict(tested=tested, reason=found, published=published)
    return Verdict(tested=tested, estimate=found, published=published)


def published_effect(results: Results, tested: Contrast | Finding) -> float | None:
    """Return the paper's effect: a declared cost, or the contrast of the rows' published numbers."""
    if isinstance(tested, Cost):
        return None if tested.at_most else tested.times
    if not isinstance(tested, Contrast) or not tested.minus:
        return None
    cells = {label: results.cells[label, tested.column] for label in tested.weights}
    if tested.kind == SPREAD:
        first, second = (cells[label].published_std for label in tested.rows)
        return first / second if first is not None and second else None
    values = {label: cell.published for label, cell in cells.items()}
    if None in values.values():
        return None
    return round(sum(weight * (values[label] or 0.0) for label, weight in tested.weights.items()), 4)


def supports(tested: Contrast | Finding, band: Interval) -> str:
    """Return whether a claim holds in all of an interval (supported), none (contradicted) or part (inconclusive)."""
    least, most = claimed_range(tested)
    if least <= band.low and band.high <= most:
        return SUPPORTED
    return CONTRADICTED if band.high < least or most < band.low else INCONCLUSIVE


def claimed_range(tested: Contrast | Finding) -> Interval:
    """Return the range of values in which a claim about a spread, a correlation, an order or a cost holds."""
    match tested:
        case Order():
            return Interval(AGREES, math.inf)
        case Cost(at_most=True):
            return Interval(-math.inf, tested.times)
        case Cost():
            return Interval(tested.times * (1 - COST_TOLERANCE), tested.times * (1 + COST_TOLERANCE))
        case Contrast(kind=kind) if kind == SPREAD:
            return Interval(-math.inf, 1.0)
        case _:
            return Interval(0.0, math.inf)


def _contrast(results: Results, contrast: Contrast) -> Estimate | str:
    cells = [results.cells[label, contrast.column] for label in contrast.weights]
    empty = [cell.row for cell in cells if not cell.scores]
    if empty:
        return "; ".join(dict.fromkeys(_why_empty(results, label, contrast.column) for label in empty))
    if contrast.kind == SPREAD:
        found = significance.spread(*(list(cell.scores.values()) for cell in cells))
        n = min(len(cell.scores) for cell in cells)
        return Estimate(*found, n) if found else "a deviation needs two seeds that differ"
    if contrast.kind == BINS:
        (cell,) = cells
        mean = significance.summary(list(cell.scores.values())).mean
        return _rank_estimate(mean, FEWEST_BINS, len(cell.scores))
    groups = [dict(cell.scores) for cell in cells]
    if contrast.teacher_seed is not None:
        score = groups[1].get(contrast.teacher_seed)
        if score is None:
            return f"no score of {cells[1].row}, seed {contrast.teacher_seed}"
        groups[1] = dict.fromkeys(groups[0], score)
    found = estimate_contrast(groups, list(contrast.weights.values()), paired=contrast.paired)
    return found or "no seed in common"


def _why_empty(results: Results, label: str, name: str) -> str:
    row = next(row for row in results.study.rows if row.label == label)
    return row.why.removeprefix("not run: ") if row.encoder is None else f"no seed of {label} has {name}"


def _order(results: Results, order: Order) -> Estimate | str:
    """Return Kendall's tau of the rows' means in two columns, or by two selection rules; a row needs two seeds."""
    count = len(order.labels)
    first, second = (
        [results.cells[place] for place in places] for places in (order.cells[:count], order.cells[count:])
    )
    usable = [pair for pair in map(_on_common_seeds, first, second) if len(pair[0]) > 1]
    if len(usable) < 3:
        return f"{len(usable)} of {count} rows have two seeds; an order needs three"
    tau = order_bootstrap([a for a, _ in usable], [b for _, b in usable])
    return Estimate(tau.value, tau.interval, min(len(a) for a, _ in usable), f", {len(usable)} rows")


def _on_common_seeds(first: Cell, second: Cell) -> tuple[list[float], list[float]]:
    seeds = [seed for seed in first.scores if seed in second.scores]
    return [first.scores[seed] for seed in seeds], [second.scores[seed] for seed in seeds]


def _trend(results: Results, trend: Trend) -> Estimate | str:
    """Return Spearman's rho, over columns, of mean gains and another row's means.

    The columns are the sample. All seeds share them, so more seeds make the gains more precise but add no points.
    """
    by = [results.cells[trend.row, name].summary for name in trend.by]
    gains = [[results.cells[label, name].scores for name in trend.over] for label in (trend.better, trend.worse)]
    seeds = [seed for seed in gains[0][0] if all(seed in scores for side in gains for scores in side)]
    if None in by or not seeds:
        return "no seed has every column"
    means = [sum(a[seed] - b[seed] for seed in seeds) / len(seeds) for a, b in zip(*gains, strict=True)]
    rho = significance.spearman(means, [summary.mean for summary in by if summary])
    if rho is None:
        return "all columns have the same gain, or the same value"
    return _rank_estimate(rho, len(means), len(seeds))


def _rank_estimate(rho: float, points: int, seeds: int) -> Estimate:
    """Return a rank correlation of `points` points with the interval of its normal approximation."""
    half = significance.least_rank_correlation(points)
    return Estimate(rho, Interval(max(-1.0, rho - half), min(1.0, rho + half)), seeds)


def _cost(results: Results, cost: Cost) -> Estimate | str:
    """Return a benchmark's ratio with its quartiles."""
    if results.study.scale.name != benchmark_ratios.SCALE:
        return f"benchmarks are of the scale {benchmark_ratios.SCALE}"
    return benchmark_ratios.ratio(cost.what) or f"no benchmark of {cost.what!r}"


_MEASURES: dict[type, Callable[..., Estimate | str]] = {
    Contrast: _contrast,
    Order: _order,
    Trend: _trend,
    Cost: _cost,
    Untested: lambda results, finding: finding.why,
}
