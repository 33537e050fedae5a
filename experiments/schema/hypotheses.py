"""What a study tests for a claim: one row against another, the order of rows, a trend over columns, a cost."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

NEGLIGIBLE_COST_RATIO = 1.1  # what "very little time" and "little cost" are taken to mean
MARGIN = 0.2  # points; two means within it count as equal. The papers' footnotes call 0.17 points a difference


@dataclass(frozen=True)
class Comparison:
    """A claim about two rows of a study: `better` beats `worse` in a column.

    Declare one with `beats` and the functions below it. The kinds: "mean", the mean is higher; "beyond", it is higher
    by more than `margin`; "spread", scores vary less over seeds; "same", the means are within `margin` of each other;
    "teacher", it is higher than the one score of the run of `worse` that taught all seeds, that of `teacher_seed`;
    "parity", the mean is within `margin` of `value`. "positive", "bins" and "parity" are about one row. The test is
    skipped unless the first row of `only_if_better` has the higher mean (with `teacher_seed`, the higher score of that
    seed), and if the two rows of `requires_difference` score identically (the mechanism had no effect). `reading` names
    one way to read an ambiguous text; each reading has its own verdict.
    """

    claim: str
    better: str
    worse: str
    column: str = "sts_avg"
    kind: str = "mean"
    margin: float = MARGIN
    only_if_better: tuple[str, str] | None = None
    requires_difference: tuple[str, str] | None = None
    reading: str = ""
    teacher_seed: int | None = None
    value: float = 0.0


class Labelled(Protocol):
    """A row of a study (study.Row)."""

    @property
    def label(self) -> str: ...


Pair = tuple[Labelled, Labelled]


def beats(
    higher: Labelled,
    lower: Labelled,
    claim: str,
    column: str = "sts_avg",
    *,
    only_if_better: Pair | None = None,
    requires_difference: Pair | None = None,
    reading: str = "",
    teacher_seed: int | None = None,
) -> Comparison:
    """Declare that one row's mean in a column is higher than another's."""
    return Comparison(
        claim,
        higher.label,
        lower.label,
        column,
        only_if_better=_labels(only_if_better),
        requires_difference=_labels(requires_difference),
        reading=reading,
        teacher_seed=teacher_seed,
    )


def beats_teacher(student: Labelled, teacher: Labelled, claim: str, seed: int, column: str = "sts_avg") -> Comparison:
    """Declare that a student's mean is higher than the score of the run, of that seed, that taught all its seeds."""
    return Comparison(claim, student.label, teacher.label, column, "teacher", teacher_seed=seed)


def is_below(lower: Labelled, higher: Labelled, claim: str, column: str, *, reading: str = "") -> Comparison:
    """Declare that one row's mean is lower than another's, in a column where low is good (alignment, uniformity)."""
    return beats(higher, lower, claim, column, reading=reading)


def beats_by(margin: float, higher: Labelled, lower: Labelled, claim: str, column: str = "sts_avg") -> Comparison:
    """Declare that one row's mean is higher than another's by more than `margin` points."""
    return Comparison(claim, higher.label, lower.label, column, "beyond", margin)


def equals(
    first: Labelled,
    second: Labelled,
    claim: str,
    column: str = "sts_avg",
    *,
    margin: float = MARGIN,
    only_if_better: Pair | None = None,
) -> Comparison:
    """Declare that two rows' means are within `margin` of each other."""
    pair = _labels(only_if_better)
    return Comparison(claim, first.label, second.label, column, "same", margin, only_if_better=pair)


def is_near(value: float, row: Labelled, claim: str, column: str, *, margin: float, reading: str = "") -> Comparison:
    """Declare that a row's mean is within `margin` of a value."""
    return Comparison(claim, row.label, row.label, column, "parity", margin, reading=reading, value=value)


def varies_less(steadier: Labelled, other: Labelled, claim: str, column: str = "sts_avg") -> Comparison:
    """Declare that one row's scores vary less over seeds than another's."""
    return Comparison(claim, steadier.label, other.label, column, "spread")


def is_positive(row: Labelled, claim: str, column: str, *, reading: str = "") -> Comparison:
    """Declare that a row's score is above 0."""
    return Comparison(claim, row.label, row.label, column, "positive", reading=reading)


def rises_over_bins(row: Labelled, claim: str, column: str) -> Comparison:
    """Declare that a row's rank correlation over bins of pairs is above 0."""
    return Comparison(claim, row.label, row.label, column, "bins")


def _labels(pair: Pair | None) -> tuple[str, str] | None:
    return (pair[0].label, pair[1].label) if pair else None


@dataclass(frozen=True)
class Order:
    """A claim that two columns rank the rows alike, or that the rows rank like those whose labels end in `suffix`."""

    claim: str
    rows: tuple[str, ...]
    column: str
    other: str
    suffix: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the test needs."""
        return (self.column, self.other)


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
    def columns(self) -> tuple[str, ...]:
        """The columns that the test needs."""
        return (*self.over, *self.by)


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
    reading: str = ""
    columns: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Untested:
    """A part of a claim that nothing here tests; listed so that no verdict is read as one on the whole claim."""

    claim: str
    what: str
    why: str
    columns: ClassVar[tuple[str, ...]] = ()


Finding = Order | Trend | Cost | Untested
