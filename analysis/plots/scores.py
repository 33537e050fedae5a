"""Draw scores: dots with intervals beside differences from a reference, and a plane of two scores and a third."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.cells import Cell
from analysis.plots import labels, style
from analysis.plots.figure_data import FigureData, missing_scores, seeds_text
from analysis.report.formats import DASH, number
from analysis.stats import significance
from analysis.stats.contrast_tests import estimate_contrast, paired_contrast
from analysis.stats.estimate import Estimate
from experiments.schema.columns import column
from experiments.schema.study import Row

CHANCE = ".random"  # a metric's name with this is the expected score of a random order, where the record has it
DEVIATIONS = 4.0  # a colour scale spans at least as many deviations over seeds, so that noise looks like noise
HOW = (
    "Dots: means over {seeds}; bars: 95 % intervals over seeds; faint dots: single seeds. {chance}Right: differences "
    "from {reference}, {test}, with 95 % intervals, and numbers at the edge; diamonds: the paper's differences."
)


class DotPanel(NamedTuple):
    """The rows of a panel, their names and positions, and for each the row that it is compared with."""

    title: str
    rows: tuple[Row, ...]
    names: tuple[str, ...]
    places: tuple[float, ...]
    references: tuple[Row, ...]
    paired: bool  # rows of one base share its runs; methods are independent samples


def dots(drawn: FigureData) -> Figure | None:
    """Draw means with intervals, and in panels beside them each row's difference from its reference, here and printed.

    The reference is the first row of a base, seed by seed, or the first method, by Welch's test.
    """
    study, name = drawn.study, drawn.study.columns[0]
    if not any(drawn.cell(row, name).scores for row in study.rows):
        return None
    dot_panels = split_into_panels(study.rows, column(name).heading)
    height = max(0.2 * len(panel.rows) + 0.65 for panel in dot_panels)
    figure, axes = style.panels(2 * len(dot_panels), 2, height=height, width_ratios=(1.25, 1))
    chances = []
    for dot_panel, left, right in zip(dot_panels, axes[::2], axes[1::2], strict=True):
        looks = _panel_looks(dot_panel)
        _draw_means(left, dot_panel, [drawn.cell(row, name) for row in dot_panel.rows], looks)
        chances += _draw_chance(left, chance_level(drawn, dot_panel.rows[0], name))
        _draw_differences(right, drawn, dot_panel, name, looks)
        left.set(title=dot_panel.title, yticks=dot_panel.places, yticklabels=dot_panel.names)
        right.set(title=f"{dot_panel.title}: difference", yticks=dot_panel.places, yticklabels=[])
        for axis in (left, right):
            axis.set_ylim(max(dot_panel.places) + 0.6, -0.6)
            axis.tick_params(axis="y", length=0)
    paired = dot_panels[0].paired
    caption = HOW.format(
        seeds=seeds_text(len(drawn.cell(row, name).scores) for row in study.rows),
        chance="Dotted line: the expected score of a random order (0 for KCC). " if chances else "",
        reference="the first row of each base" if paired else dot_panels[0].names[0],
        test="seed by seed" if paired else "of independent seeds (Welch)",
    )
    return style.finish(figure, drawn, caption, missing_scores(drawn, study.columns))


def split_into_panels(rows: Sequence[Row], heading: str) -> list[DotPanel]:
    """Return a panel for all rows, grouped by the first part of "SimCSE, base", or one for each metric ("SimCSE, KCC").

    Groups of rows are half a row further apart than rows.
    """
    metrics = list(dict.fromkeys(row.metric for row in rows))
    if len(metrics) > 1:
        dot_panels = []
        for metric in metrics:
            chosen = tuple(row for row in rows if row.metric == metric)
            names, titles = zip(*(row.label.rsplit(", ", 1) for row in chosen), strict=True)
            places = tuple(float(place) for place in range(len(chosen)))
            dot_panels.append(DotPanel(titles[0], chosen, names, places, chosen[:1] * len(chosen), paired=False))
        return dot_panels
    places = [0.0]
    firsts = [row.label.partition(", ")[0] for row in rows]
    for before, after in itertools.pairwise(firsts):
        places.append(places[-1] + (1.0 if before == after else 1.5))
    references = tuple(rows[firsts.index(first)] for first in firsts)
    return [DotPanel(heading, tuple(rows), tuple(row.label for row in rows), tuple(places), references, paired=True)]


def _panel_looks(panel: DotPanel) -> list[style.Look]:
    """Return each row's look; variants of a method are counted within a group, so that all groups look the same."""
    groups: dict[str, list[Row]] = {}
    for row, name in zip(panel.rows, panel.names, strict=True):
        groups.setdefault(name.partition(", ")[0] if name == row.label else "", []).append(row)
    by_label = {label: look for rows in groups.values() for label, look in style.looks(rows).items()}
    return [by_label[row.label] for row in panel.rows]


def chance_level(drawn: FigureData, row: Row, name: str) -> float | None:
    """Return the expected score of a random order in a column, if the record has it for every set."""
    about = column(name)
    metrics = {task: drawn.study.metric_of(row, name, task) for task in about.tasks}
    levels = [drawn.mean_score(row, task, metric + CHANCE) for task, metric in metrics.items()]
    if set(metrics.values()) == {"kendall"}:
        return 0.0
    known_levels = [level for level in levels if level is not None]
    return about.factor * float(np.mean(known_levels)) if known_levels and len(known_levels) == len(levels) else None


