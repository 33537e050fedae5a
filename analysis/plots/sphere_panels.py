"""Draw how vectors lie on the sphere: colours by density, cosines of all pairs, the positives of a few sentences."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scipy
import seaborn as sns
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from analysis.plots import style
from analysis.plots.figure_data import Arrays, FigureData, seeds_text
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.metrics.sphere import EDGES
from cse_core.run import Run
from experiments.schema.study import Row

SCALE_ENDS = (1, 99)  # percentiles at which the colour scale of densities begins and ends
POSITIVES = "stsb_dev_positives"
FOLLOWED = 4  # sentences whose positives are drawn: more colours look alike
KINDS = {"shared": "whitened", "dropout": "both"}  # what makes WhitenedCSE's positives differ, by its views
MADE_BY = {"dropout": "dropout", "whitened": "whitening one pass", "both": "dropout and whitening"}
MARGIN, ROOM = 1.06, 1.75  # room around projections, and above curves for their legend
Draw = Callable[[Axes], None]
ByRow = Mapping[str, Mapping[int, Arrays]]  # arrays of a task by row label and seed


def draw_points(axes: Axes, places: Float[np.ndarray, "n 2"], **look: Any) -> Any:
    """Draw places in a square; rasterised, as thousands of vector marks would make a file of megabytes."""
    low, high = places.min(0), places.max(0)
    middle, reach = (low + high) / 2, MARGIN * (high - low).max() / 2
    (left, right), (bottom, top) = zip(middle - reach, middle + reach, strict=True)
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return axes.scatter(*places.T, s=2.5, linewidths=0, rasterized=True, **look)


def draw_by_density(
    figure: Figure, axes: Sequence[Axes], shown: Mapping[str, Arrays], densities: Mapping[str, Arrays]
) -> None:
    """Draw projections in the colours of the densities, the densest on top, with one scale; grey without densities."""
    values = [np.asarray(arrays["log_density"]) for arrays in densities.values()]
    scale = Normalize(*np.percentile(np.concatenate(values), SCALE_ENDS)) if values else None
    coloured = []
    for panel, (label, arrays) in zip(axes, shown.items(), strict=True):
        places = np.asarray(arrays["coordinates"])
        if label not in densities:
            draw_points(panel, places, color=style.PALE)
            continue
        density = np.asarray(densities[label]["log_density"])
        order = np.argsort(density)
        coloured.append(draw_points(panel, places[order], c=density[order], norm=scale, cmap="viridis"))
    if coloured:
        style.colour_bar(figure, coloured[0], axes, "log density on the sphere", extend="both", shrink=0.8)


def arrays_if_declared(drawn: FigureData, task: str) -> ByRow:
    """Return the arrays of a task by row label and seed; none where the study has no such task."""
    return drawn.arrays_of(task) if task in drawn.study.tasks else {}


def further_panels(drawn: FigureData, rows: Sequence[Row], dense: ByRow, positives: ByRow) -> list[Draw]:
    """Return functions that draw the panels after the projections: cosines of all pairs, and positives by method."""
    cosines: list[Draw] = [partial(_draw_pair_cosines, rows=rows, dense=dense)] if dense else []
    looked_at = [row for row in rows if kind_of_positives(row) and row.label in positives]
    return cosines + [partial(_draw_positives, drawn=drawn, row=row, by_seed=positives[row.label]) for row in looked_at]


def kind_of_positives(row: Row) -> str:
    """Return what makes a row's positives differ in training; empty if the row is not trained."""
    if not isinstance(row.encoder, Run):
        return ""
    method = row.encoder.method
    return KINDS[method.views] if isinstance(method, WhitenedCSE) else "dropout"


def _draw_pair_cosines(axes: Axes, *, rows: Sequence[Row], dense: ByRow) -> None:
    middles, width = (EDGES[1:] + EDGES[:-1]) / 2, EDGES[1] - EDGES[0]
    looks = {label: look for label, look in style.looks(rows).items() if label in dense}
    curves = [
        pd.DataFrame({"row": label, "cosine": middles, "density": arrays["pairs"] / arrays["pairs"].sum() / width})
        for label in looks
        for arrays in dense[label].values()
    ]
    frame = pd.concat(curves)
    shown = style.lines_by_row(looks) | {"legend": True}
    sns.lineplot(frame, x="cosine", y="density", errorbar=("pi", 100), err_kws=style.BAND, ax=axes, **shown)
    dimensions = min(int(arrays["dimensions"]) for by_seed in dense.values() for arrays in by_seed.values())
    even, top = even_density(middles, dimensions), frame["density"].max()
    visible = np.where(even > top, np.nan, even)  # above the other curves it would cross their legend
    axes.plot(middles, visible, color=style.INK, linewidth=0.9, linestyle=":", label="even")
    seen = frame.groupby("cosine")["density"].max().to_numpy()
    left = middles[np.maximum(seen, even) > 0.01 * top].min()
    axes.set_title("cosines of all pairs", loc="left")
    axes.set(xlabel="cosine of two sentences", ylabel="", yticks=[], xlim=(left, 1), ylim=(0, ROOM * top))
    axes.spines["left"].set_visible(False)
    axes.legend(fontsize=6.5, loc="upper left", borderaxespad=0, handlelength=1.8)


def even_density(cosine: np.ndarray, dimensions: int) -> np.ndarray:
    """Return the density of the cosine of two vectors drawn evenly on the sphere."""
    half = (dimensions - 1) / 2
    return scipy.stats.beta.pdf((1 + cosine) / 2, half, half) / 2


def _draw_positives(axes: Axes, *, drawn: FigureData, row: Row, by_seed: Mapping[int, Arrays]) -> None:
    kind = kind_of_positives(row)
    places = np.asarray(next(iter(by_seed.values()))[kind])
    draw_points(axes, places.reshape(-1, 2), color=style.PALE)
    for look, copies in zip(style.SPARE_LOOKS, places[:FOLLOWED], strict=False):
        axes.scatter(*copies.T, s=11, color=look.colour, marker=look.marker, linewidths=0, zorder=3)
    summary = drawn.cell(row, f"spread_{kind}").summary
    said = [row.label, f"positives by {MADE_BY[kind]}", *([f"spread {summary.mean:.3f}"] if summary else [])]
    axes.set_title("\n".join(said), loc="left")


def words(drawn: FigureData, rows: Sequence[Row], sample: str, dense: ByRow, positives: ByRow) -> list[str]:
    """Say what the colours and the further panels show, and which row is most even."""
    if not dense:
        return []
    means = {row.label: drawn.results.value(row, f"{sample}_uniformity") for row in rows}
    ranked = sorted((mean, label) for label, mean in means.items() if mean is not None)
    ends = f" Most even in the mean: {ranked[0][1]}; least: {ranked[-1][1]}." if len(ranked) > 1 else ""
    counted = seeds_text(len(by_seed) for label, by_seed in dense.items() if 0 not in by_seed)
    said = [
        "Colour: how densely sentences lie on the sphere at each one, by the kernel of uniformity, one scale for all "
        f"panels; uniformity is the log of its mean, lower is more even.{ends}",
        f"Cosines: of any two sentences, mean and range of {counted}; dotted: vectors drawn evenly, up to "
        "the height of the others.",
    ]
    if positives:
        said.append(
            f"Positives, the paper's panel (d): eight each of {FOLLOWED} sentences (colours) of a batch of 64 (grey), "
            "made as in training but before the head, in the plane of largest variance. Spread (mean over "
            f"{counted}): their mean squared distance over that of two sentences' positives; 0: all equal."
        )
    return said
