"""Compare files with their manifest and with what the record gives."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from experiments.results.manifest import Manifest

SUFFIXES = (".md", ".tex", ".csv")


def changed_files(*folders: Path) -> dict[Path, str]:
    """Return each file of the record, table or figure that does not match its manifest, with what differs."""
    return {path: what for folder in dict.fromkeys(folders) for path, what in Manifest(folder).differences().items()}


def stale_files(folders: Sequence[Path], generated: Mapping[Path, str]) -> list[Path]:
    """Return table files in the folders that no study produces."""
    files = (path for folder in folders for path in sorted(folder.glob("*")) if path.suffix in SUFFIXES)
    return [path for path in files if path not in generated]


def differences(generated: Mapping[Path, str]) -> list[str]:
    """Return a line for each file that is missing or differs, with its first differing line."""
    lines = []
    for path, text in generated.items():
        if not path.is_file():
            lines.append(f"{path}: missing")
            continue
        pairs = zip_longest(read_text(path).splitlines(), text.splitlines(), fillvalue="nothing")
        changed = next(((i, a, b) for i, (a, b) in enumerate(pairs, 1) if a != b), None)
        if changed:
            lines.append("{}: line {} is\n    {}\n  the record gives\n    {}".format(path, *changed))
        elif read_text(path) != text:
            lines.append(f"{path}: line ends differ")
    return lines


def committed_folders(tables: Path) -> list[Path]:
    """Return the folders of tables, without those of quickstart and released, which git ignores."""
    return [path for path in sorted(tables.glob("*")) if path.is_dir() and path.name not in ("quickstart", "released")]


def read_text(path: Path) -> str:
    """Return a file's text with unchanged line ends."""
    with path.open(encoding="utf-8", newline="") as file:
        return file.read()
