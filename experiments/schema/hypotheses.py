"""What a study compares for a claim: two rows, orders of rows, a trend over columns, what something costs."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

NEGLIGIBLE_COST_RATIO = 1.1  # times: what "very little time" and "little cost" are taken to mean
MARGIN = 0.2  # points within which two means are the same: what footnotes of the papers call a difference is 0.17


@dataclass(frozen=True)
class Comparison:
    """A claim as two rows of a study: `better` beats `worse` in a column.

    Declare one with `beats` and the functions below it. Of kind "mean" by the mean, "beyond" by more than `margin`,
    "spread" by varying less over seeds, "same" by a mean within `margin` of the other's; "positive" and "bins" are of
    one row. The test is skipped unless the first row of `only_if_better` has the higher mean, and if the two rows of
    `requires_difference` score identically. `reading`: of a text that can be read in several ways, which; each has its
    own verdict.
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
    )


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


def varies_less(steadier: Labelled, other: Labelled, claim: str, column: str = "sts_avg") -> Comparison:
    """Declare that one row's scores vary less over seeds than another's."""
    return Comparison(claim, steadier.label, other.label, column, "spread")


def is_positive(row: Labelled, claim: str, column: str) -> Comparison:
    """Declare that a row's score is above 0."""
    return Comparison(claim, row.label, row.label, column, "positive")


def rises_over_bins(row: Labelled, claim: str, column: str) -> Comparison:
    """Declare that a row's rank correlation over ten bins of pairs is above 0."""
    return Comparison(claim, row.label, row.label, column, "bins")


def _labels(pair: Pair | None) -> tuple[str, str] | None:
    return (pair[0].label, pair[1].label) if pair else None


@dataclass(frozen=True)
class Order:
    """A claim that rows have the same order by two columns, or as they are and as the rows with a suffix."""

    claim: str
    rows: tuple[str, ...]
    column: str
    other: str
    suffix: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """What it reads."""
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
        """What it reads."""
        return (*self.over, *self.by)


@dataclass(frozen=True)
class Cost:
    """A claim that something takes `times` as long as something else, or at most so; `what` is a benchmark's ratio.

    What "at most" stands for a word of a paper ("little") is this project's number, else it is the paper's.

    Costs are judged by turns taken in one run (tests/benchmarks), as minutes of a sweep are those of a shared machine.
    """

    claim: str
    what: str
    times: float
    at_most: bool = False
    reading: str = ""
    columns: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Untested:
    """A part of a claim that nothing here tests, so that its other parts are not taken for the whole."""

    claim: str
    what: str
    why: str
    columns: ClassVar[tuple[str, ...]] = ()


Finding = Order | Trend | Cost | Untested
