"""Read and check a run's result.json: its scores, settings, curves and environment. The record and MLflow copy it."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cse_core.training.run_state import parse_json, read_json
from experiments.results import csv_record

if TYPE_CHECKING:
    import pandas as pd

RESULT = "result.json"
FIELDS = {
    **dict.fromkeys(("key", "scale", "name", "label", "method", "backbone", "setting", "settings"), str),
    **dict.fromkeys(("teachers", "finished"), str),
    **dict.fromkeys(("studies", "cells", "warnings"), list),
    **dict.fromkeys(("curves", "kept", "data", "environment", "parameters"), dict),
    **dict.fromkeys(("seed", "eval_steps"), int),
    **dict.fromkeys(("seconds", "scoring_seconds"), (int, float)),
}
CELL = {
    **dict.fromkeys(("select", "scorer", "task", "metric"), str),
    **dict.fromkeys(("step", "version", "pairs"), int),
    "score": (int, float),
}
logger = logging.getLogger(__name__)


def read_result(folder: Path) -> dict[str, Any] | None:
    """Return the result in a run's folder; None if it is missing or, with a warning, damaged or another run's."""
    path = folder / RESULT
    result = read_json(path)
    if result is None:
        return None
    try:
        check_result(result, folder.name)
    except ValueError as error:
        logger.warning("%s: %s; ignored, and written again", path, error)
        return None
    return result


def load_result(folder: Path) -> dict[str, Any]:
    """Return the result in a run's folder; raise an OSError if it can't be read, a ValueError if it is damaged."""
    path = folder / RESULT
    try:
        result = parse_json(path)
        check_result(result, folder.name)
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): re-run the same command") from error
    return result


def as_recorded(results: Iterable[Mapping[str, Any]], mlruns: Path) -> Iterator[Mapping[str, Any]]:
    """Yield results with the recorded scores and curves in place of their own; unrecorded results stay as they are."""
    read: dict[str, tuple[pd.DataFrame, pd.DataFrame]] = {}
    for result in results:
        folder = csv_record.folder_for(result["scale"], mlruns)
        if result["studies"] and result["scale"] not in read:
            read[result["scale"]] = csv_record.RESULTS_TABLE.read(folder), csv_record.CURVES_TABLE.read(folder)
        lines = [frame[frame["key"] == result["key"]] for frame in read[result["scale"]]] if result["studies"] else []
        yield {**result, **recorded_parts(*lines)} if lines and len(lines[0]) else result


def recorded_parts(scores: pd.DataFrame, points: pd.DataFrame) -> dict[str, Any]:
    """Return a result's cells and curves, made from the record's lines of one run."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for name, step, value in zip(points["name"], points["step"].tolist(), points["value"].tolist(), strict=True):
        curves.setdefault(name, []).append((step, value))
    names = csv_record.SCORES[1:]
    rows = zip(*(scores[name].tolist() for name in names), strict=True)
    cells = [cell for row in rows if not math.isnan((cell := dict(zip(names, row, strict=True)))["score"])]
    return {"cells": cells, "curves": {name: sorted(curve) for name, curve in curves.items()}}


def check_result(result: dict[str, Any], key: str) -> None:
    """Refuse a damaged result, and the result of a run with another key."""
    if result.get("key") != key:
        raise ValueError(f"holds the result of run {result.get('key')}, expected {key}")
    _check_types(result, FIELDS)
    for cell in result["cells"]:
        if not isinstance(cell, dict):
            raise ValueError(f"expected cells of named values, got {cell!r}")
        _check_types(cell, CELL)
        if not math.isfinite(cell["score"]):
            raise ValueError(f"{cell['task']} {cell['metric']} is {cell['score']}")


def _check_types(values: dict[str, Any], kinds: dict[str, Any]) -> None:
    for name, kind in kinds.items():
        if not isinstance(values.get(name), kind):
            raise ValueError(
                f"expected {name} to be {getattr(kind, '__name__', 'a number')}, found {values.get(name)!r}"
            )
