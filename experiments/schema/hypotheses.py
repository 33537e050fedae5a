"""How a study declares what it compares: `beats` and similar functions, and tests that are not contrasts of means."""

from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from experiments.schema.contrasts import BINS, EXPLORATORY, ONE_LOOK, SPREAD, Contrast, Labelled, of_rows

NEGLIGIBLE_COST_RATIO = 1.1  # what "very little time" and "little cost" are taken to mean


def beats(
    higher: Labelled, lower: Labelled, claim: str, column: str = "sts_avg", *, margin: float | None = None
) -> Contrast:
    """Declare that one row's mean in a column is higher than another's, compared seed by seed.

    With a `margin`, in the column's units, the contrast gets a verdict: better, worse, equivalent (within the margin)
    or inconclusive.
    """
    return _pair(higher, lower, claim, column, margin)


def is_below(
    lower: Labelled, higher: Labelled, claim: str, column: str = "sts_avg", *, margin: float | None = None
) -> Contrast:
    """Declare that one row's mean is lower than another's, in a column where low is good (alignment, uniformity)."""
    return _pair(higher, lower, claim, column, margin)


def equals(
    first: Labelled, second: Labelled, claim: str, column: str = "sts_avg", *, margin: float | None = None
) -> Contrast:
    """Declare that two rows' means are within `margin` of each other."""
    return _pair(first, second, claim, column, margin)


def beats_teacher(student: Labelled, teacher: Labelled, claim: str, seed: int, column: str = "sts_avg") -> Contrast:
    """Declare that a student's mean is higher than its teacher's score; the run of `seed` taught all its seeds."""
    return of_rows(student, teacher, claim=claim, column=column, paired=True, teacher_seed=seed)


def varies_less(steadier: Labelled, other: Labelled, claim: str, column: str = "sts_avg") -> Contrast:
    """Declare that one row's scores vary less over seeds than another's."""
    return of_rows(steadier, other, claim=claim, kind=SPREAD, column=column)


def is_positive(row: Labelled, claim: str, column: str) -> Contrast:
    """Declare that a row's score is above 0."""
    return of_rows(row, claim=claim, column=column)


def rises_over_bins(row: Labelled, claim: str, column: str) -> Contrast:
    """Declare that a row's rank correlation over bins of pairs is above 0."""
    return of_rows(row, claim=claim, kind=BINS, column=column)


def _pair(higher: Labelled, lower: Labelled, claim: str, column: str, margin: float | None) -> Contrast:
    role = EXPLORATORY if margin is None else ONE_LOOK
    return of_rows(higher, lower, claim=claim, role=role, column=column, paired=True, margin=margin)


@dataclass(frozen=True)
class Order:
    """A claim that two columns rank the rows alike; `other` is read from the rows with `suffix` after their labels."""

    claim: str
    labels: tuple[str, ...]
    column: str
    other: str
    suffix: str = ""

    @property
    def cells(self) -> tuple[tuple[str, str], ...]:
        """The cells that it reads, by row and column."""
        others = (label + self.suffix for label in self.labels)
        return (*product(self.labels, [self.column]), *product(others, [self.other]))


@dataclass(frozen=True)
class Trend:
    """A claim that `better` gains more over `worse` in columns `over` where `row` is higher in the columns `by`."""

    claim: str
    better: str
    worse: str
    over: tuple[str, ...]
    row: str
    by: tuple[str, ...]

    @property
    def cells(self) -> tuple[tuple[str, str], ...]:
        """The cells that it reads, by row and column."""
        return (*product((self.better, self.worse), self.over), *product((self.row,), self.by))


@dataclass(frozen=True)
class Cost:
    """A claim that something takes `times` as long as something else, or with `at_most` no longer than that.

    `what` names a ratio measured by a benchmark that runs both in turns (tests/benchmarks): the minutes of a sweep come
    from a shared machine. "As long" is within a tenth of `times`. A bound with `at_most` is this project's number for a
    paper's word ("little"); any other is the paper's.
    """

    claim: str
    what: str
    times: float
    at_most: bool = False
    cells: ClassVar[tuple[tuple[str, str], ...]] = ()


@dataclass(frozen=True)
class Untested:
    """A part of a claim that nothing here tests; listed so that no verdict is taken for one on the whole claim."""

    claim: str
    what: str
    why: str
    cells: ClassVar[tuple[tuple[str, str], ...]] = ()


Finding = Order | Trend | Cost | Untested
