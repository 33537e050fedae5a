"""Searches: the dev score expected of so many trials, and the share of each setting in what the scores differ by."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.labels import beside_ends
from analysis.report.search_tables import Searched


def searches(found: Sequence[Searched]) -> Figure | None:
    """One panel of curves, the more unequal the tuning the further apart; one of importances for each search."""
    if not found:
        return None
    figure, panels = style.panels(1 + len(found), 3, height=2.1)
    _curves(panels[0], found)
    for axes, one in zip(panels[1:], found, strict=True):
        _bars(axes, one)
    dev, seeds = found[0].search.scale.dev, len(found[0].search.seeds)
    heading = f"Searches \N{MIDDLE DOT} scale {found[0].search.scale.name}. What tuning on {dev} is worth."
    said = (
        f"Dev scores in points, means of {seeds} seeds that no study reports. Curves: what the best of k trials is "
        "expected to score, each trial once, stopped ones as they were; dashed: a grid. Bars: importance by functional "
        "ANOVA over the finished trials, whose number stands above; no bars where they are too few."
    )
    return style.framed(figure, heading, said)


def look(one: Searched) -> style.Look:
    """The method's colour; a grid's is dashed."""
    base = style.look_of(style.name_of(one.search.start.method))
    return base if one.search.trials else style.Look(base.colour, base.marker, (0, (4, 1.2)))


def _curves(axes: Axes, found: Sequence[Searched]) -> None:
    ends = []
    for one in found:
        curve, how = one.expected_best(), look(one)
        trials = range(1, len(curve) + 1)
        axes.plot(trials, curve, color=how.colour, linestyle=how.dash)
        ends.append((len(curve), float(curve[-1]), one.search.name, how.colour))
    axes.set(title="best of k trials", xlabel="k", ylabel="expected dev score")
    axes.set_xlim(0, 1.75 * max(x for x, *_ in ends))
    beside_ends(axes, ends)


def _bars(axes: Axes, one: Searched) -> None:
    shares = one.importances()
    names = [name.replace("_", " ") for name in shares]
    axes.barh(names, [100 * share for share in shares.values()], color=look(one).colour, height=0.6)
    axes.invert_yaxis()
    axes.set(title=f"{one.search.name} ({len(one.finished)})", xlabel="importance, %", xlim=(0, 100))
