"""What a planned study decides: one contrast of rows' scores for each claim, and each family's controls.

Exploratory contrasts decide nothing: those of other studies, and most of the plan's at other scales than `small`.
"""

from collections import Counter
from dataclasses import dataclass

from experiments.schema.hypotheses import Labelled

PRIMARY, POSITIVE, NEGATIVE = "primary", "positive control", "negative control"
SECOND = "primary, second plan"  # of PLAN2.md: one look, its own correction
EXPLORATORY = "exploratory"  # shown with its interval, and judged nowhere
KINDS = (PRIMARY, POSITIVE, NEGATIVE, SECOND, EXPLORATORY)
LOOKS = (5, 10, 20)  # seeds at which a planned contrast is tested at `small`
LOOKS_ELSEWHERE = (10,)  # the same at all other scales, where each paper's first claim has ten seeds from the start
HEADLINES = {"RankCSE": "R1", "RankEncoder": "E3", "WhitenedCSE": "W1", "CompCSE": "C1"}  # each paper's first claim
MARGIN = 1.0  # points of an average over seven sets within which two rows count as equivalent


def looks_at(scale_name: str) -> tuple[int, ...]:
    """Return after how many seeds the plan tests a contrast at a scale.

    A look's share of the information is its seeds over the last look's, also for rows that end before the last look.
    """
    return LOOKS if scale_name == "small" else LOOKS_ELSEWHERE


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The sum of the rows `plus` less the sum of the rows `minus`, in one column; positive in the claim's direction.

    A row named n times counts n times; the sum is divided by `over`. `paired`: rows that share a seed's order of data,
    start or base are compared seed by seed; else seeds are independent samples (Welch). `margin` is in the column's
    units. `published` is the same contrast of the paper's numbers. `subject`: a claim's id, or what a control is about.
    """

    subject: str
    family: str
    kind: str = PRIMARY
    plus: tuple[str, ...]
    minus: tuple[str, ...] = ()
    over: int = 1
    column: str = "sts_avg"
    paired: bool = False
    margin: float = MARGIN
    published: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.margin <= 0 or self.over < 1:
            raise ValueError(
                f"contrast {self.subject}: margin must be positive and over at least 1, "
                f"got {self.margin} and {self.over}"
            )

        if not self.weights:
            raise ValueError(f"contrast {self.subject}: no row has a weight")

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each row's mean, by label."""
        counts = Counter(self.plus)
        counts.subtract(self.minus)
        return {label: count / self.over for label, count in counts.items() if count}

    @property
    def rows(self) -> tuple[str, ...]:
        """The labels of all rows that it reads."""
        return tuple(dict.fromkeys((*self.plus, *self.minus)))

    @property
    def is_corrected(self) -> bool:
        """Whether it counts in Holm's correction over tests of a difference."""
        return self.kind in (PRIMARY, POSITIVE)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return (self.column,)


def must_help(
    treatment: Labelled, without: Labelled, family: str, *, column: str = "sts_avg", paired: bool = False
) -> Contrast:
    """Declare a family's positive control: a treatment that helps if the testbed can show anything."""
    return _control(POSITIVE, treatment, without, family, column, paired)


def must_not_help(
    treatment: Labelled, without: Labelled, family: str, *, column: str = "sts_avg", paired: bool = False
) -> Contrast:
    """Declare a family's negative control: a treatment without information."""
    return _control(NEGATIVE, treatment, without, family, column, paired)


def _control(kind: str, treatment: Labelled, without: Labelled, family: str, column: str, paired: bool) -> Contrast:
    return Contrast(
        subject=f"{treatment.label} over {without.label}",
        family=family,
        kind=kind,
        plus=(treatment.label,),
        minus=(without.label,),
        column=column,
        paired=paired,
    )
