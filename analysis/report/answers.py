"""Make README's table of answers: each paper's gain in print, its gains here, and how to read them."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from analysis.cells import Results
from analysis.report.blocks import block
from analysis.report.comparison_tables import summaries
from analysis.report.formats import Grid, estimate_text, number
from analysis.report.values import value_text
from analysis.stats.estimate import Estimate
from analysis.verdicts.comparison import Gain, paper_gains
from analysis.verdicts.estimates import measure
from analysis.verdicts.gains import FIRST_ROWS, printed_gain
from experiments.schema.contrasts import MEAN, Contrast

Choose = Callable[[str, str], Results]  # a study's results, in a column
NOT_RUN, NOT_COMPLETE = "not run yet", "not complete"
NO_BREAK = "\N{NO-BREAK SPACE}"
PLANNED = f"{NO_BREAK}\N{DAGGER}"
EQUALLY_TUNED = "equally tuned, planned (by searches)"
PLAN, BETTER = "plan2-first-plan", "plan2-quality"
LIST_MLE, NOT_PRINTED = "RankCSE-listMLE", "not printed"


@dataclass(frozen=True)
class Shown:
    """A gain to show: the words before it, its study, the two rows it compares, and whether seed by seed.

    `printed` names the row of PRINTED to show beside it, if that is not the paper's first; NOT_PRINTED is for ours.
    `brief` has the words before it in the table; with None it is in the figure alone.
    """

    words: str
    study: str
    plus: str
    minus: str
    paired: bool = False
    printed: str = ""
    brief: str | None = None
    planned: bool = False

    @property
    def better(self) -> bool:
        """Whether the gain was measured on the better encoder, minilm-remasked."""
        return self.study == BETTER

    @property
    def full_words(self) -> str:
        """The words before the gain in the figure."""
        return f"{'better encoder: ' if self.better else ''}{self.words}{', planned' if self.planned else ''}"


# By paper: the gains to show, and how to read them; {R1} is the value R1 of the pages.
ANSWERS: dict[str, tuple[tuple[Shown, ...], str]] = {
    "RankCSE": (
        (
            Shown("ListNet, one epoch", PLAN, "ListNet, one epoch", "SimCSE, one epoch", brief="ListNet"),
            Shown(
                "ListMLE, one epoch",
                PLAN,
                "ListMLE, one epoch",
                "SimCSE, one epoch",
                printed=LIST_MLE,
                brief="ListMLE",
            ),
            Shown("ListMLE at the epoch's end", "plan-orders", "ListMLE, last", "SimCSE, last", printed=LIST_MLE),
            *(
                Shown(
                    f"{loss}, one epoch, a larger SimCSE teaches",
                    "plan2-teachers",
                    f"{loss} taught by wiki-medium's SimCSE, one epoch",
                    "SimCSE, one epoch",
                    printed=row,
                    planned=True,
                )
                for loss, row in (("ListNet", ""), ("ListMLE", LIST_MLE))
            ),
            Shown(
                "ListMLE, one epoch, SimCSE of eight teaches",
                "plan2-teachers",
                "ListMLE taught by SimCSE of eight epochs, one epoch",
                "SimCSE, one epoch",
                printed=LIST_MLE,
            ),
            Shown("ListNet, eight epochs", PLAN, "ListNet, 8 epochs", "SimCSE, 8 epochs", planned=True),
            Shown("ListNet", BETTER, "ListNet", "SimCSE", brief="ListNet", planned=True),
            Shown("ListMLE", BETTER, "ListMLE", "SimCSE", printed=LIST_MLE, brief="ListMLE"),
            *(
                Shown(taught, BETTER, taught, "SimCSE", printed=NOT_PRINTED)
                for taught in ("ListNet, MiniLM teaches", "ListMLE, MiniLM teaches")
            ),
        ),
        "**Not shown.** Taught by a SimCSE of its own size (the paper has a larger one too), it loses on the better "
        "encoder. On the small model ListMLE gains a little, but not on disjoint pairs, and after eight epochs ListNet "
        "is {R1} points behind. Better SimCSE teachers were tried in [eight ways](REPORT.md#rankcse): two teachers, "
        "two losses, two lengths. The largest gain is {one.ListMLE.equal} points ({one.ListMLE.equal.disjoint} on "
        "disjoint pairs). Equally tuned, it gains {tuned.rankcse.dev} points on STS-B dev, which chose the settings, "
        "and {tuned.rankcse.stsb} on STS-B's test set, but {tuned.rankcse.others} on the six others. The better "
        "encoder was made from MiniLM, a supervised model. Taught by MiniLM, RankCSE gains {D1.MiniLM} there.",
    ),
    "RankEncoder": (
        (
            Shown(
                "the paper's weight, one epoch",
                "rankencoder-table4",
                "SimCSE, +RankEncoder",
                "SimCSE, base",
                paired=True,
                brief="",
            ),
            Shown("50 times that weight, one epoch", "plan-orders", "RankEncoder", "SimCSE", paired=True),
            Shown(
                "50 times that weight, eight epochs",
                "plan-ranks",
                "RankEncoder, 8 epochs",
                "SimCSE, 8 epochs",
                planned=True,
            ),
            Shown(
                "the same, both scored by the cosine",
                "plan2-ranks",
                "RankEncoder by cosine",
                "SimCSE by cosine",
                planned=True,
            ),
            Shown("the paper's weight", BETTER, "RankEncoder", "SimCSE", brief="", planned=True),
            Shown("the same, both scored by the cosine", BETTER, "RankEncoder by cosine", "SimCSE"),
        ),
        "**No gain at the paper's weight.** A step uses the larger of two losses. On the small model that is the rank "
        "loss in {one.rank.larger} % of the steps of one epoch, and in {E6} % of eight, so the method is hardly tested "
        "there. On the better encoder it is in {D2.larger} %. RankEncoder scores {D2} less there, or {D2.training} "
        "less if both are scored by the cosine. At 50 times the paper's weight of 0.05 it gains {A4} on the small "
        "model in eight epochs. The searches draw weights of 1 to 50 and at most two epochs, and show no gain.",
    ),
    "WhitenedCSE": (
        (
            Shown(
                "as its code does (dropout views)",
                "plan2-whitening",
                "WhitenedCSE, dropout views",
                "SimCSE",
                brief="as its code",
                planned=True,
            ),
            Shown("as its text says", "plan2-disjoint", "WhitenedCSE", "SimCSE", brief="as its text", planned=True),
            Shown(
                "as its code does (dropout views)",
                BETTER,
                "WhitenedCSE, dropout views",
                "SimCSE",
                brief="as its code",
                planned=True,
            ),
            Shown(
                "dropout views, no whitening",
                "plan2-whitening",
                "three dropout views, no whitening",
                "SimCSE",
                printed=NOT_PRINTED,
            ),
        ),
        "**A little, as its code does it, over an untuned SimCSE.** In its code each view is a pass with its own "
        "dropout. The paper's text has one pass for all views; built so, the encoder collapses. On the small model "
        "three such passes without whitening show no gain, and batch norm of each channel gains as much as whitening. "
        "When both are tuned no gain is shown, but one as large as over the untuned SimCSE is not ruled out. On "
        "wiki-medium, another encoder of six layers, it gains {medium.whitenedcse.untuned} where nothing is tuned (an "
        "estimate), and [its planned test](REPORT.md#equal-tuning) is inconclusive.",
    ),
    "CompCSE": (
        (
            Shown("CompCSE, one epoch", PLAN, "CompCSE", "SimCSE, ten seeds", brief="", planned=True),
            Shown(
                "halves of shuffled words",
                PLAN,
                "halves of shuffled words",
                "SimCSE, ten seeds",
                printed=NOT_PRINTED,
            ),
            Shown("two random crops", PLAN, "two random crops", "SimCSE, ten seeds", printed=NOT_PRINTED),
            Shown("CompCSE", BETTER, "CompCSE", "SimCSE", brief="", planned=True),
            *(
                Shown(control, BETTER, control, "SimCSE", printed=NOT_PRINTED)
                for control in ("two random crops", "halves of shuffled words", "first half alone")
            ),
        ),
        "**A gain on the better encoder, where halves are not needed.** There it is as large as in print. But two "
        "random crops of the sentence, averaged as its halves are, gain as much on all pairs and more on disjoint "
        "ones, and halves of its shuffled words gain {D.shuffled}. On the small model CompCSE shows no gain, tuned or "
        "not; crops gain {crops}. On wiki-medium, another encoder of six layers, it gains {medium.compcse.untuned} "
        "where nothing is tuned (an estimate; crops were not tried), and [its planned test](REPORT.md#equal-tuning) "
        "is inconclusive.",
    ),
}


@block(
    "page answers",
    of=lambda ask: (
        partial(ask.record.in_column, scale=ask.scale),
        *(paper_gains(summaries(ask.record, ask.scale), "wiki-tiny", measure) for measure in range(2)),
        partial(value_text, record=ask.record),
    ),
)
def answers_grid(
    choose: Choose, tuned: Mapping[str, Gain], apart: Mapping[str, Gain], value: Callable[[str], str]
) -> Grid:
    """Return a line for each paper: the printed gain over SimCSE, the gains here, and how to read them.

    `tuned` has the small model's gains when the method and SimCSE are tuned alike, and a column if there are any;
    `apart` has the same on disjoint pairs.
    `value` gives a value of the pages by its name.
    """

    def gains(shown: tuple[Shown, ...], *, better: bool) -> str:
        return "<br>".join(_text(choose, each) for each in shown if each.brief is not None and each.better == better)

    rows = tuple(
        (
            paper,
            "<br>".join(_printed(paper, shown)),
            *([_tuned_text(tuned.get(paper), apart.get(paper))] if tuned else []),
            gains(shown, better=False),
            gains(shown, better=True),
            re.sub(r"{(.+?)}", lambda name: value(name[1]), reading),
        )
        for paper, (shown, reading) in ANSWERS.items()
    )
    header = ("printed gain", *(("small model, equally tuned",) if tuned else ()), "small model", "better encoder")
    return Grid("", ("paper", *header, "how to read it"), rows)


def _printed(paper: str, shown: tuple[Shown, ...]) -> list[str]:
    """Return a paper's printed gains: one for each of its losses, if they differ."""
    of_table = [each for each in shown if each.brief is not None and not each.better]
    found = {each.brief: number(printed_gain(each.printed or FIRST_ROWS[paper]), sign=True) for each in of_table}
    several = len(set(found.values())) > 1
    return [f"{name}: {gain}" for name, gain in found.items()] if several else list(found.values())[:1]


