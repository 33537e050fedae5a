"""Compare the scores of public checkpoints with the numbers that are printed for them."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rich.table import Table

from experiments.cli.console import console
from experiments.schema.columns import column
from experiments.schema.study import Row, Study

MARGIN = 0.1  # points by which other library versions and kernels may move a score
REPRODUCES, DIFFERS, NOT_RUN, NOT_PRINTED = "reproduces", "differs", "not run", "no printed number"
NOT_AVAILABLE, NOT_HERE, FAILED = "not available", "not available here", "failed"
HELP = "the same command scores them where the hub can be reached, or in a folder that CSE_ENCODERS names"


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """A row's printed average, our average and the outcome; `gaps` has the sets that differ by more than MARGIN."""

    row: Row
    printed: float | None
    ours: float | None
    outcome: str
    reason: str = ""
    gaps: Mapping[str, float]

    @property
    def text(self) -> str:
        """The outcome in words: by how much it differs, or the reason."""
        if self.outcome == DIFFERS and self.printed is not None and self.ours is not None:
            return f"{DIFFERS} by {gap(self.printed, self.ours):+.2f}"
        return f"{self.outcome}: {self.reason}" if self.reason else self.outcome

    @property
    def gaps_text(self) -> str:
        """The sets that differ, each with its difference."""
        return ", ".join(f"{column(name).heading} {value:+.2f}" for name, value in self.gaps.items())


def gap(printed: float, ours: float) -> float:
    """Return by how many points ours is above the printed number, both rounded to the two decimals that are printed."""
    return round(round(ours, 2) - printed, 2)


def outcome_of(printed: float | None, ours: float | None) -> str:
    """Return whether a score reproduces a printed number, to within MARGIN."""
    if ours is None:
        return NOT_RUN
    if printed is None:
        return NOT_PRINTED
    return REPRODUCES if abs(gap(printed, ours)) <= MARGIN else DIFFERS


def compare(
    study: Study, ours: Callable[[Row, str], float | None], failed: Mapping[str, str] | None = None
) -> list[Agreement]:
    """Compare each row with its printed average, in the last column; `failed` has the reasons of failures, by key."""
    return [_compare(study, row, ours, failed or {}) for row in study.rows]


def _compare(study: Study, row: Row, ours: Callable[[Row, str], float | None], failed: Mapping[str, str]) -> Agreement:
    *sets, average = study.columns
    printed = {name: row.published.value(name) if row.published else None for name in study.columns}
    scores = {name: ours(row, name) for name in study.columns}
    both = {name: (printed[name], scores[name]) for name in sets}
    gaps = {name: gap(a, b) for name, (a, b) in both.items() if a is not None and b is not None}
    outcome, reason = outcome_of(printed[average], scores[average]), ""
    if row.encoder is None:
        outcome, reason = NOT_AVAILABLE, row.why.removeprefix(f"{NOT_AVAILABLE}: ")
    elif outcome == NOT_RUN and (error := failed.get(next(iter(row.keys().values())))):
        # The missing backbone is the encoder, or one whose tokenizer it uses.
        missing = re.match(r"FileNotFoundError: backbone '([^']+)'", error)
        outcome, reason = (NOT_HERE, missing[1]) if missing else (FAILED, error)
    return Agreement(
        row=row,
        printed=printed[average],
        ours=scores[average],
        outcome=outcome,
        reason=reason,
        gaps={name: value for name, value in gaps.items() if abs(value) > MARGIN},
    )


def summary(compared: Iterable[Agreement]) -> str:
    """Return how many rows have each outcome."""
    counts = Counter(each.outcome for each in compared)
    order = (REPRODUCES, DIFFERS, NOT_PRINTED, NOT_RUN, FAILED, NOT_HERE, NOT_AVAILABLE)
    return ", ".join(f"{counts[name]} {name}" for name in order if counts[name])


def print_agreement(study: Study, compared: list[Agreement]) -> None:
    """Print which scores reproduce the printed ones, and which checkpoints could not be read here."""
    table = Table(title=f"{study.name}: {column(study.columns[-1]).heading}", caption=study.question)
    for heading in ("row", "printed", "ours", "outcome", "sets that differ"):
        table.add_column(heading, justify="right" if heading in ("printed", "ours") else "left")
    for each in compared:
        numbers = (f"{value:.2f}" if value is not None else "" for value in (each.printed, each.ours))
        table.add_row(each.row.label, *numbers, each.text, each.gaps_text)
    console.print(table)
    console.print(f"{study.name}: {summary(compared)}", highlight=False)
    names = dict.fromkeys(each.reason for each in compared if each.outcome == NOT_HERE)
    if names:
        console.print(f"{NOT_HERE}: {', '.join(names)}; {HELP}", style="yellow", highlight=False)
