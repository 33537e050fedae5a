"""Make README's four lines: what each paper's first claim comes to here, by which reading and training, and why."""

from collections.abc import Callable, Sequence

from analysis.cells import Results
from analysis.report.blocks import block
from analysis.report.formats import Grid, interval, number
from analysis.verdicts.estimates import measure
from experiments.cli.console import counted
from experiments.schema.contrasts import MEAN, Contrast

Choose = Callable[[str], list[Results]]  # the results of the studies of a name
Shown = tuple[str, str, str, str]  # words before a gain, its study, the two rows that it is the difference of
NOT_RUN = "not run yet"
PLAN = "plan2-first-plan"
# By paper the printed gain, what is shown of it, and whether to believe the paper here. A gain that is not recorded
# says so.
ANSWERS: dict[str, tuple[str, tuple[Shown, ...], str]] = {
    "RankCSE": (
        "+3.80",
        (
            ("one epoch, as published: ListNet", PLAN, "ListNet, one epoch", "SimCSE, one epoch"),
            ("ListMLE", PLAN, "ListMLE, one epoch", "SimCSE, one epoch"),
            ("eight epochs, the planned test: ListNet", PLAN, "ListNet, 8 epochs", "SimCSE, 8 epochs"),
        ),
        "**Not shown.** Level with SimCSE after one epoch. The loss after eight is of the length of training: its "
        "teachers are then worse than the SimCSE beside it, which the paper's were not.",
    ),
    "RankEncoder": (
        "+2.10",
        (
            ("one epoch, as published", "plan2-disjoint", "RankEncoder", "SimCSE"),
            (
                "eight epochs, 50 times the paper's weight, the planned test",
                "plan-ranks",
                "RankEncoder, 8 epochs",
                "SimCSE, 8 epochs",
            ),
        ),
        "**A little, and not as published.** At the paper's weight the rank loss hardly ever counts. At 50 times that "
        "there is a gain, scored with ranks on one side only.",
    ),
    "WhitenedCSE": (
        "+2.53",
        (
            ("views as the text has them, the planned test", "plan2-disjoint", "WhitenedCSE", "SimCSE"),
            (
                "dropout views, as released, the second plan's test",
                "plan2-whitening",
                "WhitenedCSE, dropout views",
                "SimCSE",
            ),
            ("three such views without whitening", "plan2-whitening", "three dropout views, no whitening", "SimCSE"),
        ),
        "**Depends on the reading.** By the text its views collapse, below the untrained encoder. With those of the "
        "released code it gains a fifth of what is printed, and the views without whitening do not.",
    ),
    "CompCSE": (
        "+1.93",
        (
            ("one epoch, as published, the planned test", PLAN, "CompCSE", "SimCSE, the same ten seeds"),
            ("halves of shuffled words instead", PLAN, "halves of shuffled words", "SimCSE, the same ten seeds"),
            ("two random crops instead", PLAN, "two random crops", "SimCSE, the same ten seeds"),
        ),
        "**Not for its reason.** Within a point of SimCSE, and what needs no halves of a sentence helps as much.",
    ),
}


@block("page answers", of=lambda ask: (ask.choose,))
def answers_grid(choose: Choose) -> Grid:
    """Return a line for each paper: the printed gain over SimCSE, the gains here, whether to believe it and why."""
    rows = tuple(
        (paper, printed, "<br>".join(filter(None, (_shown(choose, *each) for each in shown))), belief)
        for paper, (printed, shown, belief) in ANSWERS.items()
    )
    return Grid("", ("paper", "its gain", "here", "believe it?"), rows)


def _shown(choose: Choose, words: str, study: str, plus: str, minus: str) -> str:
    """Return a gain over SimCSE in words."""
    results = choose(study)[0]
    estimate = measure(results, contrast_of(results, plus, minus)).estimate
    if estimate is None:
        return f"{words}: {NOT_RUN}"
    seeds = counted(estimate.n, "seed")
    return f"{words}: {number(estimate.mean, sign=True)} {interval(estimate.interval, sign=True)}, {seeds}"


def contrast_of(results: Results, plus: str, minus: str) -> Contrast:
    """Return the declared contrast of two rows in the STS average, or one as if it were declared."""
    of_rows: Sequence[Contrast] = [
        each
        for each in results.study.contrasts
        if isinstance(each, Contrast) and (each.plus, each.minus, each.column) == ((plus,), (minus,), "sts_avg")
    ]
    return of_rows[0] if of_rows else Contrast(claim="", kind=MEAN, plus=(plus,), minus=(minus,), column="sts_avg")
