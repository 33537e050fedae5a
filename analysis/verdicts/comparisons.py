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

BINS = 10  # as in neighbours.bins, before small bins are merged
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
    if condition and not _has_higher_mean(*condition):
        return replace(blank, reason=f"{condition[0].row} is no better than {condition[1].row} here")
    if must_differ and _equal_as_shown(*must_differ):
        return replace(blank, reason=f"{must_differ[0].row} is {must_differ[1].row} on every seed, but for rounding")
    return KINDS[comparison.kind](blank, better, worse)


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
    """Test whether gains follow another row's values over columns: Spearman's rho for each seed, t test against 0."""
    blank = Verdict(comparison=trend)
    by = [results.cells[trend.row, name].summary for name in trend.by]
    gains = [[results.cells[label, name] for name in trend.over] for label in (trend.better, trend.worse)]
    seeds = [seed for seed in gains[0][0].scores if all(seed in cell.scores for side in gains for cell in side)]
    if None in by or not seeds:
        return replace(blank, reason="no seed has every column")
    values = [summary.mean for summary in by if summary]
    rhos = [
        significance.spearman([a.scores[seed] - b.scores[seed] for a, b in zip(*gains, strict=True)], values)
        for seed in seeds
    ]
    return _test_above_zero(blank, [rho for rho in rhos if rho is not None])


def judge_cost(results: Results, cost: Cost) -> Verdict:
    """Test whether the quartiles of a benchmark's ratio include the claim's number, or lie below it."""
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
        verdict = "supported" if low <= cost.times <= high else "contradicted"
    return replace(blank, estimate=ratio, seeds=f"{ratio.n[0]} turns", verdict=verdict)


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
    """Test a rank correlation over at most BINS bins; seeds share the pairs, so more of them add no certainty."""
    if not better.summary:
        return replace(blank, reason="undefined on every seed")
    mean, error, norm = better.summary.mean, 1 / math.sqrt(BINS - 1), scipy.stats.norm
    band = significance.Interval(*(max(-1.0, min(1.0, mean + sign * norm.ppf(0.975) * error)) for sign in (-1, 1)))
    estimate = Estimate(mean, band)
    return replace(
        blank, estimate=estimate, seeds=str(better.summary.n), p=float(2 * norm.sf(abs(mean) / error)), effect=mean
    )


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
    "positive": lambda blank, better, worse: _test_above_zero(blank, list(better.scores.values())),
}
JUDGES: dict[type, Callable[..., Verdict]] = {
    Comparison: judge_comparison,
    Order: judge_order,
    Trend: judge_trend,
    Cost: judge_cost,
    Untested: lambda results, finding: Verdict(comparison=finding, reason=finding.why),
}
