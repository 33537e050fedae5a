"""Read CSV tables with typed columns and merge lines into them; existing lines never change.

A damaged file raises an error that names the file and the line; it is neither read nor written. Cells may hold any
text: commas, quotes and line ends are quoted as in Python's csv module.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.results.manifest import Manifest, content_of

if TYPE_CHECKING:
    import pandas as pd

NUMBERS: dict[type, re.Pattern[str]] = {
    int: re.compile(r"-?[0-9]+"),
    float: re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"),
}
EXPECTED: dict[type, str] = {int: "a whole number", float: "a number"}
# A quoted cell after a comma or a line's start. It begins with the quote, for which re scans quickly.
QUOTED = re.compile(rb'"(?<![^,\n]")[^"]*(?:""[^"]*)*"(?=[,\n])')
REMEDY = (
    "The file is damaged; nothing was written. Restore it (`git checkout -- {path}` where git has it, else a copy), or "
    "delete it: of results.csv and curves.csv a sweep then writes again what the run folders "
    "here have; other lines, runs.csv without results.csv, pairs.csv and searches.csv can't be made again"
)


_READ: dict[Path, tuple[bytes, pd.DataFrame]] = {}  # the hash of each file's last content, and its lines
SHOWN = 20  # disagreements in an error
SAME_NUMBER = 5e-5  # scores of different kinds of processors differ by less (execution/plan.py)


class DamagedFileError(ValueError):
    """A file of the record is not what was written."""


class DisagreementError(ValueError):
    """Two records have different values in the same line; `differing` has the differences in words, by run."""

    def __init__(self, message: str, differing: Mapping[str, Sequence[str]]) -> None:
        super().__init__(message)
        self.differing = differing


class _Lines:
    """The header and the rows of a CSV file, as text. Rows are counted from 1; errors name lines of the file."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self.content = path, content
        self.header: list[str] = []
        self.rows: list[list[str]] = []

    def parse(self) -> None:
        """Split the content into header and rows."""
        lines = self.content.count(b"\n")
        if not self.content.endswith(b"\n"):
            raise self._damage(lines + 1, "the last line does not end, it was cut off")
        try:
            self.header, *self.rows = self._reader()
        except UnicodeDecodeError as error:
            raise self._damage(self.content.count(b"\n", 0, error.start) + 1, "not UTF-8") from error
        except csv.Error as error:
            raise self._damage(lines, f"{error}, in this line or one before") from error

    def damage(self, row: int, what: str) -> DamagedFileError:
        """Return the error that says what is wrong in a row; 0 is the header."""
        return self._damage(self.number(row), what)

    def number(self, row: int) -> int:
        """Return the line in which a row ends, counted as editors do."""
        reader = self._reader()
        for _ in range(row + 1):
            next(reader)
        return reader.line_num

    def _reader(self) -> Any:
        return csv.reader(io.StringIO(self.content.decode("utf-8-sig"), newline=""), strict=True)

    def _damage(self, line: int, what: str) -> DamagedFileError:
        return DamagedFileError(f"{self.path}, line {line}: {what}. {REMEDY.format(path=self.path)}")


