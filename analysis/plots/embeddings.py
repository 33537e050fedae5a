"""Draw embeddings: projections to two coordinates, and cosines of a few sentences as heat maps."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.figure_data import Arrays, FigureData, missing_seeds
from cse_core.evaluation.suite import PHRASES
from experiments.schema.study import Row

PAIRS, ALIKE = 40, 4.0  # the number of joined pairs, and their least gold score
SEED = 42  # for the draw of pairs
LONG = 95  # percentile at which the colour scale of lengths ends, as a few sentences are very long
LENGTHS = "length_shortcut"  # studies with this column are about lengths
JOINED = "stsb_dev_projection"  # has both sentences of each pair; a sample seldom has


def spaces(drawn: FigureData) -> Figure | None:
    """Draw projections of one seed, a panel each: coloured by number of words, or with lines between similar pairs."""
    task = next(name for name in drawn.study.columns if name.endswith("_projection"))
    arrays = drawn.arrays_of(task)
    rows = [row for row in drawn.study.rows if row.label in arrays]
    if not rows:
        return None
    seeds = {row.label: next(iter(arrays[row.label])) for row in rows}
    shown = {row.label: arrays[row.label][seeds[row.label]] for row in rows}
    across = 2 if len(rows) in (2, 4) else 3
    figure, axes = style.panels(len(rows), across, height=7.4 / across)
    for panel, row in zip(axes, rows, strict=True):
        panel.set_title(_row_title(drawn, row), loc="left")
        panel.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim")
        panel.spines[:].set_visible(False)
    caption = (
        f"{len(shown[rows[0].label]['coordinates']):,} sentences, one seed: {_seed_text(seeds)}. UMAP does not keep "
        "densities: how evenly sentences lie on the sphere is the uniformity above each panel (of STS-B dev, lower is "
        "more even), not the picture."
    )
    if LENGTHS in drawn.study.columns:
        _draw_by_length(figure, axes, list(shown.values()))
    elif task == JOINED:
        count = min(_draw_joined_pairs(panel, arrays) for panel, arrays in zip(axes, shown.values(), strict=True))
        caption += f" Lines join {count} random pairs with a gold score above {ALIKE:g}, the same in every panel."
    else:
        looks = style.looks(rows)
        for panel, row in zip(axes, rows, strict=True):
            _draw_points(panel, shown[row.label], color=looks[row.label].colour)
    absent = missing_seeds(drawn.study, {label: {row.label: row for row in rows}[label].keys() for label in seeds})
    return style.finish(figure, drawn, caption, absent)


def _row_title(drawn: FigureData, row: Row) -> str:
    """Return a row's label with its scores in the study's columns."""
    words = []
    for name in drawn.study.columns:
        summary = drawn.cell(row, name).summary
        if summary is not None and name == LENGTHS:
            words.append(f"length shortcut {summary.mean:.3f}".replace("-", "\N{MINUS SIGN}"))
        elif summary is not None:
            words.append(f"trustworthiness {summary.mean / 100:.3f}")
    spread = _uniformity(drawn, row)
    words += [] if spread is None else [f"uniformity {spread:.2f}".replace("-", "\N{MINUS SIGN}")]
    return "\n".join([f"{row.label}, one seed", *words])


def _uniformity(drawn: FigureData, row: Row) -> float | None:
    """Return the recorded uniformity of a row's sentences of STS-B dev, or, while training, at the step it was kept."""
    dev = drawn.study.scale.dev
    measured = drawn.mean_score(row, f"{dev}_geometry", "uniformity")
    if measured is not None or str(row.scorer) != "cosine":
        return measured
    kept = drawn.results.lines.loc[drawn.results.lines["key"].isin(list(row.keys().values())), "step"]
    logged = drawn.curves[(drawn.curves["row"] == row.label) & (drawn.curves["quantity"] == f"uniformity/{dev}")]
    values = logged.loc[logged["step"].isin(kept), "value"]
    return float(values.mean()) if len(values) else None


