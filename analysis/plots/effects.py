"""Draw effects with their intervals: a line each, one colour for better, another for worse, grey if 0 is inside."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import seaborn.objects as so
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from analysis.plots import style
from analysis.plots.figure_data import FigureData, missing_scores
from analysis.report.formats import estimate_text, number
from analysis.stats.estimate import Estimate
from analysis.verdicts.gains import GROUPS, MethodGain, gains
from experiments.schema.contrasts import Contrast

LINE, GAP = 0.17, 0.5  # inches for each line, and lines of space above a heading
TICKS = (-30, -10, -3, -1, 0, 1, 3, 10, 30)
NUMBERS, PRINTED = 6, 116  # where the texts begin, in points from the panel
COLOURS = (
    "Blue: above 0; orange: below 0; grey: 0 is inside the 95 % interval, which is over seeds and not corrected for "
    "the number of effects."
)
SYMLOG = "Shaded: within a point of 0, where the axis is linear; beyond, it is logarithmic."
CAPTION = f"Points of the average of seven STS sets. Diamonds: published, BERT-base. {COLOURS} {SYMLOG}"


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A named effect; `estimate` is None without scores. `heading` is drawn above the first of several effects."""

    name: str
    estimate: Estimate | None
    published: float | None = None
    heading: str = ""

    @property
    def text(self) -> str:
        """The effect with its interval."""
        return estimate_text(self.estimate)


def direction(estimate: Estimate) -> str:
    """Return "better" or "worse", or "open" if the interval contains 0 or is missing."""
    band = estimate.interval
    if band is None or band.low <= 0 <= band.high:
        return "open"
    return "better" if estimate.mean > 0 else "worse"


def places(effects: Sequence[Effect]) -> tuple[list[float], dict[float, str]]:
    """Return the vertical place of each effect, and the headings by their places."""
    at, heights, headings = 0.0, list[float](), dict[float, str]()
    for i, effect in enumerate(effects):
        if effect.heading and (not i or effects[i - 1].heading != effect.heading):
            at += GAP if i else 0
            headings[at] = effect.heading
            at += 1
        heights.append(at)
        at += 1
    return heights, headings


def height(effects: Sequence[Effect]) -> float:
    """Return the height of a panel in inches."""
    heights, _ = places(effects)
    return LINE * (heights[-1] + 1.5) + 0.55


def draw_effects(axes: Axes, effects: Sequence[Effect], *, named: bool = True, printed: bool = False) -> None:
    """Draw a dot and an interval for each effect, its numbers next to it, and published effects as hollow diamonds."""
    heights, headings = places(effects)
    frame = pd.DataFrame([_line(effect, at) for effect, at in zip(effects, heights, strict=True) if effect.estimate])
    published = [(effect.published, at) for effect, at in zip(effects, heights, strict=True) if effect.published]
    axes.axvline(0, color=style.INK, linewidth=0.7)
    if len(frame):
        plot = so.Plot(frame, x="effect", y="place", xmin="low", xmax="high", color="direction")
        plot = plot.add(so.Range(linewidth=1.8), orient="y", legend=False).add(so.Dot(pointsize=5), legend=False)
        plot.scale(color=so.Nominal(style.DIRECTIONS)).on(axes).plot()
    for value, at in published:
        axes.plot(value, at, **style.PRINTED, markersize=4.2, zorder=5)
    axes.set(xlabel="", ylabel="", yticks=heights, yticklabels=[effect.name for effect in effects] if named else [])
    axes.set_ylim(heights[-1] + 0.6, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.08)
    beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), **style.SMALL_TEXT}
    for effect, at in zip(effects, heights, strict=True):
        seeds = f", {effect.estimate.n}" if printed and effect.estimate else ""
        axes.annotate(effect.text + seeds, (1, at), (NUMBERS, 0), **beside)
        if printed:
            axes.annotate(number(effect.published, sign=True), (1, at), (PRINTED, 0), **beside)
    for at, heading in headings.items() if named else ():
        axes.annotate(heading, (0, at), (-4, 0), ha="right", weight="bold", **beside)


