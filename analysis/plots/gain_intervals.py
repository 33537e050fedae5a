"""Draw gains over SimCSE with their intervals: a study's, all methods', and students' by their teachers' scores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.figure_data import FigureData, missing_scores, seeds_text
from analysis.plots.labels import beside_points
from analysis.report.formats import DASH, interval, number
from analysis.stats.dose_response import FEWEST, DoseResponse, dose_response
from analysis.stats.estimate import Estimate
from analysis.verdicts.gains import GROUPS, MethodGain, gains
from analysis.verdicts.verdict import Verdict
from experiments.plan.ladder import LOSSES, RUNGS, SHUFFLED, SIMCSE, student_label, teacher_label

TEXT = style.SMALL_TEXT
BOLD: dict[str, Any] = TEXT | {"weight": "bold"}
EDGE = 6  # points: a wider axis would hide the gains that the papers print
COLUMNS = (1.0, 1.38)  # where the numbers stand, in widths of the panel
CERTAIN, OPEN = "#117733", style.FAINT  # intervals without 0, and with it
SCORE = "sts_avg"
LOSS_COLOURS = {"ListNet": style.LOOKS["RankCSE-listNet"].colour, "ListMLE": style.LOOKS["RankCSE-listMLE"].colour}
BAR_PLACES = 9  # points of a bar that names keep clear of
LINE_PLACES = 60  # points of the line of no gain that names keep clear of
NEAR = 3.0  # a teacher within these points of SimCSE's score as a teacher is in its range


def gain_intervals(drawn: FigureData) -> Figure | None:
    """Draw each contrast's mean with its 95 % interval; published gains as hollow diamonds on an axis of their own."""
    measured = gains(drawn.results)
    if not any(gain.estimate for gain in measured):
        return None
    figure, (here, printed) = style.panels(2, 2, height=0.2 * len(measured) + 0.6, width_ratios=(1.9, 1))
    _draw_measured(here, measured)
    _draw_published(printed, measured)
    names = [gain.contrast.name for gain in measured]
    here.set(title="gain here, points", yticks=range(len(measured)), yticklabels=names)
    printed.set(title="published, BERT-base", yticks=range(len(measured)), yticklabels=[])
    for panel in (here, printed):
        panel.axvline(0, color=style.INK, linewidth=0.7)
        panel.set_ylim(len(measured) - 0.4, -0.6)
        panel.tick_params(axis="y", length=0)
    seeds = seeds_text(gain.estimate.n for gain in measured if gain.estimate)
    caption = (
        f"Dots: mean gain over {seeds}; bars: 95 % intervals, not corrected for their number; green: without 0. "
        "Diamonds: the published gain over SimCSE in the same table."
    )
    return style.finish(figure, drawn, caption, missing_scores(drawn, ("sts_avg",)))


def _draw_measured(axes: Axes, measured: Sequence[Verdict]) -> None:
    for place, estimate in enumerate(gain.estimate for gain in measured):
        if estimate is None:
            axes.annotate(DASH, (0, place), (4, 0), **TEXT)
            continue
        band, colour = estimate.interval, _colour(estimate)
        if band:
            axes.plot(band, (place, place), color=colour, linewidth=1.6, solid_capstyle="butt")
        axes.plot(estimate.mean, place, marker="o", markersize=5, color=colour)
        low, high = band or (estimate.mean, estimate.mean)
        # The number stands on its side of 0.
        x, gap, align = (low, -4, "right") if high < 0 else (max(high, 0), 4, "left")
        axes.annotate(number(estimate.mean, sign=True), (x, place), (gap, 0), ha=align, **TEXT)
    axes.margins(x=0.3)


def _colour(estimate: Estimate) -> str:
    band = estimate.interval
    return CERTAIN if band and not band.low <= 0 <= band.high else OPEN


