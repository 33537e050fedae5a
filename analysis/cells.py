"""The record joined with a study: what stands in every cell of its table, and which lines of the record it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from analysis.stats import significance
from cse_core.run import Run
from experiments.results.csv_record import CELL
from experiments.schema.columns import TRANSFER, column
from experiments.schema.study import BY_TRANSFER, Row, Study

POINT = 0.01  # a point of a score
MEASURED, IMPORTED, SUBSTITUTED, NOT_RUN = "measured", "imported", "substituted", "not run"


class Place(NamedTuple):
    """Where a row's score of one task stands in the record."""

    key: str
    select: str
    scorer: str
    task: str
    metric: str


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A row and a column: `scores` by seed, in the column's units; `published`, the mean of `published_runs` runs."""

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
    def summary(self) -> significance.Summary | None:
        """Mean, deviation and n; None without scores."""
        return significance.summary(list(self.scores.values())) if self.scores else None


@dataclass(frozen=True, kw_only=True)
class Results:
    """A study, its cells by (row label, column), and the record's lines that they rest on."""

    study: Study
    cells: Mapping[tuple[str, str], Cell]
    lines: pd.DataFrame

    def of(self, row: Row) -> tuple[Cell, ...]:
        """The cells of a row under the study's columns."""
        return tuple(self.cells[row.label, column] for column in self.study.columns)

    def value(self, row: Row, name: str, *, published: bool = False) -> float | None:
        """The mean over seeds, or the published number."""
        cell = self.cells[row.label, name]
        if published:
            return cell.published
        return None if cell.summary is None else cell.summary.mean

    def printed(self, name: str) -> Mapping[str, str]:
        """The line of a published table that has a column: its words for it."""
        lines = (row.published.line(name) for row in self.study.rows if row.published)
        return next((line for line in lines if line), {})


def join(study: Study, frame: pd.DataFrame, curves: pd.DataFrame | None = None) -> Results:
    """The study's cells from the lines of results.csv, those of losses from curves.csv.

    An average needs all its tasks: a seed that lacks one has no average. Of a cell scored by several versions of an
    evaluator the newest counts; two lines for a cell, or two versions among the lines of one table, are errors.
    """
    keys = {key for row in study.rows for key in row.keys().values()}
    lines = frame[frame["key"].isin(keys)]
    _refuse_duplicates(lines)
    lines = lines.sort_values("version").drop_duplicates(CELL[:-1], keep="last")
    lines = lines[lines["score"].notna()]
    found = pd.Series([Place(*place) for place in lines[list(Place._fields)].to_numpy()], lines.index, dtype=object)
    scores = {place: float(score) for place, score in zip(found, lines["score"], strict=True)}
    facts = _facts(lines, curves)
    names = study.needed_columns
    wanted = {(row.label, name): _wanted(study, row, name, scores) for row in study.rows for name in names}
    cells = {
        (row.label, name): _cell(row, name, _values(row, name, wanted[row.label, name], scores, facts))
        for row in study.rows
        for name in names
    }
    used = lines[found.isin({place for by_seed in wanted.values() for places in by_seed.values() for place in places})]
    _refuse_versions(study, used)
    return Results(study=study, cells=cells, lines=used)


def _wanted(study: Study, row: Row, name: str, scores: Mapping[Place, float]) -> dict[int, list[Place]]:
    """By seed, where the numbers stand whose unweighted mean is a row's score in a column."""
    metrics = {task: study.metric_of(row, name, task) for task in column(name).tasks}
    return {
        seed: [Place(key, select, str(row.scorer), task, metric) for task, metric in metrics.items()]
        for seed, key in row.keys().items()
        for select in [_selected(row, key, scores)]
    }


def _selected(row: Row, key: str, scores: Mapping[Place, float]) -> str:
    """The checkpoint that a row shows of a run: by its rule, or the snapshot whose transfer dev scores are best."""
    if row.select != BY_TRANSFER:
        return row.select
    means: dict[str, float] = {}
    for select in row.selects:
        found = [scores.get(Place(key, select, str(row.scorer), task, "devacc")) for task in TRANSFER]
        known = [score for score in found if score is not None]
        if len(known) == len(found):
            means[select] = sum(known) / len(known)
    return max(means, key=lambda select: means[select]) if len(means) == len(row.selects) else ""


def _values(
    row: Row,
    name: str,
    wanted: Mapping[int, list[Place]],
    scores: Mapping[Place, float],
    facts: Mapping[tuple[str, str], float],
) -> dict[int, float | None]:
    """By seed, the row's score in a column in the column's units; None where a number is missing."""
    shown = column(name)
    found: dict[int, float | None] = {}
    for seed, key in row.keys().items():
        values = [scores.get(place) for place in wanted[seed]]
        if shown.fact:
            values = [_fact(row, key, shown.fact, facts)]
        known = [value for value in values if value is not None]
        found[seed] = shown.factor * sum(known) / len(known) if len(known) == len(values) else None
    return found


def tidy(results: Results) -> pd.DataFrame:
    """One line a cell, in the column's units: what was measured, on which seeds, what was published."""
    return pd.DataFrame([_line(row, cell) for row in results.study.rows for cell in results.of(row)])


def _line(row: Row, cell: Cell) -> dict[str, object]:
    found = cell.summary
    return {
        "row": cell.row,
        "column": cell.column,
        "provenance": cell.provenance,
        "mean": None if found is None else found.mean,
        "sd": None if found is None or found.sd is None else found.sd,
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
    found = {seed: value for seed, value in values.items() if value is not None}
    return Cell(
        row=row.label,
        column=name,
        provenance=_provenance(row, bool(found)),
        scores=found,
        missing=tuple(seed for seed, value in values.items() if value is None),
        published=row.published.value(name) if row.published else None,
        published_std=row.published.std(name) if row.published else None,
        published_runs=row.published_runs,
    )


def _facts(lines: pd.DataFrame, curves: pd.DataFrame | None) -> dict[tuple[str, str], float]:
    """What the record says of runs besides scores, by key and name: seconds, and what their curves are like."""
    found = {(key, "seconds"): value for key, value in zip(lines["key"], lines["seconds"], strict=True)}
    if curves is not None:
        mine = curves[curves["key"].isin(set(lines["key"]))].sort_values("step")
        for (key, name), curve in mine.groupby(["key", "name"]):
            found |= {(key, f"{what} {name}"): value for what, value in _shape(curve["step"], curve["value"]).items()}
    return found


def _shape(steps: pd.Series, values: pd.Series) -> dict[str, float]:
    """Of a curve: its end, the first step within a point of its best, how far it lies below its best so far."""
    best = values.cummax()
    near = steps[values >= values.max() - POINT]
    return {"last": values.iloc[-1], "near": near.iloc[0], "below": (best - values).mean()}


def _fact(row: Row, key: str, path: str, facts: Mapping[tuple[str, str], float]) -> float | None:
    """A field of the row's run, or what the record says of it."""
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
            found = " and ".join(map(str, sorted(versions)))
            raise ValueError(
                f"{study.name}: {name} scores of evaluator versions {found} in one table; expected one version"
            )
