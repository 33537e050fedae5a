"""Combine the verdicts on comparisons into one for each claim."""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.cells import Results
from analysis.stats import significance
from analysis.verdicts.comparisons import Verdict, judge
from experiments.schema.hypotheses import Comparison, Finding
from experiments.schema.study import Study

VERDICTS = ("supported", "contradicted", "undecided", significance.NOT_TESTED)  # on a claim as a whole
PAPERS = {"R": "RankCSE", "E": "RankEncoder", "W": "WhitenedCSE", "C": "CompCSE", "S": "this study's own"}  # by id
CLAIMS = Path(__file__).parents[2] / "experiments/CLAIMS.md"


@dataclass(frozen=True)
class Overall:
    """A claim's verdict over its comparisons in one study."""

    claim: str
    reading: str  # names one way to read an ambiguous text
    text: str
    verdict: str
    counts: Mapping[str, int]  # tested comparisons by verdict
    declared: int
    reasons: tuple[str, ...]  # why comparisons were not tested


@dataclass(frozen=True)
class Claim:
    """A claim of CLAIMS.md, its verdicts over all studies (one for each reading), and the studies that judge it."""

    id: str
    text: str
    verdicts: tuple[Overall, ...]
    studies: tuple[Study, ...]

    @property
    def verdict(self) -> str:
        """Contradicted if any reading is, supported if any is, if only where tested, and none is contradicted."""
        return _strongest({reading.verdict for reading in self.verdicts})


def judge_claims(studies_results: Iterable[Results]) -> tuple[Claim, ...]:
    """Return every claim with its verdicts over all studies that judge it, in the order of CLAIMS.md.

    The same runs compared in several tables count once, by the verdict under the strictest correction.
    """
    by_claim: dict[str, dict[Hashable, Verdict]] = defaultdict(dict)
    studies: dict[str, dict[str, Study]] = defaultdict(dict)
    for results in studies_results:
        for verdict in judge(results):
            name, what = verdict.comparison.claim, _identity(results.study, verdict.comparison)
            earlier = by_claim[name].get(what)
            if earlier is None or (verdict.adjusted or 0) > (earlier.adjusted or 0):
                by_claim[name][what] = verdict
            studies[name][results.study.name] = results.study
    return tuple(
        Claim(name, text, overall(list(by_claim[name].values())), tuple(studies[name].values()))
        for name, text in claims().items()
    )


def count_verdicts(judged: Iterable[Claim]) -> Counter[str]:
    """Count claims by verdict."""
    return Counter(claim.verdict for claim in judged)


def _strongest(verdicts: set[str]) -> str:
    for word in ("contradicted", "supported", "supported where tested", "undecided"):
        if word in verdicts:
            return word.removesuffix(" where tested")
    return significance.NOT_TESTED


def _identity(study: Study, compared: Comparison | Finding) -> Hashable:
    """Return what identifies a comparison in any table: the scores of two rows, the column and the kind of test."""
    if not isinstance(compared, Comparison):
        return compared
    rows = {row.label: row for row in study.rows}
    sides = [rows[label] for label in (compared.better, compared.worse) if label in rows]
    sources = [
        (*row.keys().values(), row.select, str(row.scorer), row.metric) if row.encoder else row.label for row in sides
    ]
    return (*sources, study.scale.name, compared.column, compared.kind)


def overall(judged: Sequence[Verdict]) -> tuple[Overall, ...]:
    """Return a verdict for each claim and reading: contradicted if any comparison is, supported if all, else undecided.

    If some comparisons can't be tested and all others support the claim, it is "supported where tested".
    """
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in judged:
        groups.setdefault((verdict.comparison.claim, getattr(verdict.comparison, "reading", "")), []).append(verdict)
    return tuple(_combine(*about, group) for about, group in groups.items())


@cache
def claims() -> dict[str, str]:
    """Return the claims of CLAIMS.md by id."""
    return dict(re.findall(r"^\| ([A-Z]\d+) \| (.+?) \| .+ \|$", CLAIMS.read_text(encoding="utf-8"), re.MULTILINE))


def _combine(claim: str, reading: str, group: Sequence[Verdict]) -> Overall:
    tested = [judged.verdict for judged in group if judged.verdict != significance.NOT_TESTED]
    if not tested:
        verdict = significance.NOT_TESTED
    elif "contradicted" in tested:
        verdict = "contradicted"
    else:
        whole = "supported" if len(tested) == len(group) else "supported where tested"
        verdict = whole if set(tested) == {"supported"} else "undecided"
    reasons = tuple(dict.fromkeys(judged.reason for judged in group if judged.reason))
    return Overall(claim, reading, claims().get(claim, ""), verdict, Counter(tested), len(group), reasons)
