"""Figures of sentence pairs: cosines by gold, shared neighbours, and how gold scores are spread."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from analysis.plots import style
from analysis.plots.figure_data import Arrays, Drawn, missing_seeds, seeds_told
from cse_core.evaluation.subsets import SIMILAR
from cse_core.metrics.geometry import cosine_bins
from cse_core.metrics.neighbours import bins, gain
from experiments.schema.columns import PUBLISHED_NAMES

GEOMETRY, NEIGHBOURS = "stsb_dev_geometry", "stsb_neighbours"
BANDS = 5  # of gold scores: [0, 1], (1, 2] ... (4, 5]
RIDGE = 0.92  # of the distance of two ridges, so that they don't touch


def ridges(drawn: Drawn) -> Figure | None:
    """Cosines of pairs in five bands of gold scores, a panel a model (RankCSE, Fig. 5)."""
    found = drawn.arrays_of(GEOMETRY)
    if not found:
        return None
    models = [row for row in drawn.study.rows if row.label in found]
    looks = style.looks(models)
    figure, axes = style.panels(len(models), 4, height=2.7, sharex=True, sharey=True)
    cosines = {row.label: _banded(found[row.label]) for row in models}
    low = min(float(np.percentile(band, 1)) for bands in cosines.values() for band in bands if len(band))
    grid = np.linspace(low - 0.05, 1.02, 161)
    for panel, row in zip(axes, models, strict=True):
        _ridge(panel, grid, cosines[row.label], looks[row.label].colour)
        panel.set(title=row.label, xlabel="cosine", yticks=range(BANDS))
        panel.set_yticklabels([f"{band}\N{EN DASH}{band + 1}" for band in range(BANDS)])
    axes[0].set_ylabel("gold score")
    axes[0].set_ylim(-0.15, BANDS + 0.05)
    counts = ", ".join(str(len(band)) for band in cosines[models[0].label])
    said = (
        "Densities of the cosines of STS-B dev pairs, each ridge scaled to one height; white ticks: medians. "
        f"Pairs from the lowest band up: {counts}."
    )
    return style.finish(figure, drawn, said, missing_seeds(drawn.study, found))


def _banded(by_seed: dict[int, Arrays]) -> list[np.ndarray]:
    """Cosines of all seeds, by band of gold."""
    cosines, gold = (np.concatenate([arrays[name] for arrays in by_seed.values()]) for name in ("cosines", "gold"))
    return list(cosine_bins(cosines, gold).values())


def _ridge(axes: Axes, grid: np.ndarray, bands: Sequence[np.ndarray], colour: str) -> None:
    for at, band in enumerate(bands):
        if len(band) < 2 or np.ptp(band) == 0:
            axes.scatter(band, np.full(len(band), at), color=colour, s=8)
            continue
        density = stats.gaussian_kde(band)
        heights = RIDGE * density(grid) / density(grid).max()
        axes.fill_between(grid, at, at + heights, color=colour, alpha=0.65, linewidth=0, zorder=BANDS - at)
        axes.plot(grid, at + heights, color=colour, linewidth=0.8, zorder=BANDS - at)
        middle = float(np.median(band))
        top = at + RIDGE * float(density(middle)[0]) / density(grid).max()
        axes.vlines(middle, at, top, color="white", linewidth=1.4, zorder=BANDS - at)


def neighbours(drawn: Drawn) -> Figure | None:
    """Shared neighbours in bins of similarity, and what ranks gain there over cosines (RankEncoder, Fig. 6)."""
    found = drawn.arrays_of(NEIGHBOURS)
    if not found:
        return None
    by_seed = next(iter(found.values()))
    groups = bins(np.mean([np.asarray(arrays["cosines"], np.float64) for arrays in by_seed.values()], axis=0))
    shared = np.array([[arrays["shared"][group].mean() for group in groups] for arrays in by_seed.values()])
    scored = [arrays for arrays in by_seed.values() if "gold" in arrays]
    lists = [[arrays[name] for name in ("cosines", "pair_scores", "gold")] for arrays in scored]
    gains = np.array([[100 * gain(*(one[group] for one in three)) for group in groups] for three in lists])
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
    absent = missing_seeds(drawn.study, found) + ([] if len(gains) else ["gold scores, so no gain"])
    said = (
        f"Means over {seeds_told(len(one) for one in found.values())}, bars of one sample deviation; "
        "the bins are of the mean cosine over seeds, so that all seeds have the same pairs in them."
    )
    return style.finish(figure, drawn, said, absent)


def _deviation(values: np.ndarray) -> np.ndarray | None:
    """Over seeds, the first axis; None for a single one."""
    return values.std(0, ddof=1) if len(values) > 1 else None


def densities(drawn: Drawn) -> Figure | None:
    """How the gold scores of each set are spread (RankEncoder, Fig. 9)."""
    tasks = [task for task in drawn.study.columns if task.endswith("_gold")]
    found = {task: arrays for task in tasks for arrays in _any(drawn, task)}
    if not found:
        return None
    figure, axes = style.panels(len(found), 4, height=1.55, sharex=True)
    grid = np.linspace(0, 1, 201)
    colour = style.LOOKS["not run"].colour
    for panel, (task, arrays) in zip(axes, found.items(), strict=True):
        gold = np.asarray(arrays["gold"], np.float64)
        panel.hist(gold, bins=20, range=(0, 1), density=True, color=style.FAINT, alpha=0.3)
        panel.plot(grid, reflected(gold, grid), color=colour)
        panel.axvspan(SIMILAR, 1, color=colour, **style.BAND)
        share = np.mean(gold >= SIMILAR - 1e-6)
        panel.set(title=f"{_set(task)}: {share:.0%} similar", yticks=[], xlim=(0, 1))
        panel.spines["left"].set_visible(False)
        panel.tick_params(axis="x", labelbottom=True)
    absent = [_set(task) for task in tasks if task not in found]
    sizes = [f"{_set(task)} {len(arrays['gold']):,}" for task, arrays in found.items()]
    said = (
        f"Histograms and densities, reflected at both ends; shaded: pairs that count as similar, from {SIMILAR} on. "
        f"Pairs: {', '.join(sizes)}."
    )
    return style.finish(figure, drawn, said, absent)


def _set(task: str) -> str:
    name = task.removesuffix("_gold")
    return PUBLISHED_NAMES.get(name, name)


def _any(drawn: Drawn, task: str) -> list[Arrays]:
    """The first arrays of a task: all rows and seeds have the same gold."""
    return [arrays for by_seed in drawn.arrays_of(task).values() for arrays in by_seed.values()][:1]


def reflected(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """A kernel density on [0, 1] without loss at its ends: what leaks over an end is added back, mirrored."""
    density = stats.gaussian_kde(values)
    return density(grid) + density(-grid) + density(2 - grid)
