"""What a figure is drawn from: a study, its scores, its curves and its arrays, and what of them is missing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.cells import Cell, Results
from experiments.schema.columns import column
from experiments.schema.study import Row, Study

Arrays = Mapping[str, np.ndarray]
MOST_NAMED = 4  # longer lists of what is missing are cut, with a count


@dataclass(frozen=True)
class Drawn:
    """A study and its numbers: `results` by results.join, `curves` by curves_of, `arrays(row, seed, task)` or None."""

    study: Study
    results: Results
    curves: pd.DataFrame
    arrays: Callable[[Row, int, str], Arrays | None]

    def cell(self, row: Row, name: str) -> Cell:
        """The row's scores in a column, in the column's units."""
        return self.results.cells[row.label, name]

    def arrays_of(self, task: str) -> dict[str, dict[int, Arrays]]:
        """The arrays of a task by row label and seed, rows without any left out."""
        found: dict[str, dict[int, Arrays]] = {}
        for row in self.study.rows:
            for seed, _ in row.keys().items():
                arrays = self.arrays(row, seed, task)
                if arrays is not None:
                    found.setdefault(row.label, {})[seed] = arrays
        return found


def curves_of(study: Study, frame: pd.DataFrame) -> pd.DataFrame:
    """The points of curves.csv of the study's runs: row, seed, quantity, step, value.

    A row with the same runs as an earlier one is left out; a run that two other rows share counts in both.
    """
    owners: dict[tuple[tuple[int, str], ...], str] = {}
    for row in study.rows:
        owners.setdefault(tuple((run.seed, run.key) for run in row.runs()), row.label)
    lines = [(label, seed, key) for keys, label in owners.items() for seed, key in keys]
    runs = pd.DataFrame(lines, columns=["row", "seed", "key"])
    found = runs.merge(frame.rename(columns={"name": "quantity"}), on="key")
    return found[["row", "seed", "quantity", "step", "value"]]


def missing_scores(drawn: Drawn, names: Sequence[str]) -> list[str]:
    """In words, the scores that a figure of these columns lacks."""
    absent = []
    for row in drawn.study.rows:
        lacks = [name for name in names if not drawn.cell(row, name).scores]
        seeds = sorted({seed for name in names for seed in drawn.cell(row, name).missing})
        if row.encoder is not None and len(lacks) == len(names):
            absent.append(row.label)
        elif row.encoder is not None and lacks:
            absent.append(f"{row.label} ({', '.join(column(name).heading for name in lacks)})")
        elif seeds:
            absent.append(f"{row.label} of seed {', '.join(map(str, seeds))}")
    return absent + _not_run(drawn.study)


def missing_seeds(study: Study, found: Mapping[str, Iterable[int]]) -> list[str]:
    """In words, the rows and seeds of which there is nothing, where `found` has the seeds of each row label."""
    absent = []
    for row in study.rows:
        have = set(found.get(row.label, ()))
        lacks = sorted(set(row.keys()) - have)
        if row.encoder is not None and not have:
            absent.append(row.label)
        elif lacks:
            absent.append(f"{row.label} of seed {', '.join(map(str, lacks))}")
    return absent + _not_run(study)


def _not_run(study: Study) -> list[str]:
    """Rows without an encoder, those with the same reason in one."""
    reasons: dict[str, list[str]] = {}
    for row in study.rows:
        if row.encoder is None:
            reasons.setdefault(row.why, []).append(row.label)
    more = {why: f" and {len(labels) - 1} more" if len(labels) > 1 else "" for why, labels in reasons.items()}
    return [f"{labels[0]}{more[why]} ({why})" for why, labels in reasons.items()]


def named(absent: list[str]) -> str:
    """A sentence about what a figure lacks; empty where it lacks nothing."""
    if not absent:
        return ""
    more = f" and {len(absent) - MOST_NAMED} more" if len(absent) > MOST_NAMED else ""
    return f"Missing: {'; '.join(absent[:MOST_NAMED])}{more}."


def seeds_told(counts: Iterable[int]) -> str:
    """How many seeds stand behind what is shown, rows without any left out: "3 seeds", "1 to 3 seeds"."""
    found = sorted({count for count in counts if count})
    words = f"{found[0]}" if len(found) == 1 else f"{found[0]} to {found[-1]}"
    return f"{words} seed" + ("" if found == [1] else "s")
