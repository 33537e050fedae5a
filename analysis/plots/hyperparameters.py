"""Draw scores over settings, which the rows' labels name: a grid of two settings, lines over one."""

import re
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.cells import Cell
from analysis.plots import labels, style
from analysis.plots.figure_data import FigureData, missing_scores, seeds_text
from analysis.plots.scores import colour_range
from analysis.report.formats import DASH
from analysis.stats import significance
from analysis.stats.contrast_tests import paired_contrast
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
    """Draw the mean score of every pair of two settings, and frame the highest; equal lines are one."""
    study, name = drawn.study, drawn.study.columns[0]
    places = {row.label: _two_settings(study, row) for row in study.rows}
    scored = {places[row.label]: cell for row in study.rows if (cell := drawn.cell(row, name)).scores}
    if not scored:
        return None
    across = sorted({x for _, x in places.values()})
    down = _distinct_lines(scored, sorted({y for y, _ in places.values()}))
    titles = [title.replace("_", " ") for title in settings(study.rows[0].label)]
    width = max(style.NARROW, 0.78 * len(across) + 1.6)
    figure, (axes,) = style.panels(1, 1, height=max(1.4, 0.42 * len(down) + 1.0), width=width)
    cells = [
        (i, across.index(x), summary)
        for i, ys in enumerate(down)
        for (y, x), cell in scored.items()
        if y == ys[0] and (summary := cell.summary)
    ]
    _draw_heat_map(axes, (len(down), len(across)), cells)
    axes.xaxis.set_ticks(range(len(across)), [f"{tick:g}" for tick in across])
    axes.yaxis.set_ticks(range(len(down)), [fill(", ".join(f"{y:g}" for y in ys), 12) for ys in down])
    axes.set(xlabel=titles[1], ylabel=titles[0])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    seeds = seeds_text(len(cell.scores) for cell in scored.values())
    axes.set_title(f"{column(name).heading}, {seeds}")
    return style.finish(figure, drawn, _grid_caption(scored, down, titles[0]), missing_scores(drawn, (name,)))


def _grid_caption(scored: Mapping[tuple[float, float], Cell], down: Sequence[Sequence[float]], title: str) -> str:
    several = any(len(ys) > 1 for ys in down)
    same = f" Values of {title} on one line give the same scores, as rounded here." if several else ""
    if max(len(cell.scores) for cell in scored.values()) < 2:
        return f"One seed: no deviation, so no colours; framed: the highest.{same}"
    best = max(scored.values(), key=lambda cell: significance.summary(list(cell.scores.values())).mean)
    others = [cell for cell in scored.values() if cell is not best]
    close = sum(_is_close(best, cell) for cell in others)
    return (
        "Mean and sample deviation over seeds; colours span at least four deviations. Framed: the highest mean, which "
        f"{close} of {len(others)} others can't be separated from (95 % intervals, seed by seed, uncorrected).{same}"
    )


def _is_close(best: Cell, other: Cell) -> bool:
    """Whether the 95 % interval of the difference, seed by seed, holds 0, or there is none."""
    estimate = paired_contrast([best.scores, other.scores], [1.0, -1.0])
    band = estimate.interval if estimate else None
    return band is None or band.low <= 0 <= band.high


def _distinct_lines(scored: Mapping[tuple[float, float], Cell], down: Sequence[float]) -> list[list[float]]:
    """Return the first settings, together where all their scores are the same as shown."""
    lines: dict[tuple[object, ...], list[float]] = {}
    for y in down:
        shown = tuple(
            (x, seed, round(score, 2))
            for (at, x), cell in scored.items()
            if at == y
            for seed, score in cell.scores.items()
        )
        lines.setdefault(shown or (y,), []).append(y)  # those without scores are not the same
    return list(lines.values())


def _two_settings(study: Study, row: Row) -> tuple[float, float]:
    values = tuple(settings(row.label).values())
    if len(values) != 2:
        raise ValueError(f"{study.name}: a grid needs rows with two settings, got the row {row.label!r}")
    return values[0], values[1]


def _draw_heat_map(axes: Axes, shape: tuple[int, int], cells: Sequence[tuple[int, int, significance.Summary]]) -> None:
    """Draw colours and numbers for (row, column, score), and a dash where there is no score."""
    means = np.full(shape, np.nan)
    for i, j, summary in cells:
        means[i, j] = summary.mean
    summaries = [summary for _, _, summary in cells]
    low, high = colour_range(summaries)
    colours = "cividis" if any(summary.sd is not None for summary in summaries) else ListedColormap(["#f2f2f2"])
    image = axes.imshow(np.ma.masked_invalid(means), cmap=colours, vmin=low, vmax=high, aspect="auto", origin="lower")
    for i, j in np.argwhere(np.isnan(means)):
        axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="#eeeeee", edgecolor="white", linewidth=0.5))
        axes.text(j, i, DASH, ha="center", va="center", color=style.FAINT)
    # Rounded as shown, so that equal numbers are all framed.
    best = max(round(summary.mean, 2) for summary in summaries)
    for i, j, summary in cells:
        deviation = "" if summary.sd is None else f"\n±{summary.sd:.2f}"
        text = axes.text(j, i, f"{summary.mean:.2f}{deviation}", ha="center", va="center", fontsize=7)
        text.set_color(style.text_colour_on(image, summary.mean))
        if round(summary.mean, 2) == best:
            text.set_fontweight("bold")
            edge = style.LOOKS["RankEncoder"].colour
            axes.add_patch(Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, edgecolor=edge, linewidth=2))