def _draw_points(axes: Axes, arrays: Arrays, **look: Any) -> Any:
    """Draw the coordinates; rasterised, as thousands of vector marks would make a file of megabytes."""
    x, y = np.asarray(arrays["coordinates"]).T
    return axes.scatter(x, y, s=3.5, linewidths=0, rasterized=True, **look)


def _draw_by_length(figure: Figure, axes: Sequence[Axes], shown: Sequence[Arrays]) -> None:
    """Draw points coloured by number of words, with one scale for all panels."""
    top = max(float(np.percentile(arrays["words"], LONG)) for arrays in shown)
    least = min(float(np.min(arrays["words"])) for arrays in shown)
    for panel, arrays in zip(axes, shown, strict=True):
        points = _draw_points(panel, arrays, c=arrays["words"], cmap="viridis", vmin=least, vmax=top)
    style.colour_bar(figure, points, axes, "number of words", extend="max", shrink=0.8)


def _draw_joined_pairs(axes: Axes, arrays: Arrays) -> int:
    """Draw grey points, and lines between the sentences of some similar pairs; return the number of lines."""
    _draw_points(axes, arrays, color=style.PALE)
    pairs = np.flatnonzero(np.asarray(arrays["gold"]) > ALIKE)
    drawn = np.sort(np.random.default_rng(SEED).permutation(pairs)[:PAIRS])
    places = np.asarray(arrays["coordinates"])
    first, second = places[arrays["first"][drawn]], places[arrays["second"][drawn]]
    colour = style.LOOKS["RankEncoder"].colour
    axes.add_collection(LineCollection(list(np.stack([first, second], 1)), colors=colour, linewidths=0.8))
    axes.scatter(*np.concatenate([first, second]).T, s=5, color=colour, linewidths=0, zorder=3)
    return len(drawn)


def heat(drawn: FigureData) -> Figure | None:
    """Draw cosines between a sentence, its halves and others, a panel for each model (CompCSE, Fig. 4)."""
    arrays = drawn.arrays_of("phrases")
    rows = [row for row in drawn.study.rows if row.label in arrays]
    if not rows:
        return None
    seeds = {row.label: next(iter(arrays[row.label])) for row in rows}
    matrices = {row.label: np.asarray(arrays[row.label][seeds[row.label]]["cosines"]) for row in rows}
    low = min(float(matrix.min()) for matrix in matrices.values())
    figure, axes = style.panels(len(rows), 3, height=2.5, sharey=True)
    for panel, row in zip(axes, rows, strict=True):
        image = panel.imshow(matrices[row.label], vmin=low, vmax=1, cmap="cividis")
        for (i, j), value in np.ndenumerate(matrices[row.label]):
            text = f"{value:.2f}".replace("0.", ".").replace("-", "\N{MINUS SIGN}")
            panel.text(j, i, text, ha="center", va="center", fontsize=6.5, color=style.text_colour_on(image, value))
        panel.set(title=f"{row.label}, one seed", xticks=range(len(PHRASES)), yticks=range(len(PHRASES)))
        panel.set_xticklabels([str(i + 1) for i in range(len(PHRASES))])
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
    axes[0].set_yticklabels([textwrap.fill(f"{i + 1}  {phrase}", 24) for i, phrase in enumerate(PHRASES)], fontsize=6.5)
    style.colour_bar(figure, image, axes, "cosine", shrink=0.75)
    return style.finish(figure, drawn, f"{_seed_text(seeds).capitalize()}.", missing_seeds(drawn.study, arrays))


def _seed_text(seeds: dict[str, int]) -> str:
    """Say which seed is shown; an untrained encoder has seed 0, which means none."""
    trained = sorted({seed for seed in seeds.values() if seed})
    return f"seed {' and '.join(map(str, trained))}" if trained else "no seed"