def _draw_published(axes: Axes, measured: Sequence[Verdict]) -> None:
    look: dict[str, Any] = {
        "marker": "D",
        "markerfacecolor": "white",
        "markeredgecolor": style.INK,
        "linestyle": "none",
    }
    for place, value in enumerate(gain.published for gain in measured):
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
        "for their number (Welch's test; seed by seed: RankEncoder with its base, baselines trained on SimCSE's "
        "sentences); grey: 0 inside; hollow diamonds: the gain of the published numbers. Arrows: beyond "
        f"{EDGE} points. {DASH}: not recorded, not published."
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
    band = gain.estimate.interval
    words = f"{number(gain.estimate.mean, sign=True)} {interval(band, sign=True)}, {gain.estimate.n}"
    return words, printed


def _draw_gain(axes: Axes, at: float, gain: MethodGain) -> None:
    if gain.published is not None:
        _draw_mark(axes, at, gain.published, {**style.PRINTED, "markersize": 4, "zorder": 5})
    if gain.estimate is None:
        return
    band, colour = gain.estimate.interval, _colour(gain.estimate)
    if band:
        ends = [min(max(end, -EDGE), EDGE) for end in band]
        axes.plot(ends, (at, at), color=colour, linewidth=1.6, solid_capstyle="butt")
        for end in band:
            if abs(end) > EDGE > abs(gain.estimate.mean):
                _draw_mark(axes, at, end, {"marker": "", "markersize": 4.5, "color": colour})
    _draw_mark(axes, at, gain.estimate.mean, {"marker": "o", "markersize": 4.5, "color": colour, "zorder": 4})


def _draw_mark(axes: Axes, at: float, value: float, look: dict[str, Any]) -> None:
    """Draw a mark at a value, or an arrow of its colours at the edge beyond which it lies."""
    if abs(value) > EDGE:
        look = look | {"marker": ">" if value > 0 else "<", "clip_on": False}
    axes.plot(min(max(value, -EDGE), EDGE), at, **look)


@dataclass(frozen=True)
class Rung:
    """A teacher's own score, the gain of its students over SimCSE, and these students' scores."""

    name: str
    dose: float
    gain: Estimate
    scores: tuple[float, ...]


def teacher_ladder(drawn: FigureData) -> Figure | None:
    """Draw gains with their 95 % intervals against teachers' scores; None if no student and its teacher have scores."""
    ladders = {loss: rungs_of(drawn, loss) for loss in LOSSES}
    orders = " ".join(_order_sentence(loss, rungs) for loss, rungs in ladders.items())
    ladders = {loss: rungs for loss, rungs in ladders.items() if rungs}
    if not ladders:
        return None
    numbers = number_teachers(ladders.values())
    figure, panels = style.panels(len(ladders), 2, height=3.0, sharex=True, sharey=True)
    simcse = drawn.results.cells[SIMCSE, SCORE].summary
    for panel, (loss, rungs) in zip(panels, ladders.items(), strict=True):
        panel.axhline(0, color=style.INK, linewidth=0.7)
        if simcse:
            panel.axvline(simcse.mean, color=style.PALE, linewidth=0.9, linestyle=(0, (2, 2)))
        panel.set(title=loss, xlabel="the teacher's STS average")
        _draw_rungs(panel, rungs, LOSS_COLOURS[loss])
    panels[0].set_ylabel("the student's gain over SimCSE, points")
    for panel, rungs in zip(panels, ladders.values(), strict=True):  # when limits of both are final
        bars = [(rung.dose, y) for rung in rungs for y in np.linspace(*(rung.gain.interval or (0, 0)), BAR_PLACES)]
        lines = bars + [(x, 0.0) for x in np.linspace(*panel.get_xlim(), LINE_PLACES)]
        beside_points(panel, [(rung.dose, rung.gain.mean, numbers[rung.name], style.INK) for rung in rungs], lines)
    counts = [len(rung.scores) for rungs in ladders.values() for rung in rungs]
    caption = (
        f"Dots: mean gain over {seeds_text(counts)}; bars: 95 % intervals (Welch's), not corrected for their number. "
        f"Teachers: {'; '.join(f'{n} {name}' for name, n in numbers.items())}. "
        "Hollow: each list of the teacher in a random order, left out of the correlations. Dashed: SimCSE's own score. "
        f"{orders} Intervals of the correlations: {seeds_text(counts)} resampled within each rung; teachers are fixed."
    )
    return style.finish(figure, drawn, caption, missing_scores(drawn, (SCORE,)))


