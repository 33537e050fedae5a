"""Run folders on storage that every machine of a cluster reaches: a folder by any URL that fsspec knows.

    URL/<key>/1, 2, ...                the folders that count, each by the name of the attempt that wrote it; the last
                                       one is the run's, a later one has scores that an earlier one lacks
    URL/<key>/<attempt>/               such a folder: checkpoints, history, result, arrays
    URL/<key>/state-<step>-<selection rules>-<attempt>/    what a run goes on from
    .../complete                       in each of them, written last: the names of its files

No name is written twice, and each attempt has its own. So a worker that was cut off and lives on can spoil nothing:
what it brings after another one has finished is not looked at.
"""

import errno
import json
import logging
import math
import os
import pickle
import re
import time
import uuid
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import fsspec
import torch
from fsspec.implementations.local import LocalFileSystem

from cse_core.run import Run
from cse_core.train import History
from experiments.job import FailedTasksError, Job, Place, execute

ARRAYS = ("pair_scores", "figure_data")
NAMED = re.compile(r"[0-9a-f]{12}-\d+")
STATE = re.compile(r".*/state-(?P<step>\d+)-(?P<rules>[\w+]+)-(?P<attempt>[0-9a-f]{12})")
COMPLETE = "complete"
T = TypeVar("T")
TRIES = 3
PATIENCE, PAUSE = 600.0, 5.0  # seconds: how long storage or a server may be away, and how often it is tried


logger = logging.getLogger(__name__)


@contextmanager
def _os_errors(url: str) -> Generator[None]:
    """What a store raises as an OSError, whatever its library calls it; a wrong value stays one."""
    try:
        yield
    except (OSError, ValueError):
        raise
    except Exception as error:
        raise OSError(f"{url}: {type(error).__name__}: {error}") from error


def patiently(act: Callable[[], T], patience: float | None = None) -> T:
    """What an act returns, tried again while a store is away."""
    until = time.monotonic() + (PATIENCE if patience is None else patience)
    while True:
        try:
            return act()
        except (PermissionError, FileNotFoundError, FileExistsError):  # waiting would not help
            raise
        except OSError as error:
            if time.monotonic() > until or error.errno == errno.ENOSPC:
                raise
            logger.warning("%s; tried again", error)
            time.sleep(PAUSE)


class Shared:
    """A folder by URL. What can't be reached is an OSError."""

    def __init__(self, url: str) -> None:
        self.url = url
        with _os_errors(url):
            self.files, self.root = fsspec.core.url_to_fs(url)
        self.attempt = uuid.uuid4().hex[:12]

    def holds(self, key: str, rules: Collection[str]) -> bool:
        """Whether a run is published with the checkpoints of these rules."""
        with _os_errors(self.url):
            last = self._last(key)
            if not last:
                return False
            history = json.loads(self.files.cat_file(f"{self._folder(key, last)}/history.json"))
            return set(rules) <= set(history["kept"])

    def fetch(self, key: str, store: Path, *, weights: bool = True, rules: Collection[str] = ()) -> int:
        """Bring a run's folder into the store, unless it is there; which one it was.

        Of a run under way, its furthest state with these selection rules. Without `weights` only what is recorded.
        """
        with _os_errors(self.url):
            for _ in range(TRIES - 1):
                with suppress(FileNotFoundError):  # a state went as another attempt finished or got further: look again
                    return self._fetch(key, store, weights, rules)
            return self._fetch(key, store, weights, rules)

    def _fetch(self, key: str, store: Path, weights: bool, rules: Collection[str]) -> int:
        last, folder = self._last(key), store / key
        if not last:
            state = self._state(key, folder, rules)
            if state:
                logger.warning("run %s goes on from %s", key, state)
                self._download(state, folder, weights=True)
            return last
        here = folder / "shared"
        if not (here.is_file() and here.read_text() == str(last)):
            self._download(self._folder(key, last), folder, weights=weights)
            if weights:
                (folder / "state.pt").unlink(missing_ok=True)  # of an attempt that was not the first to finish
                here.write_text(str(last))
        return last

    def publish(self, folder: Path, after: int) -> bool:
        """Make a folder the run's, if nobody else has since `fetch` returned `after`."""
        place = f"{self.root}/{folder.name}"
        with _os_errors(self.url):
            self._upload(folder, f"{place}/{self.attempt}-{after + 1}")
            won = self._claim(f"{place}/{after + 1}", f"{self.attempt}-{after + 1}")
            if won:
                (folder / "shared").write_text(str(after + 1))
            self._remove(self._states(folder.name) if won else [f"{place}/{self.attempt}-{after + 1}"])
        return won

    def share_state(self, folder: Path, step: int, rules: Collection[str]) -> None:
        """Keep what a run with these selection rules can go on from; its earlier ones of this attempt go."""
        with _os_errors(self.url):
            earlier = [state for state in self._states(folder.name) if state.endswith(self.attempt)]
            self._upload(folder, f"{self.root}/{folder.name}/state-{step}-{_joined(rules)}-{self.attempt}")
            self._remove(earlier)

    def _remove(self, places: list[str]) -> None:
        for place in places:
            with suppress(FileNotFoundError):  # another attempt may be at it too
                self.files.rm(place, recursive=True)

    def _last(self, key: str) -> int:
        names = [path.rpartition("/")[2] for path in self._entries(key)]
        return max((int(name) for name in names if name.isdigit()), default=0)

    def _folder(self, key: str, last: int) -> str:
        name = self.files.cat_file(f"{self.root}/{key}/{last}").decode()
        if not NAMED.fullmatch(name):
            raise ValueError(f"{self.root}/{key}/{last}: wants the name of an attempt's folder, found {name!r}")
        return f"{self.root}/{key}/{name}"

    def _state(self, key: str, folder: Path, rules: Collection[str]) -> str:
        """The furthest complete state of these rules, if it is further than what this machine has to go on from."""
        steps = {
            path: int(named["step"])
            for path in self._states(key)
            if (named := STATE.fullmatch(path)) and named["rules"] == _joined(rules)
            if self.files.exists(f"{path}/{COMPLETE}")
        }
        furthest = max(steps, key=steps.__getitem__, default="")
        return furthest if furthest and steps[furthest] > _own_step(folder, rules) else ""

    def _states(self, key: str) -> list[str]:
        return [path for path in self._entries(key) if path.rpartition("/")[2].startswith("state-")]

    def _entries(self, key: str) -> list[str]:
        place = f"{self.root}/{key}"
        self.files.invalidate_cache(place)
        try:
            return [path.rstrip("/") for path in self.files.ls(place, detail=False)]
        except FileNotFoundError:  # any other error is one: a run that can't be seen is not a run that is not there
            return []

    def _download(self, source: str, folder: Path, *, weights: bool) -> None:
        """Into a folder beside the run's own, which then takes its place file by file."""
        for name in self.files.cat_file(f"{source}/{COMPLETE}").decode().splitlines():
            inside = Path(name)
            if ".." in inside.parts or inside.is_absolute():
                raise ValueError(f"{source}: {name} would be written outside the run's folder")
            recorded = inside.parts[0] in ARRAYS if len(inside.parts) > 1 else inside.name != "state.pt"
            if not (weights or recorded):
                continue
            target = folder / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f"{target.name}.{self.attempt}.part")
            self.files.get_file(f"{source}/{name}", str(part))
            part.replace(target)

    def _upload(self, folder: Path, place: str) -> None:
        found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in (".part", ".lock")]
        names = [path.relative_to(folder).as_posix() for path in found if path.name != "shared"]
        for name in names:
            target = f"{place}/{name}"
            self.files.makedirs(target.rpartition("/")[0], exist_ok=True)
            self.files.put_file(str(folder / name), target)
        self.files.makedirs(place, exist_ok=True)
        self.files.pipe_file(f"{place}/{COMPLETE}", "\n".join(names).encode())

    def _claim(self, path: str, name: str) -> bool:
        """Write a file that must not be there yet, whole or not at all."""
        try:
            if isinstance(self.files, LocalFileSystem):
                part = Path(f"{path}.{self.attempt}.part")
                part.write_text(name)
                try:
                    os.link(part, path)
                finally:
                    part.unlink()
            else:
                with self.files.open(path, "xb") as file:
                    file.write(name.encode())
        except OSError:  # stores have several for a name that is taken; a write that was tried again may be our own
            if not self.files.exists(path):
                raise
            return self.files.cat_file(path).decode() == name
        return True


