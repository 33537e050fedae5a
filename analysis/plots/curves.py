"""Figures of training: scores, losses and paths over steps."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots import labels, style
from analysis.plots.figure_data import Drawn, missing_seeds, seeds_told
from cse_core.run import Run
from experiments.schema.columns import column
from experiments.schema.study import Row, Study

PANELS_A_LINE = 3
LONG_NAME = 30  # letters: then two names of a legend fill a line
UNITS = {"dev": "points", "alignment": "squared distance", "uniformity": "log mean"}  # of what is not a loss
SPREAD = "Lines: mean over {}; bands: smallest to largest."


def all_curves(drawn: Drawn) -> Figure | None:
    """One panel a quantity, dev scores first; a line a row: the mean over seeds, its band their minimum and maximum."""
    curves = drawn.curves
    if curves.empty:
        return None
    quantities = sorted(
        curves["quantity"].unique(), key=lambda name: (_kind(name) not in UNITS, _kind(name) != "dev", name)
    )
    rows = _rows(drawn.study, curves)
    looks = style.looks(rows)
    figure, axes = style.panels(len(quantities), PANELS_A_LINE, height=1.9)
    for panel, quantity in zip(axes, quantities, strict=True):
        points = _points(curves, quantity)
        for row in rows:
            _line(panel, points[points["row"] == row.label], row.label, looks[row.label])
        panel.set(xlabel="step", ylabel=UNITS.get(_kind(quantity), "nats"), title=_title(quantity))
        if _kind(quantity) not in UNITS and points["value"].min() > 0:
            panel.set_yscale("log")  # ListMLE sums over the list and lies a hundred times above the other terms
    lines = [panel.get_legend_handles_labels() for panel in axes]
    handles = {label: handle for found in lines for handle, label in zip(*found, strict=True)}
    names = [row.label for row in rows if row.label in handles]
    across = 2 if max(map(len, names)) > LONG_NAME else PANELS_A_LINE
    style.legend_below(figure, [handles[name] for name in names], names, across)
    return style.finish(figure, drawn, SPREAD.format(_seeds(curves)))


def curves(drawn: Drawn) -> Figure | None:
    """The study's columns over steps, a panel each: the mean over seeds, its band their minimum and maximum."""
    study = drawn.study
    wanted = {name: _quantity(study, name) for name in study.columns if not column(name).fact}
    found = drawn.curves[drawn.curves["quantity"].isin(wanted.values())]
    rows = _rows(study, found)
    if not rows:
        return None
    looks = style.looks(rows)
    single = len(wanted) == 1
    figure, axes = style.panels(len(wanted), 2, height=2.5, width=4.8 if single else style.WIDE)
    ends = []
    for panel, (name, quantity) in zip(axes, wanted.items(), strict=True):
        points = _points(found, quantity)
        title = column(name).heading if _kind(quantity) == "dev" else f"{_kind(quantity)} (lower is better)"
        panel.set(xlabel="step", ylabel=title)
        lines = [(row, _line(panel, points[points["row"] == row.label], row.label, looks[row.label])) for row in rows]
        ends.append([(*last, row.label, looks[row.label].colour) for row, last in lines if last])
    absent = missing_seeds(study, _by_row(found))
    style.finish(figure, drawn, SPREAD.format(_seeds(found)), absent)
    for panel, places in zip(axes, ends, strict=True):
        labels.beside_ends(panel, places)
    return figure


def losses(drawn: Drawn) -> Figure | None:
    """The contrastive loss of every row and, of those that have one, the weighted rank loss (RankEncoder, Fig. 8)."""
    found = drawn.curves[drawn.curves["quantity"].isin(("loss/contrastive", "loss/rank"))]
    rows = _rows(drawn.study, found)
    if not rows:
        return None
    figure, (axes,) = style.panels(1, 1, height=2.8, width=5.2)
    looks = style.looks(rows)
    ends = []
    for row in rows:
        own, look = found[found["row"] == row.label], looks[row.label]
        parts = {"contrastive": ("loss/contrastive", 1.0, look)}
        weight = _weight(row)
        if weight is not None:
            parts[f"{weight:g} × rank"] = ("loss/rank", weight, style.variant(look, 1))
        for title, (quantity, factor, shown) in parts.items():
            points = _points(own, quantity).assign(value=lambda frame, factor=factor: frame["value"] * factor)
            last = _line(axes, points, f"{row.label}, {title}", shown)
            ends += [(*last, f"{row.label},\n{title}", shown.colour)] if last else []
    axes.set(xlabel="step", ylabel="loss (nats)", yscale="log")
    said = SPREAD.format(_seeds(found)) + " The rank loss is shown times lambda_train."
    style.finish(figure, drawn, said, missing_seeds(drawn.study, _by_row(found)))
    labels.beside_ends(axes, ends, gap=18)
    return figure