@dataclass(frozen=True)
class Table:
    """A CSV file's name, its columns with their types (str, int, float), and the columns that identify a line.

    The first of the identifying columns holds text.

    Two records agree on a line if its `outcome` columns have the same values in both. Numbers in `optional` columns may
    be empty.
    """

    name: str
    columns: Mapping[str, type]
    identity: tuple[str, ...]
    outcome: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def read(self, folder: Path) -> pd.DataFrame:
        """Return the lines; none if there is no file."""
        content, path = content_of(folder / self.name), folder / self.name
        digest = hashlib.sha256(content or b"").digest()
        if content is None or _READ.get(path, (b"", None))[0] != digest:
            frame = None if content is None else self._plain_frame(content)
            _READ[path] = (digest, self._frame(self._read_lines(folder)) if frame is None else frame)
        return _READ[path][1].copy(deep=False)

    def merge(self, folder: Path, new: pd.DataFrame) -> int:
        """Add the lines whose identities are new to the file; return how many. Existing lines keep their exact text.

        `new` is ordered from earliest to latest; of two new lines with the same identity, the first counts.
        """
        rows, manifest = self._rows_of_text(new), Manifest(folder)
        with manifest.lock():
            existing = self._recorded(folder, rows)
            fresh: dict[tuple[str, ...], list[str]] = {}
            for row, identity in zip(rows, self._identities(rows), strict=True):
                if identity not in existing:
                    fresh.setdefault(identity, row)
            if fresh:
                lines = sorted([*self._lines_of_text(folder), *map(_csv_line, fresh.values())])
                manifest.replace({self.name: self._content(lines)})
        return len(fresh)

    def disagreements(self, folder: Path, new: pd.DataFrame) -> list[tuple[str, str]]:
        """Return the differences in outcome between new lines and the file's lines of the same identity.

        Each is a run's key, empty in a file without keys, and the difference in words.
        """
        names, rows = list(self.columns), self._rows_of_text(new)
        existing = self._recorded(folder, rows)
        differing = []
        for row, identity in zip(rows, self._identities(rows), strict=True):
            for i in (names.index(name) for name in self.outcome) if identity in existing else ():
                old_cell, new_cell = existing[identity][i], row[i]
                if not _same(self.columns[names[i]], old_cell, new_cell):
                    line = f"{self.name}, {' '.join(part for part in identity if part)}"
                    text = f"{line}: {names[i]} is {old_cell or 'empty'} here and {new_cell or 'empty'} there"
                    differing.append((row[names.index("key")] if "key" in names else "", text))
        return differing

    def remove(self, folder: Path, chosen: Callable[[Mapping[str, str]], bool]) -> int:
        """Remove the chosen lines; return how many. The other lines keep their exact text."""
        manifest = Manifest(folder)
        with manifest.lock():
            old = self._read_lines(folder)
            self._frame(old)  # nothing is written over a damaged file
            kept = [row for row in old.rows if not chosen(dict(zip(self.columns, row, strict=True)))]
            if len(kept) < len(old.rows):
                manifest.replace({self.name: self._content(map(_csv_line, kept))})
        return len(old.rows) - len(kept)

    def _recorded(self, folder: Path, rows: Sequence[Sequence[str]]) -> dict[tuple[str, ...], list[str]]:
        """Return the file's lines, as cells of text, by identity; only those that share its first part with a row."""
        lines, first = self.read(folder), self.identity[0]
        i = list(self.columns).index(first)
        near = self._rows_of_text(lines[lines[first].isin({row[i] for row in rows})])
        return dict(zip(self._identities(near), near, strict=True))

    def _lines_of_text(self, folder: Path) -> list[str]:
        content, rows = content_of(folder / self.name) or b"", len(self.read(folder))
        lines = content.decode("utf-8-sig").split("\n")[1:-1]
        if len(lines) == rows and b"\r" not in content:
            return lines
        return list(map(_csv_line, self._read_lines(folder).rows))  # cells or lines have other line ends

    def _content(self, lines: Iterable[str]) -> bytes:
        return "".join(f"{line}\n" for line in [_csv_line(self.columns), *lines]).encode()

    def _read_lines(self, folder: Path) -> _Lines:
        content = content_of(folder / self.name)
        lines = _Lines(folder / self.name, content or b"")
        if content is None:
            return lines
        lines.parse()
        names = list(self.columns)
        if lines.header != names:
            raise lines.damage(0, f"columns {', '.join(lines.header)}; expected {', '.join(names)}")
        for i, row in enumerate(lines.rows, 1):
            if len(row) != len(names):
                raise lines.damage(i, f"{len(row)} cells; expected {len(names)}")
        self._refuse_second_lines(lines)
        return lines

    def _refuse_second_lines(self, lines: _Lines) -> None:
        identities = self._identities(lines.rows)
        if len(set(identities)) == len(identities):
            return
        first: dict[tuple[str, ...], int] = {}
        for i, identity in enumerate(identities, 1):
            if first.setdefault(identity, i) != i:
                raise lines.damage(
                    i, f"a second line for {' '.join(identity)}, after line {lines.number(first[identity])}"
                )

    def _identities(self, rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        if not rows:
            return []
        columns, names = list(zip(*rows, strict=True)), list(self.columns)
        return list(zip(*(columns[names.index(name)] for name in self.identity), strict=True))

    def _frame(self, lines: _Lines) -> pd.DataFrame:
        import pandas as pd  # lazy: slow import

        cells = list(zip(*lines.rows, strict=True)) or [()] * len(self.columns)
        pairs = zip(self.columns, cells, strict=True)
        return pd.DataFrame({name: self._typed_column(lines, name, values) for name, values in pairs})

    def _plain_frame(self, content: bytes) -> pd.DataFrame | None:
        """Return the lines of an undamaged file, read quickly with Arrow; None for any other file.

        Arrow accepts more than this module writes, so quotes, line ends and numbers are checked here.
        """
        import pandas as pd  # lazy: slow import
        import pyarrow as pa  # lazy: slow import
        from pyarrow import csv as arrow_csv  # lazy: slow import

        if b"\r" in content or not content.endswith(b"\n") or b'"' in QUOTED.sub(b"", content):
            return None
        number = pa.dictionary(pa.int32(), pa.string())  # each distinct text is checked once
        kinds = {name: pa.large_string() if kind is str else number for name, kind in self.columns.items()}
        try:
            table = arrow_csv.read_csv(
                pa.py_buffer(content),
                arrow_csv.ReadOptions(use_threads=False, block_size=len(content) + 1),
                arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
                arrow_csv.ConvertOptions(column_types=kinds, strings_can_be_null=False),
            )
        except pa.ArrowInvalid:
            return None
        if table.column_names != list(self.columns):
            return None
        columns = {name: self._plain_column(name, table[name].combine_chunks()) for name in self.columns}
        if any(column is None for column in columns.values()):
            return None
        frame = pd.DataFrame(columns)
        return None if frame.duplicated(list(self.identity)).any() else frame

    def _plain_column(self, name: str, column: Any) -> pd.Series | None:
        """Convert a column from Arrow to pandas; return None if a text in it is not a number."""
        import numpy as np  # lazy: slow import
        import pandas as pd  # lazy: slow import

        kind = self.columns[name]
        if kind is str:
            return pd.Series(column, dtype="string")
        texts = column.dictionary.to_pylist()
        missing = name in self.optional and "" in texts
        if not all(_is_number(kind, text) or (missing and not text) for text in texts):
            return None
        exact = kind is int and not missing
        numbers = list(map(int, texts)) if exact else [float(text) if text else math.nan for text in texts]
        return pd.Series(np.array(numbers, "int64" if exact else "float64")[column.indices.to_numpy()])

    def _typed_column(self, lines: _Lines, name: str, cells: Sequence[str]) -> pd.Series:
        import pandas as pd  # lazy: slow import

        kind, missing = self.columns[name], name in self.optional and "" in cells
        if kind is str:
            return pd.Series(cells, dtype="string")
        wrong = {text for text in set(cells) if not _is_number(kind, text)} - ({""} if missing else set())
        if wrong:
            i, text = next((i, text) for i, text in enumerate(cells, 1) if text in wrong)
            raise lines.damage(i, f"{name} is {text!r}; expected {EXPECTED[kind]}")
        if kind is int and not missing:
            return pd.Series(list(map(int, cells)), dtype="int64")
        return pd.Series([float(text) if text else math.nan for text in cells], dtype="float64")

    def _rows_of_text(self, new: pd.DataFrame) -> list[list[str]]:
        columns = [[self._cell_text(name, value) for value in new[name]] for name in self.columns]
        return [list(row) for row in zip(*columns, strict=True)]

    def _cell_text(self, name: str, value: Any) -> str:
        import pandas as pd  # lazy: slow import

        kind = self.columns[name]
        if kind is str and isinstance(value, str):
            return value
        if pd.isna(value) and (kind is str or name in self.optional):
            return ""
        text = str(value) if kind is str else _number_text(value, whole=kind is int)
        if kind is not str and not _is_number(kind, text):
            raise ValueError(f"{self.name}: {name} is {value!r}; expected {EXPECTED[kind]}; nothing was written")
        return text


def refuse_disagreements(folder: Path, new: Iterable[tuple[Table, pd.DataFrame]], what: str, advice: str) -> None:
    """Refuse new lines whose outcomes differ from those of the folder's lines with the same identity."""
    differing: dict[str, list[str]] = {}
    for key, text in (line for table, lines in new for line in table.disagreements(folder, lines)):
        differing.setdefault(key, []).append(text)
    if differing:
        texts = [text for of_run in differing.values() for text in of_run]
        shown = [*texts[:SHOWN], *([f"and {len(texts) - SHOWN:,} more"] if len(texts) > SHOWN else [])]
        raise DisagreementError(
            f"{what} disagree, nothing was written; {advice}\n" + "\n".join(f"  {x}" for x in shown), differing
        )


def _number_text(value: Any, *, whole: bool) -> str:
    """Return the shortest text that parses to the number, empty if it is not finite; a whole number may be a float."""
    import pandas as pd  # lazy: slow import

    if isinstance(value, str | bool) or pd.isna(value) or not math.isfinite(value):
        return ""
    return str(int(value)) if whole and int(value) == value else repr(float(value))


def _same(kind: type, a: str, b: str) -> bool:
    if a == b or kind is not float or not (a and b):
        return a == b
    return math.isclose(float(a), float(b), rel_tol=SAME_NUMBER, abs_tol=SAME_NUMBER)


def _is_number(kind: type, text: str) -> bool:
    return bool(NUMBERS[kind].fullmatch(text)) and math.isfinite(float(text))


def _csv_line(cells: Iterable[str]) -> str:
    """Return cells as a line of CSV without its end; a cell with any kind of line end is quoted."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\r\n").writerow(cells)
    return buffer.getvalue().removesuffix("\r\n")
