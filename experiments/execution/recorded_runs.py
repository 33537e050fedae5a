"""Rebuild the results of recorded runs from the record's lines and the jobs that declare them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cse_core.run import Run
from cse_core.training.selection import SELECTION
from experiments.execution.job import Job, describe
from experiments.results import csv_record
from experiments.results.run_result import recorded_parts

if TYPE_CHECKING:
    import pandas as pd


def recorded_results(jobs: Mapping[str, Job], scale: str, mlruns: Path) -> Iterator[dict[str, Any]]:
    """Yield the result of each recorded run of the jobs of one scale, in their order.

    A result has the fields of a run's result.json, as far as they are recorded: loss terms are means between
    evaluations, and the environment is commit and device. All seeds of a setting have the label of its first row.
    """
    results, curves = csv_record.read_results(scale, mlruns), csv_record.read_curves(scale, mlruns)
    lines = {str(key): group for key, group in results[results["score"].notna()].groupby("key")}
    points = {str(key): group for key, group in curves.groupby("key")}
    labels: dict[str, str] = {}
    for key, job in jobs.items():
        if key in lines:
            result = _result(job, lines[key], points.get(key, curves[:0]))
            label = labels.setdefault(result["setting"], result["label"])
            yield result | {"label": label, "name": result["name"].replace(result["label"], label, 1)}


def _result(job: Job, lines: pd.DataFrame, points: pd.DataFrame) -> dict[str, Any]:
    parts = recorded_parts(lines, points)
    commit, device = str(lines["commit"].iloc[0]), str(lines["device"].iloc[0])
    steps = {cell["select"]: int(cell["step"]) for cell in parts["cells"]}
    scores = {rule: _dev_score(rule, step, parts["curves"]) for rule, step in steps.items()}
    return (
        describe(job)
        | parts
        | {
            "kept": {rule: {"step": step, "score": scores[rule]} for rule, step in steps.items()},
            "environment": {"commit": commit.rstrip("+"), "dirty": str(commit.endswith("+")).lower(), "device": device},
            "seconds": float(lines["seconds"].iloc[0]),
            "data": {"corpus": job.encoder.corpus.sha256} if isinstance(job.encoder, Run) else {},
        }
    )


def _dev_score(rule: str, step: int, curves: Mapping[str, Sequence[tuple[int, float]]]) -> float | None:
    """Return the dev score that selected a checkpoint; None if the rule reads none, or it is not recorded."""
    at = [dict(curves.get(f"dev/{task}", ())).get(step) for task in SELECTION.get(rule, ())]
    values = [value for value in at if value is not None]
    return sum(values) / len(values) if values and len(values) == len(at) else None
