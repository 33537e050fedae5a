"""Remove runs: their folders, their lines and arrays in the record, and MLflow's copies.

Each part is removed separately, after a new search, so the same command completes an interrupted removal. A
run's result goes first, because a sweep would record it again, and its line in runs.csv last, because scores need one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from cse_core.run import is_key
from experiments.results import csv_record
from experiments.results.csv_record import CURVES_TABLE, MANUAL_RUNS, PAIRS_TABLE, RESULTS_TABLE, RUNS_TABLE
from experiments.results.csv_table import Table
from experiments.results.manifest import Manifest
from experiments.results.run_result import RESULT
from experiments.tracking.mlflow_log import Tracker

ARRAYS = "figure_data"
TABLES = (PAIRS_TABLE, CURVES_TABLE, RESULTS_TABLE, RUNS_TABLE)  # in this order
COLUMNS = {PAIRS_TABLE.name: ("first", "second")}  # that begin with keys, joined by +; in other tables, `key`


@dataclass(frozen=True)
class Traces:
    """Everything that belongs to runs: folders with their sizes in bytes, lines by file, arrays, MLflow's run ids.

    `unreachable` says why MLflow could not be asked.
    """

    folders: Mapping[Path, int] = field(default_factory=dict)
    lines: Mapping[Path, int] = field(default_factory=dict)
    arrays: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)
    tracked: tuple[str, ...] = ()
    unreachable: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not (self.folders or self.lines or self.arrays or self.tracked)


def traces_of(keys: Collection[str], mlruns: Path, store: Path, tracker: Tracker, *, own: bool = False) -> Traces:
    """Return everything that belongs to runs, in the run folders, the record and MLflow.

    With `own`, only what run.py and evaluate.py made: the record, its run folders and their copies are left out. What
    is no key is refused, as an empty one would name the folder of all runs.
    """
    for key in keys:
        if not is_key(key):
            raise ValueError(f"run {key!r}: expected its key, twelve hex digits, as in runs.csv")
    by_hand = mlruns / MANUAL_RUNS
    records = [folder for folder in record_folders(mlruns) if not own or folder == by_hand]
    folders = [place / key for place in ((by_hand,) if own else (store, by_hand)) for key in keys]
    lines = {
        folder / table.name: count
        for folder in records
        for table in TABLES
        if (count := sum(_names_a_run(line, table, keys) for line in table.read(folder).to_dict("records")))
    }
    arrays = {
        folder: names
        for folder in records
        if (names := _array_names(folder, keys)) or any((folder / ARRAYS / key).is_dir() for key in keys)
    }
    tracked, unreachable = _ask_mlflow(keys, mlruns, tracker, own)
    sizes = {folder: _size(folder) for folder in folders if folder.is_dir()}
    return Traces(sizes, lines, arrays, tracked, unreachable)


def record_folders(mlruns: Path) -> list[Path]:
    """Return the folders of the record: of the scales and of quickstart, and of runs made by hand."""
    folders = [mlruns, csv_record.folder_for("quickstart", mlruns), mlruns / MANUAL_RUNS]
    return [folder for folder in folders if (folder / RUNS_TABLE.name).is_file()]


def remove(keys: Sequence[str], traces: Traces, store: Path, tracker: Tracker) -> str:
    """Remove what belongs to runs, and return why MLflow's part failed, if so; refuse a run that is being trained."""
    for place in dict.fromkeys((store, *(folder.parent for folder in traces.folders))):
        for key in keys:
            _lock(key, place)
    for folder in traces.folders:
        (folder / RESULT).unlink(missing_ok=True)
        shutil.rmtree(folder)
    for folder, names in traces.arrays.items():
        with Manifest(folder).lock():
            Manifest(folder).replace(dict.fromkeys(names))
        for key in keys:
            shutil.rmtree(folder / ARRAYS / key, ignore_errors=True)
    for folder in dict.fromkeys(path.parent for path in traces.lines):
        for table in TABLES:
            table.remove(folder, lambda line, table=table: _names_a_run(line, table, keys))
    try:
        for run_id in traces.tracked:
            tracker.client.delete_run(run_id)
    except Exception as error:  # noqa: BLE001 - whatever MLflow or its database raises
        return str(error)
    return ""


def _names_a_run(line: Mapping[str, object], table: Table, keys: Collection[str]) -> bool:
    named = (str(line[name]).partition(" ")[0].split("+") for name in COLUMNS.get(table.name, ("key",)))
    return any(key in keys for several in named for key in several)


def _array_names(folder: Path, keys: Collection[str]) -> tuple[str, ...]:
    found = (path for key in keys for path in (folder / ARRAYS / key).rglob("*.npz"))
    return tuple(sorted(path.relative_to(folder).as_posix() for path in found))


def _ask_mlflow(keys: Collection[str], mlruns: Path, tracker: Tracker, own: bool) -> tuple[tuple[str, ...], str]:
    """Return the ids of the runs in MLflow, and why it could not be asked; never make a database just to ask."""
    if not os.environ.get("MLFLOW_TRACKING_URI") and not (mlruns / "mlflow.db").is_file():
        return (), ""
    try:
        return tuple(tracker.ids(keys, own=own)), ""
    except OSError as error:
        return (), str(error)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _lock(key: str, store: Path) -> None:
    """Refuse a run whose lock is held by a process that works on it; delete a free lock."""
    path = store / f"{key}.lock"
    if not path.is_file():
        return
    try:
        with FileLock(path, timeout=0):
            pass
    except Timeout:
        raise ValueError(
            f"run {key}: a process is training or scoring it; wait for its end, or end that process"
        ) from None
    path.unlink(missing_ok=True)
