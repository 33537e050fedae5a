"""Print a study's table in the terminal: its rows by their main score, best first."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from rich.table import Table

from experiments.cli.console import console
from experiments.results import csv_record, released_scores
from experiments.results.row_scores import StudyScores, study_scores
from experiments.schema.columns import LOW_IS_GOOD, column
from experiments.schema.scales import RELEASED
from experiments.schema.study import Row, Study

DASH, PLUS_MINUS = "\N{EN DASH}", "\N{PLUS-MINUS SIGN}"


def main_column(study: Study) -> str:
    """Return the column by which the rows are ordered: the first mean over tasks, otherwise the first column."""
    return next((name for name in study.columns if len(column(name).tasks) > 1), study.columns[0])


def print_tables(
    studies: Iterable[Study], mlruns: Path, recorded: Path | None = None, failed: Mapping[str, str] | None = None
) -> None:
    """Print studies from the record in a folder, next to the scores of the `recorded` folder if it is given.

    Public checkpoints are compared with their printed scores; `failed` says, by key, why some could not be scored.
    """
    results, curves = cache(csv_record.read_results), cache(csv_record.read_curves)  # each is read once

    def scores_in(study: Study, folder: Path) -> StudyScores:
        scale, name = study.scale.name, main_column(study)
        return study_scores(study, results(scale, folder), curves(scale, folder) if column(name).fact else None)

    for study in studies:
        folders = [mlruns] if recorded is None else [mlruns, recorded]
        scores = [scores_in(study, folder) for folder in folders]
        if study.scale is RELEASED:
            _print_agreement(study, scores[0], failed or {})
        else:
            print_study(study, *scores)


def _print_agreement(study: Study, measured: StudyScores, failed: Mapping[str, str]) -> None:
    """Print which public checkpoints reproduce their printed scores."""

    def ours(row: Row, name: str) -> float | None:
        return next(iter(_present(measured, row, name)), None)

    released_scores.print_agreement(study, released_scores.compare(study, ours, failed))


def print_study(study: Study, measured: StudyScores, recorded: StudyScores | None = None) -> None:
    """Print the rows, ordered by mean over seeds, then by published number; `recorded` scores get their own columns."""
    name = main_column(study)
    shown = column(name)
    table = Table(title=f"{study.name}, scale {study.scale.name}: {shown.heading}", caption=study.question)
    table.add_column("row")
    for heading in ("mean", "seeds", *(["recorded", "seeds"] if recorded else []), "published"):
        table.add_column(heading, justify="right", no_wrap=True)
    both = [measured] if recorded is None else [measured, recorded]
    for row in sorted(study.rows, key=lambda row: _order(row, name, _present(measured, row, name))):
        texts = [text for each in both for text in _texts(row, _present(each, row, name), shown.digits)]
        table.add_row(row.label, *texts, _published_text(row, name, shown.digits))
    console.print(table)


def _present(measured: StudyScores, row: Row, name: str) -> list[float]:
    return [score for score in measured.values[row.label, name].values() if score is not None]


def _order(row: Row, name: str, scores: list[float]) -> tuple[bool, bool, float]:
    """Return a sort key: rows with scores first, then rows with a published number, the best of each first."""
    published = row.published.value(name) if row.published else None
    value = statistics.fmean(scores) if scores else published
    sign = 1 if name in LOW_IS_GOOD else -1
    return (not scores, value is None, 0.0 if value is None else sign * value)


def _texts(row: Row, scores: list[float], digits: int | None) -> tuple[str, str]:
    """Return the mean with its standard deviation, and how many of the declared seeds have a score."""
    declared = len(row.keys())
    if not declared:
        return (DASH, "")
    seeds = str(len(scores)) if len(scores) == declared else f"{len(scores)} of {declared}"
    if not scores:
        return (DASH, seeds)
    spread = f" {PLUS_MINUS} {_number(statistics.stdev(scores), digits)}" if len(scores) > 1 else ""
    return (_number(statistics.fmean(scores), digits) + spread, seeds)


def _published_text(row: Row, name: str, digits: int | None) -> str:
    value = row.published.value(name) if row.published else None
    return DASH if value is None else _number(value, digits)


def _number(value: float, digits: int | None) -> str:
    return f"{value:g}" if digits is None else f"{value:.{digits}f}"
