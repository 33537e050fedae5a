"""What a run leaves beside its weights, when it counts as finished, and what it can continue from.

    KEY/state.pt, KEY/unfinished/<rule>/    an attempt under way: its state and the checkpoints that the state speaks of
    KEY/unfinished/history.json             the attempt is complete; `adopt` moves it up, and continues if it was killed
    KEY/<rule>/, KEY/history.json           the finished run

So an attempt that is trained again for more rules touches nothing of the finished run until it is complete itself.
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
from cse_core.data.pins import hold, name_of
from cse_core.run import Run
from cse_core.training.checkpoint import MANIFEST, CheckpointError, Manifest, check_content, check_sizes, read_manifest

HISTORY, STATE, UNFINISHED = "history.json", "state.pt", "unfinished"
ABOUT = ("key", "step", "history", "keep")  # of a state, beside what is loaded from it
PARTS = ("encoder", "modules", "optimizer", "schedule", "scaler")
logger = logging.getLogger(__name__)


@dataclass
class Checkpoint:
    """The step, dev score and weights (their SHA-256) of a saved checkpoint."""

    step: int
    score: float | None
    weights: str = ""


@dataclass
class History:
    """What a run leaves beside its weights: a value per step and loss term, dev scores, kept steps, seconds, data."""

    steps: int
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    kept: dict[str, Checkpoint] = field(default_factory=dict)
    seconds: float = 0.0
    skipped: int = 0  # steps that the fp16 scaler dropped
    data: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, content: dict[str, Any]) -> "History":
        """Read the plain form that JSON or a saved state holds; ValueError where it is no history."""
        try:
            content = dict(content)
            content["kept"] = {rule: Checkpoint(**kept) for rule, kept in content["kept"].items()}
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
        """Save it in a folder."""
        atomic_write(folder / HISTORY, json.dumps(asdict(self)))


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file of a run's folder; None, with a warning, where it can't be read."""
    try:
        content = json.loads(path.read_text()) if path.is_file() else None
        if content is not None and not isinstance(content, dict):
            raise ValueError(f"expected an object, found {type(content).__name__}")
    except (ValueError, OSError) as error:
        logger.warning("%s can't be read (%s): it is ignored and written again", path, error)
        return None
    return content


def load_history(folder: Path) -> History | None:
    """Return the history in a folder, if there is one that can be read."""
    content = read_json(folder / HISTORY)
    try:
        return None if content is None else History.of(content)
    except ValueError as error:
        logger.warning("%s can't be read (%s): the run is trained again", folder / HISTORY, error)
        return None


def finished(run: Run, store: Path, keep: Sequence[str], *, content: bool = False) -> History | None:
    """Return the history of a run that is finished with the checkpoints of these rules, else None.

    Checkpoints are compared with the history by manifest and size; with `content` every byte is read, which a plan of
    hundreds of runs does not. Loading a checkpoint does (teacher_embeddings.checkpoint_folder).
    """
    folder = store / run.key
    history = load_history(folder)
    if not history or not set(keep) <= set(history.kept):
        return None
    check = check_content if content else check_sizes
    try:
        for rule in keep:
            check(folder / rule, check_manifest(read_manifest(folder / rule), run.key, rule, history))
    except CheckpointError as error:
        if any((folder / rule).is_dir() for rule in keep):  # else the weights were removed, which is no fault
            logger.warning("%s: the run is trained again", error)
        return None
    return history


def check_finished(folder: Path) -> None:
    """Refuse a run's folder of which a checkpoint is not, in every byte, the one that its history speaks of."""
    history = load_history(folder) or History(steps=0)  # an encoder that was not trained here has none
    strays = [path.parent.name for path in folder.glob(f"*/{MANIFEST}") if path.parent.name not in history.kept]
    if strays:
        raise CheckpointError(f"{folder}: its history says nothing of the checkpoints {', '.join(sorted(strays))}")
    for rule in history.kept:
        check_content(folder / rule, check_manifest(read_manifest(folder / rule), folder.name, rule, history))


def hold_run(run: Run, content: Mapping[str, str], store: Path) -> None:
    """Hold a run's `corpus` and `backbone` to the pins, and the runs that it builds on to the same ones.

    A teacher may have come from another machine; its history says what it was trained on.
    """
    for nested in run.nested():
        if history := load_history(store / nested.key):
            hold(store, _names_taken(nested, history.data), f"run {nested.key}, which run {run.key} builds on")
    hold(store, _names_taken(run, content), f"run {run.key}")


def _names_taken(run: Run, content: Mapping[str, str]) -> dict[str, str]:
    names = {"corpus": run.corpus, "backbone": run.backbone}
    return {name_of(taken): content[kind] for kind, taken in names.items() if not taken.sha256 and content.get(kind)}


def check_manifest(manifest: Manifest, key: str, rule: str, history: History) -> Manifest:
    """Return a checkpoint's manifest; CheckpointError unless it is the one that the run's history speaks of."""
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
    """Put a complete attempt in place of what the run's folder holds; killed at any moment, it continues when called.

    Until the last checkpoint is moved, the old history (or none) fits no new checkpoint with other weights, so the run
    counts as unfinished; the new history comes last.
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
    path: Path, key: str, keep: Collection[str], device: str | torch.device = "cpu", *, mapped: bool = False
) -> dict[str, Any] | None:
    """Return a saved state, if there is one that can be read, of this run, for these rules, beside its checkpoints.

    `mapped` leaves tensors in the file until they are used: for a look at the step.
    """
    state = _loaded(path, key, device, mapped=mapped) if path.is_file() else None
    if not state or state["key"] != key or state["keep"] != sorted(set(keep)):
        return None
    try:
        history = History.of(state["history"])
        if not isinstance(state["step"], int) or not 0 <= state["step"] <= history.steps:
            raise ValueError(f"step {state['step']} of {history.steps}")
        for rule in history.kept:
            checkpoint = path.parent / UNFINISHED / rule
            check_sizes(checkpoint, check_manifest(read_manifest(checkpoint), key, rule, history))
    except ValueError as error:
        # Also after a kill between an export and its state. Where arithmetic repeats itself, training on would export
        # the same again; elsewhere the folder could keep weights that the history does not speak of.
        logger.warning("%s does not fit its folder (%s): run %s starts again", path, error, key)
        return None
    return state


def _loaded(path: Path, key: str, device: str | torch.device, *, mapped: bool) -> dict[str, Any] | None:
    try:
        with zipfile.ZipFile(path) as parts:  # PyTorch writes checksums and does not compare them
            if damaged := parts.testzip():
                raise ValueError(f"{damaged} is damaged")
        state = torch.load(path, map_location=device, mmap=mapped, weights_only=True)
        lacking = [name for name in (ABOUT if mapped else ABOUT + PARTS) if name not in state]
        if lacking:
            raise ValueError(f"it lacks {', '.join(lacking)}")
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
