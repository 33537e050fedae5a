"""Share run folders among the machines of a cluster, in a folder at any URL that fsspec supports.

    URL/<key>/1, 2, ...                pointer files: each names a folder with a version of the run; the last is current
    URL/<key>/<attempt>-<number>/      such a folder: checkpoints, history, result, arrays
    URL/<key>/state-<step>-<selection rules>-<attempt>/    the state from which an unfinished run resumes
    .../complete                       in each of these folders, written last: its files with size and SHA-256
    URL/<key>/<number>.damaged         this version is damaged, and why: the one before it counts, or none
    URL/pins/...                       the content of each corpus and backbone that is declared by name only
    URL/prepared                       marks the shared folder, which may not be mounted on every machine

Two attempts never write the same file, except pointer files, which belong to the first attempt that creates them. So a
worker that was cut off and still runs can do no harm: late uploads are ignored.

Why not Ray Tune's storage (`storage_path`, Ray 2.60.0, measured in November 2026)? A worker taken for lost wrote its
checkpoint into that of the retry, which had finished, and Tune returned the mixture as the result. A checkpoint cut to
10 of 200,000 bytes was resumed from without an error. `Tuner.restore` knows one list of trials, a sweep any studies.
"""

import hashlib
import json
import logging
import math
import os
import re
import uuid
from collections.abc import Collection, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from cse_core.data.pins import enforce_pins, read_pins
from cse_core.training.checkpoint import MANIFEST, file_digest, parse_manifest
from cse_core.training.run_state import HISTORY, History, check_finished, check_manifest, load_history, load_state
from experiments.storage.credentials import redact_credentials

ARRAYS = ("pair_scores", "figure_data")
NAMED = re.compile(r"[0-9a-f]{12}-\d+")
STATE = re.compile(r".*/state-(?P<step>\d+)-(?P<rules>[\w+]+)-(?P<attempt>[0-9a-f]{12})")
# Files that are downloaded beside a state: none that could run code.
SUFFIXES = (".json", ".safetensors", ".txt", ".npz", ".md")
COMPLETE, DAMAGED, PREPARED, PINNED, TRIES = "complete", ".damaged", "prepared", "pins", 3
logger = logging.getLogger(__name__)


class DamagedError(ValueError):
    """A folder on shared storage is not as it was uploaded."""


@contextmanager
def _os_errors(url: str) -> Generator[None]:
    """Turn every error of a storage library into an OSError, except ValueError."""
    try:
        yield
    except (OSError, ValueError):
        raise
    except Exception as error:
        raise OSError(redact_credentials(f"{url}: {type(error).__name__}: {error}")) from error


