"""The plan's verdicts on claims that no contrast of means decides: orders, trends, spreads and costs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product

from analysis.cells import Results
from analysis.stats import significance
from analysis.verdicts.comparisons import Verdict, judge
from analysis.verdicts.primaries import (
    INCONCLUSIVE,
    NOT_RUN,
    NOT_TESTABLE,
    blocked_families,
    first_seeds,
    judge_contrasts,
)
from experiments.plan.plan_orders import FAMILY_OF
from experiments.schema.contrasts import EXPLORATORY, PRIMARY, looks_at
from experiments.schema.hypotheses import Comparison, Cost, Finding, Order, Trend, Untested

SUPPORTED, CONTRADICTED = "supported", "contradicted"
WORDS = {
    SUPPORTED: SUPPORTED,
    CONTRADICTED: CONTRADICTED,
    "undecided": INCONCLUSIVE,
    significance.NOT_TESTED: NOT_TESTABLE,
}


@dataclass(frozen=True)
class OtherVerdict:
    """The plan's verdict on a claim that no contrast decides; `tested` has the estimate, None before the first look."""

    compared: Comparison | Finding
    verdict: str
    tested: Verdict | None


def planned_verdicts(planned: Iterable[Results]) -> dict[str, str]:
    """Return the plan's verdict on every claim, a contrast's as its `text` has it."""
    planned = list(planned)
    primaries = {v.contrast.subject: v.text for v in judge_contrasts(planned) if v.contrast.kind == PRIMARY}
    return primaries | judge_other_claims(planned)


def judge_other_claims(planned: Iterable[Results]) -> dict[str, str]:
    """Return the word of each of these claims' verdicts."""
    return {judged.compared.claim: judged.verdict for judged in judge_others(planned)}


def judge_others(planned: Iterable[Results]) -> tuple[OtherVerdict, ...]:
    """Return the verdict on each claim that the plan's studies judge by a comparison or a finding.

    Claims of a family whose controls failed are not testable, and of one whose controls are not run, not run; those of
    a family that the scale only explores have no verdict. Costs, which benchmarks measure, have no family.
    """
    planned = list(planned)
    explored = _explored_families(planned)
    blocked = blocked_families(judge_contrasts(planned))
    verdicts: dict[str, OtherVerdict] = {}
    for results in planned:
        for compared in (*results.study.comparisons, *results.study.findings):
            if compared.claim in verdicts:
                raise ValueError(f"{results.study.name}: expected one test of claim {compared.claim} in the plan")
            family = FAMILY_OF.get(compared.claim)
            if family in explored:
                continue
            tested = _judge_at_last_look(results, compared)
            verdict = WORDS[tested.verdict] if tested else NOT_RUN
            if family in blocked and verdict != NOT_TESTABLE:
                verdict = blocked[family][0]
            verdicts[compared.claim] = OtherVerdict(compared, verdict, tested)
    return tuple(verdicts.values())


def _explored_families(planned: Iterable[Results]) -> set[str]:
    """Return the families all of whose contrasts, controls too, are exploratory at this scale."""
    contrasts = [contrast for results in planned for contrast in results.study.contrasts]
    return {each.family for each in contrasts} - {each.family for each in contrasts if each.kind != EXPLORATORY}


def _judge_at_last_look(results: Results, compared: Comparison | Finding) -> Verdict | None:
    look = _cut_to_last_look(results, compared)
    if look is None:
        return None
    (verdict,) = (verdict for verdict in judge(look) if verdict.comparison == compared)
    return verdict


def _cut_to_last_look(results: Results, compared: Comparison | Finding) -> Results | None:
    """Return the results with the seeds of the last look that each row read is complete at; None before the first."""
    cells = [results.cells[place] for place in _read_cells(compared)]
    planned = looks_at(results.study.scale.name)
    looks = [n for n in planned if all(len(first_seeds(cell, n)) == min(n, cell.declared_seeds) for cell in cells)]
    if not looks:
        return None
    cut = {place: replace(cell, scores=first_seeds(cell, looks[-1])) for place, cell in results.cells.items()}
    return replace(results, cells=cut)


def _read_cells(compared: Comparison | Finding) -> list[tuple[str, str]]:
    """Return the cells that a test reads, by row and column."""
    match compared:
        case Comparison():
            return [(label, compared.column) for label in (compared.better, compared.worse)]
        case Order():
            return [
                *((label, compared.column) for label in compared.rows),
                *((label + compared.suffix, compared.other) for label in compared.rows),
            ]
        case Trend():
            return [*product((compared.better, compared.worse), compared.over), *product((compared.row,), compared.by)]
        case Cost() | Untested():
            return []
