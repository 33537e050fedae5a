"""Draw how many claims of each paper are supported, contradicted, undecided or not tested."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.plots import style
from analysis.verdicts.claims import PAPERS, Claim, count_verdicts

COLOURS = {"supported": "#117733", "contradicted": "#D55E00", "undecided": "#c4c4c4", "not tested": "#ffffff"}
LIGHT = ("undecided", "not tested")  # these colours have dark numbers
EDGE: dict[str, Any] = {"edgecolor": style.INK, "linewidth": 0.5}


def verdict_strip(judged: Sequence[Claim], scale: str) -> Figure:
    """Draw a bar for each paper, divided by verdict, with the number of claims in each part."""
    figure, (axes,) = style.panels(1, 1, height=1.6)
    for y, letter in enumerate(PAPERS):
        counts, left = count_verdicts(claim for claim in judged if claim.id.startswith(letter)), 0
        for verdict, colour in COLOURS.items():
            if count := counts[verdict]:
                axes.barh(y, count, left=left, color=colour, **EDGE)
                ink = style.INK if verdict in LIGHT else "white"
                axes.text(left + count / 2, y, str(count), ha="center", va="center", color=ink)
                left += count
    axes.set_yticks(range(len(PAPERS)), list(PAPERS.values()))
    axes.invert_yaxis()
    axes.set(xlabel="claims")
    keys = [Patch(facecolor=colour, **EDGE) for colour in COLOURS.values()]
    style.legend_below(figure, keys, list(COLOURS), len(COLOURS))
    caption = (
        f"{len(judged)} claims by their verdict at scale {scale}; a claim of several readings counts once, by its most "
        "decided one. Claims of ours about a paper's method stand with the paper."
    )
    return style.add_title_and_caption(figure, "Which claims hold?", caption)