class Shared:
    """A shared folder by URL. Unreachable storage raises OSError."""

    def __init__(self, url: str) -> None:
        self.url = url
        with _os_errors(url):
            self.files, self.root = fsspec.core.url_to_fs(url)
        self.attempt = uuid.uuid4().hex[:12]

    def prepare(self) -> None:
        """Prepare the shared folder; refuse storage without atomic create-if-absent."""
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
            raise OSError(f"{redact_credentials(self.url)}: can't be shared: a file that exists can be created again")

    def require_prepared(self) -> None:
        """Raise OSError unless the folder was prepared: it may not be mounted on this machine."""
        with _os_errors(self.url):
            self.files.invalidate_cache(self.root)
            if not self.files.exists(f"{self.root}/{PREPARED}"):
                raise OSError(
                    f"{redact_credentials(self.url)}: no sweep has prepared this folder; is it mounted on this machine?"
                )

    def holds(self, key: str, rules: Collection[str]) -> bool:
        """Whether a run was uploaded with the checkpoints of these rules."""
        with _os_errors(self.url):
            return any(self._has_checkpoints(key, number, rules) for number in self._numbers(key)[:1])

    def _has_checkpoints(self, key: str, number: int, rules: Collection[str]) -> bool:
        """Whether a version has all of its files, and the checkpoints of these rules as listed in its history."""
        place = f"{self.root}/{key}/{number}"
        try:
            place = self._folder(key, number)
            sizes = {path: about["size"] for path, about in self.files.find(place, detail=True).items()}
            for name, file in self._files_of(place).items():
                if sizes.get(f"{place}/{name}") != file["bytes"]:
                    raise DamagedError(f"{name} is missing or cut")
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
        """Download a run's folder into the store if it is not up to date; return the number of its version or 0.

        If the run is unfinished, download its furthest state for these selection rules. Without `weights`, download
        only the files that the record needs.
        """
        with _os_errors(self.url):
            for _ in range(TRIES - 1):
                with suppress(FileNotFoundError):  # another attempt removed the state: try again
                    return self._fetch(key, store, weights, rules)
            return self._fetch(key, store, weights, rules)

    def _fetch(self, key: str, store: Path, weights: bool, rules: Collection[str]) -> int:
        last, folder = max(self._numbers(key, damaged=True), default=0), store / key
        here = folder / "shared"
        for number in self._numbers(key):
            if here.is_file() and here.read_text() == str(number):
                return last
            try:
                self._download(self._folder(key, number), folder, weights=weights)
            except (FileNotFoundError, DamagedError) as error:
                self._set_aside(key, number, error)
                continue
            if weights:
                (folder / "state.pt").unlink(missing_ok=True)  # left by an attempt that another one overtook
                here.write_text(str(number))
            return last
        here.unlink(missing_ok=True)
        while state := self._furthest_state(key, folder, rules) if rules else "":
            try:
                self._download(state, folder, weights=True)
                logger.warning("run %s resumes from %s", key, state)
                break
            except DamagedError as error:
                logger.warning("%s: damaged (%s); deleted", redact_credentials(state), redact_credentials(error))
                self._remove([state])
        return last

    def _set_aside(self, key: str, number: int, error: Exception) -> None:
        """Mark a version as damaged, so that no machine fetches it again; its files stay."""
        self.require_prepared()  # if the folder is no longer mounted, this raises an error that is retried
        reason, place = redact_credentials(error), f"{self.root}/{key}/{number}"
        self.files.pipe_file(f"{place}{DAMAGED}", f"{reason}\n".encode())
        logger.warning(
            "%s: damaged (%s); set aside, what no earlier version has is done again", redact_credentials(place), reason
        )

    def publish(self, folder: Path, after: int) -> bool:
        """Upload a folder as the run's next version, unless another attempt did so since `fetch` returned `after`."""
        place = f"{self.root}/{folder.name}"
        check_finished(folder)
        self.require_prepared()
        name, number = f"{self.attempt}-{after + 1}", f"{place}/{after + 1}"
        with _os_errors(self.url):
            if not self.files.exists(number):  # else it is claimed, by this attempt if this call is a retry
                self._upload(folder, f"{place}/{name}")
            won = self._claim(number, name)
            if won:
                (folder / "shared").write_text(str(after + 1))
        with suppress(OSError), _os_errors(self.url):  # leftovers take space and are ignored
            self._remove([*self._states(folder.name), *([] if won else [f"{place}/{name}"])])
        return won

    def drop_states(self, keys: Iterable[str]) -> None:
        """Delete saved states of abandoned runs."""
        with _os_errors(self.url):
            self._remove([state for key in keys for state in self._states(key)])

    def share_state(self, folder: Path, rules: Collection[str]) -> None:
        """Upload the state from which a run with these rules can resume; delete earlier ones of this attempt."""
        step = _local_step(folder, rules)
        if not 0 <= step < math.inf:  # no readable state, or a finished run that is retrained for more rules
            return
        self.require_prepared()
        with _os_errors(self.url):
            name = f"state-{step}-{_rules_slug(rules)}-{self.attempt}"
            state = f"{self.root}/{folder.name}/{name}"
            if not self.files.exists(f"{state}/{COMPLETE}"):  # else the run saved no new state
                self._upload(folder, state)
            uploaded = [path for path in self._states(folder.name) if path.endswith(self.attempt)]
            self._remove([path for path in uploaded if not path.endswith(name)])

    def exchange_pins(self, store: Path) -> None:
        """Refuse corpora and backbones with other content than on the machine that used them first (data/pins.py)."""
        place = f"{self.root}/{PINNED}"
        self.require_prepared()
        with _os_errors(self.url):
            self.files.makedirs(place, exist_ok=True)
            for pin in read_pins(store).items():  # an existing name keeps its content
                self._claim(f"{place}/{hashlib.sha256(pin[0].encode()).hexdigest()}", json.dumps(pin))
            files = [path for path in self._entries(PINNED) if not path.endswith(".part")]
            enforce_pins(
                store, dict(json.loads(self.files.cat_file(path)) for path in files), redact_credentials(self.url)
            )

    def _remove(self, places: list[str]) -> None:
        for place in places:
            with suppress(FileNotFoundError):  # another attempt may delete it too
                self.files.rm(place, recursive=True)

    def _numbers(self, key: str, *, damaged: bool = False) -> list[int]:
        """Return the numbers of a run's versions, the last one first, with those set aside if `damaged`."""
        names = {path.rpartition("/")[2] for path in self._entries(key)}
        numbers = [int(name) for name in names if name.isdigit() and (damaged or f"{name}{DAMAGED}" not in names)]
        return sorted(numbers, reverse=True)

    def _files_of(self, place: str) -> dict[str, dict[str, Any]]:
        """Return the size and SHA-256 of each file of an uploaded folder."""
        try:
            files = json.loads(self.files.cat_file(f"{place}/{COMPLETE}"))
            return {str(name): {"bytes": int(of["bytes"]), "sha256": str(of["sha256"])} for name, of in files.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DamagedError(f"{place}/{COMPLETE}: cut, or written by an earlier version of this code") from error

    def _folder(self, key: str, last: int) -> str:
        name = self.files.cat_file(f"{self.root}/{key}/{last}").decode(errors="replace")
        if not NAMED.fullmatch(name):
            raise DamagedError(f"{self.root}/{key}/{last}: expected the name of an attempt's folder, got {name!r}")
        return f"{self.root}/{key}/{name}"

    def _furthest_state(self, key: str, folder: Path, rules: Collection[str]) -> str:
        """Return the furthest complete state for these rules if it is further than this machine's, else ""."""
        steps = {
            path: int(named["step"])
            for path in self._states(key)
            if (named := STATE.fullmatch(path)) and named["rules"] == _rules_slug(rules)
            if self.files.exists(f"{path}/{COMPLETE}")
        }
        furthest = max(steps, key=steps.__getitem__, default="")
        return furthest if furthest and steps[furthest] > _local_step(folder, rules) else ""

    def _states(self, key: str) -> list[str]:
        return [path for path in self._entries(key) if path.rpartition("/")[2].startswith("state-")]

    def _entries(self, key: str) -> list[str]:
        place = f"{self.root}/{key}"
        self.files.invalidate_cache(place)
        try:
            return [path.rstrip("/") for path in self.files.ls(place, detail=False)]
        except FileNotFoundError:  # no other error: an unreachable run is not a missing one
            return []

    def _download(self, source: str, folder: Path, *, weights: bool) -> None:
        """Download files into the run's folder, each one atomically, once all are there and as they were uploaded."""
        with ExitStack() as parts:
            moves = list(self._download_parts(source, folder, weights, parts))
            for part, target in moves:
                part.replace(target)

    def _download_parts(
        self, source: str, folder: Path, weights: bool, parts: ExitStack
    ) -> Generator[tuple[Path, Path]]:
        """Yield each downloaded file beside its target; `parts` deletes those that are not moved there."""
        for name, file in self._files_of(source).items():
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
            parts.callback(part.unlink, missing_ok=True)
            self.files.get_file(f"{source}/{name}", str(part))
            if file_digest(part) != file["sha256"]:
                raise DamagedError(f"{source}/{name}: other content than was uploaded")
            yield part, target

    def _refuse_links(self, source: str, inside: Path) -> None:
        """Refuse to fetch a symbolic link, or through one: it could show any file of the reader's machine."""
        if not isinstance(self.files, LocalFileSystem):
            return
        parts = [Path(source) / part for part in (inside, *inside.parents)]  # the last one is the source
        for path in (Path(source).parent, *parts):
            if path.is_symlink():
                raise PermissionError(f"{path}: is a symbolic link, expected a file of a run; delete the run's folder")

    def _upload(self, folder: Path, place: str) -> None:
        linked = [path for path in sorted(folder.rglob("*")) if path.is_symlink()]
        for path in linked:
            logger.warning("%s: is a symbolic link and is not uploaded", path)
        files = [
            path
            for path in sorted(folder.rglob("*"))  # does not go into linked folders
            if path.is_file() and path not in linked and path.suffix not in (".part", ".lock")
        ]
        names = [path.relative_to(folder).as_posix() for path in files if path.name != "shared"]
        for parent in {place} | {f"{place}/{name}".rpartition("/")[0] for name in names}:
            self.files.makedirs(parent, exist_ok=True)
        uploaded = {}
        try:
            for name in names:
                uploaded[name] = {"bytes": (folder / name).stat().st_size, "sha256": file_digest(folder / name)}
                self.files.put_file(str(folder / name), f"{place}/{name}")
        except FileNotFoundError:
            self.require_prepared()  # if the folder is no longer mounted, this raises an error that is retried
            raise
        self.files.pipe_file(f"{place}/{COMPLETE}", json.dumps(uploaded).encode())

    def _claim(self, path: str, name: str) -> bool:
        """Create a file atomically unless it exists; return whether it has this content."""
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
        except (
            OSError
        ):  # storage differs in its error for an existing name; an earlier try of this call may have created it
            if not self.files.exists(path):
                raise
            return self.files.cat_file(path).decode() == name
        return True


def _rules_slug(rules: Collection[str]) -> str:
    return "+".join(sorted(set(rules)))


def _local_step(folder: Path, rules: Collection[str]) -> float:
    """Return the step from which a run can resume in a folder: infinity if finished, -1 if there is no state to use."""
    if load_history(folder):
        return math.inf
    state = load_state(folder / "state.pt", folder.name, rules, mapped=True)
    return state["step"] if state else -1
