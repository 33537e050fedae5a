"""Draw figures of training: scores, losses and paths over steps."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from analysis.plots import labels, style
from analysis.plots.figure_data import FigureData, missing_seeds, seeds_text
from cse_core.run import Run
from experiments.schema.columns import column
from experiments.schema.study import Row, Study

PANELS_A_LINE = 3
LONG_NAME = 30  # letters; of longer names, a line of the legend has two
UNITS = {
    "dev": "points",
    "alignment": "squared distance",
    "uniformity": "log mean",
}  # of quantities that are not losses


def all_curves(drawn: FigureData) -> Figure | None:
    """Draw a panel for each quantity, dev scores first, a line for each row: mean over seeds, band from min to max."""
    curves = drawn.curves
    if curves.empty:
        return None
    quantities = sorted(
        curves["quantity"].unique(),
        key=lambda name: (_quantity_kind(name) not in UNITS, _quantity_kind(name) != "dev", name),
    )
    rows = _rows_with_points(drawn.study, curves)
    looks = style.distinct_looks(rows)
    numbers = _grey_numbers(looks)
    figure, axes = style.panels(len(quantities), PANELS_A_LINE, height=1.9)
    ends = []
    for panel, quantity in zip(axes, quantities, strict=True):
        points = _points_of(curves, quantity)
        for row in rows:
            last = _draw_line(panel, points[points["row"] == row.label], row.label, looks[row.label])
            if last and row.label in numbers:
                ends.append((panel, (*last, numbers[row.label], style.INK)))
        panel.set(xlabel="step", ylabel=UNITS.get(_quantity_kind(quantity), "nats"), title=_quantity_title(quantity))
        if _quantity_kind(quantity) not in UNITS and points["value"].min() > 0:
            panel.set_yscale("log")  # ListMLE sums over the list, a hundred times the other terms
    lines = [panel.get_legend_handles_labels() for panel in axes]
    handles = {label: handle for handles_and_names in lines for handle, label in zip(*handles_and_names, strict=True)}
    labels_shown = [row.label for row in rows if row.label in handles]
    names = [_legend_name(label, numbers, curves) for label in labels_shown]
    across = 2 if max(map(len, names)) > LONG_NAME else PANELS_A_LINE
    style.legend_below(figure, [handles[label] for label in labels_shown], names, across)
    style.finish(figure, drawn, _spread_text(curves))
    for panel in axes:
        labels.beside_ends(panel, [end for of, end in ends if of is panel], gap=6.5)
    return figure


def _grey_numbers(looks: Mapping[str, style.Look]) -> dict[str, str]:
    """Return a number for each row that has no colour of its own."""
    grey = [label for label, look in looks.items() if look.colour == style.FAINT]
    return {label: str(number) for number, label in enumerate(grey, 1)}


def _legend_name(label: str, numbers: Mapping[str, str], points: pd.DataFrame) -> str:
    number = f"{numbers[label]}  " if label in numbers else ""
    return number + label + _one_seed(points, label)


def _one_seed(points: pd.DataFrame, label: str) -> str:
    return " (one seed)" if points.loc[points["row"] == label, "seed"].nunique() == 1 else ""


def curves(drawn: FigureData) -> Figure | None:
    """Draw the study's columns over steps, a panel each: mean over seeds, band from minimum to maximum."""
    study = drawn.study
    quantities = {name: _quantity(study, name) for name in study.columns if not column(name).fact}
    points_shown = drawn.curves[drawn.curves["quantity"].isin(quantities.values())]
    rows = _rows_with_points(study, points_shown)
    if not rows:
        return None
    looks = style.distinct_looks(rows)
    single = len(quantities) == 1
    figure, axes = style.panels(len(quantities), 2, height=2.5, width=4.8 if single else style.WIDE)
    ends = []
    for panel, (name, quantity) in zip(axes, quantities.items(), strict=True):
        points = _points_of(points_shown, quantity)
        title = (
            column(name).heading
            if _quantity_kind(quantity) == "dev"
            else f"{_quantity_kind(quantity)} (lower is better)"
        )
        panel.set(xlabel="step", ylabel=title)
        lines = [
            (row, _draw_line(panel, points[points["row"] == row.label], row.label, looks[row.label])) for row in rows
        ]
        ends.append(
            [(*last, row.label + _one_seed(points, row.label), looks[row.label].colour) for row, last in lines if last]
        )
    absent = missing_seeds(study, _by_row(points_shown))
    style.finish(figure, drawn, _spread_text(points_shown), absent)
    for panel, places in zip(axes, ends, strict=True):
        labels.beside_ends(panel, places)
    return figure


