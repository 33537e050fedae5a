"""The record: mlruns/results.csv and curves.csv. Merged by cell, the earliest wins, no line is ever removed.

A cell of results.csv is one score: (key, select, scorer, task, metric). A point of curves.csv is (key, name, step): the
mean of a loss term over the steps since the last point, or a dev score. Quickstart has a folder of its own, so that trying
the project leaves the committed record as it is.
"""

import os
from pathlib import Path

import pandas as pd

MLRUNS = Path(__file__).parents[1] / "mlruns"
CELL = ["key", "select", "scorer", "task", "metric"]
RESULTS = [
    *("scale", "key", "method", "backbone", "seed", "settings", "select", "scorer", "task", "metric"),
    *("score", "pairs", "step", "version", "commit", "device", "seconds"),
]
POINT = ["key", "name", "step"]
CURVES = ["scale", "key", "name", "step", "value"]
TEXT = {name: "string" for name in ("scale", "key", "method", "backbone", "settings", "select", "scorer")} | {
    name: "string" for name in ("task", "metric", "commit", "device", "name")
}


def folder_for(scale: str, mlruns: Path = MLRUNS) -> Path:
    """Where a scale's record lies."""
    return mlruns / "quickstart" if scale == "quickstart" else mlruns


def read(path: Path, columns: list[str]) -> pd.DataFrame:
    """A record file, empty where there is none; other columns than expected are an error."""
    if not path.is_file():
        return pd.DataFrame(columns=columns).astype({c: t for c, t in TEXT.items() if c in columns})
    frame = pd.read_csv(path, dtype=TEXT, keep_default_na=False, na_values={"score": "", "pairs": "", "step": ""})
    if list(frame.columns) != columns:
        raise ValueError(f"{path}: columns {', '.join(frame.columns)}; expected {', '.join(columns)}")
    return frame


def read_results(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    return read(folder_for(scale, mlruns) / "results.csv", RESULTS)


def read_curves(scale: str, mlruns: Path = MLRUNS) -> pd.DataFrame:
    return read(folder_for(scale, mlruns) / "curves.csv", CURVES)


def merge(path: Path, new: pd.DataFrame, *, columns: list[str], identity: list[str]) -> int:
    """Add lines that the file does not have yet and return how many; what it has stays as it is, to the letter.

    `new` comes earliest first; of two new lines for one cell the first counts.
    """
    old = read(path, columns)
    fresh = new[columns].drop_duplicates(identity)
    known = pd.MultiIndex.from_frame(old[identity].astype(str))
    fresh = fresh[~pd.MultiIndex.from_frame(fresh[identity].astype(str)).isin(known)]
    if fresh.empty:
        return 0
    header = ",".join(columns) + "\n"
    body = path.read_text().split("\n", 1)[1] if path.is_file() else ""
    lines = body.splitlines(keepends=True) + fresh.to_csv(index=False, header=False).splitlines(keepends=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(header + "".join(sorted(lines)))
    os.replace(part, path)
    return len(fresh)