def _joined(rules: Collection[str]) -> str:
    return "+".join(sorted(set(rules)))


def _own_step(folder: Path, rules: Collection[str]) -> float:
    """How far a run has come in a folder; -1 where nothing there can be gone on from with these rules."""
    if (folder / "history.json").is_file():
        return math.inf
    try:
        state = torch.load(folder / "state.pt", mmap=True, weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError):  # absent or torn
        return -1
    return state["step"] if state["keep"] == sorted(set(rules)) else -1


def fetch_recorded(key: str, place: Place) -> None:
    """Bring what the record needs of a run that may have been trained on another machine."""
    if place.shared:
        Shared(place.shared).fetch(key, place.store, weights=False)


def execute_shared(
    job: Job, place: Place, *, on_step: Callable[[int, History], object] | None = None
) -> dict[str, Any]:
    """`execute`; where there is shared storage, folders are fetched from there before, and what is new is published."""
    if not place.shared:
        return execute(job, place, on_step=on_step)
    shared, folder = Shared(place.shared), place.store / job.key
    nested = job.encoder.nested() if isinstance(job.encoder, Run) else ()
    for run in nested:
        patiently(partial(shared.fetch, run.key, place.store))
    last = patiently(partial(shared.fetch, job.key, place.store, rules=job.rules))
    sent = time.monotonic()

    def share(step: int, history: History) -> None:
        nonlocal sent
        if time.monotonic() - sent > place.share_seconds and (folder / "state.pt").is_file():
            sent = time.monotonic()
            try:
                shared.share_state(folder, step, job.rules)
            except OSError as error:  # the run has its state here; the next one may get through
                logger.warning("run %s: its state could not be shared (%s)", job.key, error)
        if on_step:
            on_step(step, history)

    before = _content(folder) if last else None
    try:
        result = execute(job, place, on_step=share)
    except FailedTasksError:
        patiently(partial(shared.publish, folder, last))  # what the other tasks found is not lost
        raise
    if _content(folder) != before and not patiently(partial(shared.publish, folder, last)):
        return execute_shared(job, place, on_step=on_step)  # another was first: its folder, and what that still lacks
    return result


def _content(folder: Path) -> dict[str, Any]:
    """What a run's folder says, but for when and how long."""
    result = json.loads((folder / "result.json").read_text())
    return {name: result[name] for name in ("cells", "studies", "kept")}
