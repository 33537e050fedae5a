"""Figures of where sentences lie: projections to two coordinates, and cosines of a few sentences as heat maps."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.figure_data import Arrays, Drawn, missing_seeds
from cse_core.evaluation.suite import PHRASES
from experiments.schema.study import Row

PAIRS, ALIKE = 40, 4.0  # how many pairs are joined, of those with a gold score above
SEED = 42  # of the draw of pairs
LONG = 95  # percentile at which the scale of lengths ends: a few very long sentences would use it up
LENGTHS = "length_shortcut"  # a study with this column asks about lengths
JOINED = "stsb_dev_projection"  # of whole pairs; a sample has few


def spaces(drawn: Drawn) -> Figure | None:
    """A projection a panel, one seed: coloured by number of words, or with pairs that people call the same joined."""
    task = next(name for name in drawn.study.columns if name.endswith("_projection"))
    found = drawn.arrays_of(task)
    rows = [row for row in drawn.study.rows if row.label in found]
    if not rows:
        return None
    seeds = {row.label: next(iter(found[row.label])) for row in rows}
    shown = {row.label: found[row.label][seeds[row.label]] for row in rows}
    across = 2 if len(rows) in (2, 4) else 3
    figure, axes = style.panels(len(rows), across, height=7.4 / across)
    for panel, row in zip(axes, rows, strict=True):
        panel.set_title(_title(drawn, row), loc="left")
        panel.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim")
        panel.spines[:].set_visible(False)
    said = f"{len(shown[rows[0].label]['coordinates']):,} sentences, {_told(seeds)}."
    if LENGTHS in drawn.study.columns:
        _by_words(figure, axes, list(shown.values()))
    elif task == JOINED:
        count = min(_joined(panel, arrays) for panel, arrays in zip(axes, shown.values(), strict=True))
        said += f" Lines join {count} random pairs with a gold score above {ALIKE:g}, the same in every panel."
    else:
        looks = style.looks(rows)
        for panel, row in zip(axes, rows, strict=True):
            _points(panel, shown[row.label], color=looks[row.label].colour)
    absent = missing_seeds(drawn.study, {label: {row.label: row for row in rows}[label].keys() for label in seeds})
    return style.finish(figure, drawn, said, absent)


def _title(drawn: Drawn, row: Row) -> str:
    """The row with what the study's columns measure of it."""
    words = []
    for name in drawn.study.columns:
        found = drawn.cell(row, name).summary
        if found is not None and name == LENGTHS:
            words.append(f"length shortcut {found.mean:.3f}".replace("-", "\N{MINUS SIGN}"))
        elif found is not None:
            words.append(f"trustworthiness {found.mean / 100:.3f}")
    return "\n".join([row.label, *words])


def _points(axes: Axes, arrays: Arrays, **look: Any) -> Any:
    """Rasterised: thousands of vector marks make a file of megabytes."""
    x, y = np.asarray(arrays["coordinates"]).T
    return axes.scatter(x, y, s=3.5, linewidths=0, rasterized=True, **look)


def _by_words(figure: Figure, axes: Sequence[Axes], shown: Sequence[Arrays]) -> None:
    """Colours are numbers of words on one scale for all panels."""
    top = max(float(np.percentile(arrays["words"], LONG)) for arrays in shown)
    least = min(float(np.min(arrays["words"])) for arrays in shown)
    for panel, arrays in zip(axes, shown, strict=True):
        points = _points(panel, arrays, c=arrays["words"], cmap="viridis", vmin=least, vmax=top)
    style.colour_bar(figure, points, axes, "number of words", extend="max", shrink=0.8)


def _joined(axes: Axes, arrays: Arrays) -> int:
    """Grey points, lines between the sentences of some pairs that people call the same; returns how many."""
    _points(axes, arrays, color=style.PALE)
    pairs = np.flatnonzero(np.asarray(arrays["gold"]) > ALIKE)
    drawn = np.sort(np.random.default_rng(SEED).permutation(pairs)[:PAIRS])
    places = np.asarray(arrays["coordinates"])
    first, second = places[arrays["first"][drawn]], places[arrays["second"][drawn]]
    colour = style.LOOKS["RankEncoder"].colour
    axes.add_collection(LineCollection(list(np.stack([first, second], 1)), colors=colour, linewidths=0.8))
    axes.scatter(*np.concatenate([first, second]).T, s=5, color=colour, linewidths=0, zorder=3)
    return len(drawn)


def heat(drawn: Drawn) -> Figure | None:
    """Cosines of a sentence, its halves and others, a panel a model, on one scale (CompCSE, Fig. 4)."""
    found = drawn.arrays_of("phrases")
    rows = [row for row in drawn.study.rows if row.label in found]
    if not rows:
        return None
    seeds = {row.label: next(iter(found[row.label])) for row in rows}
    matrices = {row.label: np.asarray(found[row.label][seeds[row.label]]["cosines"]) for row in rows}
    low = min(float(matrix.min()) for matrix in matrices.values())
    figure, axes = style.panels(len(rows), 3, height=2.5, sharey=True)
    for panel, row in zip(axes, rows, strict=True):
        image = panel.imshow(matrices[row.label], vmin=low, vmax=1, cmap="cividis")
        for (i, j), value in np.ndenumerate(matrices[row.label]):
            text = f"{value:.2f}".replace("0.", ".").replace("-", "\N{MINUS SIGN}")
            panel.text(j, i, text, ha="center", va="center", fontsize=6.5, color=style.on(image, value))
        panel.set(title=row.label, xticks=range(len(PHRASES)), yticks=range(len(PHRASES)))
        panel.set_xticklabels([str(i + 1) for i in range(len(PHRASES))])
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
    axes[0].set_yticklabels([textwrap.fill(f"{i + 1}  {phrase}", 24) for i, phrase in enumerate(PHRASES)], fontsize=6.5)
    style.colour_bar(figure, image, axes, "cosine", shrink=0.75)
    return style.finish(figure, drawn, f"{_told(seeds).capitalize()}.", missing_seeds(drawn.study, found))


def _told(seeds: dict[str, int]) -> str:
    """Which seed is shown; an encoder that nobody trained has none, written 0."""
    known = sorted({seed for seed in seeds.values() if seed})
    return f"seed {' and '.join(map(str, known))}" if known else "no seed"
