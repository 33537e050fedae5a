"""Read and write SHA256SUMS, the hashes of a record's files, tables and figures, in the format of sha256sum.

Only this project's code writes the manifest, so any other change to a file is noticed.
While a file is replaced, the manifest has its old and its new hash and accepts both, so a kill between the two writes
does no harm. A missing file counts as an empty one. A folder without a manifest, such as an older record, is accepted
unchanged and gets one with the next merge.
"""

import hashlib
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from cse_core.data.atomic_write import atomic_write

NAME = "SHA256SUMS"
FILES = ("runs.csv", "results.csv", "curves.csv", "pairs.csv", "searches.csv")
FOLDERS = ("figure_data", "tables", "figures")
UNLISTED = ("tables/quickstart/", "figures/quickstart/", "tables/released/", "figures/released/")  # ignored by git
LINE = re.compile(r"(\\?)([0-9a-f]{64})  (.+)", re.DOTALL)
NOTHING = hashlib.sha256().hexdigest()  # for a missing file
SHOWN = 12  # digits of a hash in messages


class ChangedFileError(ValueError):
    """A file does not match its manifest."""


@dataclass(frozen=True)
class Manifest:
    """The manifest of a folder. File names are paths relative to the folder, with slashes."""

    folder: Path

    @property
    def path(self) -> Path:
        """The manifest's path."""
        return self.folder / NAME

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is no file; refuse content that does not match the manifest."""
        while True:
            before = self._read_text()
            content = _content(self.folder / name)
            hashes = None if before is None else self._parse(before).get(name, {NOTHING})
            if hashes is None or _sha256(content) in hashes:
                return content
            if self._read_text() == before:  # else another process merged meanwhile: read again
                raise ChangedFileError(self._refusal(name, content, hashes))

    def lists(self, name: str, content: bytes) -> bool:
        """Whether the manifest has this content for a file."""
        return _sha256(content) in self._parse(self._read_text() or "").get(name, set())

    def names(self) -> set[str]:
        """Return the names that the manifest lists."""
        return set(self._parse(self._read_text() or ""))

    def remove(self, names: Iterable[str]) -> None:
        """Delete files and their entries; after a kill at any moment the same call completes it."""
        with self.lock():
            entries, removed = self._entries_or_present(), set(names)
            self._write(entries | {name: entries.get(name, set()) | {NOTHING} for name in removed})
            for name in removed:
                (self.folder / name).unlink(missing_ok=True)
            self._write({name: hashes for name, hashes in entries.items() if name not in removed})

    @contextmanager
    def lock(self) -> Generator[None]:
        """Keep other processes from changing the folder's files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f"{NAME}.lock"):
            self._settle()
            yield

    def _settle(self) -> None:
        """Drop the second hash that a killed process left for a file."""
        entries = self._parse(self._read_text() or "")
        contents = {name: _content(self.folder / name) for name, hashes in entries.items() if len(hashes) > 1}
        self._update(entries, {name: c for name, c in contents.items() if _sha256(c) in entries[name]})

    def replace(self, contents: Mapping[str, bytes]) -> None:
        """Write files and their hashes, while holding the lock; a kill at any moment leaves what `read` accepts."""
        new = {name: {_sha256(content)} for name, content in contents.items()}
        entries = self._entries_or_present()
        self._write(entries | {name: entries.get(name, {NOTHING}) | new[name] for name in contents})
        for name, content in contents.items():
            atomic_write(self.folder / name, content)
        self._write(entries | new)

    def accept(self, paths: Iterable[Path]) -> None:
        """Update the hashes of files that were just made; drop the entries of deleted ones."""
        names = {path.relative_to(self.folder).as_posix() for path in paths}
        names = {name for name in names if _is_listed(name)}
        if not names:
            return
        with self.lock():
            entries = self._entries_or_present()
            self._update(entries, {name: _content(self.folder / name) for name in names})

    def _update(self, entries: Mapping[str, set[str]], contents: Mapping[str, bytes | None]) -> None:
        """Write the entries with the hashes of these contents; drop those of missing files."""
        if not contents:
            return
        entries = {name: hashes for name, hashes in entries.items() if name not in contents}
        self._write(entries | {name: {_sha256(c)} for name, c in contents.items() if c is not None})

    def differences(self) -> dict[Path, str]:
        """Return what differs for each file that was changed, is missing or is not listed."""
        present, text = self._present(), self._read_text()
        if text is None:
            return {self.path: "missing; merging, or making tables and figures, writes it"} if present else {}
        entries, differing = self._parse(text), {}
        for name in sorted({*entries, *present}):
            path, content = self.folder / name, _content(self.folder / name)
            if name not in entries:
                differing[path] = f"not listed in {self.path}"
            elif _sha256(content) not in entries[name]:
                differing[path] = _what_differs(content, entries[name])
        return differing

    def _present(self) -> list[str]:
        paths = [self.folder / name for name in FILES]
        for name in FOLDERS:
            paths += (self.folder / name).rglob("*")
        names = [path.relative_to(self.folder).as_posix() for path in paths if path.is_file()]
        return sorted(filter(_is_listed, names))

    def _entries_or_present(self) -> dict[str, set[str]]:
        """Return the entries; without a manifest, those of the present files."""
        text = self._read_text()
        if text is not None:
            return self._parse(text)
        return {name: {_sha256(_content(self.folder / name))} for name in self._present()}

    def _read_text(self) -> str | None:
        content = _content(self.path)
        return None if content is None else content.decode(errors="replace")

    def _parse(self, text: str) -> dict[str, set[str]]:
        entries: dict[str, set[str]] = {}
        *lines, rest = text.split("\n")
        for i, line in enumerate([*lines, *filter(None, [rest])], 1):
            match = LINE.fullmatch(line)
            if not match or i > len(lines):  # the last line must end too
                raise ChangedFileError(
                    f"{self.path}, line {i}: expected a SHA-256, two spaces, a name and a line end. Restore the file"
                )
            escaped, digest, name = match.groups()
            entries.setdefault(_unescape(name) if escaped else name, set()).add(digest)
        return entries

    def _write(self, entries: Mapping[str, set[str]]) -> None:
        lines = [_manifest_line(digest, name) for name in sorted(entries) for digest in sorted(entries[name])]
        atomic_write(self.path, "".join(lines))

    def _refusal(self, name: str, content: bytes | None, hashes: set[str]) -> str:
        path = self.folder / name
        return (
            f"{path}: {_what_differs(content, hashes)}. Something other than this project's commands changed it; it is "
            f"neither read nor written. Restore it (`git checkout -- {path}` where git has it, else a copy). If the "
            f"change is intended, delete {self.path}: the present files are then accepted"
        )


def _what_differs(content: bytes | None, hashes: set[str]) -> str:
    expected = " or ".join(sorted("no file" if digest == NOTHING else digest[:SHOWN] for digest in hashes))
    if content is None:
        return f"missing; {NAME} has {expected}"
    return f"its SHA-256 is {_sha256(content)[:SHOWN]}, {NAME} has {expected}"


def _is_listed(name: str) -> bool:
    if name.startswith(UNLISTED) or name.endswith(".part") or name.rpartition("/")[2].startswith("."):
        return False
    return name in FILES or name.startswith(tuple(f"{folder}/" for folder in FOLDERS))


def _sha256(content: bytes | None) -> str:
    return hashlib.sha256(content or b"").hexdigest()


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _manifest_line(digest: str, name: str) -> str:
    """Return a line as sha256sum writes it: a name with a backslash or a line end is escaped, and marked as such."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    mark = "" if escaped == name else "\\"
    return f"{mark}{digest}  {escaped}\n"


def _unescape(name: str) -> str:
    return name.replace("\\\\", "\0").replace("\\n", "\n").replace("\\r", "\r").replace("\0", "\\")
