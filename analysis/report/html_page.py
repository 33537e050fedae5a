"""Make a self-contained HTML page of all tables, figures and verdicts."""

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.cells import Results
from analysis.report import report_blocks, study_tables, verdict_tables
from analysis.verdicts.claims import overall
from analysis.verdicts.comparisons import judge
from experiments.schema.study import Scale, Study

TEMPLATE = "page.html.jinja"


def page(scale: Scale, studies_results: Sequence[Results], figures: Path) -> str:
    """Return a page of all studies of a scale, with the PNG of each figure that was drawn."""
    loader = FileSystemLoader(Path(__file__).parent)
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    templates.filters["strong"] = _strong
    return templates.get_template(TEMPLATE).render(
        scale=scale,
        legend=study_tables.LEGEND,
        contents=_contents([results.study for results in studies_results]),
        claims=report_blocks.claims_grid(studies_results),
        sections=[_section(results, figures) for results in studies_results],
    )


def _contents(studies: Sequence[Study]) -> dict[str, list[tuple[str, str]]]:
    """Return names of studies and the texts of their links, by paper."""
    papers: dict[str, list[tuple[str, str]]] = {}
    for study in studies:
        paper, _, label = study.source.partition(", ")
        papers.setdefault(paper, []).append((study.name, study.name if paper == "this project" else label))
    return papers


def _section(results: Results, figures: Path) -> dict[str, Any]:
    study, judged = results.study, judge(results)
    paths = (figures / f"{study.name}.png", figures / f"{study.name}-curves.png")
    return {
        "study": study,
        "pictures": [base64.b64encode(path.read_bytes()).decode() for path in paths if path.is_file()],
        "grids": study_tables.grids(results),
        "claims": [(claim.claim, claim.text, verdict_tables.outcome(claim)) for claim in overall(judged)],
        "verdicts": verdict_tables.verdict_grid(judged) if judged else None,
        "how": verdict_tables.how_judged(judged) if judged else "",
        "notes": study_tables.notes(results),
    }


def _strong(text: str) -> Markup:
    """Escape a text and set what is between Markdown's double stars in bold."""
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", str(escape(text))))
