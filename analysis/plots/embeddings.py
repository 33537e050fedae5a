"""Draw embeddings: projections to two coordinates, and cosines of a few sentences as heat maps."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import seaborn as sns
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
MEANS = ("uniformity", LENGTHS)  # columns, or ends of their names, with means over seeds above a panel
JOINED = "stsb_dev"  # has both sentences of each pair; a sample rarely does
SAMPLES = {JOINED: "STS-B dev", "stsb_sample": "STS-B test"}


def spaces(drawn: FigureData) -> Figure | None:
    """Draw each row's projection of one seed, coloured by number of words or by density (see sphere_panels)."""
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
        if sample == JOINED:
            joined = min(_join_pairs(panel, places) for panel, places in zip(projected, shown.values(), strict=True))
            words += [f"Lines join {joined} random pairs with a gold score above {ALIKE:g}, the same in every panel."]
        words += sphere_panels.words(drawn, rows, sample, dense, positives)
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
    """Return a row's label with the drawn projection's trustworthiness, and the means over seeds of other columns."""
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
    """Draw one model's cosines of a sentence, its halves and others, and differences from them (CompCSE, Fig. 4)."""
    arrays = drawn.arrays_of("phrases")
    rows = [row for row in drawn.study.rows if row.label in arrays]
    if not rows:
        return None
    seeds = {row.label: next(iter(arrays[row.label])) for row in rows}
    first, *others = [np.asarray(arrays[row.label][seeds[row.label]]["cosines"]) for row in rows]
    differences = [np.round(other - first, 2) + 0.0 for other in others]  # no -0.00
    reach = max((float(np.abs(difference).max()) for difference in differences), default=1.0)
    figure, axes = style.panels(len(rows), 3, height=2.7, sharey=True)
    above = np.triu(np.ones_like(first, dtype=bool))
    look: dict[str, Any] = {"mask": above, "annot_kws": {"fontsize": 6.5}, "cbar": False, "linewidths": 0.5}
    sns.heatmap(first, annot=True, fmt=".2f", cmap="cividis", ax=axes[0], **look)
    for panel, difference in zip(axes[1:], differences, strict=True):
        sns.heatmap(difference, annot=True, fmt="+.2f", cmap="vlag", vmin=-reach, vmax=reach, ax=panel, **look)
    for panel, row in zip(axes, rows, strict=True):
        less = "" if panel is axes[0] else f" less {rows[0].label}"
        cosines = arrays[row.label][seeds[row.label]]["cosines"]
        gap = f"halves differ by {cosines[0][1] - cosines[0][2]:.2f}"
        panel.set(title=f"{row.label}{less}\n{gap}", xlim=(0, len(first) - 1), ylim=(len(first), 1))
        panel.set_xticks(np.arange(len(first) - 1) + 0.5, [str(i + 1) for i in range(len(first) - 1)])
    names = [textwrap.fill(f"{i + 1}  {phrase}", 24) for i, phrase in enumerate(PHRASES)]
    axes[0].set_yticks(np.arange(1, len(PHRASES)) + 0.5, names[1:], fontsize=6.5, rotation=0)
    caption = (
        f"{_seed_text(seeds).capitalize()}. Left: cosines; right: differences of cosines, red: more alike than by "
        f"{rows[0].label}, blue: less. 1: {PHRASES[0]}; the halves, 2 and 3, differ in their cosines to 1."
    )
    return style.finish(figure, drawn, caption, missing_seeds(drawn.study, arrays))


def _seed_text(seeds: dict[str, int]) -> str:
    """Say which seed is shown; an untrained encoder has seed 0, which means none."""
    trained = sorted({seed for seed in seeds.values() if seed})
    return f"seed {' and '.join(map(str, trained))}" if trained else "no seed"
