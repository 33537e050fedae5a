"""The verdicts of a study's comparisons, and of each claim over all its comparisons."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from analysis import stats
from analysis.results import Cell, Results
from experiments import study as studies
from experiments.study import Comparison

MARGIN = 0.2  # points within which two means are the same: what footnotes of the papers call a difference is 0.17
CLAIMS = Path(studies.__file__).with_name("CLAIMS.md")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A comparison and its outcome. `effect` is positive in the claim's direction; `reason`: why not tested."""

    comparison: Comparison
    estimate: stats.Paired | stats.Spread | None
    seeds: str  # how many seeds the estimate rests on
    p: float | None  # of this comparison alone
    adjusted: float | None  # Holm's, among the study's tested comparisons
    effect: float
    published: float | None  # the same difference (points) or ratio of the published numbers
    verdict: str = stats.NOT_TESTED
    reason: str = ""


@dataclass(frozen=True)
class Overall:
    """A claim's verdict over its comparisons in one study."""

    claim: str
    text: str
    verdict: str
    counts: Mapping[str, int]  # tested comparisons by verdict
    declared: int
    reasons: tuple[str, ...]  # why comparisons were not tested


def judge(results: Results) -> tuple[Judged, ...]:
    """Every comparison of the study with its verdict, Holm-corrected among those that could be tested."""
    found = [_estimate(results, comparison) for comparison in results.study.comparisons]
    adjusted = iter(stats.holm([one.p for one in found if one.p is not None]))
    final = [replace(one, adjusted=None if one.p is None else next(adjusted)) for one in found]
    return tuple(one if one.verdict != stats.NOT_TESTED else _decided(one) for one in final)


def _decided(one: Judged) -> Judged:
    return replace(one, verdict=stats.comparison_verdict(one.effect, one.adjusted))


def overall(judged: Sequence[Judged]) -> tuple[Overall, ...]:
    """Each claim: contradicted if any comparison is, supported if all are, undecided otherwise.

    Where some comparisons can't be tested and the others support it, it is "supported where tested".
    """
    groups: dict[str, list[Judged]] = {}
    for one in judged:
        groups.setdefault(one.comparison.claim, []).append(one)
    return tuple(_overall(claim, group) for claim, group in groups.items())


@cache
def claims() -> dict[str, str]:
    """The claims of CLAIMS.md by id."""
    return dict(re.findall(r"^\| ([A-Z]\d+) \| (.+?) \| .+ \|$", CLAIMS.read_text(encoding="utf-8"), re.MULTILINE))


def _overall(claim: str, group: Sequence[Judged]) -> Overall:
    tested = [one.verdict for one in group if one.verdict != stats.NOT_TESTED]
    if not tested:
        verdict = stats.NOT_TESTED
    elif "contradicted" in tested:
        verdict = "contradicted"
    else:
        whole = "supported" if len(tested) == len(group) else "supported where tested"
        verdict = whole if set(tested) == {"supported"} else "undecided"
    reasons = tuple(dict.fromkeys(one.reason for one in group if one.reason))
    return Overall(claim, claims().get(claim, ""), verdict, Counter(tested), len(group), reasons)


def _estimate(results: Results, comparison: Comparison) -> Judged:
    better, worse = (results.cells[label, comparison.task] for label in (comparison.better, comparison.worse))
    if comparison.kind not in KINDS:
        raise ValueError(
            f"{results.study.name}: comparison {comparison.claim} is of kind {comparison.kind!r}; "
            f"known: {', '.join(KINDS)}"
        )
    blank = Judged(
        comparison=comparison,
        estimate=None,
        seeds="0",
        p=None,
        adjusted=None,
        effect=0.0,
        published=_published(better, worse, comparison.kind),
    )
    empty = [cell.row for cell in (better, worse) if not cell.scores]
    if empty:
        return replace(blank, reason="; ".join(dict.fromkeys(_why(results, label, comparison.task) for label in empty)))
    return KINDS[comparison.kind](blank, better, worse)


def _common(better: Cell, worse: Cell) -> tuple[list[float], list[float]]:
    """The scores of both on the seeds that both have."""
    seeds = [seed for seed in better.scores if seed in worse.scores]
    return [better.scores[seed] for seed in seeds], [worse.scores[seed] for seed in seeds]


def _mean(blank: Judged, better: Cell, worse: Cell) -> Judged:
    first, second = _common(better, worse)
    if not first:
        return replace(blank, reason="no seed in common")
    pair = stats.paired(first, second)
    reason = ""
    if pair.p is None:
        reason = "one seed in common" if pair.n < 2 else "the difference does not vary over seeds"
    return replace(blank, estimate=pair, seeds=str(pair.n), p=pair.p, effect=pair.mean, reason=reason)


def _same(blank: Judged, better: Cell, worse: Cell) -> Judged:
    """Two one-sided tests within MARGIN; beyond it, one that the difference is larger."""
    found = _mean(blank, better, worse)
    if found.p is None:
        return found
    first, second = _common(better, worse)
    p, within = stats.equivalence(first, second, MARGIN)
    return replace(found, p=p, effect=1.0 if within else -1.0)


def _ratio(blank: Judged, better: Cell, worse: Cell) -> Judged:
    """Is the published ratio in the interval of ours? Of costs, whose logarithms are compared."""
    first, second = _common(better, worse)
    if len(first) < 2:
        return replace(blank, seeds=str(len(first)), reason=f"{len(first)} seeds in common: an interval needs two")
    estimate = stats.ratio(first, second)
    published = blank.published
    blank = replace(blank, estimate=estimate, seeds=str(len(first)))
    if estimate.interval is None or published is None:
        return replace(blank, reason="no interval" if published else "no published ratio")
    within = estimate.interval.low <= published <= estimate.interval.high
    return replace(blank, verdict="supported" if within else "contradicted")


def _spread(blank: Judged, better: Cell, worse: Cell) -> Judged:
    ratio = stats.spread(list(better.scores.values()), list(worse.scores.values()))
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
        return both[0] / both[1] if kind == "ratio" else both[0] - both[1]
    both = better.published_std, worse.published_std
    return None if both[0] is None or not both[1] else both[0] / both[1]


def _why(results: Results, label: str, task: str) -> str:
    row = next(row for row in results.study.rows if row.label == label)
    return row.why.removeprefix("not run: ") if row.encoder is None else f"no seed of {label} has {task}"


KINDS = {"mean": _mean, "same": _same, "spread": _spread, "ratio": _ratio}
