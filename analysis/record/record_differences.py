"""What differs between files as they are, as they were written and as the record gives them."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from experiments.results.manifest import Manifest

SUFFIXES = (".md", ".tex", ".csv")


def altered(*folders: Path) -> dict[Path, str]:
    """Say of each file of the record, tables and figures that is not as it was written what differs."""
    return {path: what for folder in dict.fromkeys(folders) for path, what in Manifest(folder).differences().items()}


def stale(folders: Sequence[Path], wanted: Mapping[Path, str]) -> list[Path]:
    """Table files in the folders that no study gives."""
    found = (path for folder in folders for path in sorted(folder.glob("*")) if path.suffix in SUFFIXES)
    return [path for path in found if path not in wanted]


def differences(wanted: Mapping[Path, str]) -> list[str]:
    """Each file that is missing or other than wanted, with its first differing line."""
    found = []
    for path, text in wanted.items():
        if not path.is_file():
            found.append(f"{path}: missing")
            continue
        pairs = zip_longest(read_text(path).splitlines(), text.splitlines(), fillvalue="nothing")
        changed = next(((i, a, b) for i, (a, b) in enumerate(pairs, 1) if a != b), None)
        if changed:
            found.append("{}: line {} is\n    {}\n  the record gives\n    {}".format(path, *changed))
        elif read_text(path) != text:
            found.append(f"{path}: line ends differ")
    return found


def committed_folders(tables: Path) -> list[Path]:
    """Quickstart's folder is ignored by git and not compared."""
    return [path for path in sorted(tables.glob("*")) if path.is_dir() and path.name != "quickstart"]


def read_text(path: Path) -> str:
    """Return a file's text with its line ends as they are."""
    with path.open(encoding="utf-8", newline="") as file:
        return file.read()
