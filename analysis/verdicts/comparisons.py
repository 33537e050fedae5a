"""How one comparison of a study is tested, by its kind: an estimate, p where there is a test, the reason where not."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import scipy

from analysis import benchmark_ratios
from analysis.cells import Cell, Results
from analysis.stats import significance
from analysis.stats.bootstrap import Estimate, order_bootstrap
from experiments.schema.columns import column
from experiments.schema.hypotheses import Comparison, Cost, Finding, Order, Trend, Untested

BINS = 10  # of neighbours.bins, before the small ones are merged
AGREES = 0.8  # of Kendall's tau from which two orders are the same: nine of ten pairs of methods keep theirs
Judge = Callable[["Verdict", Cell, Cell], "Verdict"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A comparison and its outcome. `effect` is positive in the claim's direction; `reason`: why not tested."""

    comparison: Comparison | Finding
    estimate: significance.Paired | significance.Spread | Estimate | None = None
    seeds: str = "0"  # how many seeds the estimate rests on
    p: float | None = None  # of this comparison alone
    adjusted: float | None = None  # Holm's, among the study's tested comparisons
    effect: float = 0.0
    published: float | None = None  # the same difference or ratio of the published numbers, or the claim's own number
    verdict: str = significance.NOT_TESTED
    reason: str = ""


def judge(results: Results) -> tuple[Verdict, ...]:
    """Judge every comparison of a study, Holm-corrected among those that could be tested."""
    declared = (*results.study.comparisons, *results.study.findings)
    found = [JUDGES[type(one)](results, one) for one in declared]
    adjusted = iter(significance.holm([one.p for one in found if one.p is not None]))
    final = [replace(one, adjusted=None if one.p is None else next(adjusted)) for one in found]
    return tuple(one if one.verdict != significance.NOT_TESTED else _decided(one) for one in final)


def _decided(one: Verdict) -> Verdict:
    return replace(one, verdict=significance.comparison_verdict(one.effect, one.adjusted))


def judge_comparison(results: Results, comparison: Comparison) -> Verdict:
    """Two rows in one column."""
    better, worse = (results.cells[label, comparison.column] for label in (comparison.better, comparison.worse))
    if comparison.kind not in KINDS:
        raise ValueError(
            f"{results.study.name}: comparison {comparison.claim} is of kind {comparison.kind!r}; "
            f"known: {', '.join(KINDS)}"
        )
    blank = Verdict(comparison=comparison, published=_published(better, worse, comparison.kind))
    given, acts = (
        [results.cells[label, comparison.column] for label in pair or ()]
        for pair in (comparison.only_if_better, comparison.requires_difference)
    )
    empty = [cell.row for cell in (better, worse, *given, *acts) if not cell.scores]
    if empty:
        return replace(
            blank, reason="; ".join(dict.fromkeys(_why(results, label, comparison.column) for label in empty))
        )
    if given and not _higher(*given):
        return replace(blank, reason=f"{given[0].row} is no better than {given[1].row} here")
    if acts and _alike(*acts):
        return replace(blank, reason=f"{acts[0].row} is {acts[1].row} on every seed, but for rounding")
    return KINDS[comparison.kind](blank, better, worse)


def _higher(first: Cell, second: Cell) -> bool:
    return first.summary is not None and second.summary is not None and first.summary.mean > second.summary.mean


def judge_order(results: Results, order: Order) -> Verdict:
    """The means of many rows in two columns, or in one column under two rules of selection: do they agree?

    Rows without two seeds in both are left out. Supported where the whole interval of tau is at least AGREES.
    """
    blank = Verdict(comparison=order)
    first = [results.cells[label, order.column] for label in order.rows]
    second = [results.cells[label + order.suffix, order.other] for label in order.rows]
    both = [_common(a, b) for a, b in zip(first, second, strict=True)]
    known = [pair for pair in both if len(pair[0]) > 1]
    if len(known) < 3:
        return replace(blank, reason=f"{len(known)} of {len(both)} rows have two seeds; an order needs three")
    found = order_bootstrap([a for a, _ in known], [b for _, b in known], paired=True)
    if found.interval is None:
        return replace(blank, estimate=found, reason="no interval")
    low, high = found.interval
    verdict = "supported" if low >= AGREES else "contradicted" if high < AGREES else "undecided"
    seeds = f"{min(len(a) for a, _ in known)}, {len(known)} rows"
    return replace(blank, estimate=found, seeds=seeds, verdict=verdict)


def judge_trend(results: Results, trend: Trend) -> Verdict:
    """By seed, Spearman over columns of the gain with another row's value; a t test of the seeds' rho against 0."""
    blank = Verdict(comparison=trend)
    by = [results.cells[trend.row, name].summary for name in trend.by]
    gains = [[results.cells[label, name] for name in trend.over] for label in (trend.better, trend.worse)]
    seeds = [seed for seed in gains[0][0].scores if all(seed in cell.scores for side in gains for cell in side)]
    if None in by or not seeds:
        return replace(blank, reason="no seed has every column")
    wanted = [found.mean for found in by if found]
    rhos = [
        significance.spearman([a.scores[seed] - b.scores[seed] for a, b in zip(*gains, strict=True)], wanted)
        for seed in seeds
    ]
    return _above_zero(blank, [rho for rho in rhos if rho is not None])


