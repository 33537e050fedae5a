"""The user's own evaluation sets: files with two sentences and a score in each row (formats: see text_files.py)."""

import hashlib
import json
import logging
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cse_core.data.text_files import FORMATS, SCORES, Table, read_table

PREFIX = "own_"
NAME = re.compile(PREFIX + r"\w*_[0-9a-f]{8}", re.ASCII)
FEWEST = 3  # pairs: with two, a rank correlation is always -1 or 1
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
REMEDY = "name the two sentences' columns and the score's with --columns (run.py: --pair-columns)"
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnPairs:
    """A file, the SHA-256 of its bytes and of its rows, and the rows as senteval.PAIRS has them."""

    path: Path
    sha256: str
    content: str
    rows: tuple[tuple[str, str, str, float], ...]


_SETS: dict[str, OwnPairs] = {}  # added in this process, by name


def add(path: str | Path, columns: Sequence[str] = ()) -> str:
    """Read a file and return the name of its set, own_FILE_DIGEST; the digest is of its pairs.

    `columns` name the two sentences and the score. By default they are a header's known names, or all three columns of
    a file without a header. Scores may have any range, as only their order and their linear correlation count.
    """
    path = Path(path).expanduser().resolve()
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such file; expected two sentences and a score a row, as {', '.join(FORMATS)}"
        )
    table = read_table(path, columns)
    if not table.rows:
        raise ValueError(f"{path}: expected at least {FEWEST} pairs, found none")
    names = tuple(columns) or _columns(table)
    if len(names) != 3:
        raise ValueError(f"{path}: expected three columns, sentence, sentence and score, got {' '.join(names)}")
    rows = tuple(_rows(table, *table.pick(names)))
    if len(rows) < FEWEST:
        raise ValueError(f"{path}: expected at least {FEWEST} pairs, found {len(rows)}")
    if len({score for *_, score in rows}) == 1:
        raise ValueError(f"{path}: all {len(rows):,} scores are {rows[0][3]:g}: a correlation needs different ones")
    content = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    name = f"{PREFIX}{re.sub(r'[^A-Za-z0-9]+', '_', path.stem)}_{content[:8]}"
    if name not in _SETS or _SETS[name].path != path:
        logger.warning("%s", table.summary("pairs", names, rows))
    _SETS[name] = OwnPairs(path, hashlib.sha256(path.read_bytes()).hexdigest(), content, rows)
    return name


def is_file(name: str) -> bool:
    """Whether a name that is not a known task's is a path: it has an extension or a folder, or the file exists."""
    path = Path(name).expanduser()
    return not is_own(name) and (bool(path.suffix) or len(path.parts) > 1 or path.is_file())


def is_own(name: str) -> bool:
    """Whether this is the name of a user's own set, added in this process or in an earlier one."""
    return bool(NAME.fullmatch(name))


def is_added(name: str) -> bool:
    """Whether the pairs of a user's own set are known: its file was named in this process."""
    return name in _SETS


def pairs_of(name: str) -> str:
    """Return what identifies the pairs of a user's own set, whatever its file's name; of any other set, its name."""
    return find(name).content if is_own(name) else name


def find(name: str) -> OwnPairs:
    """Return a set by its name."""
    if name not in _SETS:
        raise ValueError(f"set {name}: not added in this process, name its file again")
    return _SETS[name]


def _columns(table: Table) -> tuple[str, ...]:
    """Return the columns of the sentences and the score; one or two of three may have unknown names."""
    if not table.header and table.width in (0, 3):
        return ("1", "2", "3")
    pairs, scores = table.pairs(), table.matching(SCORES)
    if table.width == 3 and len(set(table.header)) == 3:
        pairs = pairs or [tuple(name for name in table.header if [name] != scores)]
        scores = scores or [name for name in table.header if name not in pairs[0] and _number(name) is None]
    if len(pairs) == len(scores) == 1 and len(pairs[0]) == 2:
        return (*pairs[0], *scores)
    if not table.header:
        number, cells = table.rows[0]
        raise ValueError(f"{table.place(number)}: expected sentence, sentence, score, got {cells!r:.200}; {REMEDY}")
    raise ValueError(f"{table.path}: expected two sentences and a score, got the columns {table.header}; {REMEDY}")


def _rows(table: Table, first: int, second: int, score: int) -> Iterator[tuple[str, str, str, float]]:
    for at, row in enumerate(table.rows):
        number, cells = row
        texts, value = (table.text(row, first), table.text(row, second)), _number(cells[score])
        if value is None or not all(texts):
            header = "" if at or table.header else f" (if it is a header, {REMEDY})"
            got = [*texts, cells[score]]
            raise ValueError(f"{table.place(number)}: expected two sentences and a finite score, got {got!r}{header}")
        yield "all", *texts, value


def _number(cell: Any) -> float | None:
    """Return a finite number, or None; in a text, only a sign, ASCII digits, a decimal point and an exponent count."""
    if isinstance(cell, str):
        cell = float(cell) if NUMBER.fullmatch(cell := cell.strip()) else None
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return None
    try:
        return float(cell) if math.isfinite(cell) else None
    except OverflowError:  # an integer of a .jsonl that is too large for a float
        return None
