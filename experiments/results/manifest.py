"""Write and compare SHA256SUMS, the hashes of a record's files, tables and figures, in the format of sha256sum.

A command deletes a record's SHA256SUMS at its first change and writes it again when it ends. make_tables.py refuses a
record whose hashes differ, and `--check` names the files; nothing else reads them. A record without SHA256SUMS, such as
an older one or one whose command was killed, is accepted, and make_tables.py writes the file.
"""

import hashlib
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from cse_core.data.atomic_write import atomic_write
from experiments.cli.command import AT_END

NAME = "SHA256SUMS"
FILES = ("runs.csv", "results.csv", "curves.csv", "pairs.csv", "searches.csv")
FOLDERS = ("figure_data", "tables", "figures")
OUTPUTS = ("tables/", "figures/")
UNLISTED = ("tables/quickstart/", "figures/quickstart/", "tables/released/", "figures/released/")  # git ignores these
LINE = re.compile(r"([0-9a-f]{64})  (.+)")
SHOWN = 12  # digits of a hash in messages
_CHANGED: set[Path] = set()  # folders of records that this process changed


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

    @contextmanager
    def lock(self) -> Generator[None]:
        """Keep other processes from changing the folder's files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f"{NAME}.lock"):
            yield

    def replace(self, contents: Mapping[str, bytes | None]) -> None:
        """Write files of the record while holding `lock`; None deletes a file. `write_manifests` must follow."""
        self.path.unlink(missing_ok=True)
        _CHANGED.add(self.folder)
        for name, content in contents.items():
            if content is None:
                (self.folder / name).unlink(missing_ok=True)
            else:
                atomic_write(self.folder / name, content)

    def accept(self, paths: Iterable[Path] = ()) -> None:
        """Update the hashes of files that were just made; if there is no manifest, write the hashes of all files."""
        names = {path.relative_to(self.folder).as_posix() for path in paths}
        with self.lock():
            text = self._read_text()
            entries = {} if text is None else self._parse(text)
            for name in filter(_is_listed, names) if text is not None else self._present():
                content = content_of(self.folder / name)
                entries.pop(name, None)
                entries |= {} if content is None else {name: _sha256(content)}
            new = "".join(f"{entries[name]}  {name}\n" for name in sorted(entries))
            if new != text and (text is not None or entries):
                atomic_write(self.path, new)

    def refuse_changes(self) -> None:
        """Refuse a record if anything but the project's commands changed its files."""
        differing = {path: what for path, what in self.differences(record_only=True).items() if path != self.path}
        if differing:
            listed = "\n".join(f"  {path}: {what}" for path, what in differing.items())
            raise ChangedFileError(
                f"{self.folder}: something other than this project's commands changed the record. Restore it "
                f"(`git checkout -- {self.folder}` where git has it, else a copy); if the change is intended, "
                f"`python analysis/make_tables.py --accept` takes the files as they are\n{listed}"
            )

    def differences(self, *, record_only: bool = False) -> dict[Path, str]:
        """Return how each changed, missing or unlisted file differs; `record_only` skips tables and figures."""
        present, text = self._present(), self._read_text()
        if text is None:
            why = "missing: a command that changes the record was killed or is at work; make_tables.py writes it"
            return {self.path: why} if present else {}
        entries, differing = self._parse(text), {}
        for name in sorted({*entries, *present}):
            path, content = self.folder / name, content_of(self.folder / name)
            if record_only and name.startswith(OUTPUTS):
                continue
            if name not in entries:
                differing[path] = f"not listed in {self.path}"
            elif content is None:
                differing[path] = f"missing; {NAME} has {entries[name][:SHOWN]}"
            elif _sha256(content) != entries[name]:
                differing[path] = f"its SHA-256 is {_sha256(content)[:SHOWN]}, {NAME} has {entries[name][:SHOWN]}"
        return differing

    def _present(self) -> list[str]:
        paths = [self.folder / name for name in FILES]
        for name in FOLDERS:
            paths += (self.folder / name).rglob("*")
        names = [path.relative_to(self.folder).as_posix() for path in paths if path.is_file()]
        return sorted(filter(_is_listed, names))

    def _read_text(self) -> str | None:
        content = content_of(self.path)
        return None if content is None else content.decode(errors="replace")

    def _parse(self, text: str) -> dict[str, str]:
        entries: dict[str, str] = {}
        *lines, rest = text.split("\n")
        for i, line in enumerate([*lines, *filter(None, [rest])], 1):
            match = LINE.fullmatch(line)
            if not match or i > len(lines):  # the last line must end too
                raise ChangedFileError(
                    f"{self.path}, line {i}: expected a SHA-256, two spaces, a name and a line end. Restore the file; "
                    "make_tables.py --accept writes one of the files as they are"
                )
            digest, name = match.groups()
            entries[name] = digest
        return {name: digest for name, digest in entries.items() if _is_listed(name)}


def write_manifests() -> None:
    """Write the manifests of the records that this process changed; every command ends with this."""
    for folder in sorted(_CHANGED):
        Manifest(folder).accept()
    _CHANGED.clear()


AT_END.append(write_manifests)


def _is_listed(name: str) -> bool:
    if name.startswith(UNLISTED) or name.endswith((".part", ".svg")) or name.rpartition("/")[2].startswith("."):
        return False
    return name in FILES or name.startswith(tuple(f"{folder}/" for folder in FOLDERS))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def content_of(path: Path) -> bytes | None:
    """Return a file's content; None if there is no file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
