"""Upload and download folders at a URL. A download is complete, and has the content that was uploaded."""

import json
import logging
import os
import uuid
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from cse_core.training.checkpoint import file_digest
from cse_core.training.run_state import STATE
from experiments.storage.credentials import redact_credentials

ARRAYS = ("pair_scores", "figure_data")
# Only these kinds of files, and states, are downloaded: others could run code.
SUFFIXES = (".json", ".safetensors", ".txt", ".npz", ".md")
COMPLETE, PREPARED = "complete", "prepared"
# Files in a local run folder: one has the number of its version, the other marks that the folder may be ahead of it.
FETCHED, AHEAD = "shared", "ahead"
logger = logging.getLogger(__name__)


class DamagedError(ValueError):
    """A folder on shared storage is not as it was uploaded."""


@contextmanager
def os_errors(url: str) -> Generator[None]:
    """Turn every error of a storage library into an OSError, except ValueError."""
    try:
        yield
    except (OSError, ValueError):
        raise
    except Exception as error:
        raise OSError(redact_credentials(f"{url}: {type(error).__name__}: {error}")) from error


class SharedFiles:
    """The files of a shared folder at a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        with os_errors(url):
            self.files, self.root = fsspec.core.url_to_fs(url)
        self.attempt = uuid.uuid4().hex[:12]

    def require_prepared(self) -> None:
        """Raise OSError unless the folder was prepared: it may not be mounted on this machine."""
        with os_errors(self.url):
            self.files.invalidate_cache(self.root)
            if not self.files.exists(f"{self.root}/{PREPARED}"):
                raise OSError(
                    f"{redact_credentials(self.url)}: no sweep has prepared this folder; is it mounted on this machine?"
                )

    def _entries(self, key: str) -> list[str]:
        place = f"{self.root}/{key}"
        self.files.invalidate_cache(place)
        try:
            return [path.rstrip("/") for path in self.files.ls(place, detail=False)]
        except FileNotFoundError:  # other errors are raised: an unreachable run is not a missing one
            return []

    def _read(self, path: str) -> bytes:
        try:
            return self.files.cat_file(path)
        except (IsADirectoryError, NotADirectoryError) as error:
            raise DamagedError(f"{path}: {error.strerror}") from error

    def _files_of(self, place: str) -> dict[str, dict[str, Any]]:
        """Return the size and SHA-256 of each file of an uploaded folder."""
        try:
            files = json.loads(self._read(f"{place}/{COMPLETE}"))
            return {str(name): {"bytes": int(of["bytes"]), "sha256": str(of["sha256"])} for name, of in files.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DamagedError(f"{place}/{COMPLETE}: cut, or written by an earlier version of this code") from error

    def _download(self, source: str, folder: Path, *, weights: bool) -> None:
        """Download files into the run's folder, each one atomically, once all are there with the uploaded content."""
        moves = []
        with ExitStack() as parts:  # deletes the downloaded files that are not moved
            for name, file in self._files_of(source).items():
                inside = Path(name)
                if ".." in inside.parts or inside.is_absolute():
                    raise ValueError(f"{source}: {name} would be written outside the run's folder")
                if inside.suffix not in SUFFIXES and name != STATE:
                    raise ValueError(f"{source}: {name} is none of {', '.join(SUFFIXES)}")
                recorded = inside.parts[0] in ARRAYS if len(inside.parts) > 1 else name != STATE
                if not (weights or recorded):
                    continue
                self._refuse_links(source, inside)
                target = folder / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                part = target.with_name(f"{target.name}.{self.attempt}.part")
                parts.callback(part.unlink, missing_ok=True)
                self.files.get_file(f"{source}/{name}", str(part))
                if file_digest(part) != file["sha256"]:
                    raise DamagedError(f"{source}/{name}: other content than was uploaded")
                moves.append((part, target))
            for part, target in moves:
                part.replace(target)

    def _refuse_links(self, source: str, inside: Path) -> None:
        """Refuse to fetch a symbolic link, or through one: it could expose any file of this machine."""
        if not isinstance(self.files, LocalFileSystem):
            return
        parts = [Path(source) / part for part in (inside, *inside.parents)]  # the last one is the source
        for path in (Path(source).parent, *parts):
            if path.is_symlink():
                raise PermissionError(f"{path}: is a symbolic link, expected a file of a run; delete the run's folder")

    def _upload(self, folder: Path, place: str) -> None:
        names = []
        for path in sorted(folder.rglob("*")):  # does not go into linked folders
            if path.is_symlink():
                logger.warning("%s: is a symbolic link and is not uploaded", path)
            elif path.is_file() and path.suffix not in (".part", ".lock") and path.name not in (FETCHED, AHEAD):
                names.append(path.relative_to(folder).as_posix())
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
        except OSError:  # storage systems raise different errors for an existing file
            if not self.files.exists(path):
                raise
            return self.files.cat_file(path).decode() == name  # an earlier try of this call may have created it
        return True

    def _remove(self, places: list[str]) -> None:
        for place in places:
            with suppress(FileNotFoundError):  # another attempt may delete it too
                self.files.rm(place, recursive=True)