def judge_cost(results: Results, cost: Cost) -> Verdict:
    """A benchmark's ratio with its quartiles over turns: do they hold the claim's number, or lie below it?"""
    blank = Verdict(comparison=cost, published=None if cost.at_most else cost.times)
    if results.study.scale.name != benchmark_ratios.SCALE:
        return replace(blank, reason=f"benchmarks are of the scale {benchmark_ratios.SCALE}")
    found = benchmark_ratios.ratio(cost.what)
    if found is None or found.interval is None:
        return replace(blank, reason=f"no benchmark of {cost.what!r}")
    low, high = found.interval
    if cost.at_most:
        verdict = "supported" if high <= cost.times else "contradicted" if low > cost.times else "undecided"
    else:
        verdict = "supported" if low <= cost.times <= high else "contradicted"
    return replace(blank, estimate=found, seeds=f"{found.n[0]} turns", verdict=verdict)


def _common(better: Cell, worse: Cell) -> tuple[list[float], list[float]]:
    """The scores of both on the seeds that both have."""
    seeds = [seed for seed in better.scores if seed in worse.scores]
    return [better.scores[seed] for seed in seeds], [worse.scores[seed] for seed in seeds]


def _alike(first: Cell, second: Cell) -> bool:
    """Whether no table could show a difference on any seed: what there is then is a processor's."""
    shown = 0.5 * 10.0 ** -max(2, column(first.column).digits or 2)
    return all(abs(a - b) < shown for a, b in zip(*_common(first, second), strict=True))


def _mean(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    """A paired t test, unless the two are the same on every seed but for rounding."""
    found = _difference(blank, better, worse)
    if found.p is not None and _alike(better, worse):
        same = (
            replace(found.estimate, interval=None, p=None) if isinstance(found.estimate, significance.Paired) else None
        )
        return replace(found, estimate=same, p=None, reason="the same on every seed but for rounding")
    return found


def _difference(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    first, second = _common(better, worse)
    if not first:
        return replace(blank, reason="no seed in common")
    pair = significance.paired(first, second)
    reason = ""
    if pair.p is None:
        reason = "one seed in common" if pair.n < 2 else "the difference does not vary over seeds"
    return replace(blank, estimate=pair, seeds=str(pair.n), p=pair.p, effect=pair.mean, reason=reason)


def _same(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    """Two one-sided tests within the margin; beyond it, one that the difference is larger."""
    found = _difference(blank, better, worse)
    if found.p is None:
        return found
    assert isinstance(blank.comparison, Comparison)
    p, within = significance.equivalence(*_common(better, worse), blank.comparison.margin)
    return replace(found, p=p, effect=1.0 if within else -1.0)


def _beyond(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    """A paired t test of the difference against the margin."""
    found = _difference(blank, better, worse)
    if found.p is None:
        return found
    assert isinstance(blank.comparison, Comparison)
    first, second = _common(better, worse)
    test = significance.paired([score - blank.comparison.margin for score in first], second)
    return replace(found, p=test.p, effect=test.mean)


def _above_zero(blank: Verdict, scores: list[float]) -> Verdict:
    if not scores:
        return replace(blank, reason="undefined on every seed")
    found = significance.paired(scores, [0.0] * len(scores))
    reason = "" if found.p is not None else "one seed" if found.n < 2 else "the same on every seed"
    return replace(blank, estimate=found, seeds=str(found.n), p=found.p, effect=found.mean, reason=reason)


def _over_bins(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    """A rank correlation over at most BINS bins of pairs, which all seeds share: more seeds make it no surer."""
    if not better.summary:
        return replace(blank, reason="undefined on every seed")
    mean, error, norm = better.summary.mean, 1 / math.sqrt(BINS - 1), scipy.stats.norm
    band = significance.Interval(*(max(-1.0, min(1.0, mean + sign * norm.ppf(0.975) * error)) for sign in (-1, 1)))
    found = Estimate(mean, band)
    return replace(
        blank, estimate=found, seeds=str(better.summary.n), p=float(2 * norm.sf(abs(mean) / error)), effect=mean
    )


def _spread(blank: Verdict, better: Cell, worse: Cell) -> Verdict:
    ratio = significance.spread(list(better.scores.values()), list(worse.scores.values()))
    seeds = str(ratio.n[0]) if ratio.n[0] == ratio.n[1] else f"{ratio.n[0]}, {ratio.n[1]}"
    if ratio.ratio is None:
        reason = "a deviation needs two seeds" if min(ratio.n) < 2 else "scores do not vary over seeds"
        return replace(blank, seeds=seeds, reason=reason)
    return replace(blank, estimate=ratio, seeds=seeds, p=ratio.p, effect=-math.log(ratio.ratio))


def _published(better: Cell, worse: Cell, kind: str) -> float | None:
    if kind != "spread":
        both = better.published, worse.published
        if both[0] is None or both[1] is None:
            return None
        return both[0] - both[1]
    both = better.published_std, worse.published_std
    return None if both[0] is None or not both[1] else both[0] / both[1]


def _why(results: Results, label: str, task: str) -> str:
    row = next(row for row in results.study.rows if row.label == label)
    return row.why.removeprefix("not run: ") if row.encoder is None else f"no seed of {label} has {task}"


KINDS: dict[str, Judge] = {
    "mean": _mean,
    "same": _same,
    "beyond": _beyond,
    "spread": _spread,
    "bins": _over_bins,
    "positive": lambda blank, better, worse: _above_zero(blank, list(better.scores.values())),
}
JUDGES: dict[type, Callable[..., Verdict]] = {
    Comparison: judge_comparison,
    Order: judge_order,
    Trend: judge_trend,
    Cost: judge_cost,
    Untested: lambda results, finding: Verdict(comparison=finding, reason=finding.why),
}
