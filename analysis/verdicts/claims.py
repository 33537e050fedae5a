"""The verdicts of a study's comparisons, and of each claim over all its comparisons."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from analysis.cells import Results
from analysis.stats import significance
from analysis.verdicts.comparisons import Judged, compared, costly, ordered, trending
from experiments.schema.hypotheses import Finding, Order, Trend, Untested

CLAIMS = Path(__file__).parents[2] / "experiments/CLAIMS.md"


@dataclass(frozen=True)
class Overall:
    """A claim's verdict over its comparisons in one study."""

    claim: str
    reading: str  # of a text that can be read in several ways, which one this is about
    text: str
    verdict: str
    counts: Mapping[str, int]  # tested comparisons by verdict
    declared: int
    reasons: tuple[str, ...]  # why comparisons were not tested


def judge(results: Results) -> tuple[Judged, ...]:
    """Every comparison of the study with its verdict, Holm-corrected among those that could be tested."""
    found = [compared(results, comparison) for comparison in results.study.comparisons]
    found += [_found(results, finding) for finding in results.study.findings]
    adjusted = iter(significance.holm([one.p for one in found if one.p is not None]))
    final = [replace(one, adjusted=None if one.p is None else next(adjusted)) for one in found]
    return tuple(one if one.verdict != significance.NOT_TESTED else _decided(one) for one in final)


def _found(results: Results, finding: Finding) -> Judged:
    if isinstance(finding, Untested):
        return Judged(comparison=finding, reason=finding.why)
    if isinstance(finding, Order):
        return ordered(results, finding)
    return trending(results, finding) if isinstance(finding, Trend) else costly(results, finding)


def _decided(one: Judged) -> Judged:
    return replace(one, verdict=significance.comparison_verdict(one.effect, one.adjusted))


def overall(judged: Sequence[Judged]) -> tuple[Overall, ...]:
    """Each claim, or each reading of it: contradicted if any comparison is, supported if all are, undecided otherwise.

    Where some comparisons can't be tested and the others support it, it is "supported where tested".
    """
    groups: dict[tuple[str, str], list[Judged]] = {}
    for one in judged:
        groups.setdefault((one.comparison.claim, getattr(one.comparison, "reading", "")), []).append(one)
    return tuple(_overall(*about, group) for about, group in groups.items())


@cache
def claims() -> dict[str, str]:
    """The claims of CLAIMS.md by id."""
    return dict(re.findall(r"^\| ([A-Z]\d+) \| (.+?) \| .+ \|$", CLAIMS.read_text(encoding="utf-8"), re.MULTILINE))


def _overall(claim: str, reading: str, group: Sequence[Judged]) -> Overall:
    tested = [one.verdict for one in group if one.verdict != significance.NOT_TESTED]
    if not tested:
        verdict = significance.NOT_TESTED
    elif "contradicted" in tested:
        verdict = "contradicted"
    else:
        whole = "supported" if len(tested) == len(group) else "supported where tested"
        verdict = whole if set(tested) == {"supported"} else "undecided"
    reasons = tuple(dict.fromkeys(one.reason for one in group if one.reason))
    return Overall(claim, reading, claims().get(claim, ""), verdict, Counter(tested), len(group), reasons)
