"""Figures of scores over settings that the rows' labels name: a grid of two, lines over one."""

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
from analysis.plots.figure_data import Drawn, missing_scores, seeds_told
from analysis.report.formats import DASH
from analysis.stats import significance
from experiments.schema.columns import column
from experiments.schema.study import Row, Study

SETTING = re.compile(r"(?P<name>[A-Za-z]\w*) (?P<value>\d[\d.]*(?:e-?\d+)?)")
COUNT = re.compile(r"(?P<value>\d[\d,]*) (?P<name>.+)")


class Place(NamedTuple):
    """Where a row lies: on which line, of which setting, at which value; without one it is a reference for all."""

    line: str
    setting: str
    value: float | None


class End(NamedTuple):
    """Where a line ends, its name and its colour; x is None for a line through the whole panel."""

    x: float | None
    y: float
    name: str
    colour: str


def settings(label: str) -> dict[str, float]:
    """Names and values of "tau2 0.025, tau3 0.0125"."""
    return {found["name"]: float(found["value"]) for found in SETTING.finditer(label)}


def place(label: str) -> Place:
    """Line, setting and value of "BERT-base, tau2 0.025" or "10,000 corpus sentences"; "cosine" is a reference."""
    line, _, last = label.rpartition(", ")
    if found := SETTING.fullmatch(last):
        return Place(line, found["name"], float(found["value"]))
    if found := COUNT.fullmatch(label):
        return Place("", found["name"], float(found["value"].replace(",", "")))
    return Place(label, "", None)


def grid(drawn: Drawn) -> Figure | None:
    """The mean score of every pair of two settings, the best of those that are shown framed."""
    study, name = drawn.study, drawn.study.columns[0]
    places = {row.label: _two(study, row) for row in study.rows}
    known = [(places[row.label], found) for row in study.rows if (found := drawn.cell(row, name).summary)]
    if not known:
        return None
    down, across = (sorted({at[axis] for at in places.values()}) for axis in (0, 1))
    width = max(style.NARROW, 0.78 * len(across) + 1.2)
    figure, (axes,) = style.panels(1, 1, height=0.42 * len(down) + 1.0, width=width)
    cells = [(down.index(y), across.index(x), found) for (y, x), found in known]
    _heat(axes, (len(down), len(across)), cells)
    titles = list(settings(study.rows[0].label))
    for axis, title, ticks in ((axes.xaxis, titles[1], across), (axes.yaxis, titles[0], down)):
        axis.set_ticks(range(len(ticks)), [f"{tick:g}" for tick in ticks])
        axis.set_label_text(title.replace("_", " "))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(column(name).heading)
    counts = [found.n for _, found in known]
    over = f"Mean and sample deviation over {seeds_told(counts)}" if max(counts, default=0) > 1 else "One seed"
    said = f"{over}; framed: the best."
    return style.finish(figure, drawn, said, missing_scores(drawn, (name,)))


def _two(study: Study, row: Row) -> tuple[float, float]:
    found = tuple(settings(row.label).values())
    if len(found) != 2:
        raise ValueError(f"{study.name}: a grid wants rows with two settings, got the row {row.label!r}")
    return found


def _heat(axes: Axes, shape: tuple[int, int], cells: Sequence[tuple[int, int, significance.Summary]]) -> None:
    """Colours and numbers; (row, column, score) each, a dash where there is none."""
    means = np.full(shape, np.nan)
    for i, j, found in cells:
        means[i, j] = found.mean
    image = axes.imshow(np.ma.masked_invalid(means), cmap="cividis", aspect="auto", origin="lower")
    for i, j in np.argwhere(np.isnan(means)):
        axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="#eeeeee", edgecolor="white", linewidth=0.5))
        axes.text(j, i, DASH, ha="center", va="center", color=style.FAINT)
    best = max(round(found.mean, 2) for _, _, found in cells)  # as shown: equal numbers are all framed
    for i, j, found in cells:
        deviation = "" if found.sd is None else f"\n±{found.sd:.2f}"
        text = axes.text(j, i, f"{found.mean:.2f}{deviation}", ha="center", va="center", fontsize=7)
        text.set_color(style.on(image, found.mean))
        if round(found.mean, 2) == best:
            text.set_fontweight("bold")
            edge = style.LOOKS["RankEncoder"].colour
            axes.add_patch(Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, edgecolor=edge, linewidth=2))


def lines(drawn: Drawn) -> Figure | None:
    """Scores over a setting on a logarithmic axis: a panel a column, a line a backbone; references are horizontal."""
    study = drawn.study
    names = [name for name in study.columns if any(drawn.cell(row, name).scores for row in study.rows)]
    if not names:
        return None
    figure, axes = style.panels(len(names), 2, height=2.5, width=style.WIDE if len(names) > 1 else 4.6)
    ends = [_panel(drawn, panel, name) for panel, name in zip(axes, names, strict=True)]
    counts = (len(drawn.cell(row, name).scores) for row in study.rows for name in names)
    said = f"Mean over {seeds_told(counts)}, bars and bands the sample deviation, faint dots single seeds."
    style.finish(figure, drawn, said, missing_scores(drawn, study.columns))
    for panel, found in zip(axes, ends, strict=True):
        right = panel.get_xlim()[1]
        labels.beside_ends(panel, [(end.x or right, end.y, end.name, end.colour) for end in found])
    return figure


def _panel(drawn: Drawn, axes: Axes, name: str) -> list[End]:
    """Draw a column; returns where names belong."""
    places = {row.label: place(row.label) for row in drawn.study.rows}
    groups: dict[str, list[Row]] = {}
    for row in drawn.study.rows:
        if drawn.cell(row, name).scores:
            groups.setdefault(places[row.label].line, []).append(row)
    looks = style.looks([rows[0] for rows in groups.values()])
    ends = []
    for line, rows in groups.items():
        found = [(places[row.label].value, drawn.cell(row, name)) for row in rows]
        look = looks[rows[0].label]
        valued = [(value, cell) for value, cell in found if value is not None]
        ends.append(_line(axes, line, valued, look) if valued else _reference(axes, line, found[0][1], look))
    values = sorted({at.value for at in places.values() if at.value is not None})
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))
    axes.set_xlim(values[0] / 1.15, values[-1] * 1.15)
    axes.set(xlabel=next(at.setting for at in places.values() if at.setting), ylabel=column(name).heading)
    return ends


def _line(axes: Axes, line: str, found: Sequence[tuple[float, Cell]], look: style.Look) -> End:
    summaries = [significance.summary(list(cell.scores.values())) for _, cell in found]
    xs, means = [x for x, _ in found], [one.mean for one in summaries]
    deviations = [one.sd or 0.0 for one in summaries]
    axes.errorbar(
        xs, means, yerr=deviations, color=look.colour, marker=look.marker, linestyle=look.dash, capsize=2, elinewidth=1
    )
    for x, cell in found:
        style.dots(axes, [x] * len(cell.scores), list(cell.scores.values()), look.colour)
    seeds = f" ({seeds_told(one.n for one in summaries)})" if line else ""
    return End(xs[-1], means[-1], (line or "ranks") + seeds, look.colour)


def _reference(axes: Axes, line: str, cell: Cell, look: style.Look) -> End:
    found = significance.summary(list(cell.scores.values()))
    axes.axhline(found.mean, color=look.colour, linestyle=(0, (4, 2)), linewidth=1.1, zorder=1)
    if found.sd:
        axes.axhspan(found.mean - found.sd, found.mean + found.sd, color=look.colour, **style.BAND)
    return End(None, found.mean, line, look.colour)
