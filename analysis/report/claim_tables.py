"""Show every claim with its exploratory and its planned verdict, and the studies that judge it."""

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.cells import Results
from analysis.report.formats import DASH, Grid, markdown
from analysis.report.verdict_tables import outcome
from analysis.verdicts.claims import PAPERS, VERDICTS, Claim, judge_claims
from analysis.verdicts.other_claims import planned_verdicts
from experiments.schema.study import Study


@dataclass(frozen=True)
class ClaimLine:
    """A claim as the report shows it: its verdict as a whole, the details, the plan's verdict, the studies."""

    id: str
    text: str
    paper: str
    verdict: str
    details: str
    planned: str
    studies: tuple[Study, ...]


def claim_lines(studies_results: Iterable[Results], planned: Iterable[Results]) -> list[ClaimLine]:
    """Return every claim in the order of CLAIMS.md."""
    verdicts = planned_verdicts(planned)
    return [_claim_line(claim, verdicts.get(claim.id, DASH)) for claim in judge_claims(studies_results)]


def _claim_line(claim: Claim, planned: str) -> ClaimLine:
    texts = [f"{each.reading}: {outcome(each, brief=True)}".removeprefix(": ") for each in claim.verdicts]
    return ClaimLine(
        id=claim.id,
        text=claim.text,
        paper=PAPERS[claim.id[0]],
        verdict=claim.verdict,
        details="; ".join(texts) or DASH,
        planned=planned,
        studies=claim.studies,
    )


def claims_by_verdict(studies_results: Iterable[Results], planned: Iterable[Results]) -> str:
    """Return the claims in a table for each exploratory verdict, with the planned verdict and links to the studies."""
    lines = claim_lines(studies_results, planned)
    parts = []
    for verdict in VERDICTS:
        rows = tuple(
            (line.id, line.text, line.details, line.planned, ", ".join(map(_link, line.studies)))
            for line in lines
            if line.verdict == verdict
        )
        if rows:
            grid = Grid("", ("id", "claim", "exploratory", "planned", "studies"), rows)
            parts.append(f"### {verdict.capitalize()}: {len(rows)}\n\n{markdown(grid)}")
    return "\n\n".join(parts)


def _link(study: Study) -> str:
    return f"[{study.name}](analysis/tables/{study.scale.name}/{study.name}.md)"
