"""Write a comparison's table, figures and pages from its record."""

import base64
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from analysis.report.comparison_tables import comparison_text, gains_grid
from analysis.report.formats import markdown
from analysis.verdicts.comparison import Summary, summarise
from cse_core.data.atomic_write import atomic_write
from experiments.comparison.comparison import Comparison
from experiments.results import csv_record
from experiments.results.run_card import CARD

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0; }}
th, td {{ padding: .3rem .7rem; border-bottom: 1px solid #8884; text-align: left; vertical-align: top; }}
img {{ max-width: 100%; background: white; }}
</style></head><body>
{body}
</body></html>
"""


def write_report(comparison: Comparison, mlruns: Path, store: Path, failed: Collection[str] = ()) -> list[str]:
    """Write comparison.md, page.html and the figures; return lines to print: the table of gains and the files' paths.

    The files are in the record's folder; in the project's own record, in comparisons/NAME. `failed` are keys of runs
    that failed just now and are not recorded.
    """
    import matplotlib.pyplot as plt  # lazy: slow import
    from markdown import markdown as html_of  # lazy: slow import

    from analysis.comparison import figures  # lazy: slow import
    from analysis.plots import style  # lazy: slow import

    folder = mlruns / "comparisons" / comparison.name if csv_record.is_project_record(mlruns) else mlruns
    folder.mkdir(parents=True, exist_ok=True)
    summary = summarise(comparison, mlruns, failed)
    with plt.rc_context(style.RC):
        images = {name: style.png(figure) for name, figure in figures.comparison_figures(summary).items()}
    for name, content in images.items():
        atomic_write(folder / f"{name}.png", content)
    text = report_text(summary, folder, store)
    atomic_write(folder / "comparison.md", text)
    for name, content in images.items():  # embedded, so that the page is one file to send
        text = text.replace(f"({name}.png)", f"(data:image/png;base64,{base64.b64encode(content).decode()})")
    body = html_of(text, extensions=["tables"])
    atomic_write(folder / "page.html", PAGE.format(title=f"Comparison {comparison.name}", body=body))
    where = f"report: {folder / 'comparison.md'}; the same as one file to send: {folder / 'page.html'}"
    return [*markdown(gains_grid(summary)).splitlines(), where]


def report_text(summary: Summary, folder: Path, store: Path) -> str:
    """Return the report as Markdown, with links from its folder to the store."""
    cards = ("## Model cards", "\n".join(_cards(summary, folder, store)))
    return comparison_text(summary, f"# Comparison {summary.comparison.name}", after=cards)


def _cards(summary: Summary, folder: Path, store: Path) -> Iterator[str]:
    """Yield a line for each method, with a link to the card of one of the finals of each search's winner."""
    for each in summary.tuned:
        links = []
        for search in each.winners:
            if key := next((key for key in each.finals[search] if (store / key / CARD).is_file()), None):
                link = Path(os.path.relpath(store.resolve() / key / CARD, folder.resolve())).as_posix()
                links.append(f"search {search + 1} [{key}]({link})")
        yield f"- {each.entrant.name}: {', '.join(links) or 'no checkpoint is here'}"
