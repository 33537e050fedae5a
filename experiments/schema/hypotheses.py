"""What a study compares for a claim: two rows, orders of rows, a trend over columns, what something costs."""

from dataclasses import dataclass
from typing import ClassVar

LITTLE = 1.1  # times: what "very little time" and "little cost" are taken to mean
MARGIN = 0.2  # points within which two means are the same: what footnotes of the papers call a difference is 0.17


@dataclass(frozen=True)
class Comparison:
    """A claim as two rows of a study: `better` beats `worse` in the column `task`.

    Of kind "mean" by the mean, "beyond" by more than `margin`, "spread" by varying less over seeds, "same" by a mean
    within `margin` of the other's; "positive" has no `worse`: the row's score is above 0; "bins": so is its rank
    correlation over ten bins of pairs. `given` are two rows of which the first must have the higher mean here, or there
    is nothing to test. `acts` are two rows whose scores must differ, or what is claimed of the first was never at work.
    `reading`: of a text that can be read in several ways, which; each has its own verdict.
    """

    claim: str
    better: str
    worse: str
    task: str = "sts_avg"
    kind: str = "mean"
    margin: float = MARGIN
    given: tuple[str, str] | None = None
    acts: tuple[str, str] | None = None
    reading: str = ""


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
