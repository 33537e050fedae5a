"""Figures of scores as they are: bars beside published values, and a plane of two scores coloured by a third."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.cells import Cell
from analysis.plots import labels, style
from analysis.plots.figure_data import Drawn, missing_scores, seeds_told
from analysis.report.formats import DASH
from analysis.stats import significance
from experiments.schema.columns import column
from experiments.schema.study import Row

SMALL: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 6.8, "color": style.INK}


class Lot(NamedTuple):
    """The bars of a panel: what it is called, its rows, how they are called, and where they stand."""

    title: str
    rows: tuple[Row, ...]
    names: tuple[str, ...]
    places: tuple[float, ...]


def bars(drawn: Drawn) -> Figure | None:
    """Means with sample deviations; published values as hollow diamonds in panels of their own."""
    study, name = drawn.study, drawn.study.columns[0]
    if not any(drawn.cell(row, name).scores for row in study.rows):
        return None
    lots = split(study.rows, column(name).heading)
    height = max(0.2 * len(lot.rows) + 0.6 for lot in lots)
    figure, axes = style.panels(2 * len(lots), 2, height=height, width_ratios=(1.75, 1))
    for lot, here, there in zip(lots, axes[::2], axes[1::2], strict=True):
        cells = [drawn.cell(row, name) for row in lot.rows]
        _measured(here, lot.places, cells, _looks(lot))
        _published(there, lot.places, cells)
        here.set(title=f"{lot.title}, here", yticks=lot.places, yticklabels=lot.names)
        backbones = dict.fromkeys(row.published.backbone for row in lot.rows if row.published)
        there.set(
            title=f"published, {', '.join(backbones)}" if backbones else "none published",
            yticks=lot.places,
            yticklabels=[],
        )
        for panel in (here, there):
            panel.set_ylim(max(lot.places) + 0.6, -0.6)
            panel.tick_params(axis="y", length=0)
    counts = [len(drawn.cell(row, name).scores) for row in study.rows]
    said = (
        f"Bars: mean over {seeds_told(counts)}, with sample deviation; dots: single seeds; the axis does not start at "
        "0. Diamonds: the paper's numbers, of another level and so on an axis of their own."
    )
    return style.finish(figure, drawn, said, missing_scores(drawn, study.columns))


def split(rows: Sequence[Row], heading: str) -> list[Lot]:
    """A panel for all rows, grouped by the first part of "SimCSE, base", or one a metric where "SimCSE, KCC" names it.

    Groups of bars stand half a bar further apart than bars.
    """
    metrics = list(dict.fromkeys(row.metric for row in rows))
    if len(metrics) > 1:
        found = []
        for metric in metrics:
            own = tuple(row for row in rows if row.metric == metric)
            names, titles = zip(*(row.label.rsplit(", ", 1) for row in own), strict=True)
            found.append(Lot(titles[0], own, names, tuple(float(i) for i in range(len(own)))))
        return found
    places = [0.0]
    firsts = [row.label.partition(", ")[0] for row in rows]
    for before, after in itertools.pairwise(firsts):
        places.append(places[-1] + (1.0 if before == after else 1.5))
    return [Lot(heading, tuple(rows), tuple(row.label for row in rows), tuple(places))]


def _looks(lot: Lot) -> list[style.Look]:
    """Of each bar: variants of a method are counted within a group, so that they look the same in all groups."""
    groups: dict[str, list[Row]] = {}
    for row, name in zip(lot.rows, lot.names, strict=True):
        groups.setdefault(name.partition(", ")[0] if name == row.label else "", []).append(row)
    found = {label: look for rows in groups.values() for label, look in style.looks(rows).items()}
    return [found[row.label] for row in lot.rows]


def _measured(axes: Axes, places: Sequence[float], cells: Sequence[Cell], looks: Sequence[style.Look]) -> None:
    values = [value for cell in cells for value in cell.scores.values()]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    start = low - max(0.35 * (high - low), 0.5)
    for at, cell, look in zip(places, cells, looks, strict=True):
        found = cell.summary
        if found is None:
            axes.annotate(DASH, (start, at), (4, 0), **SMALL)
            continue
        axes.barh(at, found.mean - start, left=start, height=0.72, color=look.colour, alpha=0.75)
        axes.errorbar(found.mean, at, xerr=found.sd, color=style.INK, capsize=2, linewidth=1)
        style.dots(axes, list(cell.scores.values()), [at] * found.n)
        right = max([*cell.scores.values(), found.mean + (found.sd or 0)])
        deviation = "" if found.sd is None else f" ± {found.sd:.2f}"
        axes.annotate(f"{found.mean:.2f}{deviation}", (right, at), (4, 0), **SMALL)
    axes.set_xlim(start, high + 0.32 * (high - start))


def _published(axes: Axes, places: Sequence[float], cells: Sequence[Cell]) -> None:
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


def scatter(drawn: Drawn) -> Figure | None:
    """Alignment over uniformity with their deviations, coloured by the study's third column (RankCSE, Fig. 4)."""
    study = drawn.study
    up, across, tint = study.columns
    found = [(row, *(drawn.cell(row, name).summary for name in (across, up, tint))) for row in study.rows]
    points = [(row, x, y, colour) for row, x, y, colour in found if x and y and colour]
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
    said = f"Means over {seeds_told(x.n for _, x, _, _ in points)}, bars the sample deviations."
    style.finish(figure, drawn, said, missing_scores(drawn, study.columns))
    names = [(x.mean, y.mean, row.label, style.INK) for row, x, y, _ in points]
    labels.beside_points(axes, names, [spot for _, x, y, _ in points for spot in _spots(x, y)])
    return figure


def _spots(x: significance.Summary, y: significance.Summary) -> list[tuple[float, float]]:
    """Along the bars of a point, so that no name lies on them."""
    shares = (-1.0, -0.5, 0.5, 1.0)
    return [
        *((x.mean + share * (x.sd or 0), y.mean) for share in shares),
        *((x.mean, y.mean + share * (y.sd or 0)) for share in shares),
    ]