def rungs_of(drawn: FigureData, loss: str) -> tuple[Rung, ...]:
    """Return the rungs of a loss whose student and teacher have scores, in the ladder's order."""
    estimates = {gain.contrast.plus[0]: gain.estimate for gain in gains(drawn.results)}
    rungs = []
    for name in RUNGS:
        estimate = estimates.get(student_label(loss, name))
        teacher = drawn.results.cells[teacher_label(name), SCORE].summary
        if estimate and teacher:
            scores = drawn.results.cells[student_label(loss, name), SCORE].scores
            rungs.append(Rung(name, teacher.mean, estimate, tuple(scores.values())))
    return tuple(rungs)


def number_teachers(ladders: Iterable[Sequence[Rung]]) -> dict[str, str]:
    """Return each teacher's number in the figure, by its score, from the lowest."""
    doses = {rung.name: rung.dose for rungs in ladders for rung in rungs}
    return {name: str(i) for i, name in enumerate(sorted(doses, key=doses.__getitem__), 1)}


def order_of(rungs: Sequence[Rung]) -> DoseResponse | None:
    """Return whether gains rise with teachers' scores, without the teacher in shuffled order."""
    ordered = [rung for rung in rungs if rung.name != SHUFFLED]
    return dose_response([rung.dose for rung in ordered], [rung.scores for rung in ordered])


def parts_of(rungs: Sequence[Rung]) -> dict[str, list[Rung]]:
    """Return the teachers in SimCSE's range, and those without MiniLM, by what the caption calls them."""
    centres = [rung.dose for rung in rungs if rung.name == SIMCSE]
    near = [rung for rung in rungs if any(abs(rung.dose - centre) <= NEAR for centre in centres)]
    others = [rung for rung in rungs if "MiniLM" not in rung.name]
    return {f"within {NEAR:g} points of the teacher SimCSE": near, "without MiniLM": others}


def _draw_rungs(panel: Axes, rungs: Sequence[Rung], colour: str) -> None:
    for rung in rungs:
        if band := rung.gain.interval:
            panel.plot((rung.dose, rung.dose), band, color=colour, linewidth=1.2, solid_capstyle="butt")
        look: dict[str, Any] = {"markerfacecolor": "white"} if rung.name == SHUFFLED else {}
        panel.plot(rung.dose, rung.gain.mean, marker="o", markersize=5, color=colour, linestyle="none", **look)
    panel.margins(x=0.16, y=0.12)


def _order_sentence(loss: str, rungs: Sequence[Rung]) -> str:
    order = order_of(rungs)
    if order is None:
        return f"{loss}: no correlation of fewer than {FEWEST} teachers."
    parts = [f"{name} {_estimate_text(value)}" for name, value in (("rho", order.rho), ("tau", order.tau))]
    subsets = [
        f"; the {part.rungs} {which}: rho {_estimate_text(part.rho)}"
        for which, chosen in parts_of(rungs).items()
        if (part := order_of(chosen))
    ]
    return f"{loss}, {order.rungs} teachers: Spearman's {parts[0]}, Kendall's {parts[1]}{''.join(subsets)}."


def _estimate_text(estimate: Estimate) -> str:
    band = interval(estimate.interval, sign=True) if estimate.interval else "(no interval)"
    return f"{number(estimate.value, sign=True)} {band}"
