"""Save arrays next to a run's result.json: pair scores, and the data of figures."""

import logging
import zipfile
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cse_core.data.atomic_write import atomic_path
from experiments.results.csv_record import arrays_name

logger = logging.getLogger(__name__)


def save_arrays(folder: Path, select: str, scorer: str, task: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Add a task's arrays to the run's folder: all tasks' pair scores share a file, other arrays have one per task."""
    if set(arrays) == {"pair_scores"}:
        _add_to(_pair_scores_path(folder, select, scorer), {task: arrays["pair_scores"].astype(np.float32)})
    elif arrays:
        _add_to(_figure_data_path(folder, select, scorer, task), dict(arrays))


def read_pair_scores(folder: Path, select: str, scorer: str) -> dict[str, np.ndarray]:
    """Return the pair scores in a run's folder, by task; none if there is no file of them."""
    path = _pair_scores_path(folder, select, scorer)
    if not path.is_file():
        return {}
    with np.load(path) as arrays:
        return dict(arrays)


def _pair_scores_path(folder: Path, select: str, scorer: str) -> Path:
    name = f"{select} {scorer}".replace("/", "_")  # a corpus may be named by its path
    return folder / "pair_scores" / f"{name}.npz"


def _figure_data_path(folder: Path, select: str, scorer: str, task: str) -> Path:
    return folder / "figure_data" / f"{arrays_name(task, select, scorer)}.npz"


def discard_damaged(folder: Path, select: str, scorer: str, done: Collection[str]) -> set[str]:
    """Delete unreadable files of arrays, with a warning; return the scored tasks whose arrays are lost."""
    lost: set[str] = set()
    if _discard_if_damaged(_pair_scores_path(folder, select, scorer)):
        lost |= {task for task in done if not _figure_data_path(folder, select, scorer, task).is_file()}
    return lost | {task for task in done if _discard_if_damaged(_figure_data_path(folder, select, scorer, task))}


def discard_arrays(folder: Path, cells: Iterable[Mapping[str, Any]]) -> None:
    """Delete the arrays of cells."""
    for select, scorer, task in dict.fromkeys((cell["select"], cell["scorer"], cell["task"]) for cell in cells):
        _figure_data_path(folder, select, scorer, task).unlink(missing_ok=True)
        path = _pair_scores_path(folder, select, scorer)
        arrays: dict[str, Any] = {} if _discard_if_damaged(path) else read_pair_scores(folder, select, scorer)
        if arrays.pop(task, None) is not None:
            with atomic_path(path) as part, part.open("wb") as file:
                np.savez_compressed(file, **arrays)


def _discard_if_damaged(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with np.load(path) as arrays:
            for name in arrays:
                arrays[name]  # reading verifies zip's checksum
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        logger.warning("%s can't be read (%s): its tasks are scored again", path, error)
        path.unlink()
        return True
    return False


def _add_to(path: Path, arrays: dict[str, Any]) -> None:
    if path.is_file():
        with np.load(path) as old:
            arrays = {**old, **arrays}
    with atomic_path(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)
