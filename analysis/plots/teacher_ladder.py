"""Draw the teacher ladder: each student's gain over SimCSE against its teacher's own score, a panel a loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.figure_data import FigureData, missing_scores, seeds_text
from analysis.plots.labels import beside_points
from analysis.report.formats import interval, number
from analysis.stats.contrast_tests import ContrastEstimate
from analysis.stats.dose_response import FEWEST, DoseResponse, dose_response
from analysis.stats.resampling import Estimate
from analysis.verdicts.gains import gains
from experiments.plan.ladder import LOSSES, RUNGS, SHUFFLED, SIMCSE, student_label, teacher_label

SCORE = "sts_avg"
COLOURS = {"ListNet": style.LOOKS["RankCSE-listNet"].colour, "ListMLE": style.LOOKS["RankCSE-listMLE"].colour}
BAR_PLACES = 9  # points of a bar that names keep clear of


@dataclass(frozen=True)
class Rung:
    """A teacher's own score, the gain of its students over SimCSE, and these students' scores."""

    name: str
    dose: float
    gain: ContrastEstimate
    scores: tuple[float, ...]


def teacher_ladder(drawn: FigureData) -> Figure | None:
    """Draw gains with their 95 % intervals against teachers' scores; None if no student and its teacher have scores."""
    ladders = {loss: rungs_of(drawn, loss) for loss in LOSSES}
    if not any(ladders.values()):
        return None
    figure, panels = style.panels(len(ladders), 2, height=3.0, sharex=True, sharey=True)
    simcse = drawn.results.cells[SIMCSE, SCORE].summary
    for panel, (loss, rungs) in zip(panels, ladders.items(), strict=True):
        panel.axhline(0, color=style.INK, linewidth=0.7)
        if simcse:
            panel.axvline(simcse.mean, color=style.PALE, linewidth=0.9, linestyle=(0, (2, 2)))
        panel.set(title=loss, xlabel="the teacher's STS average")
        _draw_rungs(panel, rungs, COLOURS[loss])
    panels[0].set_ylabel("the student's gain over SimCSE, points")
    for panel, rungs in zip(panels, ladders.values(), strict=True):  # when limits of both are final
        bars = [(rung.dose, y) for rung in rungs for y in np.linspace(*(rung.gain.interval() or (0, 0)), BAR_PLACES)]
        beside_points(panel, [(rung.dose, rung.gain.mean, rung.name, style.INK) for rung in rungs], bars)
    counts = [len(rung.scores) for rungs in ladders.values() for rung in rungs]
    caption = (
        f"Dots: mean gain over {seeds_text(counts)}; bars: 95 % intervals (Welch's), not corrected for their number. "
        "Hollow: each list of the teacher in a random order, left out of the correlations. Dashed: SimCSE's own score. "
        + " ".join(_order_sentence(loss, rungs) for loss, rungs in ladders.items())
        + f" Intervals of the correlations: {seeds_text(counts)} resampled within each rung, not other teachers."
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


def order_of(rungs: Sequence[Rung]) -> DoseResponse | None:
    """Return whether gains rise with teachers' scores, without the teacher in shuffled order."""
    ordered = [rung for rung in rungs if rung.name != SHUFFLED]
    return dose_response([rung.dose for rung in ordered], [rung.scores for rung in ordered])


def _draw_rungs(panel: Axes, rungs: Sequence[Rung], colour: str) -> None:
    for rung in rungs:
        if band := rung.gain.interval():
            panel.plot((rung.dose, rung.dose), band, color=colour, linewidth=1.2, solid_capstyle="butt")
        look: dict[str, Any] = {"markerfacecolor": "white"} if rung.name == SHUFFLED else {}
        panel.plot(rung.dose, rung.gain.mean, marker="o", markersize=5, color=colour, linestyle="none", **look)
    panel.margins(x=0.16, y=0.12)


def _order_sentence(loss: str, rungs: Sequence[Rung]) -> str:
    order = order_of(rungs)
    if order is None:
        return f"{loss}: no correlation of fewer than {FEWEST} teachers."
    parts = [f"{name} {_estimate_text(value)}" for name, value in (("rho", order.rho), ("tau", order.tau))]
    return f"{loss}, {order.rungs} teachers: Spearman's {parts[0]}, Kendall's {parts[1]}."


def _estimate_text(estimate: Estimate) -> str:
    band = interval(estimate.interval, sign=True) if estimate.interval else "(no interval)"
    return f"{number(estimate.value, sign=True)} {band}"