def losses(drawn: FigureData) -> Figure | None:
    """Draw the contrastive loss of every row, and the weighted rank loss if it has one (RankEncoder, Fig. 8)."""
    points_shown = drawn.curves[drawn.curves["quantity"].isin(("loss/contrastive", "loss/rank"))]
    rows = _rows_with_points(drawn.study, points_shown)
    if not rows:
        return None
    figure, (axes,) = style.panels(1, 1, height=2.8, width=5.2)
    looks = style.distinct_looks(rows)
    for row in rows:
        row_points, look = points_shown[points_shown["row"] == row.label], looks[row.label]
        parts = {"contrastive": ("loss/contrastive", 1.0, look)}
        weight = _rank_weight(row)
        if weight is not None:
            parts[f"{weight:g} × rank"] = ("loss/rank", weight, style.variant(look, 1))
        for title, (quantity, factor, shown) in parts.items():
            points = _points_of(row_points, quantity).assign(value=lambda frame, factor=factor: frame["value"] * factor)
            _draw_line(axes, points, f"{row.label}: {title}", shown)
    axes.set(xlabel="step", ylabel="loss (nats)", yscale="log")
    style.legend_below(figure, *axes.get_legend_handles_labels(), 2)
    caption = _spread_text(points_shown) + " The rank loss is shown times lambda_train."
    return style.finish(figure, drawn, caption, missing_seeds(drawn.study, _by_row(points_shown)))


def paths(drawn: FigureData) -> Figure | None:
    """Draw alignment against uniformity over training: a path for each row, its mean over seeds (CompCSE, Fig. 2)."""
    study = drawn.study
    up, across = (_quantity(study, name) for name in ("alignment", "uniformity"))
    points_shown = drawn.curves[drawn.curves["quantity"].isin((up, across))]
    rows = _rows_with_points(study, points_shown)
    if not rows:
        return None
    figure, (axes,) = style.panels(1, 1, height=3.6, width=5.0)
    looks = style.distinct_looks(rows)
    ends: list[tuple[float, float, str, str]] = []
    passed: list[tuple[float, float]] = []
    for row in rows:
        row_points, look = points_shown[points_shown["row"] == row.label], looks[row.label]
        mean = row_points.pivot_table(index="step", columns="quantity", values="value", aggfunc="mean").dropna()
        xs, ys = mean[across].to_numpy(), mean[up].to_numpy()
        _draw_seeds(axes, row_points, (across, up), look)
        axes.plot(xs, ys, color=look.colour, linestyle=look.dash, label=row.label)
        axes.scatter(xs[:1], ys[:1], marker=look.marker, s=34, color="white", edgecolors=look.colour, zorder=3)
        _arrow(axes, xs, ys, look.colour)
        ends.append((float(xs[-1]), float(ys[-1]), row.label + _one_seed(row_points, row.label), look.colour))
        passed += between(xs, ys)
    axes.set(xlabel="uniformity (lower is better)", ylabel="alignment (lower is better)")
    axes.margins(0.12)
    first, last = (
        points_shown["step"].min(),
        " or ".join(map(str, sorted(points_shown.groupby("row")["step"].max().unique()))),
    )
    seeds = _seed_counts(points_shown)
    caption = f"From step {first} (hollow mark) to step {last} (arrow), mean over {seeds}; faint: each seed."
    style.finish(figure, drawn, caption, missing_seeds(study, _by_row(points_shown)))
    labels.beside_points(axes, ends, passed)
    return figure