def lines(drawn: FigureData) -> Figure | None:
    """Draw scores over a setting on a logarithmic axis, and each line's difference from its first setting.

    A pair of panels for each column, a line for each backbone. Seeds share their runs over settings, so that what a
    setting is worth shows in differences seed by seed.
    """
    study = drawn.study
    names = [name for name in study.columns if any(drawn.cell(row, name).scores for row in study.rows)]
    if not names:
        return None
    figure, axes = style.panels(2 * len(names), 2, height=2.3)
    ends = []
    for name, left, right in zip(names, axes[::2], axes[1::2], strict=True):
        ends.append((left, _draw_panel(drawn, left, name, of_first=False)))
        ends.append((right, _draw_panel(drawn, right, name, of_first=True)))
    counts = [len(drawn.cell(row, name).scores) for row in study.rows for name in names]
    single = "; one seed is hollow and has no interval and no line" if 1 in counts else ""
    caption = (
        f"Left: means over {seeds_text(counts)}, each seed a faint line; dashed: without the setting. Right: "
        f"differences from the first setting, seed by seed, with 95 % intervals{single}."
    )
    style.finish(figure, drawn, caption, missing_scores(drawn, study.columns))
    for panel, panel_ends in ends:
        edge = panel.get_xlim()[1]
        labels.beside_ends(panel, [(end.x or edge, end.y, end.name, end.colour) for end in panel_ends])
    return figure


def _draw_panel(drawn: FigureData, axes: Axes, name: str, *, of_first: bool) -> list[End]:
    """Draw a column, or its differences from the first setting; return the ends of its lines."""
    places = {row.label: row_position(row.label) for row in drawn.study.rows}
    groups: dict[str, list[Row]] = {}
    for row in drawn.study.rows:
        if drawn.cell(row, name).scores:
            groups.setdefault(places[row.label].line, []).append(row)
    looks = style.distinct_looks([rows[0] for rows in groups.values()])
    ends = []
    for line, rows in groups.items():
        cells = [(places[row.label].value, drawn.cell(row, name)) for row in rows]
        look = looks[rows[0].label]
        valued = [(value, cell) for value, cell in cells if value is not None]
        if valued:
            ends.append((_draw_differences if of_first else _draw_line)(axes, line, valued, look))
        elif not of_first:
            ends.append(_draw_reference(axes, line, cells[0][1], look))
    values = sorted({at.value for at in places.values() if at.value is not None})
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))
    axes.set_xlim(values[0] / 1.15, values[-1] * 1.15)
    axes.tick_params(axis="x", labelsize=6.5)  # 10,000 and 16,384 are neighbours on a logarithmic axis
    setting = next(at.setting for at in places.values() if at.setting)
    heading = column(name).heading
    axes.set(xlabel=setting, ylabel=f"difference in\n{heading}" if of_first else heading)
    return ends


def _draw_line(axes: Axes, line: str, cells: Sequence[tuple[float, Cell]], look: style.Look) -> End:
    xs = [x for x, _ in cells]
    means = [float(np.mean(list(cell.scores.values()))) for _, cell in cells]
    seeds = sorted({seed for _, cell in cells for seed in cell.scores})
    several = len(seeds) > 1
    for seed in seeds if several else ():
        points = [(x, cell.scores[seed]) for x, cell in cells if seed in cell.scores]
        axes.plot(*zip(*points, strict=True), color=look.colour, linewidth=0.7, alpha=0.35)
    face = look.colour if several else "white"
    axes.plot(
        *(xs, means),
        color=look.colour,
        marker=look.marker,
        markerfacecolor=face,
        linestyle=look.dash if several else "none",
        label=line,
    )
    name = f"{line or 'ranks'} ({'one seed' if not several else seeds_text([len(seeds)])})"
    return End(xs[-1], means[-1], name, look.colour)


def _draw_differences(axes: Axes, line: str, cells: Sequence[tuple[float, Cell]], look: style.Look) -> End:
    axes.axhline(0, color=style.INK, linewidth=0.7)
    (first, base), shown = cells[0], []
    for x, cell in cells[1:]:
        estimate = paired_contrast([cell.scores, base.scores], [1.0, -1.0])
        if estimate:
            band = estimate.interval
            if band:
                axes.plot((x, x), band, color=look.colour, linewidth=1.6, solid_capstyle="butt")
            face = look.colour if band else "white"
            axes.plot(x, estimate.mean, marker=look.marker, color=look.colour, markerfacecolor=face)
            shown.append((x, estimate.mean))
    x, y = shown[-1] if shown else (first, 0.0)
    return End(x, y, line or "ranks", look.colour)


def _draw_reference(axes: Axes, line: str, cell: Cell, look: style.Look) -> End:
    for score in cell.scores.values():
        axes.axhline(score, color=look.colour, linewidth=0.7, alpha=0.35, zorder=1)
    mean = float(np.mean(list(cell.scores.values())))
    axes.axhline(mean, color=look.colour, linestyle=(0, (4, 2)), linewidth=1.1, zorder=1)
    return End(None, mean, line, look.colour)
