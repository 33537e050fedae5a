"""Join a study with the record: the scores in each cell of its table, and the recorded lines that they come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from analysis.stats import significance
from cse_core.run import Run
from experiments.results.csv_record import CELL
from experiments.schema.columns import STS, TRANSFER, column
from experiments.schema.study import BY_TEST, BY_TRANSFER, Row, Study

POINT = 0.01  # one point, for scores in [0, 1]
CHOSEN_BY = {BY_TRANSFER: (TRANSFER, "devacc"), BY_TEST: (STS, "spearman.all")}  # what the best of snapshots is best on
MEASURED, IMPORTED, SUBSTITUTED, NOT_RUN = "measured", "imported", "substituted", "not run"


class ScoreAddress(NamedTuple):
    """The columns that identify a score of one task in the record."""

    key: str
    select: str
    scorer: str
    task: str
    metric: str


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
        """Return a line of a published table that has the column, with the paper's words for it."""
        lines = (row.published.line(name) for row in self.study.rows if row.published)
        return next((line for line in lines if line), {})


def join(study: Study, frame: pd.DataFrame, curves: pd.DataFrame | None = None) -> Results:
    """Return the study's cells, from the lines of results.csv and, for losses, of curves.csv.

    An average needs all of its tasks: a seed that lacks one has no average. The newest version of an evaluator counts;
    two lines for a cell, or two versions in one table, are errors.
    """
    keys = {key for row in study.rows for key in row.keys().values()}
    lines = frame[frame["key"].isin(keys)]
    _refuse_duplicates(lines)
    lines = lines.sort_values("version").drop_duplicates(CELL[:-1], keep="last")
    lines = lines[lines["score"].notna()]
    addresses = pd.Series(
        [ScoreAddress(*place) for place in lines[list(ScoreAddress._fields)].to_numpy()], lines.index, dtype=object
    )
    scores = {place: float(score) for place, score in zip(addresses, lines["score"], strict=True)}
    facts = _facts(lines, curves)
    names = study.needed_columns
    needed = {(row.label, name): _addresses(study, row, name, scores) for row in study.rows for name in names}
    cells = {
        (row.label, name): _cell(row, name, _values(row, name, needed[row.label, name], scores, facts))
        for row in study.rows
        for name in names
    }
    used = lines[
        addresses.isin({place for by_seed in needed.values() for places in by_seed.values() for place in places})
    ]
    _refuse_versions(study, used)
    return Results(study=study, cells=cells, lines=used)


def _addresses(
    study: Study, row: Row, name: str, scores: Mapping[ScoreAddress, float]
) -> dict[int, list[ScoreAddress]]:
    """Return, by seed, the addresses of the scores whose unweighted mean is a row's score in a column."""
    metrics = {task: study.metric_of(row, name, task) for task in column(name).tasks}
    return {
        seed: [ScoreAddress(key, select, str(row.scorer), task, metric) for task, metric in metrics.items()]
        for seed, key in row.keys().items()
        for select in [_checkpoint(row, key, scores)]
    }


def _checkpoint(row: Row, key: str, scores: Mapping[ScoreAddress, float]) -> str:
    """Return the selection rule of the checkpoint that a row shows: its own, or the best snapshot on some tasks."""
    if row.select not in CHOSEN_BY:
        return row.select
    tasks, metric = CHOSEN_BY[row.select]
    means: dict[str, float] = {}
    for select in row.selects:
        task_scores = [scores.get(ScoreAddress(key, select, str(row.scorer), task, metric)) for task in tasks]
        present = [score for score in task_scores if score is not None]
        if len(present) == len(task_scores):
            means[select] = sum(present) / len(present)
    return max(means, key=lambda select: means[select]) if len(means) == len(row.selects) else ""


def _values(
    row: Row,
    name: str,
    addresses: Mapping[int, list[ScoreAddress]],
    scores: Mapping[ScoreAddress, float],
    facts: Mapping[tuple[str, str], float],
) -> dict[int, float | None]:
    """Return, by seed, the row's score in the column's units; None where a number is missing."""
    shown = column(name)
    by_seed: dict[int, float | None] = {}
    for seed, key in row.keys().items():
        values = [scores.get(place) for place in addresses[seed]]
        if shown.fact:
            values = [_fact_of_run(row, key, shown.fact, facts)]
        present = [value for value in values if value is not None]
        by_seed[seed] = shown.factor * sum(present) / len(present) if len(present) == len(values) else None
    return by_seed


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
        "sd": None if summary is None or summary.sd is None else summary.sd,
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


def _facts(lines: pd.DataFrame, curves: pd.DataFrame | None) -> dict[tuple[str, str], float]:
    """Return recorded facts about runs besides scores, by key and name: seconds, and properties of their curves."""
    facts = {(key, "seconds"): value for key, value in zip(lines["key"], lines["seconds"], strict=True)}
    if curves is not None:
        curves_of_runs = curves[curves["key"].isin(set(lines["key"]))].sort_values("step")
        for (key, name), curve in curves_of_runs.groupby(["key", "name"]):
            facts |= {
                (key, f"{what} {name}"): value for what, value in _curve_shape(curve["step"], curve["value"]).items()
            }
    return facts


def _curve_shape(steps: pd.Series, values: pd.Series) -> dict[str, float]:
    """Return a curve's end, the first step within a point of its best, and the mean distance below its best so far."""
    best = values.cummax()
    near = steps[values >= values.max() - POINT]
    return {"last": values.iloc[-1], "near": near.iloc[0], "below": (best - values).mean()}


def _fact_of_run(row: Row, key: str, path: str, facts: Mapping[tuple[str, str], float]) -> float | None:
    """Return a setting of the row's run, or a recorded fact about it."""
    if not isinstance(row.encoder, Run):
        return None
    if path == "seconds_per_epoch":
        seconds = facts.get((key, "seconds"))
        return None if seconds is None else seconds / row.encoder.epochs
    if path == "seconds" or path.startswith(("last ", "near ", "below ")):
        return facts.get((key, path))
    value: Any = row.encoder
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


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
    for name, versions in used.groupby("metric")["version"].unique().items():
        if len(versions) > 1:
            mixed = " and ".join(map(str, sorted(versions)))
            raise ValueError(
                f"{study.name}: {name} scores of evaluator versions {mixed} in one table; expected one version"
            )
