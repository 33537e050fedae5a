"""Draw figures of sentence pairs: cosines by gold score, shared neighbours, densities of gold scores."""

from collections.abc import Mapping, Sequence

import numpy as np
import scipy
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.figure_data import Arrays, FigureData, missing_seeds, seeds_text
from analysis.stats.contrast_tests import paired_contrast
from cse_core.evaluation.sts_subsets import SIMILAR
from cse_core.metrics.geometry import cosine_bins
from cse_core.metrics.neighbours import bins, gain
from experiments.schema.columns import PUBLISHED_NAMES
from experiments.schema.hypotheses import Trend

GEOMETRY, NEIGHBOURS = "stsb_dev_geometry", "stsb_neighbours"
BANDS = 5  # of gold scores: [0, 1], (1, 2] ... (4, 5]
MOST_DENSE = 5.0  # one scale for the densities of all sets
RIDGE = 0.92  # height over distance of two ridges: below 1, so that they don't touch


def ridges(drawn: FigureData) -> Figure | None:
    """Draw the densities of cosines in five bands of gold scores, a panel for each model (RankCSE, Fig. 5)."""
    arrays = drawn.arrays_of(GEOMETRY)
    if not arrays:
        return None
    models = [row for row in drawn.study.rows if row.label in arrays]
    looks = style.looks(models)
    figure, axes = style.panels(len(models), 4, height=2.7, sharex=True, sharey=True)
    cosines = {row.label: _cosines_by_band(arrays[row.label]) for row in models}
    low = min(float(np.percentile(band, 1)) for bands in cosines.values() for band in bands if len(band))
    grid = np.linspace(low - 0.05, 1.02, 161)
    for panel, row in zip(axes, models, strict=True):
        _draw_ridges(panel, grid, cosines[row.label], looks[row.label].colour)
        panel.set(title=row.label + _seeds_in_panel(arrays[row.label]), xlabel="cosine", yticks=range(BANDS))
        panel.set_yticklabels([f"{band}\N{EN DASH}{band + 1}" for band in range(BANDS)])
    axes[0].set_ylabel("gold score")
    axes[0].set_ylim(-0.15, BANDS + 0.05)
    counts = ", ".join(str(len(band)) for band in cosines[models[0].label])
    caption = (
        "Densities of the cosines of STS-B dev pairs, each ridge scaled to one height; white ticks: medians. "
        f"Pairs from the lowest band up: {counts}."
    )
    return style.finish(figure, drawn, caption, missing_seeds(drawn.study, arrays))


def _seeds_in_panel(by_seed: Mapping[int, Arrays]) -> str:
    return f"\n{'one seed' if len(by_seed) == 1 else seeds_text([len(by_seed)])}"


def _cosines_by_band(by_seed: dict[int, Arrays]) -> list[np.ndarray]:
    """Return the cosines of all seeds by band of gold scores."""
    cosines, gold = (np.concatenate([arrays[name] for arrays in by_seed.values()]) for name in ("cosines", "gold"))
    return list(cosine_bins(cosines, gold).values())


def _draw_ridges(axes: Axes, grid: np.ndarray, bands: Sequence[np.ndarray], colour: str) -> None:
    for at, band in enumerate(bands):
        if len(band) < 2 or np.ptp(band) == 0:
            axes.scatter(band, np.full(len(band), at), color=colour, s=8)
            continue
        density = scipy.stats.gaussian_kde(band)
        heights = RIDGE * density(grid) / density(grid).max()
        axes.fill_between(grid, at, at + heights, color=colour, alpha=0.65, linewidth=0, zorder=BANDS - at)
        axes.plot(grid, at + heights, color=colour, linewidth=0.8, zorder=BANDS - at)
        middle = float(np.median(band))
        top = at + RIDGE * float(density(middle)[0]) / density(grid).max()
        axes.vlines(middle, at, top, color="white", linewidth=1.4, zorder=BANDS - at)


def neighbours(drawn: FigureData) -> Figure | None:
    """Draw shared neighbours in bins of similarity, and the gain of ranks over cosines (RankEncoder, Fig. 6)."""
    arrays_by_row = drawn.arrays_of(NEIGHBOURS)
    if not arrays_by_row:
        return None
    by_seed = next(iter(arrays_by_row.values()))
    groups = bins(np.mean([np.asarray(arrays["cosines"], np.float64) for arrays in by_seed.values()], axis=0))
    shared = np.array([[arrays["shared"][group].mean() for group in groups] for arrays in by_seed.values()])
    scored = [arrays for arrays in by_seed.values() if "gold" in arrays]
    lists = [[arrays[name] for name in ("cosines", "pair_scores", "gold")] for arrays in scored]
    gains = np.array([[100 * gain(*(values[group] for values in three)) for group in groups] for three in lists])
    figure, axes = style.panels(1 + bool(len(gains)), 1, height=1.7, width=5.0, sharex=True)
    upper, lower = axes[0], axes[-1]
    places = np.arange(len(groups))
    _draw_bins(upper, shared, style.LOOKS["SimCSE"])
    upper.set(ylabel="shared of 100\nneighbours", ylim=(0, None))
    if len(gains):
        lower.axhline(0, color=style.INK, linewidth=0.7)
        _draw_bins(lower, gains, style.LOOKS["RankEncoder"])
        lower.set_ylabel("rho of ranks\nless of cosines")
    lower.set(xlabel="cosine of the pair, number of pairs", xticks=places)
    cosines = np.mean([arrays["cosines"] for arrays in by_seed.values()], axis=0)
    names = [f"{cosines[g].min():.2f}\nto {cosines[g].max():.2f}\nn={len(g)}" for g in groups]
    lower.set_xticklabels(names, fontsize=6.5)
    absent = missing_seeds(drawn.study, arrays_by_row) + ([] if len(gains) else ["gold scores, so no gain"])
    caption = (
        f"Means over {seeds_text(len(values) for values in arrays_by_row.values())}, bars 95 % intervals over seeds, "
        "faint lines single seeds, which all share their pairs: other pairs would move them all. The bins are of the "
        "mean cosine over seeds, so that all seeds have the same pairs in them."
    )
    return style.finish(figure, drawn, caption, absent)