def _tuned_text(gain: Gain | None, apart: Gain | None) -> str:
    """Return a gain over a tuned SimCSE, that on disjoint pairs in parentheses, the verdict and the test's power."""
    if gain is None:
        return NOT_COMPLETE
    disjoint = f" ({number(apart.estimate.mean, sign=True)})" if apart and apart.estimate else ""
    power = "" if gain.detectable is None else f", 80 % power for {number(gain.detectable, digits=1)}"
    return f"{_unbroken(gain.estimate)}{disjoint}{PLANNED}: **{gain.verdict}**{power}"


def gains_shown(choose: Choose, tuned: Mapping[str, Gain]) -> Iterator[tuple[str, str, Estimate | None, float | None]]:
    """Yield each gain shown: its paper, the words before it, its estimate, and the printed gain, if there is one."""
    for paper, (shown, _) in ANSWERS.items():
        if paper in tuned:
            yield paper, EQUALLY_TUNED, tuned[paper].estimate, printed_gain(FIRST_ROWS[paper])
        for each in shown:
            yield paper, each.full_words, _gain(choose, each), printed_gain(each.printed or FIRST_ROWS[paper])


def _gain(choose: Choose, shown: Shown, column: str = "sts_avg") -> Estimate | None:
    results = choose(shown.study, column)
    contrast = contrast_of(results, shown.plus, shown.minus)
    if not all((label, column) in results.cells for label in contrast.rows):
        return None
    return measure(results, replace(contrast, column=column, paired=contrast.paired or shown.paired)).estimate


