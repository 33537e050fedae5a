"""Draw the gains of students over SimCSE, ordered by their teachers' scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.effects import COLOURS, Effect, draw_effects, height
from analysis.plots.figure_data import FigureData, missing_scores, seeds_text
from analysis.report.formats import interval, number
from analysis.stats.bootstrap import FEWEST_RUNGS, dose_response
from analysis.stats.estimate import Estimate
from analysis.verdicts.gains import gains
from experiments.plan.ladder import LOSSES, RUNGS, SHUFFLED, SIMCSE, student_label, teacher_label

SCORE = "sts_avg"
NEAR = 3.0  # points; a teacher's score this close to the teacher SimCSE's is in its range


@dataclass(frozen=True)
class Rung:
    """A teacher's own score, the gain of its students over SimCSE, and these students' scores."""

    name: str
    dose: float
    gain: Estimate
    scores: tuple[float, ...]


def teacher_ladder(drawn: FigureData) -> Figure | None:
    """Draw a panel for each loss, the best teacher on top; None unless a student and its teacher have scores."""
    ladders = {loss: rungs for loss in LOSSES if (rungs := rungs_of(drawn, loss))}
    if not ladders:
        return None
    doses = {rung.name: rung.dose for rungs in ladders.values() for rung in rungs}
    names = sorted(doses, key=lambda name: -doses[name])
    effects = {loss: _effects(rungs, names, doses) for loss, rungs in ladders.items()}
    figure, panels = style.panels(len(ladders), 2, height=height(effects[next(iter(ladders))]) + 0.15, sharex=True)
    simcse = drawn.results.cells[SIMCSE, SCORE].summary
    for panel, (loss, rungs) in zip(panels, ladders.items(), strict=True):
        draw_effects(panel, effects[loss], named=panel is panels[0])
        panel.set_title(f"{loss}: {_order_text(order_of(rungs))}", fontsize=8)
        if simcse:
            at = sum(dose > simcse.mean for dose in doses.values()) - 0.5
            panel.axhline(at, color=style.INK, linewidth=0.7, linestyle=(0, (2, 2)))
    counts = [len(rung.scores) for rungs in ladders.values() for rung in rungs]
    own = f" Dashed: SimCSE's own score, {number(simcse.mean)}." if simcse else ""
    parts = " ".join(_parts_text(loss, rungs) for loss, rungs in ladders.items())
    caption = (
        f"The students' gains over SimCSE in points, {seeds_text(counts)}; in brackets the teacher's STS average.{own} "
        f"{COLOURS} Rho: Spearman's, of the teachers' scores and the gains, without lists in shuffled order; "
        f"its interval: seeds resampled, teachers fixed. {parts}"
    )
    return style.finish(figure, drawn, caption, missing_scores(drawn, (SCORE,)))


def _effects(rungs: Sequence[Rung], names: Sequence[str], doses: Mapping[str, float]) -> list[Effect]:
    estimates = {rung.name: rung.gain for rung in rungs}
    return [Effect(name=f"{name} ({doses[name]:.1f})", estimate=estimates.get(name)) for name in names]


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


def order_of(rungs: Sequence[Rung]) -> Estimate | None:
    """Return the rank correlation of teachers' and students' scores, without the teacher in shuffled order."""
    ordered = [rung for rung in rungs if rung.name != SHUFFLED]
    return dose_response([rung.dose for rung in ordered], [rung.scores for rung in ordered])


def parts_of(rungs: Sequence[Rung]) -> dict[str, list[Rung]]:
    """Return two groups of rungs, by their names in the caption: in SimCSE's range, and without MiniLM."""
    centres = [rung.dose for rung in rungs if rung.name == SIMCSE]
    near = [rung for rung in rungs if any(abs(rung.dose - centre) <= NEAR for centre in centres)]
    others = [rung for rung in rungs if "MiniLM" not in rung.name]
    return {f"within {NEAR:g} points of the teacher SimCSE": near, "without MiniLM": others}


def _parts_text(loss: str, rungs: Sequence[Rung]) -> str:
    parts = {which: order_of(chosen) for which, chosen in parts_of(rungs).items()}
    said = [f"the {order.n} {which}: {_order_text(order)}" for which, order in parts.items() if order]
    return f"{loss}, {'; '.join(said)}." if said else ""


def _order_text(order: Estimate | None) -> str:
    if not order:
        return f"fewer than {FEWEST_RUNGS} teachers"
    band = interval(order.interval, sign=True) if order.interval else "(no interval)"
    return f"rho {number(order.value, sign=True)} {band}"