def _draw_bins(axes: Axes, values: np.ndarray, look: style.Look) -> None:
    """Draw the mean over seeds (the first axis) in each bin, with its interval, and each seed as a faint line."""
    places = range(values.shape[1])
    for of_seed in values if len(values) > 1 else ():
        axes.plot(places, of_seed, color=look.colour, linewidth=0.7, alpha=0.3)
    for place, scores in zip(places, values.T, strict=True):
        estimate = paired_contrast([dict(enumerate(scores.tolist()))], [1.0])
        band = estimate.interval if estimate else None
        if band:
            axes.plot((place, place), band, color=look.colour, linewidth=1.6, solid_capstyle="butt")
    axes.plot(places, values.mean(0), color=look.colour, marker=look.marker, zorder=3)


def densities(drawn: FigureData) -> Figure | None:
    """Draw the densities of gold scores in each set (RankEncoder, Fig. 9)."""
    tasks = [task for task in drawn.study.columns if task.endswith("_gold")]
    arrays_by_task = {task: arrays for task in tasks for arrays in _first_arrays(drawn, task)}
    if not arrays_by_task:
        return None
    trend = next((finding for finding in drawn.study.findings if isinstance(finding, Trend)), None)
    figure, axes = style.panels(len(arrays_by_task) + bool(trend), 4, height=1.65)
    grid = np.linspace(0, 1, 201)
    colour = style.LOOKS["not run"].colour
    shares = {}
    for panel, (task, arrays) in zip(axes, arrays_by_task.items(), strict=False):
        gold = np.asarray(arrays["gold"], np.float64)
        panel.hist(gold, bins=20, range=(0, 1), density=True, color=style.FAINT, alpha=0.3)
        panel.plot(grid, reflected_density(gold, grid), color=colour)
        panel.axvspan(SIMILAR, 1, color=colour, **style.BAND)
        shares[task.removesuffix("_gold")] = float(np.mean(gold >= SIMILAR - 1e-6))
        panel.set(
            title=f"{_set_name(task)}: {list(shares.values())[-1]:.0%} similar", xlim=(0, 1), ylim=(0, MOST_DENSE)
        )
    for panel in axes[: len(arrays_by_task) : 4]:
        panel.set_ylabel("density")
    gains = trend is not None and _draw_gains(axes[-1], drawn, trend, shares)
    absent = [_set_name(task) for task in tasks if task not in arrays_by_task]
    sizes = [f"{_set_name(task)} {len(arrays['gold']):,}" for task, arrays in arrays_by_task.items()]
    caption = (
        f"Histograms and densities, reflected at both ends; shaded: pairs that count as similar, from {SIMILAR} on. "
        f"Pairs: {', '.join(sizes)}."
    )
    if trend and gains:
        caption += f" Last panel: {trend.better} less {trend.worse}, seed by seed, with 95 % intervals over seeds."
    return style.finish(figure, drawn, caption, absent)


def _draw_gains(axes: Axes, drawn: FigureData, trend: Trend, shares: Mapping[str, float]) -> bool:
    """Draw each set's gain, seed by seed, the set with most similar pairs above; return whether there is any."""
    look, names = style.LOOKS["RankEncoder"], sorted(shares, key=lambda name: -shares[name])
    axes.axvline(0, color=style.INK, linewidth=0.7)
    count = 0
    for at, name in enumerate(names):
        sides = [drawn.results.cells[label, name].scores for label in (trend.better, trend.worse)]
        estimate = paired_contrast(sides, [1.0, -1.0])
        if estimate is not None:
            style.interval_dot(axes, at, estimate.mean, estimate.interval, look)
            count += 1
    texts = [f"{PUBLISHED_NAMES[name]} {shares[name]:.0%}" for name in names]
    axes.set(title="gain of ranks, points", yticks=range(len(names)), yticklabels=texts, ylim=(len(names) - 0.5, -0.5))
    axes.tick_params(axis="y", labelsize=6, length=0)
    return count > 0


def _set_name(task: str) -> str:
    name = task.removesuffix("_gold")
    return PUBLISHED_NAMES.get(name, name)


def _first_arrays(drawn: FigureData, task: str) -> list[Arrays]:
    """Return the first arrays of a task, in a list; all rows and seeds have the same gold scores."""
    return [arrays for by_seed in drawn.arrays_of(task).values() for arrays in by_seed.values()][:1]


def reflected_density(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Return a kernel density on [0, 1]; mass beyond an end is mirrored back."""
    density = scipy.stats.gaussian_kde(values)
    return density(grid) + density(-grid) + density(2 - grid)
