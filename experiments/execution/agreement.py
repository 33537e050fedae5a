"""Compare a run that was trained again with its record: every score, every point of its curves, what it is.

On the kind of processor that a run was trained on, the bits are equal; EXACT leaves room for a correlation that is
summed in another order. On another kind rounding differs, and each kind of number has a tolerance of its own.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cse_core.evaluation import suite
from cse_core.evaluation.tasks import TransferTask
from experiments.execution.job import Job
from experiments.execution.plan import SCORE_TOLERANCE
from experiments.results import csv_record

EXACT = 1e-12
# Rounding ranks pairs of identical sentences, whose cosines are 1 up to rounding: in two parts of STS12 they are 65 of
# 459 and 14 of 399, so that the mean of its parts moves by up to 2.2e-4 (measured), its score over all pairs by 2e-5.
# A classifier that stops an epoch earlier labels some test sentences differently. Losses are rounded in every step:
# 1.2e-5 was seen.
ELSEWHERE = {"score": SCORE_TOLERANCE, "mean of parts": 5e-4, "accuracy": 0.02, "curve": 1e-4}
MEANS = ("spearman.mean", "spearman.wmean")
CURVE = "curve"
FACTS = ("scale", "method", "backbone", "seed", "settings")  # columns of runs.csv that follow from a declared run
CellAddress = tuple[str, str, str, str]  # select, scorer, task, metric; of a curve "", "curve", its name, its step
Values = dict[CellAddress, float | str]  # numbers are compared within a tolerance, texts to the letter


@dataclass(frozen=True)
class Recorded:
    """The record of one scale."""

    runs: pd.DataFrame
    results: pd.DataFrame
    curves: pd.DataFrame

    @classmethod
    def read(cls, scale: str, mlruns: Path) -> "Recorded":
        """Read the three files."""
        runs = csv_record.read_runs(scale, mlruns)
        results, curves = csv_record.read_results(scale, mlruns), csv_record.read_curves(scale, mlruns)
        return cls(*(frame[frame["scale"] == scale] for frame in (runs, results, curves)))

    def cells(self) -> dict[str, set[tuple[str, str, str]]]:
        """By key, every (select, scorer, task) with a score."""
        found: dict[str, set[tuple[str, str, str]]] = {}
        for key, *cell in self.results[["key", "select", "scorer", "task"]].itertuples(index=False):
            found.setdefault(key, set()).add(tuple(cell))
        return found


@dataclass(frozen=True)
class Difference:
    """A value that is recorded and not found again within the tolerance; None where one of the two lacks it."""

    select: str
    scorer: str
    task: str
    metric: str
    recorded: float | str | None
    found: float | str | None

    @property
    def amount(self) -> float | None:
        """How far apart two numbers are; None for a text and for a value that one side lacks."""
        return _distance(self.recorded, self.found)


@dataclass(frozen=True)
class Agreement:
    """What the comparison of one run gave: how many numbers of each sort, the largest difference, what differs."""

    recorded_on: str
    trained_on: str
    cells: int
    largest_cell: float
    points: int
    largest_point: float
    differences: tuple[Difference, ...]


def processor(device: str) -> str:
    """The kind of processor: a device without its number of cores."""
    return re.sub(r", \d+ cores$", "", device)


def compare(job: Job, result: Mapping[str, Any], recorded: Recorded) -> Agreement:
    """Compare a run's result.json with what the record has of the job's tasks, curves and settings."""
    run = recorded.runs[recorded.runs["key"] == job.key].iloc[0].to_dict()
    device, here = str(run["device"]), str(result["environment"]["device"])
    same = processor(device) == processor(here)
    before = _facts(run) | _recorded_cells(job, recorded) | _recorded_points(job, recorded)
    after = _facts(result) | _cells(csv_record.result_lines(result)) | _points(csv_record.curve_lines(result))
    both = [(place, before.get(place), after.get(place)) for place in dict.fromkeys([*before, *after])]
    apart = [(place[1] == CURVE, distance) for place, a, b in both if (distance := _distance(a, b)) is not None]
    cells, points = ([distance for curve, distance in apart if curve == wanted] for wanted in (False, True))
    differing = (Difference(*place, a, b) for place, a, b in both if not _agree(a, b, _tolerance(place, same=same)))
    return Agreement(
        recorded_on=device,
        trained_on=here,
        cells=len(cells),
        largest_cell=max(cells, default=0.0),
        points=len(points),
        largest_point=max(points, default=0.0),
        differences=tuple(differing),
    )


def _facts(run: Mapping[str, Any]) -> Values:
    return {("", "", "runs.csv", name): str(run[name]) for name in FACTS}


def _cells(lines: Iterable[Mapping[str, Any]]) -> Values:
    """Each line's score, and beside it how many pairs it is of and the step of its checkpoint."""
    values: Values = {}
    for line in lines:
        place, metric = (line["select"], line["scorer"], line["task"]), line["metric"]
        if pd.notna(line["score"]):
            values[*place, metric] = float(line["score"])
        values |= {(*place, f"{metric}, {name}"): f"{line[name]:.0f}" for name in ("pairs", "step")}
    return values


def _recorded_cells(job: Job, recorded: Recorded) -> Values:
    """Of the job's tasks, as the present evaluator scores them."""
    wanted = {(one.select, str(one.scorer), task) for one in job.scorings for task in one.tasks}
    lines = recorded.results[recorded.results["key"] == job.key].to_dict("records")
    mine = (line for line in lines if (line["select"], line["scorer"], line["task"]) in wanted)
    return _cells(line for line in mine if line["version"] == suite.version(line["task"]))


def _points(lines: Iterable[Mapping[str, Any]]) -> Values:
    return {("", CURVE, line["name"], f"step {line['step']}"): float(line["value"]) for line in lines}


def _recorded_points(job: Job, recorded: Recorded) -> Values:
    return _points(recorded.curves[recorded.curves["key"] == job.key].to_dict("records"))


def _tolerance(place: CellAddress, *, same: bool) -> float:
    _, scorer, task, metric = place
    if same:
        return EXACT
    if scorer == CURVE:
        return ELSEWHERE["curve"]
    if metric in MEANS:
        return ELSEWHERE["mean of parts"]
    return ELSEWHERE["accuracy" if isinstance(suite.TASKS.get(task), TransferTask) else "score"]


def _agree(before: float | str | None, after: float | str | None, tolerance: float) -> bool:
    distance = _distance(before, after)
    return before == after if distance is None else distance <= tolerance  # a NaN agrees with nothing


def _distance(before: float | str | None, after: float | str | None) -> float | None:
    numbers = isinstance(before, float) and isinstance(after, float)
    return abs(before - after) if numbers else None
