"""Sweeps in their own processes."""

import json
import os
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from filelock import FileLock

from experiments.results import csv_record
from experiments.tracking.mlflow_database import make_database
from tests.support import forked, without_ray

ROOT = Path(__file__).parents[2]


def command(
    mlruns: Path, study: str, *words: str, workers: int = 1, database: bool = True, ray: bool = True
) -> list[str]:
    """The command of a sweep; a second worker would need seconds for imports, and runs take two seconds."""
    if database:
        add_empty_database(mlruns)
    script = ("" if ray else without_ray.SCRIPT) + "from tests.support.tiny_study import main; main()"
    place = ["--mlruns", str(mlruns), "--workers", str(workers)]
    return [sys.executable, "-c", script, study, "--scale", "tiny", *place, *words]


def add_empty_database(mlruns: Path) -> None:
    """Save a sweep the seconds in which MLflow creates its database; `test_mlflow_log.py` tests that."""
    if not (mlruns / "mlflow.db").exists() and not os.environ.get("MLFLOW_TRACKING_URI"):
        mlruns.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(_empty_database().name) / "mlflow.db", mlruns / "mlflow.db")


@cache
def _empty_database() -> TemporaryDirectory[str]:
    folder = TemporaryDirectory(prefix="cse-empty-mlflow-")
    make_database(Path(folder.name))
    return folder


def environment(mlruns: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "TINY_MARKER": str(mlruns.with_suffix(".came")), "COLUMNS": "120"}


def sweep(mlruns: Path, study: str, *words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    return forked.run(command(mlruns, study, *words, **how), env=environment(mlruns))


def undisturbed_sweep(factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """Return the record of a sweep and its seconds; all processes of a test run share it, so a test only reads it."""
    own = factory.getbasetemp()
    folder = (own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own) / "undisturbed"
    folder.mkdir(exist_ok=True)
    mlruns, seconds = folder / "mlruns", folder / "seconds"
    with FileLock(folder / "lock"):
        if not seconds.exists():
            forked.run([sys.executable, "-c", ""])  # does the imports, as before other sweeps
            started = time.monotonic()
            done = sweep(mlruns, "healthy", database=False)
            assert done.returncode == 0, done.stdout + done.stderr
            seconds.write_text(str(time.monotonic() - started))
    return mlruns, float(seconds.read_text())


def scores(mlruns: Path) -> dict[tuple[str, ...], float]:
    frame = csv_record.read_results("tiny", mlruns)
    return frame.set_index(csv_record.CELL)["score"].to_dict()


def finished_at(mlruns: Path) -> dict[str, int]:
    """When each run's training ended, by its file's time; training again would write the file again."""
    return {path.parent.name: path.stat().st_mtime_ns for path in (mlruns / "store").glob("*/history.json")}


def result(key: str, /, **other: object) -> dict[str, object]:
    """A run's result.json, as far as the record reads it."""
    cell = {"select": "last", "scorer": "cosine", "task": "synthetic", "metric": "spearman.all", "score": 0.5}
    about: dict[str, object] = {
        "key": key,
        "scale": "tiny",
        "method": "simcse",
        "backbone": "b",
        "seed": 1,
        "setting": "simcse",
        "settings": "",
        "teachers": "",
        "seconds": 1,
    }
    about |= {"cells": [cell | {"pairs": 9, "step": 1, "version": 1}], "curves": {}, "eval_steps": 1, "kept": {}}
    about |= {"name": key, "label": key, "warnings": [], "data": {}, "parameters": {}, "scoring_seconds": 1}
    about |= {"environment": {"commit": "0" * 40, "dirty": "false", "device": "cpu"}, "studies": ["one"]}
    return about | {"finished": "2026-01-01T00:00:00+00:00"} | other


def leave(store: Path, key: str, /, **other: object) -> None:
    (store / key).mkdir(parents=True)
    (store / key / "result.json").write_text(json.dumps(result(key, **other)))
