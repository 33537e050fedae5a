"""A comparison's two figures: what a search finds after k trials, and the gains over the baseline."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.comparison.summary import Summary, Tuned
from analysis.stats.significance import expected_maximum

COLOUR = sns.color_palette("colorblind")[0]


def comparison_figures(summary: Summary) -> dict[str, Figure]:
    """Return both figures by name."""
    return {"curves": curves(summary), "forest": forest(summary)}


def curves(summary: Summary) -> Figure:
    """Draw the expected dev score of the best of k trials, with the range over searches.

    Each method has a panel, with the baseline in grey. The panel on the right has the mean test score of each
    search's finals, as trials are not scored on test sets.
    """
    baseline, *others = summary.tuned
    columns = min(3, len(others))
    rows = -(-len(others) // columns)
    figure = plt.figure(figsize=(3 + 2.5 * columns, 1 + 1.9 * rows), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(2.5 * columns, 3))[0]
    panels = left.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for panel, each in zip(panels, others, strict=False):
        for shown, colour in ((baseline, "0.6"), (each, COLOUR)):
            if any(shown.trials):
                frame = _expected_best(shown)
                sns.lineplot(frame, x="trials", y="dev", errorbar=("pi", 100), color=colour, ax=panel)
        panel.set(title=each.entrant.name, xlabel="trials", ylabel="")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    for panel in panels[len(others) :]:
        panel.remove()
    left.supylabel(f"expected best on {summary.comparison.dev}", fontsize="medium")
    left.suptitle(f"grey: {baseline.entrant.name}", fontsize="small")
    first, finals = next(iter(summary.comparison.measures)), right.subplots()
    for place, each in enumerate(summary.tuned):
        means = list(each.search_means(each.measures[first]).values())
        finals.plot(means, [place] * len(means), "o", color=COLOUR if place else "0.6", alpha=0.7)
    names = [each.entrant.name for each in summary.tuned]
    finals.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5))
    finals.set(xlabel=f"{first},\nfinals of each search")
    sns.despine(figure)
    return figure


def _expected_best(tuned: Tuned) -> pd.DataFrame:
    """Return a line for each search and number of trials."""
    lines = [
        {"search": search, "trials": k, "dev": value}
        for search, scores in enumerate(tuned.trials)
        if scores
        for k, value in enumerate(expected_maximum(list(scores)), 1)
    ]
    return pd.DataFrame(lines)


def forest(summary: Summary) -> Figure:
    """Draw each method's gain with its 95 % interval, a colour for each measure, and the margin as a band."""
    names = [each.entrant.name for each in summary.tuned[1:]]
    figure, axes = plt.subplots(figsize=(7, 1.2 + 0.6 * len(names)), layout="constrained")
    margin, measures = summary.comparison.margin, list(summary.comparison.measures)
    axes.axvspan(-margin, margin, color="0.92", zorder=0)
    axes.axvline(0, color="0.5", linewidth=1, zorder=1)
    for i, (measure, colour) in enumerate(zip(measures, sns.color_palette("colorblind", len(measures)), strict=True)):
        for row, name in enumerate(names):
            estimate = summary.gains[name, measure].estimate
            if estimate is None:
                continue
            y, band = row + 0.16 * (i - (len(measures) - 1) / 2), estimate.interval
            if band:
                axes.plot(band, (y, y), color=colour, linewidth=2)
            axes.plot(estimate.mean, y, "o", color=colour, label=measure)
    axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5))
    axes.set(xlabel=f"gain over {summary.tuned[0].entrant.name}, points")
    by_measure = {str(line.get_label()): line for line in axes.get_lines() if line.get_label() in measures}
    if by_measure:
        axes.legend(handles=list(by_measure.values()), frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    sns.despine(figure, left=True)
    return figure
