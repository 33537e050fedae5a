"""Run folders on storage that every machine of a cluster reaches: a folder by any URL that fsspec knows.

    URL/<key>/1, 2, ...                files that name the folders that count; the last one is the run's, a later one
                                       has scores that an earlier one lacks
    URL/<key>/<attempt>-<number>/      such a folder: checkpoints, history, result, arrays
    URL/<key>/state-<step>-<selection rules>-<attempt>/    what a run goes on from
    .../complete                       in each of them, written last: the names of its files
    URL/pins/...                       the content of each corpus and backbone that is taken by name alone
    URL/prepared                       without it no worker takes the folder for the shared one: it may not be mounted

No two attempts write the same name, but for 1, 2, ..., which are the first one's for good. So a worker that was cut off
and lives on can spoil nothing: what it brings after another one has finished is not looked at.

Why not Ray Tune's storage (`storage_path`; measured with Ray 2.60.0, November 2026): a worker taken for lost wrote its
checkpoint into that of the retry, which had finished, and Tune returned the mixture as the result. A checkpoint cut to
10 of 200,000 bytes was resumed from without an error. After a kill of the driver `Tuner.restore` repeated one step with
`num_to_keep=1`, else up to four, but it restores one unchanged list of trials, where a sweep is any set of studies.
"""

import hashlib
import json
import logging
import math
import os
import re
import uuid
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from cse_core.data.pins import hold, pins
from cse_core.training.checkpoint import MANIFEST, parse_manifest
from cse_core.training.run_state import HISTORY, History, check_finished, check_manifest, load_history, load_state
from experiments.storage.credentials import redact_credentials

ARRAYS = ("pair_scores", "figure_data")
NAMED = re.compile(r"[0-9a-f]{12}-\d+")
STATE = re.compile(r".*/state-(?P<step>\d+)-(?P<rules>[\w+]+)-(?P<attempt>[0-9a-f]{12})")
SUFFIXES = (".json", ".safetensors", ".txt", ".npz")  # of what is fetched beside a state: nothing that could run code
COMPLETE, PREPARED, PINNED, TRIES = "complete", "prepared", "pins", 3
logger = logging.getLogger(__name__)


@contextmanager
def _os_errors(url: str) -> Generator[None]:
    """What a store raises as an OSError, whatever its library calls it; a wrong value stays one."""
    try:
        yield
    except (OSError, ValueError):
        raise
    except Exception as error:
        raise OSError(redact_credentials(f"{url}: {type(error).__name__}: {error}")) from error


