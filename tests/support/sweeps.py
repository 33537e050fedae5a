"""Sweeps in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

from experiments.results import csv_record

ROOT = Path(__file__).parents[2]


def command(mlruns: Path, study: str, *words: str) -> list[str]:
    script = "from tests.support.tiny_study import main; main()"
    return [sys.executable, "-c", script, study, "--scale", "tiny", "--mlruns", str(mlruns), "--workers", "2", *words]


def environment(mlruns: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "TINY_MARKER": str(mlruns.with_suffix(".came")), "COLUMNS": "120"}


def sweep(mlruns: Path, study: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(mlruns, study, *words),
        env=environment(mlruns),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def scores(mlruns: Path) -> dict[tuple[str, ...], float]:
    frame = csv_record.read_results("tiny", mlruns)
    return frame.set_index(csv_record.CELL)["score"].to_dict()


def finished_at(mlruns: Path) -> dict[str, int]:
    """When each run's training ended; training it again would write the file again."""
    return {path.parent.name: path.stat().st_mtime_ns for path in (mlruns / "store").glob("*/history.json")}


def result(key: str, /, **other: object) -> dict[str, object]:
    """What a run of a study leaves, as far as the record reads it."""
    cell = {"select": "last", "scorer": "cosine", "task": "synthetic", "metric": "spearman.all", "score": 0.5}
    about: dict[str, object] = {
        "key": key,
        "scale": "tiny",
        "method": "simcse",
        "backbone": "b",
        "seed": 1,
        "settings": "",
        "seconds": 1,
    }
    about |= {"cells": [cell | {"pairs": 9, "step": 1, "version": 1}], "curves": {}, "eval_steps": 1, "kept": {}}
    about |= {"name": key, "label": key, "warnings": [], "data": {}, "parameters": {}, "scoring_seconds": 1}
    about |= {"environment": {"commit": "0" * 40, "dirty": "false", "device": "cpu"}, "studies": ["one"]}
    return about | {"finished": "2026-01-01T00:00:00+00:00"} | other


def leave(store: Path, key: str, /, **other: object) -> None:
    (store / key).mkdir(parents=True)
    (store / key / "result.json").write_text(json.dumps(result(key, **other)))
