"""The record joined with a study: what stands in every cell of its table, and which lines of the record it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from analysis import stats
from experiments.record import CELL
from experiments.study import AVERAGES, Row, Study

MEASURED, IMPORTED, SUBSTITUTED, NOT_RUN = "measured", "imported", "substituted", "not run"


class Place(NamedTuple):
    """Where a row's score of one task stands in the record."""

    key: str
    select: str
    scorer: str
    task: str


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A row and a column: `scores` by seed in [0, 1]; `published` in points, the mean of `published_runs` runs."""

    row: str
    column: str
    provenance: str
    scores: Mapping[int, float]
    missing: tuple[int, ...]  # declared seeds without a score
    published: float | None
    published_std: float | None
    published_runs: int

    @property
    def declared(self) -> int:
        """How many seeds the row declares."""
        return len(self.scores) + len(self.missing)

    @property
    def summary(self) -> stats.Summary | None:
        """Mean, deviation and n in [0, 1]; None without scores."""
        return stats.summary(list(self.scores.values())) if self.scores else None


@dataclass(frozen=True, kw_only=True)
class Results:
    """A study, its cells by (row label, column), and the record's lines that they rest on."""

    study: Study
    cells: Mapping[tuple[str, str], Cell]
    lines: pd.DataFrame

    def of(self, row: Row) -> tuple[Cell, ...]:
        """The cells of a row under the study's columns."""
        return tuple(self.cells[row.label, column] for column in self.study.columns)


def join(study: Study, frame: pd.DataFrame) -> Results:
    """The study's cells from the lines of results.csv.

    An average needs all its tasks: a seed that lacks one has no average. Of a cell scored by several versions of an
    evaluator the newest counts; two lines for a cell, or two versions among the lines of one table, are errors.
    """
    _refuse_duplicates(frame)
    frame = frame.sort_values("version").drop_duplicates(CELL[:-1], keep="last")
    lines = frame[(frame["metric"] == frame["task"].map(study.metric_of)) & frame["score"].notna()]
    places = pd.Series([Place(*place) for place in lines[list(Place._fields)].to_numpy()], lines.index, dtype=object)
    scores = {place: float(score) for place, score in zip(places, lines["score"], strict=True)}
    compared = (comparison.task for comparison in study.comparisons)
    columns = tuple(dict.fromkeys((*study.columns, *compared)))
    keys = {row.label: row.keys() for row in study.rows}
    cells = {
        (row.label, column): _cell(row, column, keys[row.label], scores) for row in study.rows for column in columns
    }
    tasks = dict.fromkeys(task for column in columns for task in tasks_of(column))
    wanted = {_place(row, key, task) for row in study.rows for key in keys[row.label].values() for task in tasks}
    used = lines[places.isin(wanted)]
    _refuse_versions(study, used)
    return Results(study=study, cells=cells, lines=used)


def tasks_of(column: str) -> tuple[str, ...]:
    """The tasks whose unweighted mean a column is: a task is its own mean."""
    return AVERAGES.get(column, (column,))


def tidy(results: Results) -> pd.DataFrame:
    """One line a cell, in points: what was measured, on which seeds, what was published."""
    return pd.DataFrame([_line(row, cell) for row in results.study.rows for cell in results.of(row)])


def _line(row: Row, cell: Cell) -> dict[str, object]:
    found = cell.summary
    return {
        "row": cell.row,
        "column": cell.column,
        "provenance": cell.provenance,
        "mean": None if found is None else 100 * found.mean,
        "sd": None if found is None or found.sd is None else 100 * found.sd,
        "n": len(cell.scores),
        "scores": " ".join(f"{seed}={100 * score:.4f}" for seed, score in cell.scores.items()),
        "missing_seeds": " ".join(map(str, cell.missing)),
        "published": cell.published,
        "published_sd": cell.published_std,
        "published_runs": cell.published_runs if cell.published is not None else None,
        "select": row.select if row.encoder is not None else "",
        "scorer": str(row.scorer) if row.encoder is not None else "",
        "keys": " ".join(f"{seed}={key}" for seed, key in row.keys().items()),
    }


def _place(row: Row, key: str, task: str) -> Place:
    return Place(key, row.select, str(row.scorer), task)


def _cell(row: Row, column: str, keys: Mapping[int, str], scores: Mapping[Place, float]) -> Cell:
    found: dict[int, float] = {}
    missing = []
    for seed, key in keys.items():
        tasks = [scores.get(_place(row, key, task)) for task in tasks_of(column)]
        known = [score for score in tasks if score is not None]
        if len(known) == len(tasks):
            found[seed] = sum(known) / len(known)
        else:
            missing.append(seed)
    return Cell(
        row=row.label,
        column=column,
        provenance=_provenance(row, bool(found)),
        scores=found,
        missing=tuple(missing),
        published=row.published.value(column) if row.published else None,
        published_std=row.published.std(column) if row.published else None,
        published_runs=row.published_runs,
    )


def _provenance(row: Row, scored: bool) -> str:
    if scored:
        return SUBSTITUTED if row.substitute else MEASURED
    return IMPORTED if row.encoder is None and row.why.startswith(IMPORTED) else NOT_RUN


def _refuse_duplicates(frame: pd.DataFrame) -> None:
    twice = frame[frame.duplicated(CELL)]
    if len(twice):
        cell = " ".join(str(twice.iloc[0][name]) for name in CELL)
        raise ValueError(
            f"results.csv: {len(twice)} cells have a second line, the first is {cell}; expected one line a cell"
        )


def _refuse_versions(study: Study, used: pd.DataFrame) -> None:
    family = used["task"].map(study.metric_of)
    for name, versions in used.groupby(family)["version"].unique().items():
        if len(versions) > 1:
            found = " and ".join(map(str, sorted(versions)))
            raise ValueError(
                f"{study.name}: {name} scores of evaluator versions {found} in one table; expected one version"
            )
