"""A run's files besides its weights, and the checks whether it is finished or can be resumed.

    KEY/state.pt, KEY/unfinished/<rule>/    an attempt under way: its state and the checkpoints that the state names
    KEY/unfinished/history.json             the attempt is complete; `adopt` moves it up, and continues if it was killed
    KEY/<rule>/, KEY/history.json           the finished run

So a run that is trained again for more rules leaves the finished one untouched until the new attempt is complete.
"""

import json
import logging
import math
import pickle
import shutil
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from cse_core.data.atomic_write import atomic_write, sync
from cse_core.data.pins import enforce_pins, pin_name
from cse_core.run import Run
from cse_core.training.checkpoint import MANIFEST, CheckpointError, Manifest, check_content, check_sizes, read_manifest

HISTORY, STATE, UNFINISHED = "history.json", "state.pt", "unfinished"
STATE_FIELDS = ("key", "step", "history", "keep")
STATE_PARTS = ("encoder", "modules", "optimizer", "schedule", "scaler")  # saved as their state_dict
logger = logging.getLogger(__name__)


@dataclass
class Checkpoint:
    """The step, dev score and weights (their SHA-256) of a saved checkpoint."""

    step: int
    score: float | None
    weights: str = ""


@dataclass
class History:
    """A run's record: a value per step and loss term, dev scores, saved checkpoints, seconds, hashes of its data."""

    steps: int
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    kept: dict[str, Checkpoint] = field(default_factory=dict)
    seconds: float = 0.0
    skipped: int = 0  # steps that the fp16 scaler dropped
    data: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, content: dict[str, Any]) -> "History":
        """Return a history from its form in JSON or in a saved state; raise a ValueError if the content is not one."""
        try:
            content = dict(content)
            content["kept"] = {rule: Checkpoint(**fields) for rule, fields in content["kept"].items()}
            content["curves"] = {name: [(s, v) for s, v in points] for name, points in content["curves"].items()}
            history = cls(**content)
            steps = [history.steps, *(kept.step for kept in history.kept.values())]
            steps += [step for points in history.curves.values() for step, _ in points]
            numbers = [history.seconds, *(value for points in history.curves.values() for _, value in points)]
            numbers += [kept.score for kept in history.kept.values() if kept.score is not None]
            if not all(isinstance(step, int) and 0 <= step <= history.steps for step in steps):
                raise ValueError(f"a step is not in 0 to {history.steps}")
            if not all(math.isfinite(number) for number in numbers):
                raise ValueError("a number is not finite")
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a history ({type(error).__name__}: {error})") from error
        return history

    def write(self, folder: Path) -> None:
        """Write the history to a folder."""
        atomic_write(folder / HISTORY, json.dumps(asdict(self)))


def parse_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raise an OSError if it can't be read, a ValueError if it holds no object."""
    content = json.loads(path.read_text())
    if not isinstance(content, dict):
        raise ValueError(f"expected an object, got {type(content).__name__}")
    return content


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file of a run's folder; None, with a warning, if it can't be read."""
    try:
        return parse_json(path) if path.is_file() else None
    except (ValueError, OSError) as error:
        logger.warning("%s can't be read (%s): it is ignored and written again", path, error)
        return None


def load_history(folder: Path) -> History | None:
    """Return the history in a folder, if there is one that can be read."""
    content = read_json(folder / HISTORY)
    try:
        return None if content is None else History.of(content)
    except ValueError as error:
        logger.warning("%s can't be read (%s): the run is trained again", folder / HISTORY, error)
        return None


def finished_history(run: Run, store: Path, rules: Sequence[str], *, content: bool = False) -> History | None:
    """Return the history of a run that is finished with the checkpoints of these rules, otherwise None.

    Checkpoints are compared with the history by manifest and size. With `content` every byte is read, as when a
    checkpoint is loaded (teacher_embeddings.checkpoint_folder). That is too slow for planning hundreds of runs.
    """
    folder = store / run.key
    history = load_history(folder)
    if not history or not set(rules) <= set(history.kept):
        return None
    check = check_content if content else check_sizes
    try:
        for rule in rules:
            check(folder / rule, check_manifest(read_manifest(folder / rule), run.key, rule, history))
    except CheckpointError as error:
        if any((folder / rule).is_dir() for rule in rules):  # otherwise the weights were deleted, which is fine
            logger.warning("%s: the run is trained again", error)
        return None
    return history


def check_finished(folder: Path) -> None:
    """Refuse a run's folder with a checkpoint that differs, in any byte, from the one that its history names."""
    history = load_history(folder) or History(steps=0)  # an encoder that was not trained here has none
    unlisted = [path.parent.name for path in folder.glob(f"*/{MANIFEST}") if path.parent.name not in history.kept]
    if unlisted:
        raise CheckpointError(f"{folder}: its history does not name the checkpoints {', '.join(sorted(unlisted))}")
    for rule in history.kept:
        check_content(folder / rule, check_manifest(read_manifest(folder / rule), folder.name, rule, history))


