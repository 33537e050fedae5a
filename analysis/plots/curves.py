"""Draw figures of training: scores, losses and paths over steps."""

import textwrap
from collections.abc import Mapping, Sequence

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots import labels, style
from analysis.plots.effects import SYMLOG, compress, direction
from analysis.plots.figure_data import FigureData, missing_seeds, seeds_text
from analysis.stats.contrast_tests import paired_contrast
from cse_core.run import Run
from experiments.schema.columns import column
from experiments.schema.study import Row, Study

ACROSS = 4
MOST_LOSSES = 8  # rows; with more, losses are not drawn
NAME_WIDTH = 27  # letters of a title above a panel
CONTRASTIVE, RANK, LOSS = "loss/contrastive", "loss/rank", "loss"
DEV, ALIGNMENT, UNIFORMITY = "dev", "alignment", "uniformity"  # logged quantities that are not losses
RANGE = ("pi", 100)  # seaborn's name of a band from the smallest to the largest


def all_curves(drawn: FigureData) -> Figure | None:
    """Draw each row's dev score minus the first row's, seed by seed, and for few rows also the losses."""
    curves = drawn.curves
    if curves.empty:
        return None
    rows = _rows_with_points(drawn.study, curves)
    names = curves["quantity"].str.partition("/")
    dev = less_first(_dev_points(curves), rows[0])
    losses = curves.assign(term=names[2].replace("", "minimised"))[names[0] == LOSS]
    compared = [row for row in rows if row.label in set(dev["row"])]
    shown = [row for row in rows if row.label in set(losses["row"])] if len(rows) <= MOST_LOSSES else []
    room = -(-len(compared) // ACROSS) * ACROSS if shown else len(compared)
    figure, axes = style.panels(room + len(shown), ACROSS, height=1.35)
    for panel in axes[len(compared) : room]:
        panel.set_axis_off()
    caption = ""
    if compared:
        _draw_differences(axes[: len(compared)], dev, compared, rows[0])
        single = "; one seed has no band and no colour" if curves.groupby("row")["seed"].nunique().min() == 1 else ""
        caption = (
            f"Dev score in points less that of {rows[0].label}, seed by seed, over steps: mean over "
            f"{_seed_counts(curves)}, bands from smallest to largest{single}. Blue: better at the last step; orange: "
            f"worse; grey: 0 is inside the 95 % interval. {SYMLOG} "
        )
    if shown:
        _draw_losses(axes[room:], losses, shown)
        caption += "Losses: what each row minimises, and its terms without their weights."
    return style.finish(figure, drawn, caption)


def _dev_points(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the points of the dev score, in points."""
    names = sorted(name for name in curves["quantity"].unique() if name.startswith(f"{DEV}/"))
    return _points_of(curves, names[0] if names else "")


def less_first(points: pd.DataFrame, reference: Row) -> pd.DataFrame:
    """Subtract a row's values at the same seed and step from the other rows' points; drop that row."""
    base = points[points["row"] == reference.label]
    both = points[points["row"] != reference.label].merge(base, on=["seed", "step"], suffixes=("", "_base"))
    return both.assign(value=both["value"] - both["value_base"])[["row", "seed", "step", "value"]]


def _draw_differences(axes: Sequence[Axes], points: pd.DataFrame, rows: Sequence[Row], reference: Row) -> None:
    _share(axes)
    for panel, row in zip(axes, rows, strict=True):
        of_row = points[points["row"] == row.label]
        last = of_row[of_row["step"] == of_row["step"].max()]
        final = paired_contrast([dict(zip(last["seed"], last["value"], strict=True))], [1.0])
        colour = style.DIRECTIONS[direction(final) if final else "open"]
        panel.axhline(0, color=style.INK, linewidth=0.7)
        panel.axhspan(-1, 1, color=style.PALE, **style.BAND)
        sns.lineplot(of_row, x="step", y="value", color=colour, errorbar=RANGE, err_kws=style.BAND, ax=panel)
        panel.set(xlabel="", ylabel="")
        panel.set_title(textwrap.fill(row.label, NAME_WIDTH), fontsize=7)
    if axes:
        compress(axes[0], "y")  # and all others, which share its axis
    for i, panel in enumerate(axes):
        panel.tick_params(labelleft=i % ACROSS == 0)
    for panel in axes[::ACROSS]:
        panel.set_ylabel(f"dev score less\n{reference.label}'s")


def _share(axes: Sequence[Axes]) -> None:
    for panel in axes[1:]:
        panel.sharey(axes[0])


def _draw_losses(axes: Sequence[Axes], points: pd.DataFrame, rows: Sequence[Row]) -> None:
    terms = sorted(points["term"].unique(), key=lambda term: (term == "minimised", term))
    colours = dict(zip(terms, sns.color_palette("colorblind", len(terms)), strict=True))
    _share(axes)
    for panel, row in zip(axes, rows, strict=True):
        of_row = points[points["row"] == row.label]
        looks = {"hue": "term", "hue_order": terms, "palette": colours, "legend": panel is axes[0]}
        sns.lineplot(of_row, x="step", y="value", errorbar=RANGE, err_kws=style.BAND, ax=panel, **looks)
        panel.set(xlabel="", ylabel="", yscale="log" if points["value"].min() > 0 else "linear")
        panel.set_title(textwrap.fill(row.label, NAME_WIDTH), fontsize=7)
    for panel in axes[::ACROSS]:
        panel.set_ylabel("losses, nats")
    axes[0].legend(fontsize=6, handlelength=1.2)


def curves(drawn: FigureData) -> Figure | None:
    """Draw the study's columns over steps, a panel each: mean over seeds, band from minimum to maximum."""
    study = drawn.study
    quantities = {name: _quantity(study, name) for name in study.columns if not column(name).fact}
    points_shown = drawn.curves[drawn.curves["quantity"].isin(quantities.values())]
    rows = _rows_with_points(study, points_shown)
    if not rows:
        return None
    looks = style.looks(rows)
    figure, axes = style.panels(len(quantities), 2, height=2.5, width=4.8 if len(quantities) == 1 else style.WIDE)
    for panel, (name, quantity) in zip(axes, quantities.items(), strict=True):
        _draw_lines(panel, _points_of(points_shown, quantity), looks)
        panel.set_ylabel(column(name).heading if quantity.startswith(DEV) else f"{name} (lower is better)")
    absent = missing_seeds(study, _by_row(points_shown))
    style.finish(figure, drawn, _spread_text(points_shown), absent)
    for panel, quantity in zip(axes, quantities.values(), strict=True):
        labels.beside_ends(panel, _ends(_points_of(points_shown, quantity), looks, {}))
    return figure


def losses(drawn: FigureData) -> Figure | None:
    """Draw weighted rank loss over contrastive loss, and the latter minus the first row's (RankEncoder, Fig. 8)."""
    points_shown = drawn.curves[drawn.curves["quantity"].isin((CONTRASTIVE, RANK))]
    rows = _rows_with_points(drawn.study, points_shown)
    if not rows:
        return None
    weights = {row.label: weight for row in rows if (weight := _rank_weight(row))}
    looks = {label: look for label, look in style.looks(rows).items() if label in weights}
    contrastive, rank = (_points_of(points_shown, quantity) for quantity in (CONTRASTIVE, RANK))
    both = rank.merge(contrastive, on=["row", "seed", "step"], suffixes=("", "_contrastive"))
    ratio = both.assign(value=100 * both["row"].map(weights) * both["value"] / both["value_contrastive"])
    shown = {"ratio": ratio, "difference": less_first(contrastive, rows[0])}
    figure, axes = style.panels(2, 2, height=2.6)
    for panel, points in zip(axes, shown.values(), strict=True):
        _draw_lines(panel, points, looks)
        panel.set_xlim(right=points["step"].max())  # so that a horizontal line ends where the names begin
    axes[0].axhline(100, color=style.INK, linewidth=0.7)
    axes[0].set(title="weighted rank loss over contrastive loss", ylabel="%", yscale="log")
    axes[1].axhline(0, color=style.INK, linewidth=0.7)
    axes[1].set(title=f"contrastive loss less {rows[0].label}'s", ylabel="nats")
    caption = f"Names: lambda_train. At 100 % both losses are of one size. {_spread_text(points_shown)}"
    style.finish(figure, drawn, caption, missing_seeds(drawn.study, _by_row(points_shown)))
    names = {label: f"{weight:g}" for label, weight in weights.items()}
    for panel, points in zip(axes, shown.values(), strict=True):
        labels.beside_ends(panel, _ends(points, looks, names))
    return figure


def paths(drawn: FigureData) -> Figure | None:
    """Draw alignment against uniformity over training: a path for each row, its mean over seeds (CompCSE, Fig. 2)."""
    study = drawn.study
    up, across = (_quantity(study, name) for name in (ALIGNMENT, UNIFORMITY))
    points_shown = drawn.curves[drawn.curves["quantity"].isin((up, across))]
    rows = _rows_with_points(study, points_shown)
    if not rows:
        return None
    figure, (axes,) = style.panels(1, 1, height=3.6, width=5.0)
    looks = style.looks(rows)
    wide = points_shown.pivot_table(index=["row", "seed", "step"], columns="quantity", values="value").dropna()
    means = wide.groupby(["row", "step"]).mean().reset_index()
    drawing = {"x": across, "y": up, "sort": False, "estimator": None, "ax": axes, **style.lines_by_row(looks)}
    sns.lineplot(wide.reset_index(), units="seed", linewidth=0.6, alpha=0.3, **drawing)
    sns.lineplot(means, **drawing)
    first, last = (means.groupby("row").nth(place).set_index("row").loc[list(looks)] for place in (0, -1))
    for points, filled in ((first, False), (last, True)):
        for look, x, y in zip(looks.values(), points[across], points[up], strict=True):
            face = look.colour if filled else "white"
            axes.plot(x, y, marker=look.marker, markersize=6, markerfacecolor=face, markeredgecolor=look.colour)
    axes.set(xlabel=f"{UNIFORMITY} (lower is better)", ylabel=f"{ALIGNMENT} (lower is better)")
    axes.margins(0.12)
    ends = " or ".join(map(str, sorted(last["step"].unique())))
    caption = (
        f"From step {first['step'].min()} (hollow mark) to step {ends} (filled mark), mean over "
        f"{_seed_counts(points_shown)}; faint: each seed."
    )
    style.finish(figure, drawn, caption, missing_seeds(study, _by_row(points_shown)))
    names = [(x, y, _name(points_shown, label)) for label, x, y in zip(looks, last[across], last[up], strict=True)]
    passed = list(means[[across, up]].itertuples(index=False, name=None))
    labels.beside_points(axes, names, [look.colour for look in looks.values()], passed)
    return figure


def _draw_lines(axes: Axes, points: pd.DataFrame, looks: Mapping[str, style.Look]) -> None:
    """Draw the mean over seeds of each row, with a band from minimum to maximum."""
    chosen = points[points["row"].isin(list(looks))]
    sns.lineplot(chosen, x="step", y="value", errorbar=RANGE, err_kws=style.BAND, ax=axes, **style.lines_by_row(looks))


def _ends(
    points: pd.DataFrame, looks: Mapping[str, style.Look], names: Mapping[str, str]
) -> list[tuple[float, float, str, str]]:
    """Return the last points of the mean lines with their names and colours."""
    means = points.groupby(["row", "step"])["value"].mean()
    present = set(points["row"])
    last = {label: means[label] for label in looks if label in present}
    return [
        (float(line.index[-1]), float(line.iloc[-1]), names.get(label) or _name(points, label), looks[label].colour)
        for label, line in last.items()
    ]


def _name(points: pd.DataFrame, label: str) -> str:
    return label + (" (one seed)" if points.loc[points["row"] == label, "seed"].nunique() == 1 else "")


def _rank_weight(row: Row) -> float | None:
    """Return lambda_train of a row's run, if it has one."""
    return getattr(row.encoder.method, "rank_weight", None) if isinstance(row.encoder, Run) else None


def _quantity(study: Study, name: str) -> str:
    """Return the logged quantity of a column; alignment and uniformity are logged on the dev set."""
    return f"{name}/{study.scale.dev}" if name in (ALIGNMENT, UNIFORMITY) else f"{DEV}/{name}"


def _points_of(frame: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return the points of a quantity, with dev scores times 100."""
    points = frame[frame["quantity"] == quantity]
    return points.assign(value=points["value"] * (100 if quantity.startswith(DEV) else 1))


def _rows_with_points(study: Study, frame: pd.DataFrame) -> list[Row]:
    labels_in_frame = set(frame["row"])
    return [row for row in study.rows if row.label in labels_in_frame]


def _by_row(frame: pd.DataFrame) -> dict[str, list[int]]:
    return {str(label): [int(seed) for seed in seeds.unique()] for label, seeds in frame.groupby("row")["seed"]}


def _seed_counts(frame: pd.DataFrame) -> str:
    return seeds_text(frame.groupby("row")["seed"].nunique())


def _spread_text(frame: pd.DataFrame) -> str:
    """Explain lines and bands; one seed has no band."""
    single = "; no band: one seed" if (frame.groupby("row")["seed"].nunique() == 1).any() else ""
    return f"Lines: mean over {_seed_counts(frame)}; bands: smallest to largest{single}."