def _draw_chance(axes: Axes, level: float | None) -> list[float]:
    if level is None:
        return []
    axes.axvline(level, color=style.INK, linewidth=0.9, linestyle=":")
    text = f"chance {number(level)}"
    look: dict[str, Any] = style.SMALL_TEXT | {"va": "top"}
    axes.annotate(text, (level, 1), (3, -2), xycoords=("data", "axes fraction"), **look)
    return [level]


def _draw_means(axes: Axes, panel: DotPanel, cells: Sequence[Cell], looks: Sequence[style.Look]) -> None:
    values = [value for cell in cells for value in cell.scores.values()]
    for at, cell, look in zip(panel.places, cells, looks, strict=True):
        estimate = paired_contrast([cell.scores], [1.0]) if cell.scores else None
        if estimate is None:
            axes.annotate(DASH, (min(values, default=0.0), at), (4, 0), **style.SMALL_TEXT)
            continue
        style.dots(axes, list(cell.scores.values()), [at] * len(cell.scores))
        right = style.interval_dot(axes, at, estimate.mean, estimate.interval, look)
        axes.annotate(number(estimate.mean), (right, at), (5, 0), **style.SMALL_TEXT)
    axes.margins(x=0.16)


def _draw_differences(axes: Axes, drawn: FigureData, panel: DotPanel, name: str, looks: Sequence[style.Look]) -> None:
    axes.axvline(0, color=style.INK, linewidth=0.7)
    for at, row, reference, look in zip(panel.places, panel.rows, panel.references, looks, strict=True):
        if row is reference:
            continue
        ours, base = drawn.cell(row, name), drawn.cell(reference, name)
        estimate = difference(ours, base, paired=panel.paired)
        if estimate:
            style.interval_dot(axes, at, estimate.mean, estimate.interval, look)
        if ours.published is not None and base.published is not None:
            axes.plot(ours.published - base.published, at, **style.PRINTED)
        text = number(estimate.mean, sign=True) if estimate else DASH
        axes.annotate(text, (1, at), (4, 0), xycoords=("axes fraction", "data"), **style.SMALL_TEXT)
    axes.margins(x=0.08)


def difference(first: Cell, second: Cell, *, paired: bool) -> Estimate | None:
    """Estimate first less second from their seeds; None where one has no score."""
    if not first.scores or not second.scores:
        return None
    return estimate_contrast([first.scores, second.scores], [1.0, -1.0], paired=paired)


def scatter(drawn: FigureData) -> Figure | None:
    """Draw alignment against uniformity with intervals, coloured by the study's third column (RankCSE, Fig. 4)."""
    study = drawn.study
    up, across, tint = study.columns
    summaries = [(row, *(drawn.cell(row, name).summary for name in (across, up, tint))) for row in study.rows]
    points = [(row, x, y, colour) for row, x, y, colour in summaries if x and y and colour]
    if not points:
        return None
    figure, (axes,) = style.panels(1, 1, height=3.0, width=4.4)
    looks = style.looks(study.rows)
    low, high = colour_range([colour for _, _, _, colour in points])
    look: dict[str, Any] = {"s": 48, "edgecolors": style.INK, "linewidths": 0.6, "cmap": "cividis"}
    look |= {"vmin": low, "vmax": high}
    bars: list[tuple[float, float]] = []
    for row, x, y, colour in points:
        halves = [_half_interval(drawn.cell(row, name)) for name in (across, up)]
        axes.errorbar(
            *(x.mean, y.mean), xerr=halves[0], yerr=halves[1], color=style.FAINT, linewidth=0.8, capsize=1.5, zorder=1
        )
        shown = axes.scatter(x.mean, y.mean, c=[colour.mean], marker=looks[row.label].marker, **look)
        bars += _points_on_bars((x.mean, y.mean), (halves[0] or 0.0, halves[1] or 0.0))
    style.colour_bar(figure, shown, [axes], column(tint).heading)
    axes.set(xlabel=f"{column(across).heading} (lower is better)", ylabel=f"{column(up).heading} (lower is better)")
    axes.margins(0.18)
    counts = [x.n for row, x, _, _ in points if style.method_of(row) != "untrained"]
    caption = (
        f"Means over {seeds_text(counts)}, bars 95 % intervals over seeds; an untrained encoder has no seed. Colours "
        "span at least four deviations over seeds."
    )
    style.finish(figure, drawn, caption, missing_scores(drawn, study.columns))
    names = [(x.mean, y.mean, row.label, style.INK) for row, x, y, _ in points]
    labels.beside_points(axes, names, bars)
    return figure


def _half_interval(cell: Cell) -> float | None:
    estimate = paired_contrast([cell.scores], [1.0])
    band = estimate.interval if estimate else None
    return (band.high - band.low) / 2 if band else None


def colour_range(summaries: Sequence[significance.Summary]) -> tuple[float, float]:
    """Return the ends of a colour scale: of the means, but at least four mean deviations over seeds."""
    means = [each.mean for each in summaries]
    low, high = min(means), max(means)
    deviations = [each.sd for each in summaries if each.sd is not None]
    room = max(0.0, DEVIATIONS * float(np.mean(deviations)) - (high - low)) if deviations else 0.0
    return low - room / 2, high + room / 2


def _points_on_bars(at: tuple[float, float], halves: tuple[float, float]) -> list[tuple[float, float]]:
    """Return points along the error bars of a point, where no name may lie."""
    (x, y), (across, up) = at, halves
    shares = (-1.0, -0.5, 0.5, 1.0)
    return [*((x + share * across, y) for share in shares), *((x, y + share * up) for share in shares)]
