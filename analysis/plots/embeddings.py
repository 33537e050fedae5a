"""Draw embeddings: projections to two coordinates, and cosines of a few sentences as heat maps."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from analysis.plots import sphere_panels, style
from analysis.plots.figure_data import Arrays, FigureData, missing_seeds, seeds_text
from cse_core.evaluation.suite import PHRASES
from experiments.schema.study import Row

PAIRS, ALIKE = 40, 4.0  # the number of joined pairs, and their least gold score
SEED = 42  # for the draw of pairs
LONG = 95  # percentile at which the colour scale of lengths ends, as a few sentences are very long
LENGTHS = "length_shortcut"  # studies with this column are about lengths
MEANS = ("uniformity", LENGTHS)  # columns, or their ends, whose means over seeds stand above a panel
JOINED = "stsb_dev"  # has both sentences of each pair; a sample seldom has
SAMPLES = {JOINED: "STS-B dev", "stsb_sample": "STS-B test"}


def spaces(drawn: FigureData) -> Figure | None:
    """Draw projections of one seed, a panel each, coloured by number of words or by density; see sphere_panels."""
    sample = next(task for task in drawn.study.tasks if task.endswith("_projection")).removesuffix("_projection")
    arrays = drawn.arrays_of(f"{sample}_projection")
    rows = [row for row in drawn.study.rows if row.label in arrays]
    if not rows:
        return None
    seeds = {row.label: next(iter(arrays[row.label])) for row in rows}
    shown = {row.label: arrays[row.label][seeds[row.label]] for row in rows}
    dense = sphere_panels.arrays_if_declared(drawn, f"{sample}_density")
    positives = sphere_panels.arrays_if_declared(drawn, sphere_panels.POSITIVES)
    further = sphere_panels.further_panels(drawn, rows, dense, positives)
    count = len(rows) + len(further)
    across = 4 if count > 3 else count
    size = {"height": 2.6, "width": 8.6} if across == 4 else {"height": 7.4 / across}
    figure, axes = style.panels(count, across, **size)
    projected = axes[: len(rows)]
    for panel, row in zip(projected, rows, strict=True):
        panel.set_title(_row_title(drawn, row, seeds[row.label]), loc="left")
    words = [_words_on_projection(drawn, sample, shown, seeds)]
    if LENGTHS in drawn.study.columns:
        _draw_by_length(figure, projected, list(shown.values()))
    else:
        chosen = {label: dense[label][seed] for label, seed in seeds.items() if seed in dense.get(label, {})}
        sphere_panels.draw_by_density(figure, projected, shown, chosen)
        words += sphere_panels.words(drawn, rows, sample, dense, positives)
    if LENGTHS not in drawn.study.columns and sample == JOINED:
        joined = min(_join_pairs(panel, places) for panel, places in zip(projected, shown.values(), strict=True))
        words.insert(1, f"Lines join {joined} random pairs with a gold score above {ALIKE:g}, the same in every panel.")
    for panel, draw in zip(axes[len(rows) :], further, strict=True):
        draw(panel)
    return style.finish(figure, drawn, " ".join(words), missing_seeds(drawn.study, arrays))


def _words_on_projection(drawn: FigureData, sample: str, shown: dict[str, Arrays], seeds: dict[str, int]) -> str:
    count = len(next(iter(shown.values()))["coordinates"])
    columns = [name for name in drawn.study.columns if name.endswith(MEANS)]
    scored = [drawn.results.cells[label, name].scores for label in shown for name in columns if seeds[label]]
    means = f"; the other numbers above are means over {seeds_text(map(len, scored))}" if any(scored) else ""
    return (
        f"UMAP of {count:,} sentences of {SAMPLES[sample]} by cosine, {_seed_text(seeds)}: it keeps neighbours (the "
        f"trustworthiness) and not densities{means}."
    )


def _row_title(drawn: FigureData, row: Row, seed: int) -> str:
    """Return a row's label with the trustworthiness of what is drawn, and the means over seeds of other columns."""
    words = [row.label]
    for name in drawn.study.columns:
        cell = drawn.cell(row, name)
        if name.endswith("_projection") and seed in cell.scores:
            words.append(f"trustworthiness {cell.scores[seed]:.3f}")
        elif name.endswith(MEANS) and cell.summary is not None:
            what = name.removeprefix("stsb_dev_").removeprefix("stsb_sample_").replace("_", " ")
            words.append(f"{what} {cell.summary.mean:.3f}".replace("-", "\N{MINUS SIGN}"))
    return "\n".join(words)


def _draw_by_length(figure: Figure, axes: Sequence[Axes], shown: Sequence[Arrays]) -> None:
    """Draw points coloured by number of words, with one scale for all panels."""
    top = max(float(np.percentile(arrays["words"], LONG)) for arrays in shown)
    least = min(float(np.min(arrays["words"])) for arrays in shown)
    for panel, arrays in zip(axes, shown, strict=True):
        points = sphere_panels.draw_points(
            panel, arrays["coordinates"], c=arrays["words"], cmap="viridis", vmin=least, vmax=top
        )
    style.colour_bar(figure, points, axes, "number of words", extend="max", shrink=0.8)


def _join_pairs(axes: Axes, arrays: Arrays) -> int:
    """Draw lines between the sentences of some similar pairs; return the number of lines."""
    pairs = np.flatnonzero(np.asarray(arrays["gold"]) > ALIKE)
    drawn = np.sort(np.random.default_rng(SEED).permutation(pairs)[:PAIRS])
    places = np.asarray(arrays["coordinates"])
    first, second = places[arrays["first"][drawn]], places[arrays["second"][drawn]]
    colour = style.LOOKS["RankEncoder"].colour
    axes.add_collection(LineCollection(list(np.stack([first, second], 1)), colors=colour, linewidths=0.8))
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
