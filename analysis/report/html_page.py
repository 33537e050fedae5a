"""Make a self-contained HTML page: the first page of the report, claims to sort and filter, all figures and tables."""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.cells import Results
from analysis.report import claim_tables, first_page, study_tables, verdict_tables
from analysis.report.first_page import Choose
from analysis.verdicts.claims import overall
from analysis.verdicts.comparisons import judge
from analysis.verdicts.method_gains import GROUPS, MethodGain, method_gains
from experiments.schema.study import Scale, Study

TEMPLATE = "page.html.jinja"
NEEDED = {"robustness", "overlap"}  # studies without which a page has no first page
SUMMARIES = {"verdicts": "Claims by verdict", "searches": "What tuning would be worth"}  # figures of several studies
LEFT, MIDDLE, HALF, EDGE, LINE = 190, 400, 190, 6.0, 22  # the forest plot: units of its drawing, points at its edges


@dataclass(frozen=True)
class ForestLine:
    """A line of the forest plot, in units of its drawing: a heading, or a gain with its text."""

    y: int
    name: str
    heading: bool = False
    text: str = ""
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    printed: float | None = None
    certain: bool = False  # whether the interval is without 0


def page(scale: Scale, studies_results: Sequence[Results], figures: Path, choose: Choose | None = None) -> str:
    """Return a page of all studies of a scale, with the PNG of each figure that was drawn.

    With `choose`, which returns the results of studies by name, it begins with the report's first page.
    """
    loader = FileSystemLoader(Path(__file__).parent)
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    templates.filters["strong"] = _strong
    names = {results.study.name for results in studies_results}
    front = (
        _front(choose) if choose and scale.name == "small" and names >= NEEDED else None
    )  # its words are about `small`
    return templates.get_template(TEMPLATE).render(
        scale=scale,
        legend=study_tables.LEGEND,
        contents=_contents([results.study for results in studies_results]),
        front=front,
        claims=claim_tables.claim_lines(studies_results, choose("plan") if choose and front else []),
        summaries=[(title, _picture(figures / f"{name}.png")) for name, title in SUMMARIES.items()],
        sections=[_section(results, figures) for results in studies_results],
    )


def _front(choose: Choose) -> dict[str, Any]:
    """Return the parts of the first page."""
    return {
        "summary": _items(first_page.summary_block(choose)),
        "papers": first_page.papers_grid(choose),
        "findings": _items(first_page.findings_block(choose)),
        "limits": _items(first_page.limits_block(choose)),
        "forest": forest_lines(method_gains([*choose("robustness"), *choose("baselines"), *choose("plan")])),
        "axis": [(number, position(number)) for number in range(-6, 7, 2)],
    }


def _items(block: str) -> list[str]:
    """Return the items of a Markdown list."""
    lines = [line.removeprefix("> ") for line in block.splitlines()]
    return [line.removeprefix("- ") for line in lines if line.startswith("- ")]


def position(points: float) -> float:
    """Return where a gain lies in the drawing; what is beyond the axis lies at its edge."""
    return round(MIDDLE + HALF * min(max(points / EDGE, -1.0), 1.0), 1)


def forest_lines(measured: Sequence[MethodGain]) -> list[ForestLine]:
    """Return the lines of the forest plot, a heading above each group."""
    lines: list[ForestLine] = []
    group = ""
    for gain in measured:
        if gain.group != group:
            group = gain.group
            lines.append(ForestLine(LINE * (len(lines) + 1), GROUPS[group], heading=True))
        band = gain.estimate.interval() if gain.estimate else None
        printed = "not published" if gain.published is None else f"published {gain.published:+.2f}"
        here = first_page.gain_text(gain) if gain.estimate else "not recorded"
        lines.append(
            ForestLine(
                y=LINE * (len(lines) + 1),
                name=gain.method,
                text=f"{gain.method}: {here}; {printed}",
                mean=position(gain.estimate.mean) if gain.estimate else None,
                low=position(band.low) if band else None,
                high=position(band.high) if band else None,
                printed=None if gain.published is None else position(gain.published),
                certain=bool(band and not band.low <= 0 <= band.high),
            )
        )
    return lines


def _contents(studies: Sequence[Study]) -> dict[str, list[tuple[str, str]]]:
    """Return names of studies and the texts of their links, by paper."""
    papers: dict[str, list[tuple[str, str]]] = {}
    for study in studies:
        paper, _, label = study.source.partition(", ")
        papers.setdefault(paper, []).append((study.name, study.name if paper == "this project" else label))
    return papers


def _section(results: Results, figures: Path) -> dict[str, Any]:
    study, judged = results.study, judge(results)
    pictures = [_picture(figures / f"{study.name}{suffix}.png") for suffix in ("", "-curves")]
    return {
        "study": study,
        "pictures": [picture for picture in pictures if picture],
        "grids": study_tables.grids(results),
        "claims": [(claim.claim, claim.text, verdict_tables.outcome(claim)) for claim in overall(judged)],
        "verdicts": verdict_tables.verdict_grid(judged) if judged else None,
        "how": verdict_tables.how_judged(judged) if judged else "",
        "notes": study_tables.notes(results),
    }


def _picture(path: Path) -> str:
    """Return a picture in base64; empty if it was not drawn."""
    return base64.b64encode(path.read_bytes()).decode() if path.is_file() else ""


def _strong(text: str) -> Markup:
    """Escape a text; set what is between Markdown's double stars in bold, between back ticks as code."""
    bold = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", str(escape(text)))
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", bold))
