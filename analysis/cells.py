"""Join a study with the record: the scores in each cell of its table, and the recorded lines that they come from."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from analysis.stats import significance
from experiments.results.row_scores import study_scores
from experiments.schema.study import Row, Study

MEASURED, IMPORTED, SUBSTITUTED, NOT_RUN = "measured", "imported", "substituted", "not run"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table: `scores` by seed, in the column's units; `published` is the mean of `published_runs` runs."""

    row: str
    column: str
    provenance: str
    scores: Mapping[int, float]
    missing: tuple[int, ...]  # declared seeds without a score
    published: float | None
    published_std: float | None
    published_runs: int

    @property
    def declared_seeds(self) -> int:
        """The number of seeds that the row declares."""
        return len(self.scores) + len(self.missing)

    @property
    def summary(self) -> significance.Summary | None:
        """Mean, deviation and n; None without scores."""
        return significance.summary(list(self.scores.values())) if self.scores else None


@dataclass(frozen=True, kw_only=True)
class Results:
    """A study, its cells by (row label, column), and the recorded lines that they come from."""

    study: Study
    cells: Mapping[tuple[str, str], Cell]
    lines: pd.DataFrame

    def of(self, row: Row) -> tuple[Cell, ...]:
        """Return the cells of a row in the study's columns."""
        return tuple(self.cells[row.label, column] for column in self.study.columns)

    def value(self, row: Row, name: str, *, published: bool = False) -> float | None:
        """Return the mean over seeds, or the published number."""
        cell = self.cells[row.label, name]
        if published:
            return cell.published
        return None if cell.summary is None else cell.summary.mean

    def published_line(self, name: str) -> Mapping[str, str]:
        """Return the first published line of a column, which has the paper's words for it; empty if there is none."""
        lines = (row.published.line(name) for row in self.study.rows if row.published)
        return next((line for line in lines if line), {})


def join(study: Study, frame: pd.DataFrame, curves: pd.DataFrame | None = None) -> Results:
    """Return the study's cells, from the lines of results.csv and, for losses, of curves.csv (see study_scores)."""
    scores = study_scores(study, frame, curves)
    cells = {
        (row.label, name): _cell(row, name, scores.values[row.label, name])
        for row in study.rows
        for name in study.needed_columns
    }
    return Results(study=study, cells=cells, lines=scores.lines)


def tidy(results: Results) -> pd.DataFrame:
    """Return one line for each cell, in the column's units: measured scores by seed, and the published number."""
    return pd.DataFrame([_tidy_line(row, cell) for row in results.study.rows for cell in results.of(row)])


def _tidy_line(row: Row, cell: Cell) -> dict[str, object]:
    summary = cell.summary
    return {
        "row": cell.row,
        "column": cell.column,
        "provenance": cell.provenance,
        "mean": None if summary is None else summary.mean,
        "sd": None if summary is None else summary.sd,
        "n": len(cell.scores),
        "scores": " ".join(f"{seed}={score:.4f}" for seed, score in cell.scores.items()),
        "missing_seeds": " ".join(map(str, cell.missing)),
        "published": cell.published,
        "published_sd": cell.published_std,
        "published_runs": cell.published_runs if cell.published is not None else None,
        "select": row.select if row.encoder is not None else "",
        "scorer": str(row.scorer) if row.encoder is not None else "",
        "keys": " ".join(f"{seed}={key}" for seed, key in row.keys().items()),
    }


def _cell(row: Row, name: str, values: Mapping[int, float | None]) -> Cell:
    scores = {seed: value for seed, value in values.items() if value is not None}
    return Cell(
        row=row.label,
        column=name,
        provenance=_provenance(row, bool(scores)),
        scores=scores,
        missing=tuple(seed for seed, value in values.items() if value is None),
        published=row.published.value(name) if row.published else None,
        published_std=row.published.std(name) if row.published else None,
        published_runs=row.published_runs,
    )


def _provenance(row: Row, scored: bool) -> str:
    if scored:
        return SUBSTITUTED if row.substitute else MEASURED
    return IMPORTED if row.encoder is None and row.why.startswith(IMPORTED) else NOT_RUN
