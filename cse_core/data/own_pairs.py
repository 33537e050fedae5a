"""Evaluation sets of your own: UTF-8 texts with two sentences and a score in each line, separated by tabs."""

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cse_core.data.locate import read_lines

PREFIX, SUFFIX = "own_", ".tsv"
FEWEST = 3  # pairs: of two, a rank correlation is always -1 or 1


@dataclass(frozen=True)
class OwnPairs:
    """A file, the SHA-256 of its bytes, and its rows as senteval.PAIRS has them."""

    path: Path
    sha256: str
    rows: tuple[tuple[str, str, str, float], ...]


_SETS: dict[str, OwnPairs] = {}  # of this process, by name


def add(path: str | Path) -> str:
    """Read a file and return the name of its set, own_FILE_DIGEST; a file with other content has another name.

    A first line whose third column is no number is a header. Scores may have any range, as only their order and their
    linear correlation count.
    """
    path = Path(path).expanduser().resolve()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected two sentences and a score in each line, with tabs")
    rows = tuple(_rows(path))
    if len(rows) < FEWEST:
        raise ValueError(f"{path}: expected at least {FEWEST} pairs, found {len(rows)}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    name = f"{PREFIX}{re.sub(r'[^A-Za-z0-9]+', '_', path.stem)}_{digest[:8]}"
    _SETS[name] = OwnPairs(path, digest, rows)
    return name


def is_own(name: str) -> bool:
    """Whether this is the name of a user's own set, added in this process or in an earlier one."""
    return name.startswith(PREFIX)


def find(name: str) -> OwnPairs:
    """Return a set by its name."""
    if name not in _SETS:
        raise ValueError(f"set {name}: not added in this process, name its file again")
    return _SETS[name]


def _rows(path: Path) -> Iterator[tuple[str, str, str, float]]:
    for number, line in enumerate(read_lines(path), start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 3:
            raise ValueError(
                f"{path}, line {number}: expected sentence, sentence, score with tabs between, got {line!r}"
            )
        score = _number(cells[2])
        if score is None and number == 1:
            continue
        if score is None or not all(cells[:2]):
            raise ValueError(f"{path}, line {number}: expected two sentences and a finite score, got {line!r}")
        yield "all", cells[0], cells[1], score


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
