"""Draw a study's loss and dev curves from curves.csv.

python analysis/make_figures.py [study ...] [--scale small] [--mlruns FOLDER]
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
import tyro
from matplotlib.figure import Figure

from experiments import catalogue, record
from experiments.study import Study

PANELS_A_LINE = 3
UNITS = {"dev": "points", "alignment": "squared distance", "uniformity": "log mean"}  # of what is not a loss
BAND = {"alpha": 0.15, "linewidth": 0}
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "cse-study",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "figure.dpi": 100,
    "savefig.dpi": 110,
}


def study_curves(study: Study, frame: pd.DataFrame) -> pd.DataFrame:
    """The points of curves.csv of the study's runs: row, seed, quantity, step, value.

    A row with the same runs as an earlier one is left out; a run that two other rows share counts in both.
    """
    owners: dict[tuple[tuple[int, str], ...], str] = {}
    for row in study.rows:
        owners.setdefault(tuple((run.seed, run.key) for run in row.runs()), row.label)
    lines = [(label, seed, key) for keys, label in owners.items() for seed, key in keys]
    runs = pd.DataFrame(lines, columns=["row", "seed", "key"])
    found = runs.merge(frame.rename(columns={"name": "quantity"}), on="key")
    return found[["row", "seed", "quantity", "step", "value"]]


def draw(study: Study, curves: pd.DataFrame) -> Figure:
    """One panel a quantity, dev scores first; a line a row: the mean over seeds, its band their minimum and maximum."""
    quantities = sorted(
        curves["quantity"].unique(), key=lambda name: (_kind(name) not in UNITS, _kind(name) != "dev", name)
    )
    rows = [row.label for row in study.rows if row.label in set(curves["row"])]
    across = min(PANELS_A_LINE, len(quantities))
    down = -(-len(quantities) // across)
    figure, grid = plt.subplots(down, across, figsize=(4.2 * across, 3.1 * down), squeeze=False, layout="constrained")
    for panel, quantity in zip(grid.flat, quantities, strict=False):
        points = curves[curves["quantity"] == quantity]
        values = points.assign(value=points["value"] * (100 if _kind(quantity) == "dev" else 1))
        look = {"hue": "row", "hue_order": rows, "style": "row", "style_order": rows, "palette": _palette(len(rows))}
        sns.lineplot(
            values, x="step", y="value", estimator="mean", errorbar=("pi", 100), err_kws=BAND, ax=panel, **look
        )
        panel.set(xlabel="step", ylabel=UNITS.get(_kind(quantity), "nats"), title=_title(quantity))
        if _kind(quantity) not in UNITS and values["value"].min() > 0:
            panel.set_yscale("log")  # ListMLE sums over the list and lies a hundred times above the other terms
        panel.spines[["top", "right"]].set_visible(False)
        panel.get_legend().remove()
    for panel in grid.flat[len(quantities) :]:
        panel.set_axis_off()
    lines, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=min(len(rows), across), frameon=False)
    figure.suptitle(f"{study.name}, scale {study.scale.name}: mean and range over {_seeds(curves)}")
    return figure


def save(figure: Figure, stem: Path) -> list[Path]:
    """The figure as PNG and SVG, the same bytes each time."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(stem.name + suffix) for suffix in (".png", ".svg")]
    figure.savefig(paths[0], metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


def make(studies: Sequence[Study], *, mlruns: Path = record.MLRUNS, figures: Path) -> list[Path]:
    """Draw every study that has curves; returns the files."""
    written = []
    with mpl.rc_context(STYLE):
        for study in studies:
            curves = study_curves(study, record.read_curves(study.scale.name, mlruns))
            if len(curves):
                written += save(draw(study, curves), figures / study.scale.name / f"{study.name}-curves")
    return written


def main(
    studies: tyro.conf.Positional[tuple[str, ...]] = (),
    /,
    *,
    scale: str = "small",
    mlruns: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = record.MLRUNS,
) -> None:
    """Draw the loss and dev curves of studies.

    Args:
        studies: studies, papers or `quickstart`; all but quickstart if none is named.
        scale: the size.
        mlruns: the folder of the record.
    """
    chosen = catalogue.chosen(list(studies) or ["all"], scale)
    written = make(chosen, mlruns=mlruns, figures=record.outputs(mlruns) / "figures")
    print(
        "\n".join(
            [*map(str, written), f"{len(written)} files for {len(chosen)} studies; a study without curves has none"]
        )
    )


def _title(quantity: str) -> str:
    """The papers' words for what a run logs."""
    kind, _, name = quantity.partition("/")
    if kind in UNITS:
        return f"{'dev score' if kind == 'dev' else kind}, {name}"
    return f"{name} loss" if name else "loss that is minimised"


def _kind(quantity: str) -> str:
    return quantity.partition("/")[0]


def _palette(count: int) -> list:
    return sns.color_palette("colorblind", n_colors=count)


def _seeds(curves: pd.DataFrame) -> str:
    counts = sorted(set(curves.groupby("row")["seed"].nunique()))
    words = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{words} seed" + ("" if counts == [1] else "s")


if __name__ == "__main__":
    tyro.cli(main)
