"""Test the comparisons of a study, each kind in its way: an estimate with p, or the reason why there is no test."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import scipy

from analysis import benchmark_ratios
from analysis.cells import Cell, Results
from analysis.stats import significance
from analysis.stats.bootstrap import order_bootstrap
from analysis.stats.resampling import Estimate
from experiments.schema.columns import column
from experiments.schema.hypotheses import Comparison, Cost, Finding, Order, Trend, Untested

BINS = 6  # the fewest that are left of ten where small ones are merged, at `small` (neighbours.bins)
COST_TOLERANCE = 0.1  # share of a paper's ratio within which a measured one is the same
AGREES = 0.8  # Kendall's tau from which two orders count as the same: nine of ten pairs of methods keep their order
Judge = Callable[["Verdict", Cell, Cell], "Verdict"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A comparison and its outcome. `effect` is positive in the claim's direction; `reason`: why not tested."""

    comparison: Comparison | Finding
    estimate: significance.Paired | significance.Spread | Estimate | None = None
    seeds: str = "0"  # the number of seeds of the estimate
    p: float | None = None  # without correction for other comparisons
    adjusted: float | None = None  # Holm's, among the study's tested comparisons
    effect: float = 0.0
    published: float | None = None  # the same difference or ratio in the paper, or the number that the claim states
    verdict: str = significance.NOT_TESTED
    reason: str = ""


def judge(results: Results) -> tuple[Verdict, ...]:
    """Judge every comparison of a study, Holm-corrected among those that could be tested."""
    declared = (*results.study.comparisons, *results.study.findings)
    verdicts = [JUDGES[type(each)](results, each) for each in declared]
    adjusted = iter(significance.holm([each.p for each in verdicts if each.p is not None]))
    corrected = [replace(each, adjusted=None if each.p is None else next(adjusted)) for each in verdicts]
    return tuple(each if each.verdict != significance.NOT_TESTED else _with_verdict(each) for each in corrected)


def _with_verdict(tested: Verdict) -> Verdict:
    return replace(tested, verdict=significance.comparison_verdict(tested.effect, tested.adjusted))


def judge_comparison(results: Results, comparison: Comparison) -> Verdict:
    """Test one row against another in one column."""
    better, worse = (results.cells[label, comparison.column] for label in (comparison.better, comparison.worse))
    if comparison.kind not in KINDS:
        raise ValueError(
            f"{results.study.name}: comparison {comparison.claim} is of kind {comparison.kind!r}; "
            f"known: {', '.join(KINDS)}"
        )
    blank = Verdict(comparison=comparison, published=_published_effect(better, worse, comparison.kind))
    condition, must_differ = (
        [results.cells[label, comparison.column] for label in pair or ()]
        for pair in (comparison.only_if_better, comparison.requires_difference)
    )
    empty = [cell.row for cell in (better, worse, *condition, *must_differ) if not cell.scores]
    if empty:
        return replace(
            blank, reason="; ".join(dict.fromkeys(_why_empty(results, label, comparison.column) for label in empty))
        )
    condition = [_of_teacher(cell, comparison.teacher_seed) for cell in condition]
    if lacking := [cell.row for cell in condition if not cell.scores]:
        return replace(blank, reason=f"no score of {lacking[0]}, seed {comparison.teacher_seed}")
    if condition and not _has_higher_mean(*condition):
        return replace(blank, reason=f"{condition[0].row} is no better than {condition[1].row} here")
    if must_differ and _equal_as_shown(*must_differ):
        return replace(blank, reason=f"{must_differ[0].row} is {must_differ[1].row} on every seed, but for rounding")
    return KINDS[comparison.kind](blank, better, worse)


def _of_teacher(cell: Cell, seed: int | None) -> Cell:
    """Return the cell with the score of the teaching run only; the whole cell if no seed is given."""
    return cell if seed is None else replace(cell, scores={s: x for s, x in cell.scores.items() if s == seed})


def _has_higher_mean(first: Cell, second: Cell) -> bool:
    return first.summary is not None and second.summary is not None and first.summary.mean > second.summary.mean


def judge_order(results: Results, order: Order) -> Verdict:
    """Test whether two columns, or two selection rules, rank the rows alike, by Kendall's tau of the means.

    Rows without two seeds in both are left out. The claim is supported if the whole interval of tau is at least AGREES.
    """
    blank = Verdict(comparison=order)
    first = [results.cells[label, order.column] for label in order.rows]
    second = [results.cells[label + order.suffix, order.other] for label in order.rows]
    both = [_on_common_seeds(a, b) for a, b in zip(first, second, strict=True)]
    usable = [pair for pair in both if len(pair[0]) > 1]
    if len(usable) < 3:
        return replace(blank, reason=f"{len(usable)} of {len(both)} rows have two seeds; an order needs three")
    agreement = order_bootstrap([a for a, _ in usable], [b for _, b in usable], paired=True)
    if agreement.interval is None:
        return replace(blank, estimate=agreement, reason="no interval")
    low, high = agreement.interval
    verdict = "supported" if low >= AGREES else "contradicted" if high < AGREES else "undecided"
    seeds = f"{min(len(a) for a, _ in usable)}, {len(usable)} rows"
    return replace(blank, estimate=agreement, seeds=seeds, verdict=verdict)


