"""Draw figures of sentence pairs: cosines by gold score, shared neighbours, shares of gold scores."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.effects import COLOURS, Effect, draw_effects
from analysis.plots.figure_data import Arrays, FigureData, missing_seeds, seeds_text
from analysis.stats.contrast_tests import difference
from cse_core.evaluation.sts_subsets import SIMILAR
from cse_core.metrics.geometry import cosine_bins
from cse_core.metrics.neighbours import bins, gain
from experiments.schema.columns import PUBLISHED_NAMES
from experiments.schema.hypotheses import Trend

GEOMETRY, NEIGHBOURS = "stsb_dev_geometry", "stsb_neighbours"
BANDS = 5  # of gold scores: [0, 1], (1, 2] ... (4, 5]


def ridges(drawn: FigureData) -> Figure | None:
    """Draw the densities of cosines in five bands of gold scores, each model above the first one (RankCSE, Fig. 5)."""
    arrays = drawn.arrays_of(GEOMETRY)
    models = [row for row in drawn.study.rows if row.label in arrays]
    if not models:
        return None
    looks = style.looks(models)
    frames = {row.label: _cosines_by_band(arrays[row.label]) for row in models}
    first, others = models[0], models[1:] or models
    figure, axes = style.panels(len(others), 3, height=3.0, sharex=True, sharey=True)
    for panel, row in zip(axes, others, strict=True):
        pair = {row.label: looks[row.label].colour, first.label: style.PALE}
        sns.violinplot(
            pd.concat([frames[label].assign(model=label) for label in pair]),
            **{"x": "cosine", "y": "gold score", "hue": "model", "orient": "y", "split": len(pair) > 1, "cut": 0},
            **{"inner": "quart", "gap": 0.06, "density_norm": "width", "linewidth": 0.8, "width": 0.92},
            **{"palette": pair, "hue_order": list(pair), "saturation": 1},
            **{"order": [_band_name(band) for band in reversed(range(BANDS))], "legend": False, "ax": panel},
        )
        panel.set(title=f"{row.label}, below: {first.label}", ylabel="gold score" if panel is axes[0] else "")
    counts = frames[first.label]["gold score"].value_counts()
    numbers = ", ".join(str(counts.get(_band_name(band), 0)) for band in range(BANDS))
    caption = (
        f"Densities of the cosines of STS-B dev pairs, all of one height, {seeds_text(map(len, arrays.values()))}; "
        f"dashed: medians, dotted: quartiles. Pairs from the lowest band up: {numbers}."
    )
    return style.finish(figure, drawn, caption, missing_seeds(drawn.study, arrays))


def _band_name(band: int) -> str:
    return f"{band}\N{EN DASH}{band + 1}"


def _cosines_by_band(by_seed: Mapping[int, Arrays]) -> pd.DataFrame:
    """Return the cosines of all seeds with their bands of gold scores."""
    cosines, gold = (np.concatenate([arrays[name] for arrays in by_seed.values()]) for name in ("cosines", "gold"))
    bands = [
        pd.DataFrame({"cosine": values, "gold score": _band_name(band)})
        for band, values in enumerate(cosine_bins(cosines, gold).values())
    ]
    return pd.concat(bands)


def neighbours(drawn: FigureData) -> Figure | None:
    """Draw shared neighbours in bins of similarity, and the gain of ranks over cosines (RankEncoder, Fig. 6)."""
    arrays_by_row = drawn.arrays_of(NEIGHBOURS)
    if not arrays_by_row:
        return None
    by_seed = next(iter(arrays_by_row.values()))
    cosines = np.mean([np.asarray(arrays["cosines"], np.float64) for arrays in by_seed.values()], axis=0)
    groups = bins(cosines)
    shared = [[arrays["shared"][group].mean() for group in groups] for arrays in by_seed.values()]
    scored = [arrays for arrays in by_seed.values() if "gold" in arrays]
    lists = [[arrays[name] for name in ("cosines", "pair_scores", "gold")] for arrays in scored]
    gains = [[100 * gain(*(values[group] for values in three)) for group in groups] for three in lists]
    names = [f"{cosines[g].min():.2f}\nto {cosines[g].max():.2f}\nn={len(g)}" for g in groups]
    figure, axes = style.panels(1 + bool(gains), 1, height=1.7, width=5.0, sharex=True)
    _draw_bins(axes[0], pd.DataFrame(shared, columns=names), "SimCSE")
    axes[0].set(ylabel="shared of 100\nneighbours", ylim=(0, None))
    if gains:
        axes[1].axhline(0, color=style.INK, linewidth=0.7)
        _draw_bins(axes[1], pd.DataFrame(gains, columns=names), "RankEncoder")
        axes[1].set_ylabel("rho of ranks\nless of cosines")
    axes[-1].set_xlabel("cosine of the pair, number of pairs")
    axes[-1].tick_params(axis="x", labelsize=6.5)
    absent = missing_seeds(drawn.study, arrays_by_row) + ([] if gains else ["gold scores, so no gain"])
    caption = (
        f"Means over {seeds_text(len(values) for values in arrays_by_row.values())}, bars 95 % intervals over seeds, "
        "faint dots single seeds, which all share their pairs: other pairs would move them all. The bins are of the "
        "mean cosine over seeds, so that all seeds have the same pairs in them."
    )
    return style.finish(figure, drawn, caption, absent)


def _draw_bins(axes: Axes, by_bin: pd.DataFrame, method: str) -> None:
    """Draw the mean over seeds (the lines of the frame) in each bin (its columns), its interval, and each seed."""
    look = style.LOOKS[method]
    sns.stripplot(by_bin, color=look.colour, alpha=0.3, size=3, jitter=False, ax=axes)
    sns.pointplot(by_bin, color=look.colour, marker=look.marker, errorbar=style.interval, linewidth=1.5, ax=axes)


def densities(drawn: FigureData) -> Figure | None:
    """Draw a histogram of gold scores for each set, and the gain of ranks there (RankEncoder, Fig. 9)."""
    tasks = [task for task in drawn.study.columns if task.endswith("_gold")]
    gold_by_task = {task: gold for task in tasks for gold in _first_gold(drawn, task)}
    if not gold_by_task:
        return None
    trend = next((finding for finding in drawn.study.findings if isinstance(finding, Trend)), None)
    figure, axes = style.panels(len(gold_by_task) + bool(trend), 4, height=1.65)
    shares = {}
    for panel, (task, gold) in zip(axes, gold_by_task.items(), strict=False):
        similar = gold >= SIMILAR - 1e-6
        shares[task.removesuffix("_gold")] = share = float(np.mean(similar))
        look = {"stat": "percent", "legend": False, "linewidth": 0, "alpha": 1, "multiple": "stack"}
        colours = {False: style.PALE, True: style.LOOKS["not run"].colour}
        sns.histplot(x=gold, hue=similar, palette=colours, bins=20, binrange=(0, 1), ax=panel, **look)
        panel.set(title=f"{_set_name(task)}: {share:.0%} similar", xlabel="", ylabel="", ylim=(0, 20))
    for panel in axes[: len(gold_by_task) : 4]:
        panel.set_ylabel("% of pairs")
    if trend:
        draw_effects(axes[-1], _gains(drawn, trend, shares))
        axes[-1].set_title("gain of ranks, points")
    absent = [_set_name(task) for task in tasks if task not in gold_by_task]
    sizes = [f"{_set_name(task)} {len(gold):,}" for task, gold in gold_by_task.items()]
    caption = f"Coloured: pairs that count as similar, from {SIMILAR} on. Pairs: {', '.join(sizes)}."
    if trend:
        caption += f" Last panel: {trend.better} less {trend.worse}, seed by seed. {COLOURS}"
    return style.finish(figure, drawn, caption, absent)


def _gains(drawn: FigureData, trend: Trend, shares: Mapping[str, float]) -> list[Effect]:
    """Return each set's gain, seed by seed, the set with most similar pairs first."""
    effects = []
    for name in sorted(shares, key=lambda name: -shares[name]):
        ours, base = (drawn.results.cells[label, name].scores for label in (trend.better, trend.worse))
        estimate = difference(ours, base, paired=True)
        effects.append(Effect(name=f"{PUBLISHED_NAMES[name]} {shares[name]:.0%}", estimate=estimate))
    return effects


def _set_name(task: str) -> str:
    name = task.removesuffix("_gold")
    return PUBLISHED_NAMES.get(name, name)


def _first_gold(drawn: FigureData, task: str) -> list[np.ndarray]:
    """Return a task's gold scores in a list, empty if there are none; all rows and seeds have the same ones."""
    by_row = drawn.arrays_of(task).values()
    return [np.asarray(arrays["gold"], np.float64) for by_seed in by_row for arrays in by_seed.values()][:1]
