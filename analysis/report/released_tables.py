"""Make the grids of the public checkpoints: what is printed for each, what it scores here, and whether they agree."""

from collections.abc import Sequence

from analysis.cells import Results
from analysis.report.blocks import block
from analysis.report.formats import DASH, Grid, markdown, number
from analysis.report.report_blocks import table_title
from cse_core.evaluation.scorers import Cosine
from cse_core.run import Pretrained
from experiments.results.released_scores import MARGIN, Agreement, compare, summary
from experiments.schema.columns import column
from experiments.schema.study import Row

HEADER = ("row", "checkpoint", "vector", "printed in", "printed", "ours", "outcome", "sets that differ")
POOLINGS = {"cls": "[CLS], no head", "first_last_mean": "mean of first and last layer"}


def released_grid(results: Results) -> Grid:
    """Return a line for each row: its checkpoint, its printed average, ours and the outcome."""
    average = column(results.study.columns[-1]).heading
    lines = tuple(map(_line, compare(results.study, results.value)))
    return Grid(f"{average}: public checkpoints and their printed numbers", HEADER, lines)


@block("released", of=lambda ask: (ask.choose(ask.name),))
def released_block(studies_results: Sequence[Results]) -> str:
    """Return both studies' grids as Markdown, their counts, and notes on single rows."""
    parts = []
    for results in studies_results:
        counts = summary(compare(results.study, results.value))
        parts += [markdown(released_grid(results)), f"{results.study.name}: {counts}."]
    notes: dict[str, list[str]] = {}
    for row in (row for results in studies_results for row in results.study.rows if row.note):
        labels = notes.setdefault(row.note, [])
        labels += [] if row.label in labels else [row.label]
    parts.append("\n".join(f"- {', '.join(labels)}: {note}." for note, labels in notes.items()))
    margin = f"An average reproduces its printed number if the two are at most {MARGIN:g} points apart."
    return "\n\n".join([margin, *parts])


def _line(agreement: Agreement) -> tuple[str, ...]:
    row = agreement.row
    return (
        row.label,
        row.encoder.name if isinstance(row.encoder, Pretrained) else DASH,
        _vector(row) if row.encoder else DASH,
        table_title(row.published.table) if row.published else DASH,
        number(agreement.printed),
        number(agreement.ours),
        agreement.text,
        agreement.gaps_text or DASH,
    )


def _vector(row: Row) -> str:
    """Return the pooling of a row in words, or its template."""
    assert isinstance(row.scorer, Cosine)
    return row.scorer.template or POOLINGS.get(row.scorer.pooling or "", row.scorer.pooling or "")