class Shared:
    """A folder by URL. What can't be reached is an OSError."""

    def __init__(self, url: str) -> None:
        self.url = url
        with _os_errors(url):
            self.files, self.root = fsspec.core.url_to_fs(url)
        self.attempt = uuid.uuid4().hex[:12]

    def prepare(self) -> None:
        """Make this a folder to share. Storage on which two attempts could both be the first is refused."""
        place = f"{self.root}/probe-{self.attempt}"
        try:
            with _os_errors(self.url):
                self.files.makedirs(self.root, exist_ok=True)
                refuses = self._claim(place, self.attempt) and not self._claim(place, "another")
                self._remove([place])
                self.files.pipe_file(f"{self.root}/{PREPARED}", b"Run folders of sweeps.\n")
        except (OSError, ValueError) as error:
            raise OSError(f"{redact_credentials(self.url)}: can't be shared ({redact_credentials(error)})") from error
        if not refuses:
            raise OSError(
                f"{redact_credentials(self.url)}: can't be shared: a file that is there can be created once more"
            )

    def insist(self) -> None:
        """An error unless the folder was prepared, and so is here."""
        with _os_errors(self.url):
            self.files.invalidate_cache(self.root)
            if not self.files.exists(f"{self.root}/{PREPARED}"):
                raise OSError(
                    f"{redact_credentials(self.url)}: no sweep has prepared this folder; is it mounted on this machine?"
                )

    def holds(self, key: str, rules: Collection[str]) -> bool:
        """Whether a run is published with the checkpoints of these rules."""
        with _os_errors(self.url):
            last = self._last(key)
            if not last:
                return False
            return self._fits(self._folder(key, last), key, rules)

    def _fits(self, place: str, key: str, rules: Collection[str]) -> bool:
        """Whether a folder holds checkpoints of these rules that are those of its history."""
        try:
            history = History.of(json.loads(self.files.cat_file(f"{place}/{HISTORY}")))
            if not set(rules) <= set(history.kept):
                return False
            for rule in rules:
                name = f"{place}/{rule}/{MANIFEST}"
                check_manifest(parse_manifest(self.files.cat_file(name).decode(), name), key, rule, history)
        except (FileNotFoundError, ValueError) as error:
            logger.warning("%s: no finished run of %s (%s)", redact_credentials(place), ", ".join(rules), error)
            return False
        return True

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
            state = self._state(key, folder, rules) if rules else ""
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
        check_finished(folder)
        self.insist()
        own, number = f"{self.attempt}-{after + 1}", f"{place}/{after + 1}"
        with _os_errors(self.url):
            if not self.files.exists(number):  # else it is claimed, by this very attempt if it is tried again
                self._upload(folder, f"{place}/{own}")
            won = self._claim(number, own)
            if won:
                (folder / "shared").write_text(str(after + 1))
        with suppress(OSError), _os_errors(self.url):  # what is left then takes room, and is not looked at
            self._remove([*self._states(folder.name), *([] if won else [f"{place}/{own}"])])
        return won

    def drop_states(self, keys: Iterable[str]) -> None:
        """Of runs that nobody goes on with."""
        with _os_errors(self.url):
            self._remove([state for key in keys for state in self._states(key)])

    def share_state(self, folder: Path, rules: Collection[str]) -> None:
        """Keep what a run with these selection rules can go on from; its earlier ones of this attempt go."""
        step = _own_step(folder, rules)
        if not 0 <= step < math.inf:  # none that could be read; or one of a run that is trained again, for more rules
            return
        self.insist()
        with _os_errors(self.url):
            name = f"state-{step}-{_joined(rules)}-{self.attempt}"
            state = f"{self.root}/{folder.name}/{name}"
            if not self.files.exists(f"{state}/{COMPLETE}"):  # else the run has saved none since
                self._upload(folder, state)
            mine = [path for path in self._states(folder.name) if path.endswith(self.attempt)]
            self._remove([path for path in mine if not path.endswith(name)])

    def exchange_pins(self, store: Path) -> None:
        """Hold this machine's corpora and backbones (data/pins.py) to what the first machine to use them found."""
        place = f"{self.root}/{PINNED}"
        self.insist()
        with _os_errors(self.url):
            self.files.makedirs(place, exist_ok=True)
            for pin in pins(store).items():  # a name that is taken stays as it is
                self._claim(f"{place}/{hashlib.sha256(pin[0].encode()).hexdigest()}", json.dumps(pin))
            files = [path for path in self._entries(PINNED) if not path.endswith(".part")]
            hold(store, dict(json.loads(self.files.cat_file(path)) for path in files), redact_credentials(self.url))

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
        """Into the run's own folder, each file whole or not at all."""
        for name in self.files.cat_file(f"{source}/{COMPLETE}").decode().splitlines():
            inside = Path(name)
            if ".." in inside.parts or inside.is_absolute():
                raise ValueError(f"{source}: {name} would be written outside the run's folder")
            if inside.suffix not in SUFFIXES and name != "state.pt":
                raise ValueError(f"{source}: {name} is none of {', '.join(SUFFIXES)}")
            recorded = inside.parts[0] in ARRAYS if len(inside.parts) > 1 else inside.name != "state.pt"
            if not (weights or recorded):
                continue
            target = folder / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f"{target.name}.{self.attempt}.part")
            self._refuse_links(source, inside)
            self.files.get_file(f"{source}/{name}", str(part))
            part.replace(target)

    def _refuse_links(self, source: str, inside: Path) -> None:
        """Refuse to fetch a symbolic link, or through one: it could show any file of the reader's machine."""
        if not isinstance(self.files, LocalFileSystem):
            return
        parts = [Path(source) / part for part in (inside, *inside.parents)]  # the last one is the source itself
        for path in (Path(source).parent, *parts):
            if path.is_symlink():
                raise PermissionError(f"{path}: is a symbolic link, expected a file of a run; delete the run's folder")

    def _upload(self, folder: Path, place: str) -> None:
        linked = [path for path in sorted(folder.rglob("*")) if path.is_symlink()]
        for path in linked:
            logger.warning("%s: is a symbolic link and is not uploaded", path)
        found = [
            path
            for path in sorted(folder.rglob("*"))  # does not go into linked folders
            if path.is_file() and path not in linked and path.suffix not in (".part", ".lock")
        ]
        names = [path.relative_to(folder).as_posix() for path in found if path.name != "shared"]
        for parent in {place} | {f"{place}/{name}".rpartition("/")[0] for name in names}:
            self.files.makedirs(parent, exist_ok=True)
        try:
            for name in names:
                self.files.put_file(str(folder / name), f"{place}/{name}")
        except FileNotFoundError:
            self.insist()  # a folder that was there may be mounted no more, which is waited for
            raise
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
    if load_history(folder):
        return math.inf
    state = load_state(folder / "state.pt", folder.name, rules, mapped=True)
    return state["step"] if state else -1
