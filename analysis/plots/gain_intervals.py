"""Draw a study's exploratory gains as dots with their intervals, and the published gains beside them."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.figure_data import FigureData, missing_scores, seeds_text
from analysis.report.formats import DASH, number
from analysis.verdicts.gains import Gain, gains

TEXT: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 6.8, "color": style.INK}
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
            axes.annotate(number(value, sign=True), (value, place), (6, 0), **TEXT)
    axes.margins(x=0.3)
