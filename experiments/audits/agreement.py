"""Compare a retrained run with its record: every score, every point of its curves, its settings.

On the kind of processor that a run was trained on, the bits are equal; EXACT only allows for a correlation that is
summed in another order. On another kind, rounding differs, and each kind of number has its own tolerance.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from cse_core.evaluation import suite
from cse_core.evaluation.tasks import TransferTask
from experiments.execution.job import Job
from experiments.execution.plan import SCORE_TOLERANCE
from experiments.results import csv_record
from experiments.results.provenance import is_gpu, processor

EXACT = 1e-12
# Pairs of identical sentences have a cosine of 1 up to rounding, so rounding decides their ranks. Two parts of STS12
# have 65 such pairs of 459 and 14 of 399: the mean of its parts moves by up to 2.2e-4 (measured), its score over all
# pairs by 2e-5. A classifier that stops an epoch earlier labels some test sentences differently. Losses are rounded in
# every step: differences of 1.2e-5 were seen.
ELSEWHERE = {"score": SCORE_TOLERANCE, "mean of parts": 5e-4, "accuracy": 0.02, "curve": 1e-4}
MEANS = ("spearman.mean", "spearman.wmean")
CURVE = "curve"
FACTS = ("scale", "method", "backbone", "seed", "settings")  # columns of runs.csv that a declared run determines
CellAddress = tuple[str, str, str, str]  # select, scorer, task, metric; for a curve: "", "curve", its name, its step
Values = dict[CellAddress, float | str]  # numbers are compared within a tolerance, texts exactly


@dataclass(frozen=True)
class Recorded:
    """The record of one scale; `compared` has the jobs of its comparisons, which no study declares."""

    runs: pd.DataFrame
    results: pd.DataFrame
    curves: pd.DataFrame
    compared: Mapping[str, Job] = field(default_factory=dict)

    @classmethod
    def read(cls, scale: str, mlruns: Path, compared: Mapping[str, Job] | None = None) -> "Recorded":
        """Read the three files."""
        runs = csv_record.read_runs(scale, mlruns)
        results, curves = csv_record.read_results(scale, mlruns), csv_record.read_curves(scale, mlruns)
        return cls(*(frame[frame["scale"] == scale] for frame in (runs, results, curves)), compared or {})

    def cells(self) -> dict[str, set[tuple[str, str, str]]]:
        """Return every (select, scorer, task) that has a score, by key."""
        cells: dict[str, set[tuple[str, str, str]]] = {}
        for key, *cell in self.results[["key", "select", "scorer", "task"]].itertuples(index=False):
            cells.setdefault(key, set()).add(tuple(cell))
        return cells


@dataclass(frozen=True)
class Difference:
    """A recorded value that retraining did not reproduce within the tolerance; None on a side that does not have it."""

    select: str
    scorer: str
    task: str
    metric: str
    recorded: float | str | None
    retrained: float | str | None

    @property
    def amount(self) -> float | None:
        """How far apart two numbers are; None for a text and for a value that one side does not have."""
        return _distance(self.recorded, self.retrained)


@dataclass(frozen=True)
class Agreement:
    """The comparison of one run: the count and largest difference of its scores and curve points, and what differs."""

    recorded_on: str
    trained_on: str
    cells: int
    largest_cell: float
    points: int
    largest_point: float
    differences: tuple[Difference, ...]


def keys_elsewhere(recorded: Recorded, device: str) -> set[str]:
    """Return the keys of runs that only the other kind of device, a GPU or a processor, could train again.

    Each kind draws dropout from its own random numbers, so scores differ as much as between two seeds.
    """
    trained_on = zip(recorded.runs["key"], recorded.runs["device"], strict=True)
    return {key for key, name in trained_on if is_gpu(name) != (device == "cuda")}


def compare(job: Job, result: Mapping[str, Any], recorded: Recorded) -> Agreement:
    """Compare a run's result.json with the recorded scores, curves and settings of the job."""
    run = recorded.runs[recorded.runs["key"] == job.key].iloc[0].to_dict()
    device, here = str(run["device"]), str(result["environment"]["device"])
    same = processor(device) == processor(here)
    asked = {(scoring.select, str(scoring.scorer), task) for scoring in job.scorings for task in scoring.tasks}
    scores, curves = (frame[frame["key"] == job.key] for frame in (recorded.results, recorded.curves))
    lines = [
        line
        for line in scores.to_dict("records")
        if (line["select"], line["scorer"], line["task"]) in asked and line["version"] == suite.version(line["task"])
    ]
    before = _values(run, lines, curves.to_dict("records"))
    after = _values(result, csv_record.result_lines(result), csv_record.curve_lines(result))
    both = [(address, before.get(address), after.get(address)) for address in dict.fromkeys([*before, *after])]
    numeric = [(address, distance) for address, a, b in both if (distance := _distance(a, b)) is not None]
    cells = [distance for address, distance in numeric if address[1] != CURVE]
    points = [distance for address, distance in numeric if address[1] == CURVE]
    differing = (Difference(*at, a, b) for at, a, b in both if not _agree(a, b, _tolerance(at, same=same)))
    return Agreement(
        recorded_on=device,
        trained_on=here,
        cells=len(cells),
        largest_cell=max(cells, default=0.0),
        points=len(points),
        largest_point=max(points, default=0.0),
        differences=tuple(differing),
    )


def _values(run: Mapping[str, Any], scores: Iterable[Mapping[str, Any]], points: Iterable[Mapping[str, Any]]) -> Values:
    """Return a run's facts, its scores with their numbers of pairs and checkpoints' steps, and its curves."""
    values: Values = {("", "", "runs.csv", name): str(run[name]) for name in FACTS}
    for line in scores:
        cell, metric = (line["select"], line["scorer"], line["task"]), line["metric"]
        if pd.notna(line["score"]):
            values[*cell, metric] = float(line["score"])
        values |= {(*cell, f"{metric}, {name}"): f"{line[name]:.0f}" for name in ("pairs", "step")}
    return values | {("", CURVE, line["name"], f"step {line['step']}"): float(line["value"]) for line in points}


def _tolerance(address: CellAddress, *, same: bool) -> float:
    _, scorer, task, metric = address
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
