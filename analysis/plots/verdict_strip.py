"""Draw how many claims of each paper have which verdict, in the plan and in the exploratory study."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.plots import style
from analysis.verdicts.claims import PAPERS, Claim
from analysis.verdicts.other_claims import CONTRADICTED, SUPPORTED
from analysis.verdicts.primaries import BETTER, EQUIVALENT, INCONCLUSIVE, NOT_RUN, NOT_TESTABLE, WITHIN, WORSE

EXPLORED = "explored only"  # a claim that the plan has no verdict on at this scale
EDGE: dict[str, Any] = {"edgecolor": style.INK, "linewidth": 0.5}
# The words of both studies, and whether a part's number is light on it.
LOOKS: dict[tuple[str, ...], tuple[dict[str, Any], bool]] = {
    (BETTER, SUPPORTED): ({"facecolor": "#117733"}, True),
    (WORSE, CONTRADICTED): ({"facecolor": "#D55E00"}, True),
    (EQUIVALENT,): ({"facecolor": "#0072B2"}, True),
    (INCONCLUSIVE, "undecided"): ({"facecolor": style.PALE}, False),
    (NOT_TESTABLE, "not tested"): ({"facecolor": "#ffffff"}, False),
    (NOT_RUN,): ({"facecolor": "#ffffff", "hatch": "////"}, False),
    (EXPLORED,): ({"facecolor": "#ffffff", "hatch": "...."}, False),
}


def verdict_strip(judged: Sequence[Claim], planned: Mapping[str, str], scale: str) -> Figure:
    """Draw two panels, each with a bar for each paper, divided by verdict, with the number of claims in each part."""
    figure, (decides, explores) = style.panels(2, 2, height=1.7, sharex=True, sharey=True)
    decided = {claim.id: planned.get(claim.id, EXPLORED).removesuffix(WITHIN) for claim in judged}
    explored = {claim.id: claim.verdict for claim in judged}
    _draw_bars(decides, decided)
    _draw_bars(explores, explored)
    decides.set(title="planned: decides", xlabel="claims")
    explores.set(title="exploratory: the papers' tables", xlabel="claims")
    decides.set_yticks(range(len(PAPERS)), list(PAPERS.values()))
    decides.invert_yaxis()
    drawn = {words: look for words, (look, _) in LOOKS.items() if {*words} & {*decided.values(), *explored.values()}}
    keys = [Patch(**look, **EDGE) for look in drawn.values()]
    style.legend_below(figure, keys, [" or ".join(words) for words in drawn], 3)
    caption = (
        f"{len(judged)} claims by verdict at scale {scale}. Exploratory, a claim of several readings counts once, "
        "by its most decided one. Claims of ours about a paper's method stand with the paper."
    )
    return style.add_title_and_caption(figure, "Which claims hold?", caption)


def _draw_bars(axes: Axes, verdicts: Mapping[str, str]) -> None:
    for y, letter in enumerate(PAPERS):
        counts, left = Counter(verdict for claim, verdict in verdicts.items() if claim.startswith(letter)), 0
        for words, (look, light) in LOOKS.items():
            if count := sum(counts[word] for word in words):
                axes.barh(y, count, left=left, **look, **EDGE)
                box = {"facecolor": "white", "linewidth": 0, "pad": 0.5} if "hatch" in look else None
                ink = "white" if light else style.INK
                axes.text(left + count / 2, y, str(count), ha="center", va="center", color=ink, bbox=box)
                left += count
