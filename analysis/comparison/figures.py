"""A comparison's two figures: what a search finds after k trials, and the gains over the baseline."""

from functools import partial
from itertools import accumulate

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.plots import style
from analysis.plots.effects import Effect, draw_effects, height
from analysis.stats.significance import expected_maximum
from analysis.verdicts.comparison import Summary, Tuned

COLOUR = sns.color_palette("colorblind")[0]
CAPTION = (
    "Blue: above 0; orange: below 0; grey: 0 is inside the 95 % interval, which is over searches and not corrected for "
    "the number of methods. Shaded: within the margin."
)


def comparison_figures(summary: Summary) -> dict[str, Figure]:
    """Return both figures by name; the gains only, if the trials are not drawn, but from another comparison."""
    drawn = {} if summary.comparison.transfers else {"curves": curves(summary)}
    return {**drawn, "forest": forest(summary)}


def curves(summary: Summary) -> Figure:
    """Draw the expected dev score of the best of k trials, or with TPE the best so far, with the range over searches.

    Each method has a panel, with the baseline in grey. The panel on the right has the mean test score of each
    search's finals, as trials are not scored on test sets.
    """
    baseline, *others = summary.tuned
    independent = summary.comparison.sampler == "random"
    columns = min(3, len(others))
    rows = -(-len(others) // columns)
    figure = plt.figure(figsize=(3 + 2.5 * columns, 1 + 1.9 * rows), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(2.5 * columns, 3))[0]
    panels = left.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for panel, each in zip(panels, others, strict=False):
        for shown, colour in ((baseline, "0.6"), (each, COLOUR)):
            if any(shown.trials):
                frame = _best_of(shown, independent=independent)
                sns.lineplot(frame, x="trials", y="dev", errorbar=("pi", 100), color=colour, ax=panel)
        panel.set(title=each.entrant.name, xlabel="trials", ylabel="")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    for panel in panels[max(0, len(others) - columns) : len(others)]:  # those with no panel below
        panel.tick_params(labelbottom=True)
        panel.xaxis.label.set_visible(True)
    for panel in panels[len(others) :]:
        panel.remove()
    left.supylabel(
        f"{'expected best' if independent else 'best so far'} on {summary.comparison.dev}", fontsize="medium"
    )
    left.suptitle(f"grey: {baseline.entrant.name}", fontsize="small")
    first, finals = next(iter(summary.comparison.measures)), right.subplots()
    for place, each in enumerate(summary.tuned):
        means = list(each.search_means(each.measures[first]).values())
        finals.plot(means, [place] * len(means), "o", color=COLOUR if place else "0.6", alpha=0.7)
    names = [each.entrant.name for each in summary.tuned]
    finals.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5))
    finals.set(xlabel=f"{first},\nfinals of each search")
    return figure


def _best_of(tuned: Tuned, *, independent: bool) -> pd.DataFrame:
    """Return a line for each search and number of trials; without independent draws an expectation has no meaning."""
    best_of = expected_maximum if independent else partial(accumulate, func=max)
    lines = [
        {"search": search, "trials": k, "dev": value}
        for search, scores in enumerate(tuned.trials)
        if scores
        for k, value in enumerate(best_of(list(scores)), 1)
    ]
    return pd.DataFrame(lines)


def forest(summary: Summary) -> Figure:
    """Draw each method's gain with its 95 % interval, under a heading for each measure, and the margin as a band."""
    baseline, *others = summary.tuned
    effects = [
        Effect(name=each.entrant.name, estimate=summary.gains[each.entrant.name, measure].estimate, heading=measure)
        for measure in summary.comparison.measures
        for each in others
    ]
    figure, (axes,) = style.panels(1, 1, height=height(effects))
    draw_effects(axes, effects)
    axes.axvspan(-summary.comparison.margin, summary.comparison.margin, color=style.PALE, **style.BAND)
    return style.add_title_and_caption(figure, f"Gains over {baseline.entrant.name}, in points", CAPTION)
