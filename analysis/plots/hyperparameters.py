"""Draw scores against settings, which are read from the rows' labels: a grid of two settings, or lines over one."""

import re
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.cells import Cell
from analysis.plots import labels, style
from analysis.plots.figure_data import FigureData, missing_scores, seeds_text
from analysis.plots.scores import colour_range
from analysis.report.formats import DASH
from analysis.stats import significance
from analysis.stats.contrast_tests import difference
from experiments.schema.columns import column
from experiments.schema.study import Row, Study

SETTING = re.compile(r"(?P<name>[A-Za-z]\w*) (?P<value>\d[\d.]*(?:e-?\d+)?)")
ROW_NAME: dict[str, Any] = style.SMALL_TEXT | {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
COUNT = re.compile(r"(?P<value>\d[\d,]*) (?P<name>.+)")


class RowPosition(NamedTuple):
    """The line, setting and value of a row in a figure; a row without a value is a reference for all lines."""

    line: str
    setting: str
    value: float | None


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
    """Draw the mean score of every pair of two settings, and frame the highest; lines with equal scores are merged."""
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
    axes.set_xticks(np.arange(len(across)) + 0.5, [f"{tick:g}" for tick in across])
    axes.set_yticks(np.arange(len(down)) + 0.5, [fill(", ".join(f"{y:g}" for y in ys), 12) for ys in down], rotation=0)
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
    estimate = difference(best.scores, other.scores, paired=True)
    return estimate is None or estimate.holds(0) is not False


def _distinct_lines(scored: Mapping[tuple[float, float], Cell], down: Sequence[float]) -> list[list[float]]:
    """Return the values of the first setting, grouped if all their scores are the same as shown."""
    lines: dict[tuple[object, ...], list[float]] = {}
    for y in down:
        shown = tuple(
            (x, seed, round(score, 2))
            for (at, x), cell in scored.items()
            if at == y
            for seed, score in cell.scores.items()
        )
        lines.setdefault(shown or (y,), []).append(y)  # without scores, each is its own group
    return list(lines.values())


def _two_settings(study: Study, row: Row) -> tuple[float, float]:
    values = tuple(settings(row.label).values())
    if len(values) != 2:
        raise ValueError(f"{study.name}: a grid needs rows with two settings, got the row {row.label!r}")
    return values[0], values[1]


def _draw_heat_map(axes: Axes, shape: tuple[int, int], cells: Sequence[tuple[int, int, significance.Summary]]) -> None:
    """Draw colours and numbers for (row, column, score), and a dash for no score; the first row is at the bottom."""
    means, texts = np.full(shape, np.nan), np.full(shape, DASH, dtype=object)
    for i, j, summary in cells:
        means[i, j] = summary.mean
        texts[i, j] = f"{summary.mean:.2f}" + ("" if summary.sd is None else f"\n±{summary.sd:.2f}")
    summaries = [summary for _, _, summary in cells]
    low, high = colour_range(summaries)
    several = any(summary.sd is not None for summary in summaries)
    colours = "cividis" if several else sns.light_palette(style.PALE, 2)[:1]
    look = {"fmt": "", "linewidths": 0.5, "annot_kws": {"fontsize": 7}, "cbar": False}
    sns.heatmap(means, annot=texts, cmap=colours, vmin=low, vmax=high, ax=axes, **look)
    for i, j in np.argwhere(np.isnan(means)):  # seaborn writes nothing there
        axes.text(j + 0.5, i + 0.5, DASH, ha="center", va="center", color=style.FAINT)
    axes.invert_yaxis()
    best = max(round(summary.mean, 2) for summary in summaries)  # as shown, so that equal numbers are all framed
    for i, j, summary in cells:
        if round(summary.mean, 2) == best:
            edge = style.LOOKS["RankEncoder"].colour
            axes.add_patch(Rectangle((j + 0.03, i + 0.03), 0.94, 0.94, fill=False, edgecolor=edge, linewidth=2))


def lines(drawn: FigureData) -> Figure | None:
    """Draw each setting's gain over the first one, seed by seed: a panel for each column, a line for each backbone.

    A row without the setting is a dashed line.
    """
    study = drawn.study
    names = [name for name in study.columns if any(drawn.cell(row, name).scores for row in study.rows)]
    if not names:
        return None
    places = {row.label: row_position(row.label) for row in study.rows}
    firsts: dict[str, Row] = {}
    for row in study.rows:
        if places[row.label].value is not None:
            firsts.setdefault(places[row.label].line, row)
    looks = style.looks(list(firsts.values()))
    by_line = {line: looks[row.label] for line, row in firsts.items()}
    figure, axes = style.panels(len(names), 2, height=2.6, width=style.WIDE if len(names) > 1 else 5.2)
    frames = [_differences(drawn, name, places, firsts) for name in names]
    setting = next(place.setting for place in places.values() if place.setting)
    for panel, name, frame in zip(axes, names, frames, strict=True):
        _draw_differences(panel, frame, by_line)
        panel.set(xlabel=setting, ylabel=f"{column(name).heading}\nless that of the first setting")
    counts = [len(drawn.cell(row, name).scores) for row in study.rows for name in names]
    single = "; one seed has no bar" if 1 in counts else ""
    caption = f"Seed by seed: means over {seeds_text(counts)}, bars 95 % intervals, faint dots each seed{single}."
    style.finish(figure, drawn, caption, missing_scores(drawn, study.columns))
    for panel, frame in zip(axes, frames, strict=True):
        labels.beside_ends(panel, _ends(frame, by_line) if len(by_line) > 1 else [])
    return figure


def _differences(
    drawn: FigureData, name: str, places: Mapping[str, RowPosition], firsts: Mapping[str, Row]
) -> pd.DataFrame:
    """Return a line for each row and seed: the row's line, its setting as text (none: ""), and the difference."""
    found = []
    for row in sorted(drawn.study.rows, key=lambda row: places[row.label].value or 0.0):
        line, _, value = places[row.label]
        first = firsts.get(line) or next(iter(firsts.values()))
        ours, base = (drawn.cell(each, name).scores for each in (row, first))
        text = "" if value is None else f"{value:,.0f}" if value >= 1 else f"{value:g}"
        found += [(line, text, seed, ours[seed] - base[seed]) for seed in ours if seed in base]
    return pd.DataFrame(found, columns=["line", "setting", "seed", "difference"])


def _draw_differences(axes: Axes, frame: pd.DataFrame, looks: Mapping[str, style.Look]) -> None:
    whole, frame = frame[frame["setting"] == ""], frame[frame["setting"] != ""]
    present = [line for line in looks if line in set(frame["line"])]
    look: dict[str, Any] = {
        "x": "setting",
        "y": "difference",
        "hue": "line",
        "hue_order": present,
        "legend": False,
        "ax": axes,
    }
    look |= {"palette": {line: looks[line].colour for line in present}}
    axes.axhline(0, color=style.INK, linewidth=0.7)
    sns.stripplot(frame, **look, alpha=0.35, size=3, jitter=False)
    marks = {"markers": [looks[line].marker for line in present]}
    sns.pointplot(frame, **look, **marks, errorbar=style.interval, linewidth=1.5)
    for name, of_row in whole.groupby("line"):
        mean = of_row["difference"].mean()
        axes.axhline(mean, color=style.INK, linewidth=1, linestyle=(0, (4, 2)))
        axes.annotate(str(name), (1, mean), (-2, 3), **ROW_NAME)


def _ends(frame: pd.DataFrame, looks: Mapping[str, style.Look]) -> list[tuple[float, float, str, str]]:
    """Return the last point of each line, with its name and colour."""
    settings_shown = list(dict.fromkeys(frame["setting"]))
    ends = []
    for line, of_line in frame.groupby("line"):
        means = of_line.groupby("setting", sort=False)["difference"].mean()
        one = " (one seed)" if of_line["seed"].nunique() == 1 else ""
        at = float(settings_shown.index(str(means.index[-1])))
        ends.append((at, float(means.iloc[-1]), f"{line}{one}", looks[str(line)].colour))
    return ends