def judge_trend(results: Results, trend: Trend) -> Verdict:
    """Test whether gains follow another row's values over columns: Spearman's rho of the mean gains over seeds.

    The columns are the sample: seeds share them, so that more seeds make gains surer and not their number.
    """
    blank = Verdict(comparison=trend)
    by = [results.cells[trend.row, name].summary for name in trend.by]
    gains = [[results.cells[label, name] for name in trend.over] for label in (trend.better, trend.worse)]
    seeds = [seed for seed in gains[0][0].scores if all(seed in cell.scores for side in gains for cell in side)]
    if None in by or not seeds:
        return replace(blank, reason="no seed has every column")
    values = [summary.mean for summary in by if summary]
    means = [sum(a.scores[seed] - b.scores[seed] for seed in seeds) / len(seeds) for a, b in zip(*gains, strict=True)]
    rho = significance.spearman(means, values)
    if rho is None:
        return replace(blank, reason="all columns have the same gain, or the same value")
    return _rank_verdict(blank, rho, len(values), len(seeds))


def judge_cost(results: Results, cost: Cost) -> Verdict:
    """Test whether the quartiles of a benchmark's ratio lie within a tenth of the claim's number, or below it.

    Quartiles that only reach into that range decide nothing, so that noise supports no claim.
    """
    blank = Verdict(comparison=cost, published=None if cost.at_most else cost.times)
    if results.study.scale.name != benchmark_ratios.SCALE:
        return replace(blank, reason=f"benchmarks are of the scale {benchmark_ratios.SCALE}")
    ratio = benchmark_ratios.ratio(cost.what)
    if ratio is None or ratio.interval is None:
        return replace(blank, reason=f"no benchmark of {cost.what!r}")
    low, high = ratio.interval
    if cost.at_most:
        verdict = "supported" if high <= cost.times else "contradicted" if low > cost.times else "undecided"
    else:
        least, most = _same_cost(cost)
        outside = high < least or low > most
        verdict = "contradicted" if outside else "supported" if least <= low and high <= most else "undecided"
    return replace(blank, estimate=ratio, seeds=f"{ratio.n[0]} turns", verdict=verdict)


def cost_range(cost: Cost) -> str:
    """Return in words where a benchmark's quartiles support the claim."""
    return f"up to {cost.times:g}" if cost.at_most else "from {:.2f} to {:.2f}".format(*_same_cost(cost))


def _same_cost(cost: Cost) -> tuple[float, float]:
    return cost.times * (1 - COST_TOLERANCE), cost.times * (1 + COST_TOLERANCE)


def _on_common_seeds(better: Cell, worse: Cell) -> tuple[list[float], list[float]]:
    """Return the scores of both cells on the seeds that both have."""
    seeds = [seed for seed in better.scores if seed in worse.scores]
    return [better.scores[seed] for seed in seeds], [worse.scores[seed] for seed in seeds]


def _equal_as_shown(first: Cell, second: Cell) -> bool:
    """Whether a table shows the same numbers on every seed; smaller differences may come from the processor."""
    shown = 0.5 * 10.0 ** -max(2, column(first.column).digits or 2)
    return all(abs(a - b) < shown for a, b in zip(*_on_common_seeds(first, second), strict=True))


