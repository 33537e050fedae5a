"""Draw searches: the expected best dev score of k trials, and the importance of each setting."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.report.search_tables import FEWEST, SearchTrials
from analysis.stats.bootstrap import generator
from analysis.stats.significance import expected_maximum
from experiments.schema.columns import column

DRAWS = 1000
GRID = "-grid"


def searches(searched: Sequence[SearchTrials]) -> Figure | None:
    """Draw the expected best of k trials, a panel for each method, and importances for searches of enough trials."""
    if not searched:
        return None
    enough = [trials for trials in searched if trials.importances()]
    methods: dict[str, list[SearchTrials]] = {}
    for trials in searched:
        methods.setdefault(trials.search.name.removesuffix(GRID), []).append(trials)
    figure, panels = style.panels(len(methods) + len(enough), 3, height=2.1)
    for axes, (method, of_method) in zip(panels, methods.items(), strict=False):
        if axes is not panels[0]:
            axes.sharey(panels[0])
        _draw_expected_best(axes, of_method)
        axes.set(title=method, xlabel="trials", ylabel="")
    for axes, trials in zip(panels[len(methods) :], enough, strict=True):
        _draw_importances(axes, trials)
    panels[0].set_ylabel("expected best dev score")
    dev, seeds = column(searched[0].search.scale.dev).heading, len(searched[0].search.seeds)
    heading = f"Searches \N{MIDDLE DOT} scale {searched[0].search.scale.name}. What tuning on {dev} is worth."
    caption = (
        f"Dev scores in points, means of {seeds} seeds that no table of methods has. Solid: what the best of k random "
        "trials is expected to score, stopped trials as they were; dashed: trials of the method's grid; bands: 95 % of "
        f"trials drawn anew; dotted: the settings that the studies use. {_importances_text(searched)}"
    )
    return style.add_title_and_caption(figure, heading, caption)


def _importances_text(searched: Sequence[SearchTrials]) -> str:
    counts = [f"{trials.search.name} {len(trials.finished_trials)}" for trials in searched if not trials.importances()]
    shown = "Bars: importance by functional ANOVA over the finished trials, whose number stands above. "
    few = f"Too few finished trials for importances (fewer than {FEWEST}): {', '.join(counts)}." if counts else ""
    return f"{shown if len(counts) < len(searched) else ''}{few}".strip()


def best_of_resampled_trials(scores: Sequence[float], draws: int = DRAWS) -> pd.DataFrame:
    """Return the expected best of k trials as `best`, and its 95 % range over resampled trials as `low` and `high`."""
    drawn = generator(draws).choice(scores, (draws, len(scores)))
    curves = np.array([expected_maximum(each.tolist()) for each in drawn])
    low, high = np.percentile(curves, (2.5, 97.5), axis=0)
    return pd.DataFrame({"best": expected_maximum(list(scores)), "low": low, "high": high}, range(1, len(scores) + 1))


def _draw_expected_best(axes: Axes, of_method: Sequence[SearchTrials]) -> None:
    """Draw a method's searches, with grid searches dashed."""
    colour = style.look_of(style.name_of(of_method[0].search.start.method)).colour
    for trials in of_method:
        found = best_of_resampled_trials(trials.scored_trials["score"].tolist())
        sns.lineplot(
            found["best"], errorbar=None, color=colour, linestyle="-" if trials.search.trials else "--", ax=axes
        )
        axes.fill_between(found.index, found["low"], found["high"], color=colour, **style.BAND)
    starts = [start for trials in of_method if (start := trials.start()) is not None]
    for start in starts[:1]:
        axes.axhline(start, color=style.INK, linewidth=1, linestyle=":")


def _draw_importances(axes: Axes, trials: SearchTrials) -> None:
    shares: Mapping[str, float] = {name.replace("_", " "): 100 * of for name, of in trials.importances().items()}
    colour = style.look_of(style.name_of(trials.search.start.method)).colour
    sns.barplot(x=list(shares.values()), y=list(shares), color=colour, width=0.6, ax=axes)
    axes.set(title=f"{trials.search.name} ({len(trials.finished_trials)})", xlabel="importance, %", xlim=(0, 100))
