"""Find the scores of an earlier call that are still valid: same data, weights, code and version of the evaluation.

A result has the hashes of everything that its scores depend on: `data` of each file, `kept` of each checkpoint's
weights, `code` of scorers and tasks from outside this project.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cse_core.data.locate import locate_senteval
from cse_core.data.senteval import CLASSES, PARTS, SINGLE, year_files
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import SPLITS, Scorer
from cse_core.source import class_name
from cse_core.training.run_state import History, load_history
from experiments.results import csv_record
from experiments.results.run_arrays import discard_damaged
from experiments.results.run_result import read_result

Cell = Mapping[str, Any]


@dataclass(frozen=True)
class Scoring:
    """Tasks to score on one saved checkpoint with one scorer."""

    select: str
    scorer: Scorer
    tasks: tuple[str, ...]

    def asks_for(self, cell: Cell) -> bool:
        """Whether this scoring produces the cell."""
        return (cell["select"], cell["scorer"]) == (self.select, str(self.scorer)) and cell["task"] in self.tasks


@dataclass(frozen=True)
class Inputs:
    """What scores depend on: hashes of files, of checkpoints' weights, and of scorers and tasks from outside, by name.

    `missing` are files that can't be found.
    """

    data: Mapping[str, str]
    missing: Collection[str]
    weights: Mapping[str, str]
    code: Mapping[str, str]

    @classmethod
    def of(cls, scorings: Collection[Scoring], weights: Mapping[str, str], data: Path | None) -> "Inputs":
        """Return what the scorings depend on now."""
        files = {file for scoring in scorings for task in scoring.tasks for file in files_of(task, scoring.scorer)}
        hashes = _hashes(files, data)
        return cls(hashes, files - hashes.keys(), weights, _code(scorings))


def files_of(task: str, scorer: Scorer | None = None) -> set[str]:
    """Return the names of the SentEval files that a task reads, with all splits if the scorer may be fitted on them.

    Without a scorer, all splits count. A user's own set has no such file: its name has a digest of its content.
    """
    read = suite.find_task(task)
    sets = {*read.pair_sets, *read.labelled_sets, *read.read_sets} if read else set()
    if scorer is None or getattr(scorer, "corpus", scorer) is None:
        sets |= {split for splits in SPLITS.values() if sets & {*splits} for split in splits}
    return {file for name in sets for file in _files_of_set(name)}


def _files_of_set(name: str) -> Iterable[str]:
    if name in PARTS:
        return [file for part in PARTS[name] for file in year_files(name, part)]
    if name in SINGLE:
        return [SINGLE[name].file]
    return [labels.file for labels in CLASSES.get(name, ())]


def _hashes(files: Collection[str], data: Path | None) -> dict[str, str]:
    """Return the hashes of the files that exist."""
    if not files:
        return {}
    try:
        root = locate_senteval(data)
    except FileNotFoundError:
        return {}
    paths = {name: root / name for name in sorted(files)}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path.is_file()}


def _code(scorings: Iterable[Scoring]) -> dict[str, str]:
    kinds: dict[str, type] = {}
    for scoring in scorings:
        kinds[f"scorer {scoring.scorer}"] = type(scoring.scorer)
        kinds |= {f"task {task}": type(suite.find_task(task)) for task in scoring.tasks}
    named = {name: class_name(kind) for name, kind in kinds.items()}
    return {name: each["code"] for name, each in named.items() if isinstance(each, Mapping)}


@dataclass(frozen=True)
class Stored:
    """The valid part of a stored result: its cells, and the hashes of their data.

    `gone` are the cells that are no longer valid; `changes` are sentences that say why.
    """

    cells: tuple[Cell, ...]
    data: Mapping[str, str]
    gone: tuple[Cell, ...]
    changes: tuple[str, ...]

    def without(self, scorings: Collection[Scoring]) -> "Stored":
        """Return a copy without the cells that these scorings produce."""
        return replace(self, cells=tuple(cell for cell in self.cells if not _is_asked(cell, scorings)))


def read_stored(folder: Path) -> dict[str, Any]:
    """Return the result in a run's folder; add the hashes of its checkpoints' weights if it is too old to have them."""
    stored = read_result(folder) or {"cells": []}
    earlier = load_history(folder) or History(steps=0)
    for rule, kept in stored.get("kept", {}).items():
        if rule in earlier.kept:
            kept.setdefault("weights", earlier.kept[rule].weights)
    return stored


def still_valid(stored: Mapping[str, Any], scorings: Collection[Scoring], now: Inputs) -> Stored:
    """Return the part of a stored result that would be the same now, as far as can be known.

    Cells that no scoring asks for go too if something that they depend on is known to have changed.
    """
    data, code = _changes(stored.get("data", {}), now.data), _changes(stored.get("code", {}), now.code)
    before = {rule: kept["weights"] for rule, kept in stored.get("kept", {}).items() if kept.get("weights")}
    weights = _changes(before, now.weights)
    present = {_place(cell) for cell in stored["cells"] if cell["version"] == _version(cell)}
    why: dict[tuple[str, ...], dict[str, None]] = {}
    kept, gone = [], []
    for cell in stored["cells"]:
        asked = _is_asked(cell, scorings)
        reasons = [f"{file} changed" for file in sorted(data & files_of(cell["task"]))]
        reasons = [reasons[0], *(["and other files"] if reasons[1:] else [])] if reasons else []
        reasons += ["the checkpoint has other weights"] if cell["select"] in weights else []
        reasons += [f"the code of {name} changed" for name in sorted(_names(cell) & code)]
        (gone if reasons else kept).append(cell)
        if asked and not reasons and _place(cell) not in present:  # the old line stays, with its version
            reasons = [f"the evaluation has version {_version(cell)}, before {cell['version']}"]
        what = "scored again" if asked else "removed"
        if asked and not reasons and (missing := sorted(files_of(cell["task"]) & {*now.missing})):
            reasons, what = [f"{missing[0]} can't be found, so it is not compared"], "kept"
        if reasons:
            why.setdefault((cell["scorer"], cell["select"], " ".join(reasons), what), {})[cell["task"]] = None
    files = {file for cell in gone for file in files_of(cell["task"])}
    files -= {file for cell in kept for file in files_of(cell["task"])}
    held = {name: content for name, content in stored.get("data", {}).items() if name not in files}
    changes = (
        f"{', '.join(tasks)} by {scorer}, {select}: {reason}; {what}"
        for (scorer, select, reason, what), tasks in why.items()
    )
    return Stored(tuple(kept), held, tuple(gone), tuple(changes))


def tasks_to_score(scoring: Scoring, cells: Sequence[Cell], folder: Path) -> list[str]:
    """Return the tasks of a scoring that are not among the cells, and those whose arrays are damaged."""
    scorer, select = str(scoring.scorer), scoring.select
    done = _complete_tasks([cell for cell in cells if (cell["select"], cell["scorer"]) == (select, scorer)])
    again = discard_damaged(folder, select, scorer, done)
    return [task for task in dict.fromkeys((*scoring.tasks, *again)) if task not in done or task in again]


def replace_scores(folder: Path, result: Mapping[str, Any], earlier: Iterable[Mapping[str, Any]]) -> None:
    """Replace a run's recorded scores by those of its result; remove `earlier` ones that the result does not have."""

    def identity(line: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(line[name]) for name in csv_record.CELL)

    now = {identity(line): repr(float(line["score"])) for line in csv_record.result_lines(result)}
    removed = {identity({"key": result["key"], **cell}) for cell in earlier} - now.keys()

    def differs(line: Mapping[str, str]) -> bool:
        return identity(line) in removed or now.get(identity(line), line["score"]) != line["score"]

    csv_record.RESULTS_TABLE.remove(folder, differs)
    csv_record.merge_lines(result["scale"], folder, [result])


def _complete_tasks(cells: Sequence[Cell]) -> set[str]:
    """Return the tasks that are scored with all of their metrics, among the cells of one scorer and checkpoint."""
    metrics_of: dict[tuple[str, int], set[str]] = {}
    for cell in cells:
        metrics_of.setdefault((cell["task"], cell["version"]), set()).add(cell["metric"])
    return {task for (task, version), metrics in metrics_of.items() if suite.complete(task, version, metrics)}


def _is_asked(cell: Cell, scorings: Collection[Scoring]) -> bool:
    return any(scoring.asks_for(cell) for scoring in scorings)


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    return {name for name, content in now.items() if before.get(name, content) != content}


def _place(cell: Cell) -> tuple[str, str, str]:
    return cell["select"], cell["scorer"], cell["task"]


def _version(cell: Cell) -> int | None:
    task = suite.find_task(cell["task"])
    return task.version if task else None


def _names(cell: Cell) -> set[str]:
    return {f"scorer {cell['scorer']}", f"task {cell['task']}"}
