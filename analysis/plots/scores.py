"""Draw scores: bars beside published values, and a plane of two scores coloured by a third."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.cells import Cell
from analysis.plots import labels, style
from analysis.plots.figure_data import FigureData, missing_scores, seeds_text
from analysis.report.formats import DASH
from analysis.stats import significance
from experiments.schema.columns import column
from experiments.schema.study import Row

SMALL: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 6.8, "color": style.INK}


class BarPanel(NamedTuple):
    """The bars of a panel: its title, its rows, their names and their positions."""

    title: str
    rows: tuple[Row, ...]
    names: tuple[str, ...]
    places: tuple[float, ...]


def bars(drawn: FigureData) -> Figure | None:
    """Draw means with sample deviations as bars, and published values as hollow diamonds in separate panels."""
    study, name = drawn.study, drawn.study.columns[0]
    if not any(drawn.cell(row, name).scores for row in study.rows):
        return None
    bar_panels = split_into_panels(study.rows, column(name).heading)
    height = max(0.2 * len(bar_panel.rows) + 0.6 for bar_panel in bar_panels)
    figure, axes = style.panels(2 * len(bar_panels), 2, height=height, width_ratios=(1.75, 1))
    for bar_panel, measured_panel, published_panel in zip(bar_panels, axes[::2], axes[1::2], strict=True):
        cells = [drawn.cell(row, name) for row in bar_panel.rows]
        _draw_measured(measured_panel, bar_panel.places, cells, _bar_looks(bar_panel))
        _draw_published(published_panel, bar_panel.places, cells)
        measured_panel.set(title=f"{bar_panel.title}, here", yticks=bar_panel.places, yticklabels=bar_panel.names)
        backbones = dict.fromkeys(row.published.backbone for row in bar_panel.rows if row.published)
        published_panel.set(
            title=f"published, {', '.join(backbones)}" if backbones else "none published",
            yticks=bar_panel.places,
            yticklabels=[],
        )
        for panel in (measured_panel, published_panel):
            panel.set_ylim(max(bar_panel.places) + 0.6, -0.6)
            panel.tick_params(axis="y", length=0)
    counts = [len(drawn.cell(row, name).scores) for row in study.rows]
    caption = (
        f"Bars: mean over {seeds_text(counts)}, with sample deviation; dots: single seeds; the axis does not start at "
        "0. Diamonds: the paper's numbers, of another level and so on an axis of their own."
    )
    return style.finish(figure, drawn, caption, missing_scores(drawn, study.columns))


def split_into_panels(rows: Sequence[Row], heading: str) -> list[BarPanel]:
    """Return a panel for all rows, grouped by the first part of "SimCSE, base", or one for each metric ("SimCSE, KCC").

    Groups of bars are half a bar further apart than bars.
    """
    metrics = list(dict.fromkeys(row.metric for row in rows))
    if len(metrics) > 1:
        bar_panels = []
        for metric in metrics:
            metric_rows = tuple(row for row in rows if row.metric == metric)
            names, titles = zip(*(row.label.rsplit(", ", 1) for row in metric_rows), strict=True)
            bar_panels.append(BarPanel(titles[0], metric_rows, names, tuple(float(i) for i in range(len(metric_rows)))))
        return bar_panels
    places = [0.0]
    firsts = [row.label.partition(", ")[0] for row in rows]
    for before, after in itertools.pairwise(firsts):
        places.append(places[-1] + (1.0 if before == after else 1.5))
    return [BarPanel(heading, tuple(rows), tuple(row.label for row in rows), tuple(places))]


def _bar_looks(bar_panel: BarPanel) -> list[style.Look]:
    """Return each bar's look; variants of a method are counted within a group, so that all groups look the same."""
    groups: dict[str, list[Row]] = {}
    for row, name in zip(bar_panel.rows, bar_panel.names, strict=True):
        groups.setdefault(name.partition(", ")[0] if name == row.label else "", []).append(row)
    by_label = {label: look for rows in groups.values() for label, look in style.looks(rows).items()}
    return [by_label[row.label] for row in bar_panel.rows]