def paths(drawn: Drawn) -> Figure | None:
    """Alignment over uniformity as training goes on: a path a row, the mean over its seeds (CompCSE, Fig. 2)."""
    study = drawn.study
    up, across = (_quantity(study, name) for name in ("alignment", "uniformity"))
    found = drawn.curves[drawn.curves["quantity"].isin((up, across))]
    rows = _rows(study, found)
    if not rows:
        return None
    figure, (axes,) = style.panels(1, 1, height=3.6, width=5.0)
    looks = style.looks(rows)
    ends: list[tuple[float, float, str, str]] = []
    passed: list[tuple[float, float]] = []
    for row in rows:
        own, look = found[found["row"] == row.label], looks[row.label]
        mean = own.pivot_table(index="step", columns="quantity", values="value", aggfunc="mean").dropna()
        xs, ys = mean[across].to_numpy(), mean[up].to_numpy()
        axes.plot(xs, ys, color=look.colour, linestyle=look.dash, label=row.label)
        axes.scatter(xs[:1], ys[:1], marker=look.marker, s=34, color="white", edgecolors=look.colour, zorder=3)
        _arrow(axes, xs, ys, look.colour)
        ends.append((float(xs[-1]), float(ys[-1]), row.label, look.colour))
        passed += between(xs, ys)
    axes.set(xlabel="uniformity (lower is better)", ylabel="alignment (lower is better)")
    axes.margins(0.12)
    first, last = found["step"].min(), " or ".join(map(str, sorted(found.groupby("row")["step"].max().unique())))
    said = f"From step {first} (hollow mark) to step {last} (arrow), mean over {_seeds(found)}."
    style.finish(figure, drawn, said, missing_seeds(study, _by_row(found)))
    labels.beside_points(axes, ends, passed)
    return figure


def between(xs: np.ndarray, ys: np.ndarray) -> list[tuple[float, float]]:
    """Points along a path, so near each other that no name fits between them."""
    places = np.arange(0, len(xs) - 0.99, 0.125)
    at = np.arange(len(xs))
    return list(zip(np.interp(places, at, xs).tolist(), np.interp(places, at, ys).tolist(), strict=True))


def _arrow(axes: Axes, xs: Sequence[float], ys: Sequence[float], colour: str) -> None:
    if len(xs) > 1:
        look = {"arrowstyle": "-|>", "color": colour, "mutation_scale": 11}
        axes.annotate("", xy=(xs[-1], ys[-1]), xytext=(xs[-2], ys[-2]), arrowprops=look)


def _line(axes: Axes, points: pd.DataFrame, label: str, look: style.Look) -> tuple[float, float] | None:
    """The mean over seeds with a band from the smallest to the largest; returns where it ends."""
    if points.empty:
        return None
    by_step = points.groupby("step")["value"].agg(["mean", "min", "max"])
    steps = by_step.index.to_numpy(float)
    every = max(2, len(steps) // 6)  # the marks of lines that lie on each other fall on different steps
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


def _weight(row: Row) -> float | None:
    """lambda_train of a row's run, where it has one."""
    return getattr(row.encoder.method, "rank_weight", None) if isinstance(row.encoder, Run) else None


def _quantity(study: Study, name: str) -> str:
    """What a run logs of a column: alignment and uniformity are of the dev set."""
    return f"{name}/{study.scale.dev}" if name in ("alignment", "uniformity") else f"dev/{name}"


def _points(frame: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """A quantity's points, dev scores in points."""
    points = frame[frame["quantity"] == quantity]
    return points.assign(value=points["value"] * (100 if _kind(quantity) == "dev" else 1))


def _rows(study: Study, frame: pd.DataFrame) -> list[Row]:
    known = set(frame["row"])
    return [row for row in study.rows if row.label in known]


def _by_row(frame: pd.DataFrame) -> dict[str, list[int]]:
    return {str(label): [int(seed) for seed in seeds.unique()] for label, seeds in frame.groupby("row")["seed"]}


def _seeds(frame: pd.DataFrame) -> str:
    return seeds_told(frame.groupby("row")["seed"].nunique())


def _title(quantity: str) -> str:
    """The papers' words for what a run logs."""
    kind, _, name = quantity.partition("/")
    if kind in UNITS:
        return f"{'dev score' if kind == 'dev' else kind}, {name}"
    return f"{name} loss" if name else "loss that is minimised"


def _kind(quantity: str) -> str:
    return quantity.partition("/")[0]
