"""Collect the data of a figure: a study, its scores, curves and arrays, and which of them are missing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.cells import Cell, Results
from experiments.results.row_scores import newest_versions, refuse_versions
from experiments.schema.columns import column
from experiments.schema.study import Row, Study

Arrays = Mapping[str, np.ndarray]
MOST_NAMED = 4  # longer lists of missing rows are cut, with a count


@dataclass(frozen=True)
class FigureData:
    """A study and its data: `results` from cells.join, `curves` from curves_of, `arrays(row, seed, task)` or None.

    `record` is results.csv of the scale: a figure may show a chance level, which is no column of its study.
    """

    study: Study
    results: Results
    curves: pd.DataFrame
    arrays: Callable[[Row, int, str], Arrays | None]
    record: pd.DataFrame

    def cell(self, row: Row, name: str) -> Cell:
        """Return the row's scores in a column, in the column's units."""
        return self.results.cells[row.label, name]

    def mean_score(self, row: Row, task: str, metric: str) -> float | None:
        """Return the mean over a row's seeds of any recorded metric of a task, in its own units; None without one.

        As in a table, each seed's newest evaluator version counts, and seeds of two versions are refused.
        """
        lines = self.record[(self.record["task"] == task) & (self.record["metric"] == metric)]
        lines = lines[lines["key"].isin(list(row.keys().values())) & (lines["select"] == row.select)]
        lines = newest_versions(lines[lines["scorer"] == str(row.scorer)])
        lines = lines[lines["score"].notna()]
        refuse_versions(f"{self.study.name}, {row.label}, {task}", lines)
        return float(lines["score"].mean()) if len(lines) else None

    def arrays_of(self, task: str) -> dict[str, dict[int, Arrays]]:
        """Return the arrays of a task by row label and seed, without rows that have none."""
        by_label: dict[str, dict[int, Arrays]] = {}
        for row in self.study.rows:
            for seed, _ in row.keys().items():
                arrays = self.arrays(row, seed, task)
                if arrays is not None:
                    by_label.setdefault(row.label, {})[seed] = arrays
        return by_label


def curves_of(study: Study, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the curves of the study's runs as points: row, seed, quantity, step, value.

    A row with the same runs as an earlier row is left out; a run that two other rows share counts in both.
    """
    owners: dict[tuple[tuple[int, str], ...], str] = {}
    for row in study.rows:
        owners.setdefault(tuple((run.seed, run.key) for run in row.runs()), row.label)
    lines = [(label, seed, key) for keys, label in owners.items() for seed, key in keys]
    runs = pd.DataFrame(lines, columns=["row", "seed", "key"])
    points = runs.merge(frame.rename(columns={"name": "quantity"}), on="key")
    return points[["row", "seed", "quantity", "step", "value"]]


def missing_scores(drawn: FigureData, names: Sequence[str]) -> list[str]:
    """Describe the scores that are missing in these columns."""
    absent = []
    for row in drawn.study.rows:
        missing = [name for name in names if not drawn.cell(row, name).scores]
        seeds = sorted({seed for name in names for seed in drawn.cell(row, name).missing})
        if row.encoder is not None and len(missing) == len(names):
            absent.append(row.label)
        elif row.encoder is not None and missing:
            absent.append(f"{row.label} ({', '.join(column(name).heading for name in missing)})")
        elif seeds:
            absent.append(f"{row.label} of seed {', '.join(map(str, seeds))}")
    return absent + _not_run(drawn.study)


def missing_seeds(study: Study, seeds_by_label: Mapping[str, Iterable[int]]) -> list[str]:
    """Describe the missing rows and seeds, given the present seeds of each row label."""
    absent = []
    for row in study.rows:
        present = set(seeds_by_label.get(row.label, ()))
        missing = sorted(set(row.keys()) - present)
        if row.encoder is not None and not present:
            absent.append(row.label)
        elif missing:
            absent.append(f"{row.label} of seed {', '.join(map(str, missing))}")
    return absent + _not_run(study)


def _not_run(study: Study) -> list[str]:
    """Describe the rows without an encoder, one text for each reason."""
    reasons: dict[str, list[str]] = {}
    for row in study.rows:
        if row.encoder is None:
            reasons.setdefault(row.why, []).append(row.label)
    more = {why: f" and {len(labels) - 1} more" if len(labels) > 1 else "" for why, labels in reasons.items()}
    return [f"{labels[0]}{more[why]} ({why})" for why, labels in reasons.items()]


def missing_sentence(absent: list[str]) -> str:
    """Return a sentence about what is missing; empty if nothing is."""
    if not absent:
        return ""
    more = f" and {len(absent) - MOST_NAMED} more" if len(absent) > MOST_NAMED else ""
    return f"Missing: {'; '.join(absent[:MOST_NAMED])}{more}."


def seeds_text(counts: Iterable[int]) -> str:
    """Return the numbers of seeds as text, without rows that have none: "3 seeds", "1 to 3 seeds"."""
    distinct = sorted({count for count in counts if count})
    words = f"{distinct[0]}" if len(distinct) == 1 else f"{distinct[0]} to {distinct[-1]}"
    return f"{words} seed" + ("" if distinct == [1] else "s")
