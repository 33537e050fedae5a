"""Style all figures alike: a colour, a marker and a dash for each method, a title above, a caption below."""

import io
import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from PIL import Image

from analysis.plots.figure_data import FigureData, missing_sentence
from analysis.stats.contrast_tests import paired_contrast
from cse_core.evaluation.scorers import Ranked
from cse_core.method import Method
from cse_core.methods import METHODS
from cse_core.methods.mlm import MLM
from cse_core.methods.rankcse import RankCSE
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.run import Run
from experiments.schema.study import Row

WIDE, NARROW = 7.0, 3.4  # inches: the width of a page, and of a column
TITLE_SIZE, CAPTION_SIZE = 9.0, 7.0
LETTER = 0.53  # mean width of a letter of DejaVu Sans over its size
INK, FAINT, PALE = "#222222", "#8a8a8a", "#c4c4c4"
BAND: dict[str, Any] = {"alpha": 0.15, "linewidth": 0}
DIRECTIONS = {"better": "#0072B2", "worse": "#D55E00", "open": FAINT}  # colours of effects, in every figure
SMALL_TEXT: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 6.8, "color": INK}
PRINTED: dict[str, Any] = {"marker": "D", "markerfacecolor": "white", "markeredgecolor": INK, "linestyle": "none"}
RC: Any = {
    "svg.hashsalt": "cse-study",
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 170,
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.06,
}


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG of 256 colours, which is a third as large, with the same bytes each time; close it."""
    figure.savefig(drawn := io.BytesIO(), format="png")
    plt.close(figure)
    few = Image.open(drawn).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(saved := io.BytesIO(), "PNG", optimize=True)
    return saved.getvalue()


@dataclass(frozen=True)
class Look:
    """The look of a row in every figure; colour is never the only difference."""

    colour: str
    marker: Any
    dash: Any = "-"


# Colours in one figure of a paper differ, also for protanopes and deuteranopes (a test measures it).
LOOKS: Mapping[str, Look] = {
    "SimCSE": Look("#333333", "o", "-"),
    "DiffCSE": Look("#E69F00", "s", (0, (4, 1.2))),
    "RankCSE-listNet": Look("#0072B2", "^", "-"),
    "RankCSE-listMLE": Look("#56B4E9", "v", (0, (4, 1.2))),
    "PromptBERT": Look("#AA4499", "D", (0, (5, 1.2, 1, 1.2))),
    "SNCSE": Look("#C2C25A", "P", (0, (1.2, 1))),
    "RankEncoder": Look("#D55E00", "X", "-"),
    "WhitenedCSE": Look("#117733", "h", "-"),
    "WhitenedCSE, dropout views": Look("#44AA99", "d", (0, (4, 1.2))),
    "CompCSE": Look("#A8326B", "p", "-"),
    "untrained": Look("#A6A6A6", "*", (0, (1, 1.4))),
    "not run": Look("#7B5B3A", "<", (0, (2, 1))),
}
SPARE_LOOKS = (
    Look("#1A66FF", ">", "-"),
    Look("#59C07B", (4, 1, 0), (0, (4, 1.2))),
    Look("#991A00", "H", (0, (5, 1.2, 1, 1.2))),
    Look("#582A6F", (6, 1, 0), (0, (1.2, 1))),
    Look("#5C92FF", "8", (0, (8, 2))),
    Look("#009966", (7, 0, 0), (0, (2, 1))),
)
MORE_MARKERS = ("o", "^", "s", "v", "D", "<", ">", "P")
MORE_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.2)), (0, (1.2, 1)), (0, (5, 1.2, 1, 1.2)), (0, (8, 2)))
LIGHTER = (0.0, 0.3, 0.5, 0.15, 0.62)


def name_of(method: Method) -> str:
    """Return a method's name in figures: its class, or its variant where a paper draws two of them."""
    match method:
        case RankEncoder():
            return "RankEncoder"
        case RankCSE(rank="list_mle"):
            return "RankCSE-listMLE"
        case RankCSE():
            return "RankCSE-listNet"
        case WhitenedCSE(views="dropout"):
            return "WhitenedCSE, dropout views"
        case MLM():  # drawn as a variant of the method that it is added to
            return name_of(method.inner)
    return type(method).__name__


def method_of(row: Row) -> str:
    """Return the name of the method that a row shows; scoring by ranks is RankEncoder's, on any encoder."""
    if not isinstance(row.encoder, Run):
        return "untrained" if row.encoder else "not run"
    return "RankEncoder" if isinstance(row.scorer, Ranked) else name_of(row.encoder.method)


