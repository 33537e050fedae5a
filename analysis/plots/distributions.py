"""Draw figures of sentence pairs: cosines by gold score, shared neighbours, densities of gold scores."""

from collections.abc import Sequence

import numpy as np
import scipy
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.figure_data import Arrays, FigureData, missing_seeds, seeds_text
from cse_core.evaluation.sts_subsets import SIMILAR
from cse_core.metrics.geometry import cosine_bins
from cse_core.metrics.neighbours import bins, gain
from experiments.schema.columns import PUBLISHED_NAMES

GEOMETRY, NEIGHBOURS = "stsb_dev_geometry", "stsb_neighbours"
BANDS = 5  # of gold scores: [0, 1], (1, 2] ... (4, 5]
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
        panel.set(title=row.label, xlabel="cosine", yticks=range(BANDS))
        panel.set_yticklabels([f"{band}\N{EN DASH}{band + 1}" for band in range(BANDS)])
    axes[0].set_ylabel("gold score")
    axes[0].set_ylim(-0.15, BANDS + 0.05)
    counts = ", ".join(str(len(band)) for band in cosines[models[0].label])
    caption = (
        "Densities of the cosines of STS-B dev pairs, each ridge scaled to one height; white ticks: medians. "
        f"Pairs from the lowest band up: {counts}."
    )
    return style.finish(figure, drawn, caption, missing_seeds(drawn.study, arrays))


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
    figure, (axes,) = style.panels(1, 1, height=2.8, width=5.0)
    places = np.arange(len(groups))
    axes.bar(places, shared.mean(0), yerr=_deviation(shared), color=style.LOOKS["SimCSE"].colour, alpha=0.3, capsize=2)
    cosines = np.mean([arrays["cosines"] for arrays in by_seed.values()], axis=0)
    names = [f"{cosines[g].min():.2f}\nto {cosines[g].max():.2f}\nn={len(g)}" for g in groups]
    axes.set(xlabel="cosine of the pair, number of pairs", ylabel="shared of 100 neighbours (bars)", xticks=places)
    axes.set_xticklabels(names, fontsize=6.5)
    if len(gains):
        look = style.LOOKS["RankEncoder"]
        twin = axes.twinx()
        twin.axhline(0, color=look.colour, linewidth=0.6, linestyle=":")
        twin.errorbar(
            places, gains.mean(0), yerr=_deviation(gains), color=look.colour, marker=look.marker, capsize=2, zorder=3
        )
        twin.set_ylabel("rho of ranks less of cosines (line)", color=look.colour)
        twin.spines["right"].set_visible(True)
    absent = missing_seeds(drawn.study, arrays_by_row) + ([] if len(gains) else ["gold scores, so no gain"])
    caption = (
        f"Means over {seeds_text(len(values) for values in arrays_by_row.values())}, bars of one sample deviation; "
        "the bins are of the mean cosine over seeds, so that all seeds have the same pairs in them."
    )
    return style.finish(figure, drawn, caption, absent)


def _deviation(values: np.ndarray) -> np.ndarray | None:
    """Return the sample deviation over seeds, the first axis; None for a single seed."""
    return values.std(0, ddof=1) if len(values) > 1 else None


def densities(drawn: FigureData) -> Figure | None:
    """Draw the densities of gold scores in each set (RankEncoder, Fig. 9)."""
    tasks = [task for task in drawn.study.columns if task.endswith("_gold")]
    arrays_by_task = {task: arrays for task in tasks for arrays in _first_arrays(drawn, task)}
    if not arrays_by_task:
        return None
    figure, axes = style.panels(len(arrays_by_task), 4, height=1.55, sharex=True)
    grid = np.linspace(0, 1, 201)
    colour = style.LOOKS["not run"].colour
    for panel, (task, arrays) in zip(axes, arrays_by_task.items(), strict=True):
        gold = np.asarray(arrays["gold"], np.float64)
        panel.hist(gold, bins=20, range=(0, 1), density=True, color=style.FAINT, alpha=0.3)
        panel.plot(grid, reflected_density(gold, grid), color=colour)
        panel.axvspan(SIMILAR, 1, color=colour, **style.BAND)
        share = np.mean(gold >= SIMILAR - 1e-6)
        panel.set(title=f"{_set_name(task)}: {share:.0%} similar", yticks=[], xlim=(0, 1))
        panel.spines["left"].set_visible(False)
        panel.tick_params(axis="x", labelbottom=True)
    absent = [_set_name(task) for task in tasks if task not in arrays_by_task]
    sizes = [f"{_set_name(task)} {len(arrays['gold']):,}" for task, arrays in arrays_by_task.items()]
    caption = (
        f"Histograms and densities, reflected at both ends; shaded: pairs that count as similar, from {SIMILAR} on. "
        f"Pairs: {', '.join(sizes)}."
    )
    return style.finish(figure, drawn, caption, absent)


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