def _draw_measured(axes: Axes, places: Sequence[float], cells: Sequence[Cell], looks: Sequence[style.Look]) -> None:
    values = [value for cell in cells for value in cell.scores.values()]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    start = low - max(0.35 * (high - low), 0.5)
    for at, cell, look in zip(places, cells, looks, strict=True):
        summary = cell.summary
        if summary is None:
            axes.annotate(DASH, (start, at), (4, 0), **SMALL)
            continue
        axes.barh(at, summary.mean - start, left=start, height=0.72, color=look.colour, alpha=0.75)
        axes.errorbar(summary.mean, at, xerr=summary.sd, color=style.INK, capsize=2, linewidth=1)
        style.dots(axes, list(cell.scores.values()), [at] * summary.n)
        right = max([*cell.scores.values(), summary.mean + (summary.sd or 0)])
        deviation = "" if summary.sd is None else f" ± {summary.sd:.2f}"
        axes.annotate(f"{summary.mean:.2f}{deviation}", (right, at), (4, 0), **SMALL)
    axes.set_xlim(start, high + 0.32 * (high - start))


def _draw_published(axes: Axes, places: Sequence[float], cells: Sequence[Cell]) -> None:
    look: dict[str, Any] = {"marker": "D", "color": style.FAINT, "markerfacecolor": "white", "linestyle": "none"}
    look |= {"markeredgecolor": style.INK, "capsize": 2}
    values = []
    for at, cell in zip(places, cells, strict=True):
        if cell.published is not None:
            values.append(cell.published)
            axes.errorbar(cell.published, at, xerr=cell.published_std, **look)
            right = cell.published + (cell.published_std or 0)
            axes.annotate(f"{cell.published:.2f}", (right, at), (6, 0), **SMALL)
    if values:
        room = max(0.2, max(values) - min(values))
        axes.set_xlim(min(values) - 0.6 * room, max(values) + 0.6 * room)


def scatter(drawn: FigureData) -> Figure | None:
    """Draw alignment against uniformity with deviations, coloured by the study's third column (RankCSE, Fig. 4)."""
    study = drawn.study
    up, across, tint = study.columns
    summaries = [(row, *(drawn.cell(row, name).summary for name in (across, up, tint))) for row in study.rows]
    points = [(row, x, y, colour) for row, x, y, colour in summaries if x and y and colour]
    if not points:
        return None
    figure, (axes,) = style.panels(1, 1, height=3.0, width=4.4)
    looks = style.looks(study.rows)
    tints = [colour.mean for _, _, _, colour in points]
    look: dict[str, Any] = {"s": 48, "edgecolors": style.INK, "linewidths": 0.6, "cmap": "cividis"}
    look |= {"vmin": min(tints), "vmax": max(tints)}
    for row, x, y, colour in points:
        axes.errorbar(x.mean, y.mean, xerr=x.sd, yerr=y.sd, color=style.FAINT, linewidth=0.8, capsize=1.5, zorder=1)
        shown = axes.scatter(x.mean, y.mean, c=[colour.mean], marker=looks[row.label].marker, **look)
    style.colour_bar(figure, shown, [axes], column(tint).heading)
    axes.set(xlabel=f"{column(across).heading} (lower is better)", ylabel=f"{column(up).heading} (lower is better)")
    axes.margins(0.18)
    caption = f"Means over {seeds_text(x.n for _, x, _, _ in points)}, bars the sample deviations."
    style.finish(figure, drawn, caption, missing_scores(drawn, study.columns))
    names = [(x.mean, y.mean, row.label, style.INK) for row, x, y, _ in points]
    labels.beside_points(axes, names, [spot for _, x, y, _ in points for spot in _points_on_bars(x, y)])
    return figure


def _points_on_bars(x: significance.Summary, y: significance.Summary) -> list[tuple[float, float]]:
    """Return points along the error bars of a point, where no name may lie."""
    shares = (-1.0, -0.5, 0.5, 1.0)
    return [
        *((x.mean + share * (x.sd or 0), y.mean) for share in shares),
        *((x.mean, y.mean + share * (y.sd or 0)) for share in shares),
    ]
