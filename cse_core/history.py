"""What a run leaves beside its weights, and what it can go on from."""

import json
import logging
import pickle
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from cse_core.run import Run
from cse_core.selection import exported_step

logger = logging.getLogger(__name__)


@dataclass
class Kept:
    """The step and dev score of a kept checkpoint."""

    step: int
    score: float | None


@dataclass
class History:
    """What a run leaves beside its weights: a value per step and loss term, dev scores, kept steps, seconds, data."""

    steps: int
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    kept: dict[str, Kept] = field(default_factory=dict)
    seconds: float = 0.0
    skipped: int = 0  # steps that the fp16 scaler dropped
    data: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, content: dict[str, Any]) -> "History":
        """From its plain form, as JSON or a saved state holds it."""
        content = dict(content)
        content["kept"] = {rule: Kept(**kept) for rule, kept in content["kept"].items()}
        content["curves"] = {name: [(s, v) for s, v in points] for name, points in content["curves"].items()}
        return cls(**content)


def readable(path: Path) -> dict[str, Any] | None:
    """What a JSON file of a run's folder says, if it is there and whole."""
    try:
        return json.loads(path.read_text()) if path.is_file() else None
    except ValueError as error:
        logger.warning("%s can't be read (%s): what it said is found anew", path, error)
        return None


def known(folder: Path) -> History | None:
    """The history of a run that came to its end in this folder, if there is one that can be read."""
    content = readable(folder / "history.json")
    return History.of(content) if content else None


def finished(run: Run, store: Path, keep: Sequence[str]) -> History | None:
    """The history of a run whose kept checkpoints are all there, and whole, else None."""
    folder = store / run.key
    history = known(folder)
    # A run that is trained again for more rules has their folders before it has kept the right checkpoint in them.
    there = history and set(keep) <= set(history.kept) and all(_whole(folder / rule) for rule in keep)
    return history if there else None


def _whole(checkpoint: Path) -> bool:
    path = checkpoint / "model.safetensors"
    try:
        with safe_open(path, "pt"):  # which compares the file's length with what it should hold
            return True
    except FileNotFoundError:
        return False
    except SafetensorError as error:
        logger.warning("%s can't be read (%s): the run is trained again", path, error)
        return False


def resumable(
    path: Path, key: str, keep: Collection[str], device: str | torch.device = "cpu", *, mapped: bool = False
) -> dict[str, Any] | None:
    """A saved state, if there is one that can be read, of this run, for the same rules and beside their checkpoints.

    `mapped` leaves tensors in the file until they are asked for.
    """
    if not path.is_file():
        return None
    try:
        state = torch.load(path, map_location=device, mmap=mapped, weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
        logger.warning("%s can't be read (%s): run %s does not go on from it", path, error, key)
        return None
    if state["key"] != key or state["keep"] != sorted(set(keep)):
        return None
    kept = History.of(state["history"]).kept
    if any(exported_step(path.parent / rule) != one.step for rule, one in kept.items()):
        # Killed between an export and its state. Where arithmetic repeats itself, training on would export the same
        # again; elsewhere the folder could keep weights that the history does not speak of.
        logger.warning("%s is older than a kept checkpoint: run %s does not go on from it", path, key)
        return None
    return state
