"""The scores of a study's rows by column and seed, from the lines of the record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cse_core.run import Run
from experiments.results.csv_record import CELL
from experiments.schema.columns import CURVE_FACTS, STS, TRANSFER, column
from experiments.schema.study import BY_TEST, BY_TRANSFER, Row, Study

if TYPE_CHECKING:
    import pandas as pd

POINT = 0.01  # one point, for scores in [0, 1]
CHOSEN_BY = {BY_TRANSFER: (TRANSFER, "devacc"), BY_TEST: (STS, "spearman.all")}  # tasks and metric that pick a snapshot


class ScoreAddress(NamedTuple):
    """The columns that identify a score of one task in the record."""

    key: str
    select: str
    scorer: str
    task: str
    metric: str


@dataclass(frozen=True)
class StudyScores:
    """The scores by row label and column, then by seed, in the column's units; None where a number is missing.

    `lines` are the recorded lines that they come from.
    """

    values: Mapping[tuple[str, str], Mapping[int, float | None]]
    lines: pd.DataFrame


def study_scores(study: Study, frame: pd.DataFrame, curves: pd.DataFrame | None = None) -> StudyScores:
    """Return a study's scores, from the lines of results.csv and, for losses, of curves.csv.

    A seed has an average only if it has all tasks. The newest version of an evaluator counts. Two lines for a cell, or
    two versions in one table, are errors.
    """
    keys = {key for row in study.rows for key in row.keys().values()}
    lines = newest_versions(frame[frame["key"].isin(keys)])
    lines = lines[lines["score"].notna()]
    addresses = list(
        map(ScoreAddress._make, zip(*(lines[name].tolist() for name in ScoreAddress._fields), strict=True))
    )
    scores = dict(zip(addresses, lines["score"].tolist(), strict=True))
    names = study.needed_columns
    facts = _facts(lines, curves, {column(name).fact for name in names if column(name).is_of_curve})
    needed = {(row.label, name): _addresses(study, row, name, scores) for row in study.rows for name in names}
    values = {
        (row.label, name): _values(row, name, needed[row.label, name], scores, facts)
        for row in study.rows
        for name in names
    }
    places = {place for by_seed in needed.values() for group in by_seed.values() for place in group}
    used = lines[np.array([place in places for place in addresses], dtype=bool)]
    refuse_versions(study.name, used)
    return StudyScores(values, used)


def _addresses(
    study: Study, row: Row, name: str, scores: Mapping[ScoreAddress, float]
) -> dict[int, list[ScoreAddress]]:
    """Return, by seed, the addresses of the scores whose unweighted mean is a row's score in a column."""
    metrics, scorer = {task: study.metric_of(row, name, task) for task in column(name).tasks}, str(row.scorer)
    return {
        seed: [ScoreAddress(key, select, scorer, task, metric) for task, metric in metrics.items()]
        for seed, key in row.keys().items()
        for select in [_checkpoint(row, key, scores)]
    }


def _checkpoint(row: Row, key: str, scores: Mapping[ScoreAddress, float]) -> str:
    """Return the selection rule of a row's checkpoint: its own, or the best snapshot's if all of them are scored."""
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


def _facts(lines: pd.DataFrame, curves: pd.DataFrame | None, of_curves: Set[str]) -> dict[tuple[str, str], float]:
    """Return recorded facts other than scores, by run key and name: seconds, and these properties of curves."""
    seconds = dict(zip(lines["key"].tolist(), lines["seconds"].tolist(), strict=True))
    facts = {(key, "seconds"): value for key, value in seconds.items()}
    named = {name.partition(" ")[2] for name in of_curves}
    return facts if curves is None or not named else facts | curve_facts(curves, seconds, named)


def curve_facts(curves: pd.DataFrame, keys: Iterable[str], names: Iterable[str]) -> dict[tuple[str, str], float]:
    """Return properties of these runs' curves, such as (key, "mean loss/rank"); columns with a `fact` use them."""
    facts: dict[tuple[str, str], float] = {}
    points = curves[curves["name"].isin(names) & curves["key"].isin(keys)].sort_values("step")
    for (key, name), curve in points.groupby(["key", "name"], observed=True):
        shape = _curve_shape(curve["step"].to_numpy(), curve["value"].to_numpy())
        facts |= {(key, f"{what} {name}"): value for what, value in shape.items()}
    return facts


def _curve_shape(steps: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """Return a curve's first value, last value and mean, the first step near its best, and its distance below the best.

    "near" is within a point of the best. "below" is the mean distance below the best so far. "mean" is over all steps,
    for a curve whose points are means over the steps since the point before, as losses are.
    """
    best = np.maximum.accumulate(values)
    since = np.diff(steps, prepend=0)
    return {
        "first": float(values[0]),
        "last": float(values[-1]),
        "mean": float((values * since).sum() / max(1, steps[-1])),
        "near": int(steps[np.argmax(values >= values.max() - POINT)]),
        "below": float((best - values).mean()),
    }


def _fact_of_run(row: Row, key: str, path: str, facts: Mapping[tuple[str, str], float]) -> float | None:
    """Return a setting of the row's run, or a recorded fact about it."""
    if not isinstance(row.encoder, Run):
        return None
    if path == "seconds_per_epoch":
        seconds = facts.get((key, "seconds"))
        return None if seconds is None else seconds / row.encoder.epochs
    if path == "seconds" or path.startswith(CURVE_FACTS):
        return facts.get((key, path))
    value: Any = row.encoder
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def newest_versions(lines: pd.DataFrame) -> pd.DataFrame:
    """Return the line of each cell's newest evaluator version; refuse two lines of the same version."""
    if not lines.duplicated(CELL[:-1]).any():
        return lines.sort_values("version")
    twice = lines[lines.duplicated(CELL)]
    if len(twice):
        cell = " ".join(str(twice.iloc[0][name]) for name in CELL)
        raise ValueError(
            f"results.csv: {len(twice)} cells have a second line, the first is {cell}; expected one line a cell"
        )
    return lines.sort_values("version").drop_duplicates(CELL[:-1], keep="last")


def refuse_versions(name: str, used: pd.DataFrame) -> None:
    """Refuse scores of one metric by two evaluator versions; `name` is the study or figure that uses them."""
    by_metric: dict[str, set[int]] = {}
    for metric, version in zip(used["metric"].tolist(), used["version"].tolist(), strict=True):
        by_metric.setdefault(metric, set()).add(version)
    for metric, versions in sorted(by_metric.items()):
        if len(versions) > 1:
            mixed = " and ".join(map(str, sorted(versions)))
            raise ValueError(
                f"{name}: {metric} scores of evaluator versions {mixed} in one table; expected one version"
            )
