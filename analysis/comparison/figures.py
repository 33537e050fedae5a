"""A comparison's two figures: what a search finds after k trials, and the gains over the baseline."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.comparison.summary import Summary
from analysis.stats.significance import expected_maximum


def comparison_figures(summary: Summary) -> dict[str, Figure]:
    """Return both figures by name."""
    return {"curves": curves(summary), "forest": forest(summary)}


def curves(summary: Summary) -> Figure:
    """Draw the dev score that the best of k trials is expected to have, with the range of the searches.

    Beside it are the test scores of what the searches chose: no trial has one, so there is one for all trials only.
    """
    lines = [
        {"method": each.entrant.name, "search": search, "trials": k, "dev": value}
        for each in summary.tuned
        for search, scores in enumerate(each.trials)
        if scores
        for k, value in enumerate(expected_maximum(list(scores)), 1)
    ]
    names = [each.entrant.name for each in summary.tuned]
    palette = "colorblind" if len(names) <= 10 else "husl"  # the former has ten colours
    colours = dict(zip(names, sns.color_palette(palette, len(names)), strict=True))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", width_ratios=(3, 1))
    if lines:
        frame = pd.DataFrame(lines)
        sns.lineplot(frame, x="trials", y="dev", hue="method", errorbar=("pi", 100), palette=colours, ax=left)
    left.set(xlabel="trials", ylabel=f"best score on {summary.comparison.dev}, expected")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    first = next(iter(summary.comparison.measures))
    for place, each in enumerate(summary.tuned):
        means = list(each.search_means(each.measures[first]).values())
        right.plot([place] * len(means), means, "o", color=colours[each.entrant.name], alpha=0.7)
    right.set(xticks=range(len(names)), ylabel=f"{first}, finals of each search")
    right.set_xticklabels(names, rotation=45, ha="right")
    sns.despine(figure)
    return figure


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