def _line(effect: Effect, at: float) -> dict[str, Any]:
    assert effect.estimate
    low, high = effect.estimate.interval or (effect.estimate.mean, effect.estimate.mean)
    mean, kind = effect.estimate.mean, direction(effect.estimate)
    return {"effect": mean, "place": at, "low": low, "high": high, "direction": kind}


def compress(axes: Axes, side: Literal["x", "y"]) -> None:
    """Make the axis of effects logarithmic beyond one point, so that both 0.1 and 10 points are visible."""
    low, high = (1.1 * end for end in getattr(axes, f"get_{side}lim")())
    shown = [tick for tick in TICKS if low <= tick <= high]
    names = [f"{tick:g}".replace("-", "\N{MINUS SIGN}") for tick in shown]
    getattr(axes, f"set_{side}scale")("symlog", linthresh=1, linscale=1.2 if side == "x" else 0.6)
    axes.set(**{f"{side}lim": (low, high), f"{side}ticks": shown, f"{side}ticklabels": names})
    getattr(axes, f"{side}axis").set_minor_locator(NullLocator())


def gain_intervals(drawn: FigureData) -> Figure | None:
    """Draw the study's contrasts, those over SimCSE first, with the gains that the papers print."""
    measured = gains(drawn.results)
    if not any(gain.estimate for gain in measured):
        return None
    base = measured[0].contrast.minus
    effects = [
        Effect(
            name=_name(gain.contrast, base),
            estimate=gain.estimate,
            published=gain.published,
            heading=f"over {' and '.join(base)}" if gain.contrast.minus == base else "details",
        )
        for gain in sorted(measured, key=lambda gain: gain.contrast.minus != base)
    ]
    figure = _one_panel(effects)
    return style.finish(figure, drawn, CAPTION, missing_scores(drawn, ("sts_avg",)))


def _name(contrast: Contrast, base: tuple[str, ...]) -> str:
    """Return what is compared, without what the heading says or both sides share: "DCLR over no ascent"."""
    plus, minus = (" and ".join(rows) for rows in (contrast.plus, contrast.minus))
    rest = ", ".join(part for part in minus.split(", ") if part not in plus.split(", "))
    return plus if contrast.minus == base or not rest else f"{plus} over {rest}"


def forest(measured: Sequence[MethodGain], scale: str) -> Figure:
    """Draw every method's gain over SimCSE, here and in print."""
    effects = [
        Effect(
            name=f"{gain.method} ({gain.claim})" if gain.claim else gain.method,
            estimate=gain.estimate,
            published=gain.published,
            heading=GROUPS[gain.group],
        )
        for gain in measured
    ]
    heading = f"Gains over SimCSE \N{MIDDLE DOT} scale {scale}. Which method gains, here and in print?"
    return style.add_title_and_caption(_one_panel(effects), heading, CAPTION)


def first_claims(shown: Iterable[tuple[str, str, Estimate | None, float | None]], scale: str) -> Figure:
    """Draw each paper's gains over SimCSE from (paper, words, gain, published gain)."""
    effects = [
        Effect(name=words, estimate=estimate, published=printed, heading=paper)
        for paper, words, estimate, printed in shown
    ]
    heading = f"What is left of each paper's gain over SimCSE? Scale {scale}, or a better encoder where said."
    by_search = "Where equally tuned, the interval is over searches, and the last number counts them."
    return style.add_title_and_caption(_one_panel(effects), heading, f"{CAPTION} {by_search}")


def _one_panel(effects: Sequence[Effect]) -> Figure:
    figure, (axes,) = style.panels(1, 1, height=height(effects))
    draw_effects(axes, effects, printed=True)
    axes.axvspan(-1, 1, color=style.PALE, **style.BAND)
    compress(axes, "x")
    for x, text in ((NUMBERS, "here [95 %], seeds"), (PRINTED, "published")):
        axes.annotate(text, (1, 1), (x, 5), xycoords="axes fraction", weight="bold", **style.SMALL_TEXT)
    return figure
