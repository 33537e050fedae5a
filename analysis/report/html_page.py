"""One HTML page, in itself complete, of all tables and figures with the verdicts."""

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


def page(scale: Scale, found: Sequence[Results], figures: Path) -> str:
    """Return a page of all of a scale's studies; a figure is taken from its PNG, where there is one."""
    loader = FileSystemLoader(Path(__file__).parent)
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    templates.filters["strong"] = _strong
    return templates.get_template(TEMPLATE).render(
        scale=scale,
        legend=study_tables.LEGEND,
        contents=_contents([results.study for results in found]),
        claims=report_blocks.claims_grid(found),
        sections=[_section(results, figures) for results in found],
    )


def _contents(studies: Sequence[Study]) -> dict[str, list[tuple[str, str]]]:
    """Names of studies and what links to them say, by paper."""
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
        "claims": [(one.claim, one.text, verdict_tables.outcome(one)) for one in overall(judged)],
        "verdicts": verdict_tables.verdict_grid(judged) if judged else None,
        "how": verdict_tables.how_judged(judged) if judged else "",
        "notes": study_tables.notes(results),
    }


def _strong(text: str) -> Markup:
    """Escape a text and mark what Markdown's stars enclose."""
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", str(escape(text))))
