"""Draw how many claims of each paper have which verdict in the plan."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.plots import style
from analysis.verdicts.claims import PAPERS, claims
from analysis.verdicts.verdict import (
    BETTER,
    CONTRADICTED,
    EQUIVALENT,
    INCONCLUSIVE,
    NOT_RUN,
    NOT_TESTABLE,
    SUPPORTED,
    WITHIN,
    WORSE,
)

EXPLORED = "explored only"  # a claim that the plan has no verdict on at this scale
EDGE: dict[str, Any] = {"edgecolor": style.INK, "linewidth": 0.5}
# The words of contrasts and of other claims, and whether a part's number is light on it.
LOOKS: dict[tuple[str, ...], tuple[dict[str, Any], bool]] = {
    (BETTER, SUPPORTED): ({"facecolor": "#117733"}, True),
    (WORSE, CONTRADICTED): ({"facecolor": "#D55E00"}, True),
    (EQUIVALENT,): ({"facecolor": "#0072B2"}, True),
    (INCONCLUSIVE,): ({"facecolor": style.PALE}, False),
    (NOT_TESTABLE,): ({"facecolor": "#ffffff"}, False),
    (NOT_RUN,): ({"facecolor": "#ffffff", "hatch": "////"}, False),
    (EXPLORED,): ({"facecolor": "#ffffff", "hatch": "...."}, False),
}


def verdict_strip(verdicts: Mapping[str, str], scale: str) -> Figure:
    """Draw a bar for each paper, divided by the verdicts on its claims, with the number of claims in each part."""
    figure, (axes,) = style.panels(1, 1, height=1.7)
    words = {claim: verdicts.get(claim, EXPLORED).removesuffix(WITHIN) for claim in claims()}
    for y, letter in enumerate(PAPERS):
        counts, left = Counter(word for claim, word in words.items() if claim.startswith(letter)), 0
        for names, (look, light) in LOOKS.items():
            if count := sum(counts[name] for name in names):
                axes.barh(y, count, left=left, **look, **EDGE)
                box = {"facecolor": "white", "linewidth": 0, "pad": 0.5} if "hatch" in look else None
                ink = "white" if light else style.INK
                axes.text(left + count / 2, y, str(count), ha="center", va="center", color=ink, bbox=box)
                left += count
    axes.set(xlabel="claims", yticks=range(len(PAPERS)), yticklabels=list(PAPERS.values()))
    axes.invert_yaxis()
    drawn = {names: look for names, (look, _) in LOOKS.items() if {*names} & {*words.values()}}
    keys = [Patch(**look, **EDGE) for look in drawn.values()]
    style.legend_below(figure, keys, [" or ".join(names) for names in drawn], 3)
    caption = (
        f"{len(words)} claims by the plan's verdict at scale {scale}. Ours about a paper's method are with the paper."
    )
    return style.add_title_and_caption(figure, "Which claims hold?", caption)
