"""Draw searches: the expected best dev score of k trials, and the importance of each setting."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.labels import beside_ends
from analysis.report.search_tables import FEWEST, SearchTrials
from experiments.schema.columns import column


def searches(searched: Sequence[SearchTrials]) -> Figure | None:
    """Draw a panel with the expected best of k trials, and one with importances for each search of enough trials."""
    if not searched:
        return None
    enough = [search_trials for search_trials in searched if search_trials.importances()]
    width = style.WIDE if enough else 4.6
    figure, panels = style.panels(1 + len(enough), 3, height=2.1 if enough else 2.6, width=width)
    _draw_expected_best(panels[0], searched)
    for axes, search_trials in zip(panels[1:], enough, strict=True):
        _draw_importances(axes, search_trials)
    dev, seeds = column(searched[0].search.scale.dev).heading, len(searched[0].search.seeds)
    heading = f"Searches \N{MIDDLE DOT} scale {searched[0].search.scale.name}. What tuning on {dev} is worth."
    caption = (
        f"Dev scores in points, means of {seeds} seeds that no table of methods has. Curves: what the best of k trials "
        "is expected to score, each trial once, stopped ones as they were; dashed: the method's grid. "
        f"{_importances_text(searched)}"
    )
    return style.add_title_and_caption(figure, heading, caption)


def _importances_text(searched: Sequence[SearchTrials]) -> str:
    counts = [f"{trials.search.name} {len(trials.finished_trials)}" for trials in searched if not trials.importances()]
    shown = "Bars: importance by functional ANOVA over the finished trials, whose number stands above. "
    few = f"Too few finished trials for importances (fewer than {FEWEST}): {', '.join(counts)}." if counts else ""
    return f"{shown if len(counts) < len(searched) else ''}{few}".strip()


def look(trials: SearchTrials) -> style.Look:
    """Return the look of a search: the method's colour, dashed for a grid."""
    base = style.look_of(style.name_of(trials.search.start.method))
    return style.Look(base.colour, base.marker, "-" if trials.search.trials else (0, (4, 1.2)))


def _draw_expected_best(axes: Axes, searched: Sequence[SearchTrials]) -> None:
    sampled = {look(search_trials).colour for search_trials in searched if search_trials.search.trials}
    ends, most = [], 0
    for search_trials in searched:
        curve, how = search_trials.expected_best(), look(search_trials)
        trials, most = range(1, len(curve) + 1), max(most, len(curve))
        axes.plot(trials, curve, color=how.colour, linestyle=how.dash)
        if how.dash == "-" or how.colour not in sampled:
            ends.append((len(curve), float(curve[-1]), search_trials.search.name, how.colour))
    axes.set(
        title="best of k trials", xlabel="k", ylabel="expected dev score", xticks=range(0, most + 1, max(1, most // 4))
    )
    axes.set_xlim(0, 1.6 * most)
    beside_ends(axes, ends)


def _draw_importances(axes: Axes, trials: SearchTrials) -> None:
    shares = trials.importances()
    names = [name.replace("_", " ") for name in shares]
    axes.barh(names, [100 * share for share in shares.values()], color=look(trials).colour, height=0.6)
    axes.invert_yaxis()
    axes.set(title=f"{trials.search.name} ({len(trials.finished_trials)})", xlabel="importance, %", xlim=(0, 100))
