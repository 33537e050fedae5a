"""Draw scores over settings, which the rows' labels name: a grid of two settings, lines over one."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.cells import Cell
from analysis.plots import labels, style
from analysis.plots.figure_data import FigureData, missing_scores, seeds_text
from analysis.report.formats import DASH
from analysis.stats import significance
from experiments.schema.columns import column
from experiments.schema.study import Row, Study

SETTING = re.compile(r"(?P<name>[A-Za-z]\w*) (?P<value>\d[\d.]*(?:e-?\d+)?)")
COUNT = re.compile(r"(?P<value>\d[\d,]*) (?P<name>.+)")


class RowPosition(NamedTuple):
    """The line, setting and value of a row in a figure; a row without a value is a reference for all lines."""

    line: str
    setting: str
    value: float | None


class End(NamedTuple):
    """The end of a line, its name and its colour; x is None for a line through the whole panel."""

    x: float | None
    y: float
    name: str
    colour: str


def settings(label: str) -> dict[str, float]:
    """Return names and values of settings in a label, such as "tau2 0.025, tau3 0.0125"."""
    return {match["name"]: float(match["value"]) for match in SETTING.finditer(label)}


def row_position(label: str) -> RowPosition:
    """Return line, setting and value of "BERT-base, tau2 0.025" or "10,000 corpus sentences"; "cosine" has none."""
    line, _, last = label.rpartition(", ")
    if match := SETTING.fullmatch(last):
        return RowPosition(line, match["name"], float(match["value"]))
    if match := COUNT.fullmatch(label):
        return RowPosition("", match["name"], float(match["value"].replace(",", "")))
    return RowPosition(label, "", None)


def grid(drawn: FigureData) -> Figure | None:
    """Draw the mean score of every pair of two settings, and frame the best."""
    study, name = drawn.study, drawn.study.columns[0]
    places = {row.label: _two_settings(study, row) for row in study.rows}
    scored = [(places[row.label], summary) for row in study.rows if (summary := drawn.cell(row, name).summary)]
    if not scored:
        return None
    down, across = (sorted({at[axis] for at in places.values()}) for axis in (0, 1))
    width = max(style.NARROW, 0.78 * len(across) + 1.2)
    figure, (axes,) = style.panels(1, 1, height=0.42 * len(down) + 1.0, width=width)
    cells = [(down.index(y), across.index(x), summary) for (y, x), summary in scored]
    _draw_heat_map(axes, (len(down), len(across)), cells)
    titles = list(settings(study.rows[0].label))
    for axis, title, ticks in ((axes.xaxis, titles[1], across), (axes.yaxis, titles[0], down)):
        axis.set_ticks(range(len(ticks)), [f"{tick:g}" for tick in ticks])
        axis.set_label_text(title.replace("_", " "))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(column(name).heading)
    counts = [summary.n for _, summary in scored]
    over = f"Mean and sample deviation over {seeds_text(counts)}" if max(counts, default=0) > 1 else "One seed"
    caption = f"{over}; framed: the best."
    return style.finish(figure, drawn, caption, missing_scores(drawn, (name,)))


def _two_settings(study: Study, row: Row) -> tuple[float, float]:
    values = tuple(settings(row.label).values())
    if len(values) != 2:
        raise ValueError(f"{study.name}: a grid needs rows with two settings, got the row {row.label!r}")
    return values


def _draw_heat_map(axes: Axes, shape: tuple[int, int], cells: Sequence[tuple[int, int, significance.Summary]]) -> None:
    """Draw colours and numbers for (row, column, score), and a dash where there is no score."""
    means = np.full(shape, np.nan)
    for i, j, summary in cells:
        means[i, j] = summary.mean
    image = axes.imshow(np.ma.masked_invalid(means), cmap="cividis", aspect="auto", origin="lower")
    for i, j in np.argwhere(np.isnan(means)):
        axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="#eeeeee", edgecolor="white", linewidth=0.5))
        axes.text(j, i, DASH, ha="center", va="center", color=style.FAINT)
    best = max(
        round(summary.mean, 2) for _, _, summary in cells
    )  # rounded as shown, so that equal numbers are all framed
    for i, j, summary in cells:
        deviation = "" if summary.sd is None else f"\n±{summary.sd:.2f}"
        text = axes.text(j, i, f"{summary.mean:.2f}{deviation}", ha="center", va="center", fontsize=7)
        text.set_color(style.text_colour_on(image, summary.mean))
        if round(summary.mean, 2) == best:
            text.set_fontweight("bold")
            edge = style.LOOKS["RankEncoder"].colour
            axes.add_patch(Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, edgecolor=edge, linewidth=2))


def lines(drawn: FigureData) -> Figure | None:
    """Draw scores over a setting on a logarithmic axis: a panel for each column, a line for each backbone."""
    study = drawn.study
    names = [name for name in study.columns if any(drawn.cell(row, name).scores for row in study.rows)]
    if not names:
        return None
    figure, axes = style.panels(len(names), 2, height=2.5, width=style.WIDE if len(names) > 1 else 4.6)
    ends = [_draw_panel(drawn, panel, name) for panel, name in zip(axes, names, strict=True)]
    counts = (len(drawn.cell(row, name).scores) for row in study.rows for name in names)
    caption = f"Mean over {seeds_text(counts)}, bars and bands the sample deviation, faint dots single seeds."
    style.finish(figure, drawn, caption, missing_scores(drawn, study.columns))
    for panel, panel_ends in zip(axes, ends, strict=True):
        right = panel.get_xlim()[1]
        labels.beside_ends(panel, [(end.x or right, end.y, end.name, end.colour) for end in panel_ends])
    return figure


def _draw_panel(drawn: FigureData, axes: Axes, name: str) -> list[End]:
    """Draw a column; return the ends of its lines."""
    places = {row.label: row_position(row.label) for row in drawn.study.rows}
    groups: dict[str, list[Row]] = {}
    for row in drawn.study.rows:
        if drawn.cell(row, name).scores:
            groups.setdefault(places[row.label].line, []).append(row)
    looks = style.looks([rows[0] for rows in groups.values()])
    ends = []
    for line, rows in groups.items():
        cells = [(places[row.label].value, drawn.cell(row, name)) for row in rows]
        look = looks[rows[0].label]
        valued = [(value, cell) for value, cell in cells if value is not None]
        ends.append(_draw_line(axes, line, valued, look) if valued else _draw_reference(axes, line, cells[0][1], look))
    values = sorted({at.value for at in places.values() if at.value is not None})
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))
    axes.set_xlim(values[0] / 1.15, values[-1] * 1.15)
    axes.set(xlabel=next(at.setting for at in places.values() if at.setting), ylabel=column(name).heading)
    return ends


def _draw_line(axes: Axes, line: str, cells: Sequence[tuple[float, Cell]], look: style.Look) -> End:
    summaries = [significance.summary(list(cell.scores.values())) for _, cell in cells]
    xs, means = [x for x, _ in cells], [summary.mean for summary in summaries]
    deviations = [summary.sd or 0.0 for summary in summaries]
    axes.errorbar(
        xs, means, yerr=deviations, color=look.colour, marker=look.marker, linestyle=look.dash, capsize=2, elinewidth=1
    )
    for x, cell in cells:
        style.dots(axes, [x] * len(cell.scores), list(cell.scores.values()), look.colour)
    seeds = f" ({seeds_text(summary.n for summary in summaries)})" if line else ""
    return End(xs[-1], means[-1], (line or "ranks") + seeds, look.colour)


def _draw_reference(axes: Axes, line: str, cell: Cell, look: style.Look) -> End:
    summary = significance.summary(list(cell.scores.values()))
    axes.axhline(summary.mean, color=look.colour, linestyle=(0, (4, 2)), linewidth=1.1, zorder=1)
    if summary.sd:
        axes.axhspan(summary.mean - summary.sd, summary.mean + summary.sd, color=look.colour, **style.BAND)
    return End(None, summary.mean, line, look.colour)