def enforce_run_pins(run: Run, content: Mapping[str, str], store: Path) -> None:
    """Enforce the pins of a run's `corpus` and `backbone`, and of the runs that it builds on.

    A teacher may have come from another machine; its history has the hashes of what it was trained on.
    """
    for nested in run.nested():
        if history := load_history(store / nested.key):
            enforce_pins(
                store, _pinned_contents(nested, history.data), f"run {nested.key}, which run {run.key} builds on"
            )
    enforce_pins(store, _pinned_contents(run, content), f"run {run.key}")


def _pinned_contents(run: Run, content: Mapping[str, str]) -> dict[str, str]:
    inputs = {"corpus": run.corpus, "backbone": run.backbone}
    return {pin_name(used): content[kind] for kind, used in inputs.items() if not used.sha256 and content.get(kind)}


def check_manifest(manifest: Manifest, key: str, rule: str, history: History) -> Manifest:
    """Return a checkpoint's manifest; raise a CheckpointError unless the run's history names this checkpoint."""
    saved = history.kept.get(rule)
    if (
        not saved
        or (manifest.key, manifest.rule) != (key, rule)
        or not (manifest.step == saved.step and manifest.weights == saved.weights)
    ):
        says = f"step {saved.step}, weights {saved.weights[:12]}" if saved else "no such rule"
        raise CheckpointError(
            f"{key}/{rule}: holds run {manifest.key}, rule {manifest.rule}, step {manifest.step}, weights "
            f"{manifest.weights[:12]}; the run's history says {says}"
        )
    return manifest


def adopt(folder: Path) -> None:
    """Replace what is in a run's folder with its complete attempt; if killed at any moment, the next call resumes.

    The new history is moved last. Until then the old history, if any, fits no new checkpoint with other weights, so the
    run counts as unfinished.
    """
    attempt = folder / UNFINISHED
    if not load_history(attempt):
        return
    for checkpoint in sorted(path for path in attempt.iterdir() if path.is_dir() and not path.name.startswith(".")):
        shutil.rmtree(folder / checkpoint.name, ignore_errors=True)
        checkpoint.rename(folder / checkpoint.name)
    sync(folder)
    (folder / STATE).unlink(missing_ok=True)
    (attempt / HISTORY).replace(folder / HISTORY)
    sync(folder)
    shutil.rmtree(attempt)


def load_state(
    path: Path, key: str, rules: Collection[str], device: str | torch.device = "cpu", *, mapped: bool = False
) -> dict[str, Any] | None:
    """Return the saved state of this run for these rules, or None if it is damaged or does not fit its checkpoints.

    `mapped` leaves tensors in the file until they are used, for callers that read only the step.
    """
    state = _read_state(path, key, device, mapped=mapped) if path.is_file() else None
    if not state or state["key"] != key or state["keep"] != sorted(set(rules)):
        return None
    try:
        history = History.of(state["history"])
        if not isinstance(state["step"], int) or not 0 <= state["step"] <= history.steps:
            raise ValueError(f"step {state['step']} of {history.steps}")
        for rule in history.kept:
            checkpoint = path.parent / UNFINISHED / rule
            check_sizes(checkpoint, check_manifest(read_manifest(checkpoint), key, rule, history))
    except ValueError as error:
        # This also happens after a kill between an export and the save of its state. If arithmetic is reproducible,
        # resuming would export the same again; otherwise the folder could keep weights that the history does not name.
        logger.warning("%s does not fit its folder (%s): run %s starts again", path, error, key)
        return None
    return state


def resumable_step(folder: Path, rules: Collection[str]) -> float:
    """Return the step from which a run can resume in a folder: infinity if finished, -1 if it has no usable state."""
    if load_history(folder):
        return math.inf
    state = load_state(folder / STATE, folder.name, rules, mapped=True)
    return state["step"] if state else -1


def _read_state(path: Path, key: str, device: str | torch.device, *, mapped: bool) -> dict[str, Any] | None:
    try:
        with zipfile.ZipFile(path) as parts:  # PyTorch writes checksums but does not compare them
            if damaged := parts.testzip():
                raise ValueError(f"{damaged} is damaged")
        state = torch.load(path, map_location=device, mmap=mapped, weights_only=True)
        missing = [name for name in (STATE_FIELDS if mapped else STATE_FIELDS + STATE_PARTS) if name not in state]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
    except (
        RuntimeError,
        EOFError,
        OSError,
        TypeError,
        ValueError,
        zipfile.BadZipFile,
        pickle.UnpicklingError,
    ) as error:
        logger.warning("%s can't be read (%s): run %s does not continue from it", path, error, key)
        return None
    return state