def _draw_seeds(axes: Axes, points: pd.DataFrame, quantities: tuple[str, str], look: style.Look) -> None:
    """Draw each seed's path, if there are several."""
    if points["seed"].nunique() < 2:
        return
    paths = []
    for _, of_seed in points.groupby("seed"):
        wide = of_seed.pivot_table(index="step", columns="quantity", values="value").dropna()
        paths.append(wide[list(quantities)].to_numpy())
    axes.add_collection(LineCollection(paths, colors=look.colour, linewidths=0.6, alpha=0.3))


def between(xs: np.ndarray, ys: np.ndarray) -> list[tuple[float, float]]:
    """Return points along a path, close enough that no name fits between them."""
    places = np.arange(0, len(xs) - 0.99, 0.125)
    at = np.arange(len(xs))
    return list(zip(np.interp(places, at, xs).tolist(), np.interp(places, at, ys).tolist(), strict=True))


def _arrow(axes: Axes, xs: Sequence[float], ys: Sequence[float], colour: str) -> None:
    if len(xs) > 1:
        look = {"arrowstyle": "-|>", "color": colour, "mutation_scale": 11}
        axes.annotate("", xy=(xs[-1], ys[-1]), xytext=(xs[-2], ys[-2]), arrowprops=look)


def _draw_line(axes: Axes, points: pd.DataFrame, label: str, look: style.Look) -> tuple[float, float] | None:
    """Draw the mean over seeds with a band from minimum to maximum; return the line's last point."""
    if points.empty:
        return None
    by_step = points.groupby("step")["value"].agg(["mean", "min", "max"])
    steps = by_step.index.to_numpy(float)
    every = max(2, len(steps) // 6)  # on different steps for different lines, so that equal lines show both marks
    start = len(axes.get_lines()) % every
    axes.plot(
        *(steps, by_step["mean"]),
        color=look.colour,
        linestyle=look.dash,
        label=label,
        marker=look.marker,
        markevery=slice(start, None, every),
        markersize=3.5,
    )
    if points["seed"].nunique() > 1:
        axes.fill_between(steps, by_step["min"], by_step["max"], color=look.colour, **style.BAND)
    return float(steps[-1]), float(by_step["mean"].iloc[-1])


def _rank_weight(row: Row) -> float | None:
    """Return lambda_train of a row's run, if it has one."""
    return getattr(row.encoder.method, "rank_weight", None) if isinstance(row.encoder, Run) else None


def _quantity(study: Study, name: str) -> str:
    """Return the logged quantity of a column; alignment and uniformity are logged on the dev set."""
    return f"{name}/{study.scale.dev}" if name in ("alignment", "uniformity") else f"dev/{name}"


def _points_of(frame: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return the points of a quantity, with dev scores times 100."""
    points = frame[frame["quantity"] == quantity]
    return points.assign(value=points["value"] * (100 if _quantity_kind(quantity) == "dev" else 1))


def _rows_with_points(study: Study, frame: pd.DataFrame) -> list[Row]:
    labels_in_frame = set(frame["row"])
    return [row for row in study.rows if row.label in labels_in_frame]


def _by_row(frame: pd.DataFrame) -> dict[str, list[int]]:
    return {str(label): [int(seed) for seed in seeds.unique()] for label, seeds in frame.groupby("row")["seed"]}


def _seed_counts(frame: pd.DataFrame) -> str:
    return seeds_text(frame.groupby("row")["seed"].nunique())


def _spread_text(frame: pd.DataFrame) -> str:
    """Return what lines and bands are; one seed has no band."""
    single = "; no band: one seed" if (frame.groupby("row")["seed"].nunique() == 1).any() else ""
    return f"Lines: mean over {_seed_counts(frame)}; bands: smallest to largest{single}."


def _quantity_title(quantity: str) -> str:
    """Return the title of a quantity, in the papers' words."""
    kind, _, name = quantity.partition("/")
    if kind in UNITS:
        return f"{'dev score' if kind == 'dev' else kind}, {column(name).heading}"
    return f"{name} loss" if name else "loss that is minimised"


def _quantity_kind(quantity: str) -> str:
    return quantity.partition("/")[0]