def look_of(name: str) -> Look:
    """Return a method's look in LOOKS or, if it has none, a spare one by its place among such methods."""
    if name in LOOKS:
        return LOOKS[name]
    named = {*LOOKS, RankCSE.__name__, MLM.__name__}  # these two have other names in figures
    others = [kind.__name__ for kind in METHODS.values() if kind.__name__ not in named]
    place = others.index(name) if name in others else len(others)
    return variant(SPARE_LOOKS[place % len(SPARE_LOOKS)], place // len(SPARE_LOOKS))


def looks(rows: Sequence[Row]) -> dict[str, Look]:
    """Return a look for each row label: the first row of a method has the method's own, others have spare ones."""
    by_label, seen = dict[str, Look](), set[str]()
    others = (*SPARE_LOOKS[1:], SPARE_LOOKS[0])  # the first may be taken by a method without its own look
    spare = (variant(look, count) for count in itertools.count() for look in others)
    for row in rows:
        name = method_of(row)
        by_label[row.label] = next(spare) if name in seen else look_of(name)
        seen.add(name)
    return by_label


def lines_by_row(by_label: Mapping[str, Look]) -> dict[str, Any]:
    """Return what seaborn's lineplot needs to draw a line for each row in its look."""
    return {
        "hue": "row",
        "style": "row",
        "hue_order": list(by_label),
        "style_order": list(by_label),
        "palette": {label: look.colour for label, look in by_label.items()},
        "dashes": {label: "" if look.dash == "-" else look.dash[1] for label, look in by_label.items()},
        "legend": False,
    }


def interval(values: Iterable[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean over seeds, for seaborn's error bars; NaN for one seed."""
    estimate = paired_contrast([dict(enumerate(map(float, values)))], [1.0])
    return (estimate.interval if estimate else None) or (np.nan, np.nan)


def variant(look: Look, count: int) -> Look:
    """Return another look for the same method: a lighter tone, another marker and dash; for 0, the look itself."""
    if count == 0:
        return look
    dashes = [dash for dash in MORE_DASHES if dash != look.dash]
    markers = [marker for marker in MORE_MARKERS if marker != look.marker]
    return Look(
        colour=_lighter(look.colour, LIGHTER[count % len(LIGHTER)]),
        marker=markers[(count - 1) % len(markers)],
        dash=dashes[(count - 1) % len(dashes)],
    )


def _lighter(colour: str, share: float) -> str:
    red, green, blue = (part * (1 - share) + share for part in to_rgb(colour))
    return to_hex((red, green, blue))


def panels(count: int, across: int, *, height: float, width: float = WIDE, **shared: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` panels, `across` in a line, each `height` inches high."""
    across = max(1, min(across, count))
    down = -(-count // across)
    figure, grid = plt.subplots(
        down, across, figsize=(width, height * down), squeeze=False, layout="constrained", **shared
    )
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return figure, list(grid.flat[:count])


def finish(figure: Figure, drawn: FigureData, caption: str, absent: Iterable[str] = ()) -> Figure:
    """Add the title (source, scale, question) and the caption (what is shown, the study's notes, what is missing)."""
    study = drawn.study
    heading = f"{study.source} \N{MIDDLE DOT} scale {study.scale.name}. {study.question}"
    return add_title_and_caption(
        figure, heading, " ".join(part for part in (caption, study.caption, missing_sentence(list(absent))) if part)
    )


def add_title_and_caption(figure: Figure, heading: str, words: str) -> Figure:
    """Add a title above the panels, and a caption below them and their legends."""
    letters = figure.get_size_inches()[0] * 72 / (LETTER * CAPTION_SIZE)
    title = textwrap.fill(heading, int(letters * CAPTION_SIZE / TITLE_SIZE))
    figure.suptitle(title, x=0.0, ha="left", fontsize=TITLE_SIZE, color=INK)
    text = textwrap.fill(words, int(letters))
    figure.draw_without_rendering()
    legends = [legend.get_window_extent().transformed(figure.transFigure.inverted()).y0 for legend in figure.legends]
    figure.text(
        0.0, min([0.0, *legends]) - 0.01, text, ha="left", va="top", fontsize=CAPTION_SIZE, color=INK, gid="caption"
    )
    return figure


def caption(figure: Figure) -> str:
    """Return the caption of a finished figure, on one line."""
    return next(" ".join(text.get_text().split()) for text in figure.texts if text.get_gid() == "caption")


def colour_bar(figure: Figure, shown: ScalarMappable, axes: Sequence[Axes], label: str, **look: Any) -> None:
    """Add the colour scale next to its panels."""
    bar = figure.colorbar(shown, ax=list(axes), label=label, pad=0.01, **look)
    bar.outline.set_visible(False)
