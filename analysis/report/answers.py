"""Make README's table of answers: each paper's gain in print, its gains here, and whether to believe it and why."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from analysis.cells import Results
from analysis.report.blocks import block
from analysis.report.formats import Grid, estimate_text, number
from analysis.stats.estimate import Estimate
from analysis.verdicts.estimates import measure
from analysis.verdicts.gains import FIRST_ROWS, printed_by_paper, printed_gain
from experiments.cli.console import counted
from experiments.schema.contrasts import MEAN, Contrast

Choose = Callable[[str], list[Results]]  # the results of the studies that a name selects
NOT_RUN = "not run yet"
PLAN = "plan2-first-plan"
LIST_MLE, NOT_PRINTED = "RankCSE-listMLE", "not printed"


@dataclass(frozen=True)
class Shown:
    """A gain to show: the words before it, its study, the two rows it compares, and whether seed by seed.

    `printed` names the row of PRINTED to show beside it, if that is not the paper's first; NOT_PRINTED is for ours.
    """

    words: str
    study: str
    plus: str
    minus: str
    paired: bool = False
    printed: str = ""


# By paper: the gains to show, and whether to believe the paper. A gain that is not recorded says so.
ANSWERS: dict[str, tuple[tuple[Shown, ...], str]] = {
    "RankCSE": (
        (
            Shown("one epoch, ListNet", PLAN, "ListNet, one epoch", "SimCSE, one epoch"),
            Shown("one epoch, ListMLE", PLAN, "ListMLE, one epoch", "SimCSE, one epoch", printed=LIST_MLE),
            Shown("the same at the epoch's end", "plan-orders", "ListMLE, last", "SimCSE, last", printed=LIST_MLE),
            *(
                Shown(
                    f"one epoch, {loss}, a larger SimCSE teaches, planned",
                    "plan2-teachers",
                    f"{loss} taught by wiki-medium's SimCSE, one epoch",
                    "SimCSE, one epoch",
                    printed=row,
                )
                for loss, row in (("ListNet", ""), ("ListMLE", LIST_MLE))
            ),
            Shown(
                "one epoch, ListMLE, SimCSE of eight epochs teaches",
                "plan2-teachers",
                "ListMLE taught by SimCSE of eight epochs, one epoch",
                "SimCSE, one epoch",
                printed=LIST_MLE,
            ),
            Shown("eight epochs, ListNet, planned", PLAN, "ListNet, 8 epochs", "SimCSE, 8 epochs"),
            Shown("160 steps on a better encoder, ListNet, planned", "plan2-quality", "ListNet", "SimCSE"),
        ),
        "**Not shown, with one exception to test.** By the best checkpoint of an epoch, about level with SimCSE. "
        "ListMLE's is always an early one, and at the end of the epoch it is behind. A larger SimCSE as teacher does "
        "not help. If SimCSE of eight epochs teaches, ListMLE gains a point, less than half of it on pairs outside "
        "STS-B's dev and train sets. Eight epochs of ranking lose to as many of SimCSE, whichever SimCSE teaches. "
        "On a better encoder, taught by its SimCSE, ListNet loses too.",
    ),
    "RankEncoder": (
        (
            Shown(
                "one epoch, the paper's weight, seed by seed",
                "rankencoder-table4",
                "SimCSE, +RankEncoder",
                "SimCSE, base",
                paired=True,
            ),
            Shown("50 times that weight, seed by seed", "plan-orders", "RankEncoder", "SimCSE", paired=True),
            Shown("the same, eight epochs, planned", "plan-ranks", "RankEncoder, 8 epochs", "SimCSE, 8 epochs"),
            Shown(
                "the same, both scored by the cosine, planned",
                "plan2-ranks",
                "RankEncoder by cosine",
                "SimCSE by cosine",
            ),
            Shown(
                "160 steps on a better encoder, the paper's weight, planned", "plan2-quality", "RankEncoder", "SimCSE"
            ),
        ),
        "**A little, and not as published.** On the small model the rank loss rarely counts at the paper's weight. "
        "At 50 times that it gains nothing in one epoch and a little in eight. Scoring with ranks costs a little. "
        "On a better encoder the paper's weight counts in half of the steps, and RankEncoder loses.",
    ),
    "WhitenedCSE": (
        (
            Shown("the text's views, planned", "plan2-disjoint", "WhitenedCSE", "SimCSE"),
            Shown(
                "the released code's views, planned",
                "plan2-whitening",
                "WhitenedCSE, dropout views",
                "SimCSE",
            ),
            Shown("the same on a better encoder, planned", "plan2-quality", "WhitenedCSE, dropout views", "SimCSE"),
            Shown(
                "three such views, no whitening",
                "plan2-whitening",
                "three dropout views, no whitening",
                "SimCSE",
                printed=NOT_PRINTED,
            ),
        ),
        "**Depends on the reading.** With the text's views the encoder collapses and scores below the untrained one. "
        "With the released code's views it gains a fifth of what is printed, and more on a better encoder. "
        "Without whitening these views gain nothing on the small one.",
    ),
    "CompCSE": (
        (
            Shown("one epoch, planned", PLAN, "CompCSE", "SimCSE, the same ten seeds"),
            *(
                Shown(control, PLAN, control, "SimCSE, the same ten seeds", printed=NOT_PRINTED)
                for control in ("halves of shuffled words", "two random crops")
            ),
            Shown("160 steps on a better encoder, planned", "plan2-quality", "CompCSE", "SimCSE"),
            Shown("two random crops there", "plan2-quality", "two random crops", "SimCSE", printed=NOT_PRINTED),
        ),
        "**The gain, maybe; not its reason.** On the small model it is within a point of SimCSE, and the first plan "
        "gives its test no verdict. On a better encoder it gains about as much as published. On both, two random crops "
        "of the sentence, composed in the same way, gain at least as much, so its own halves are not needed.",
    ),
}


@block("page answers", of=lambda ask: (ask.choose,))
def answers_grid(choose: Choose) -> Grid:
    """Return a line for each paper: the printed gain over SimCSE, the gains here, whether to believe it and why."""
    printed = printed_by_paper()
    rows = tuple(
        (paper, number(printed[paper], sign=True), "<br>".join(_shown(choose, each) for each in shown), belief)
        for paper, (shown, belief) in ANSWERS.items()
    )
    return Grid("", ("paper", "its gain", "here", "believe it?"), rows)


def gains_shown(choose: Choose) -> list[tuple[str, str, Estimate | None, float | None]]:
    """Return each gain shown: its paper, the words before it, its estimate, and the printed gain, if there is one."""
    return [
        (paper, each.words, _gain(choose, each), printed_gain(each.printed or FIRST_ROWS[paper]))
        for paper, (shown, _) in ANSWERS.items()
        for each in shown
    ]


def _gain(choose: Choose, shown: Shown) -> Estimate | None:
    results = choose(shown.study)[0]
    contrast = contrast_of(results, shown.plus, shown.minus)
    return measure(results, replace(contrast, paired=contrast.paired or shown.paired)).estimate


def _shown(choose: Choose, shown: Shown) -> str:
    """Return a gain over SimCSE in words."""
    estimate = _gain(choose, shown)
    if estimate is None:
        return f"{shown.words}: {NOT_RUN}"
    return f"{shown.words}: {estimate_text(estimate)}, {counted(estimate.n, 'seed')}"


def contrast_of(results: Results, plus: str, minus: str) -> Contrast:
    """Return the declared contrast of two rows in the STS average, or make one if none is declared."""
    for each in results.study.contrasts:
        if (each.plus, each.minus, each.column) == ((plus,), (minus,), "sts_avg"):
            return each
    return Contrast(claim="", kind=MEAN, plus=(plus,), minus=(minus,), column="sts_avg")
