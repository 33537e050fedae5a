"""Draw scores: differences from a reference with intervals, and two scores in a plane coloured by a third."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from analysis.plots import labels, style
from analysis.plots.effects import COLOURS, Effect, draw_effects, height
from analysis.plots.figure_data import FigureData, missing_scores, seeds_text
from analysis.report.formats import number
from analysis.stats import significance
from analysis.stats.contrast_tests import difference
from experiments.schema.columns import column
from experiments.schema.study import Row

CHANCE = ".random"  # suffix of a metric's name: its expected score for a random order, if recorded
BAR_PLACES = 9  # points on an error bar that names avoid
DEVIATIONS = 4.0  # a colour scale spans at least as many deviations over seeds, so that noise looks like noise


def dots(drawn: FigureData) -> Figure | None:
    """Draw each row's difference from the first row of its group, here and printed.

    Rows of one base ("SimCSE, base") are compared seed by seed. If rows differ in their metric ("SimCSE, KCC"), each
    metric has a panel, where methods are compared as independent samples.
    """
    rows, name = drawn.study.rows, drawn.study.columns[0]
    if not any(drawn.cell(row, name).scores for row in rows):
        return None
    by_metric = len({row.metric for row in rows}) > 1
    groups: dict[str, list[tuple[str, Row]]] = {}
    for row in rows:
        method, _, metric = row.label.rpartition(", ")
        base, _, variant = row.label.partition(", ")
        group, short = (metric, method) if by_metric else (base, variant)
        groups.setdefault(group, []).append((short, row))
    measured = [_effects(drawn, group, named, paired=not by_metric) for group, named in groups.items()]
    panels = measured if by_metric else [[effect for effects in measured for effect in effects]]
    tall = max(map(height, panels))
    figure, axes = style.panels(len(panels), 2, height=tall, width=style.WIDE if by_metric else 6.0)
    for panel, effects in zip(axes, panels, strict=True):
        shown = [replace(effect, heading="") for effect in effects] if by_metric else effects
        draw_effects(panel, shown, named=panel is axes[0])
        panel.set_title(effects[0].heading if by_metric else "", fontsize=8)
    seeds = seeds_text(len(drawn.cell(row, name).scores) for row in rows)
    how = "of independent seeds (Welch)" if by_metric else "seed by seed"
    caption = (
        f"{column(name).heading}, {seeds}: differences from the row whose score stands above, {how}. Diamonds: the "
        f"paper's differences. {COLOURS}"
    )
    return style.finish(figure, drawn, caption, missing_scores(drawn, drawn.study.columns))


def _effects(drawn: FigureData, group: str, named: Sequence[tuple[str, Row]], *, paired: bool) -> list[Effect]:
    """Return the differences from a group's first row, whose score is the heading."""
    name = drawn.study.columns[0]
    (first, reference), *others = named
    base = drawn.cell(reference, name)
    chance = chance_level(drawn, reference, name)
    heading = f"{group}, {first}: {number(base.summary.mean if base.summary else None)}"
    heading += "" if chance is None else f", chance {number(chance)}"
    effects = []
    for short, row in others:
        ours = drawn.cell(row, name)
        estimate = difference(ours.scores, base.scores, paired=paired)
        known = ours.published is not None and base.published is not None
        printed = ours.published - base.published if known else None
        effects.append(Effect(name=short, estimate=estimate, published=printed, heading=heading))
    return effects


def chance_level(drawn: FigureData, row: Row, name: str) -> float | None:
    """Return the expected score of a random order in a column, if it is recorded for every set."""
    about = column(name)
    metrics = {task: drawn.study.metric_of(row, name, task) for task in about.tasks}
    levels = [drawn.mean_score(row, task, metric + CHANCE) for task, metric in metrics.items()]
    if set(metrics.values()) == {"kendall"}:
        return 0.0
    known_levels = [level for level in levels if level is not None]
    return about.factor * float(np.mean(known_levels)) if known_levels and len(known_levels) == len(levels) else None


def scatter(drawn: FigureData) -> Figure | None:
    """Draw alignment against uniformity with intervals, coloured by the study's third column (RankCSE, Fig. 4)."""
    study = drawn.study
    up, across, tint = study.columns
    rows = [row for row in study.rows if all(drawn.cell(row, name).summary for name in study.columns)]
    if not rows:
        return None
    figure, (axes,) = style.panels(1, 1, height=3.0, width=4.4)
    looks = style.looks(rows)
    means = {name: [drawn.results.value(row, name) or 0.0 for row in rows] for name in study.columns}
    low, high = colour_range([summary for row in rows if (summary := drawn.cell(row, tint).summary)])
    covered: list[tuple[float, float]] = []
    for row, x, y in zip(rows, means[across], means[up], strict=True):
        ends = [style.interval(drawn.cell(row, name).scores.values()) for name in (across, up)]
        bars: dict[str, Any] = {"color": style.FAINT, "linewidth": 0.8, "zorder": 1}
        axes.plot(ends[0], (y, y), **bars)
        axes.plot((x, x), ends[1], **bars)
        covered += [(at, y) for at in np.linspace(*ends[0], BAR_PLACES)]
        covered += [(x, at) for at in np.linspace(*ends[1], BAR_PLACES)]
    names = [row.label for row in rows]
    sns.scatterplot(
        **{"x": means[across], "y": means[up], "hue": means[tint], "hue_norm": (low, high), "style": names},
        **{"markers": {label: look.marker for label, look in looks.items()}, "palette": "cividis"},
        **{"s": 60, "edgecolor": style.INK, "ax": axes, "legend": False},
    )
    style.colour_bar(figure, ScalarMappable(Normalize(low, high), "cividis"), [axes], column(tint).heading)
    axes.set(xlabel=f"{column(across).heading} (lower is better)", ylabel=f"{column(up).heading} (lower is better)")
    axes.margins(0.18)
    counts = [len(drawn.cell(row, tint).scores) for row in rows if style.method_of(row) != "untrained"]
    caption = (
        f"Means over {seeds_text(counts)}, bars 95 % intervals over seeds; an untrained encoder has no seed. Colours "
        "span at least four deviations over seeds."
    )
    style.finish(figure, drawn, caption, missing_scores(drawn, study.columns))
    seen = [place for place in covered if np.isfinite(place).all()]
    labels.beside_points(axes, list(zip(means[across], means[up], names, strict=True)), others=seen)
    return figure


def colour_range(summaries: Sequence[significance.Summary]) -> tuple[float, float]:
    """Return the ends of a colour scale: the means' range, widened to at least four mean deviations over seeds."""
    means = [each.mean for each in summaries]
    low, high = min(means), max(means)
    deviations = [each.sd for each in summaries if each.sd is not None]
    room = max(0.0, DEVIATIONS * float(np.mean(deviations)) - (high - low)) if deviations else 0.0
    return low - room / 2, high + room / 2
