"""What a study compares: contrasts of rows' scores, and their roles in a plan.

Most contrasts are exploratory: they are shown with their interval and get no verdict. A plan's contrasts and their
controls get verdicts, and so do contrasts of a user's own study that declare a margin.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

PRIMARY, POSITIVE, NEGATIVE = "primary", "positive control", "negative control"  # of PLAN.md: several looks
ONE_LOOK = "primary, one look"  # of PLAN2.md and of a user's own study: tested once, when all its seeds are there
EXPLORATORY = "exploratory"
ROLES = (PRIMARY, POSITIVE, NEGATIVE, ONE_LOOK, EXPLORATORY)
MEAN, SPREAD, BINS = "mean", "spread", "bins"
KINDS = (MEAN, SPREAD, BINS)
LOOKS = (5, 10, 20)  # seeds at which a planned contrast is tested at `small`
LOOKS_ELSEWHERE = (10,)  # the same at all other scales, where each paper's first claim has ten seeds from the start
HEADLINES = {"RankCSE": "R1", "RankEncoder": "E3", "WhitenedCSE": "W1", "CompCSE": "C1"}  # each paper's first claim
MARGIN = 1.0  # points of an average over seven sets within which two planned rows count as equivalent


class Labelled(Protocol):
    """A row of a study (study.Row)."""

    @property
    def label(self) -> str: ...


def looks_at(scale_name: str) -> tuple[int, ...]:
    """Return the numbers of seeds at which the plan tests a contrast at a scale.

    A look's share of the information is its number of seeds divided by the last look's, even for rows that end earlier.
    """
    return LOOKS if scale_name == "small" else LOOKS_ELSEWHERE


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The sum of the rows `plus` minus the sum of the rows `minus`, in one column; positive in the claim's direction.

    A row named n times counts n times; the sum is divided by `over`. `paired` compares seed by seed; otherwise seeds
    are independent samples (Welch). With `teacher_seed`, only the run of that seed counts in `minus`: it taught all
    seeds of `plus`. Kind "spread" is the ratio of the two rows' standard deviations over seeds, "bins" is one row's
    rank correlation over bins of pairs. Every role but exploratory needs a `margin`, in the column's units. `added` is
    the paper's effect, found after the runs, where the rows' published numbers don't give it.
    """

    claim: str = ""  # its id, or what the contrast is about
    family: str = ""  # of a plan, whose controls decide whether its claims can be judged
    role: str = EXPLORATORY
    kind: str = MEAN
    plus: tuple[str, ...]
    minus: tuple[str, ...] = ()
    over: int = 1
    column: str = "sts_avg"
    paired: bool = False
    margin: float | None = None
    teacher_seed: int | None = None
    added: float | None = None

    def __post_init__(self) -> None:
        for name, value, known in (("role", self.role, ROLES), ("kind", self.kind, KINDS)):
            if value not in known:
                raise ValueError(f"contrast {self.name}: {name} must be one of {', '.join(known)}, got {value!r}")
        judged = self.role != EXPLORATORY
        if (judged and self.margin is None) or (self.margin is not None and self.margin <= 0) or self.over < 1:
            raise ValueError(
                f"contrast {self.name}: margin must be positive and over at least 1, got {self.margin} and {self.over}"
            )
        if not self.weights:
            raise ValueError(f"contrast {self.name}: no row has a weight")

    @property
    def name(self) -> str:
        """The claim, or its rows if there is none."""
        return self.claim or " over ".join(" and ".join(side) for side in (self.plus, self.minus) if side)

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
    def cells(self) -> tuple[tuple[str, str], ...]:
        """The cells that it reads, by row and column."""
        return tuple((label, self.column) for label in self.rows)

    @property
    def is_of_two_rows(self) -> bool:
        """Whether it is a difference of two rows' means over seeds."""
        one_each = len(self.plus) == len(self.minus) == self.over == 1
        return self.kind == MEAN and one_each and self.teacher_seed is None


def of_rows(plus: Labelled | Sequence[Labelled], minus: Labelled | Sequence[Labelled] = (), **more: Any) -> Contrast:
    """Declare a contrast of rows; a side may be a single row."""
    more_rows, less_rows = (side if isinstance(side, Sequence) else (side,) for side in (plus, minus))
    return Contrast(plus=tuple(row.label for row in more_rows), minus=tuple(row.label for row in less_rows), **more)


def must_help(treatment: Labelled, without: Labelled, family: str, **more: Any) -> Contrast:
    """Declare a family's positive control: a treatment that helps if the testbed can show anything."""
    return of_rows(treatment, without, family=family, role=POSITIVE, margin=MARGIN, **more)


def must_not_help(treatment: Labelled, without: Labelled, family: str, **more: Any) -> Contrast:
    """Declare a family's negative control: a treatment without information."""
    return of_rows(treatment, without, family=family, role=NEGATIVE, margin=MARGIN, **more)