def _text(choose: Choose, shown: Shown) -> str:
    """Return a gain over SimCSE with its seeds, and in parentheses that on disjoint pairs, if all seeds have it."""
    estimate, disjoint = _gain(choose, shown), _gain(choose, shown, "sts_disjoint_avg")
    words = f"{shown.brief}: " if shown.brief else ""
    if estimate is None:
        return f"{words}{NOT_RUN}"
    apart = f" ({number(disjoint.mean, sign=True)})" if disjoint and disjoint.n == estimate.n else ""
    seeds = f"{estimate.n} seeds".replace(" ", NO_BREAK)
    return f"{words}{_unbroken(estimate)}{apart}{PLANNED if shown.planned else ''}, {seeds}"


def _unbroken(estimate: Estimate | None) -> str:
    """Return an estimate with its interval, which no line break parts in a narrow column."""
    return estimate_text(estimate).replace(" ", NO_BREAK)


def contrast_of(results: Results, plus: str, minus: str) -> Contrast:
    """Return the declared contrast of two rows in the STS average, or make one if none is declared."""
    for each in results.study.contrasts:
        if (each.plus, each.minus, each.column) == ((plus,), (minus,), "sts_avg"):
            return each
    return Contrast(claim="", kind=MEAN, plus=(plus,), minus=(minus,), column="sts_avg")
