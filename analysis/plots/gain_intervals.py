"""Draw a study's exploratory gains as dots with their intervals, and the published gains beside them."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.figure_data import FigureData, missing_scores, seeds_text
from analysis.report.formats import DASH, interval, number
from analysis.verdicts.gains import Gain, gains
from analysis.verdicts.method_gains import GROUPS, MethodGain

TEXT = style.SMALL_TEXT
BOLD: dict[str, Any] = TEXT | {"weight": "bold"}
EDGE = 6  # points: a wider axis would hide the gains that the papers print
COLUMNS = (1.0, 1.33)  # where the numbers stand, in widths of the panel
CERTAIN, OPEN = "#117733", style.FAINT  # intervals without 0, and with it


def gain_intervals(drawn: FigureData) -> Figure | None:
    """Draw each contrast's mean with its 95 % interval; published gains as hollow diamonds on an axis of their own."""
    measured = gains(drawn.results)
    if not any(gain.estimate for gain in measured):
        return None
    figure, (here, printed) = style.panels(2, 2, height=0.2 * len(measured) + 0.6, width_ratios=(1.9, 1))
    _draw_measured(here, measured)
    _draw_published(printed, measured)
    names = [gain.contrast.subject for gain in measured]
    here.set(title="gain here, points", yticks=range(len(measured)), yticklabels=names)
    printed.set(title="published, BERT-base", yticks=range(len(measured)), yticklabels=[])
    for panel in (here, printed):
        panel.axvline(0, color=style.INK, linewidth=0.7)
        panel.set_ylim(len(measured) - 0.4, -0.6)
        panel.tick_params(axis="y", length=0)
    seeds = seeds_text(gain.estimate.n for gain in measured if gain.estimate)
    caption = (
        f"Dots: mean gain over {seeds}; bars: 95 % intervals, not corrected for their number; green: without 0. "
        "Diamonds: the gain of one published run over SimCSE's in the same table."
    )
    return style.finish(figure, drawn, caption, missing_scores(drawn, ("sts_avg",)))


def _draw_measured(axes: Axes, measured: Sequence[Gain]) -> None:
    for place, estimate in enumerate(gain.estimate for gain in measured):
        if estimate is None:
            axes.annotate(DASH, (0, place), (4, 0), **TEXT)
            continue
        band, right = estimate.interval(), estimate.mean
        colour = OPEN
        if band:
            colour = OPEN if band.low <= 0 <= band.high else CERTAIN
            axes.plot(band, (place, place), color=colour, linewidth=1.6, solid_capstyle="butt")
            right = band.high
        axes.plot(estimate.mean, place, marker="o", markersize=5, color=colour)
        axes.annotate(number(estimate.mean, sign=True), (max(right, 0), place), (4, 0), **TEXT)
    axes.margins(x=0.14)


def _draw_published(axes: Axes, measured: Sequence[Gain]) -> None:
    look: dict[str, Any] = {
        "marker": "D",
        "markerfacecolor": "white",
        "markeredgecolor": style.INK,
        "linestyle": "none",
    }
    for place, value in enumerate(gain.contrast.published for gain in measured):
        if value is not None:
            axes.plot(value, place, **look)
            axes.annotate(number(value, sign=True), (1, place), (4, 0), xycoords=("axes fraction", "data"), **TEXT)
    axes.margins(x=0.3)


def forest(measured: Sequence[MethodGain], scale: str) -> Figure:
    """Draw every method's gain over SimCSE with its interval, the published gain on the same axis, and both in numbers.

    What lies beyond the axis is an arrow at its edge, with its number.
    """
    figure, (axes,) = style.panels(1, 1, height=0.19 * (len(measured) + 4) + 0.5)
    places, headings = _places_by_group(measured)
    axes.axvline(0, color=style.INK, linewidth=0.7)
    for at, gain in zip(places, measured, strict=True):
        _draw_gain(axes, at, gain)
        for x, text in zip(COLUMNS, gain_texts(gain), strict=True):
            axes.annotate(text, (x, at), (4, 0), xycoords=("axes fraction", "data"), **TEXT)
    for at, heading in headings:
        axes.annotate(heading, (0, at), (-4, 0), xycoords=("axes fraction", "data"), ha="right", **BOLD)
    for x, text in zip(COLUMNS, ("here [95 %], seeds", "published"), strict=True):
        axes.annotate(text, (x, -1.0), (4, 0), xycoords=("axes fraction", "data"), **BOLD)
    axes.set(
        yticks=places,
        yticklabels=[gain.method for gain in measured],
        xlim=(-EDGE, EDGE),
        xlabel="points of STS average",
    )
    axes.set_ylim(places[-1] + 0.7, -1.6)
    axes.tick_params(axis="y", length=0)
    caption = (
        "Dots: mean gain over SimCSE on the average of seven STS sets; bars: 95 % intervals over seeds, not corrected "
        "for their number (Welch's test; RankEncoder seed by seed with its base); grey: 0 inside; hollow diamonds: the "
        f"gain of the published numbers. Arrows: beyond {EDGE} points. {DASH}: not recorded, not published."
    )
    heading = f"Gains over SimCSE \N{MIDDLE DOT} scale {scale}. Which method gains, here and in print?"
    return style.add_title_and_caption(figure, heading, caption)


def _places_by_group(measured: Sequence[MethodGain]) -> tuple[list[float], list[tuple[float, str]]]:
    """Return a height for each gain, with room above each group, and the groups' headings with theirs."""
    places, headings, at, group = list[float](), list[tuple[float, str]](), 0.0, ""
    for gain in measured:
        if gain.group != group:
            at, group = at + (0.4 if group else 0.0), gain.group
            headings.append((at, GROUPS[group]))
            at += 1
        places.append(at)
        at += 1
    return places, headings


def gain_texts(gain: MethodGain) -> tuple[str, str]:
    """Return a gain with its interval and seeds, and the published gain, as text."""
    printed = number(gain.published, sign=True)
    if gain.estimate is None:
        return DASH, printed
    band = gain.estimate.interval()
    words = f"{number(gain.estimate.mean, sign=True)} {interval(band, sign=True)}, {gain.estimate.n}"
    return words, printed


def _draw_gain(axes: Axes, at: float, gain: MethodGain) -> None:
    if gain.published is not None:
        _draw_mark(axes, at, gain.published, {**style.PRINTED, "markersize": 4, "zorder": 5})
    if gain.estimate is None:
        return
    band, colour = gain.estimate.interval(), OPEN
    if band:
        colour = OPEN if band.low <= 0 <= band.high else CERTAIN
        ends = [min(max(end, -EDGE), EDGE) for end in band]
        axes.plot(ends, (at, at), color=colour, linewidth=1.6, solid_capstyle="butt")
    _draw_mark(axes, at, gain.estimate.mean, {"marker": "o", "markersize": 4.5, "color": colour, "zorder": 4})


def _draw_mark(axes: Axes, at: float, value: float, look: dict[str, Any]) -> None:
    """Draw a mark at a value, or an arrow of its colours at the edge beyond which it lies."""
    if abs(value) > EDGE:
        look = look | {"marker": ">" if value > 0 else "<"}
    axes.plot(min(max(value, -0.985 * EDGE), 0.985 * EDGE), at, **look)