def _test_mean(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    """Do a paired t test, unless the scores are equal on every seed up to rounding."""
    difference = _paired_test(blank, better, worse)
    if difference.p is not None and _equal_as_shown(better, worse):
        same = (
            replace(difference.estimate, interval=None, p=None)
            if isinstance(difference.estimate, significance.Paired)
            else None
        )
        return replace(difference, estimate=same, p=None, reason="the same on every seed but for rounding")
    return difference


def _paired_test(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    first, second = _on_common_seeds(better, worse)
    if not first:
        return replace(blank, reason="no seed in common")
    pair = significance.paired_test(first, second)
    reason = ""
    if pair.p is None:
        reason = "one seed in common" if pair.n < 2 else "the difference does not vary over seeds"
    return replace(blank, estimate=pair, seeds=str(pair.n), p=pair.p, effect=pair.mean, reason=reason)


def _test_same(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    """Do two one-sided tests if the difference is within the margin, else test that it is larger."""
    difference = _paired_test(blank, better, worse)
    if difference.p is None:
        return difference
    assert isinstance(blank.comparison, Comparison)
    p, within = significance.equivalence(*_on_common_seeds(better, worse), blank.comparison.margin)
    return replace(difference, p=p, effect=1.0 if within else -1.0)


def _test_beyond(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    """Do a paired t test of the difference against the margin."""
    difference = _paired_test(blank, better, worse)
    if difference.p is None:
        return difference
    assert isinstance(blank.comparison, Comparison)
    first, second = _on_common_seeds(better, worse)
    test = significance.paired_test([score - blank.comparison.margin for score in first], second)
    return replace(difference, p=test.p, effect=test.mean)


def _test_above_zero(blank: Verdict, scores: list[float]) -> Verdict:
    if not scores:
        return replace(blank, reason="undefined on every seed")
    test = significance.paired_test(scores, [0.0] * len(scores))
    reason = "" if test.p is not None else "one seed" if test.n < 2 else "the same on every seed"
    return replace(blank, estimate=test, seeds=str(test.n), p=test.p, effect=test.mean, reason=reason)


def _test_bins(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    """Test a rank correlation over BINS bins; seeds share the pairs, so more of them add no certainty."""
    if not better.summary:
        return replace(blank, reason="undefined on every seed")
    return _rank_verdict(blank, better.summary.mean, BINS, better.summary.n)


def _rank_verdict(blank: Verdict, rho: float, points: int, seeds: int) -> Verdict:
    """Test a rank correlation of `points` points by its normal approximation."""
    half, error = significance.least_rank_correlation(points), 1 / math.sqrt(points - 1)
    band = significance.Interval(*(max(-1.0, min(1.0, rho + sign * half)) for sign in (-1, 1)))
    p = float(2 * scipy.stats.norm.sf(abs(rho) / error))
    return replace(blank, estimate=Estimate(rho, band), seeds=str(seeds), p=p, effect=rho)


def _test_against_teacher(blank: Verdict, student: Cell, teacher: Cell) -> Verdict:
    """Test the student's seeds against the one score of the run that taught them all: a one-sample t test."""
    assert isinstance(blank.comparison, Comparison)
    taught_by = _of_teacher(teacher, blank.comparison.teacher_seed)
    if not taught_by.summary:
        return replace(blank, reason=f"no score of {teacher.row}, seed {blank.comparison.teacher_seed}")
    score = taught_by.summary.mean
    return _test_above_zero(blank, [each - score for each in student.scores.values()])


def _test_parity(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    """Do two one-sided tests if the mean is within the margin of the value, else test that it is further off."""
    assert isinstance(blank.comparison, Comparison)
    difference = _test_above_zero(blank, [each - blank.comparison.value for each in better.scores.values()])
    if difference.p is None:
        return difference
    values = list(better.scores.values())
    p, within = significance.equivalence(values, [blank.comparison.value] * len(values), blank.comparison.margin)
    return replace(difference, p=p, effect=1.0 if within else -1.0)


def _test_spread(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    ratio = significance.spread(list(better.scores.values()), list(worse.scores.values()))
    seeds = str(ratio.n[0]) if ratio.n[0] == ratio.n[1] else f"{ratio.n[0]}, {ratio.n[1]}"
    if ratio.ratio is None:
        reason = "a deviation needs two seeds" if min(ratio.n) < 2 else "scores do not vary over seeds"
        return replace(blank, seeds=seeds, reason=reason)
    return replace(blank, estimate=ratio, seeds=seeds, p=ratio.p, effect=-math.log(ratio.ratio))


def _published_effect(better: Cell, worse: Cell, kind: str) -> float | None:
    if kind != "spread":
        both = better.published, worse.published
        if both[0] is None or both[1] is None:
            return None
        return both[0] - both[1]
    both = better.published_std, worse.published_std
    return None if both[0] is None or not both[1] else both[0] / both[1]


def _why_empty(results: Results, label: str, task: str) -> str:
    row = next(row for row in results.study.rows if row.label == label)
    return row.why.removeprefix("not run: ") if row.encoder is None else f"no seed of {label} has {task}"


KINDS: dict[str, Judge] = {
    "mean": _test_mean,
    "same": _test_same,
    "beyond": _test_beyond,
    "spread": _test_spread,
    "bins": _test_bins,
    "teacher": _test_against_teacher,
    "parity": _test_parity,
    "positive": lambda blank, better, worse: _test_above_zero(blank, list(better.scores.values())),
}
JUDGES: dict[type, Callable[..., Verdict]] = {
    Comparison: judge_comparison,
    Order: judge_order,
    Trend: judge_trend,
    Cost: judge_cost,
    Untested: lambda results, finding: Verdict(comparison=finding, reason=finding.why),
}
