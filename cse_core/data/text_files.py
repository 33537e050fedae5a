"""Read the user's own files as tables: .txt, .tsv, .csv or .jsonl, all possibly packed (.gz, .xz), or .parquet.

No cell is interpreted: "NA", "1_0" and "007" stay as they are in the file. Errors name the file and the line.
"""

import csv
import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from cse_core.data.locate import read_lines

FORMATS = (".txt", ".tsv", ".csv", ".jsonl", ".parquet")
PACKED = (".gz", ".xz")
MOST_CHARACTERS = 1_000_000  # of a text: a tokenizer takes 160 bytes of memory for each
Row = tuple[int, Sequence[Any]]  # its number in the file, and its cells
# Column names that identify a header, in lower case and with "_" for blanks and hyphens.
TEXTS = ("text", "texts", "sentence", "sentences", "line")
PAIRS = (
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("sent0", "sent1"),
    ("sent1", "sent2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("anchor", "positive"),
    ("query", "positive"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
)
NEGATIVES = ("hard_neg", "hard_negative", "negative")
SCORES = (
    *("score", "scores", "label", "labels", "similarity", "similarity_score", "relatedness_score"),
    *("gold", "gold_label", "gold_score", "is_duplicate"),
)
HEADER_NAMES = frozenset((*TEXTS, *(name for pair in PAIRS for name in pair), *NEGATIVES, *SCORES))


@dataclass(frozen=True)
class Table:
    """A file's rows without blank ones, the names of its columns if it has a header, and how it was read."""

    path: Path
    header: tuple[str, ...]
    rows: Sequence[Row]
    blank: int
    how: str = ""  # what was decided in reading it
    unit: str = "line"

    def place(self, number: int) -> str:
        """Return the words that begin an error about a row."""
        return f"{self.path}, {self.unit} {number}"

    def text(self, row: Row, place: int) -> str:
        """Return the text in a cell, stripped; refuse a value that is not a text."""
        number, cells = row
        value = "" if cells[place] is None else cells[place]
        if not isinstance(value, str):
            raise ValueError(f"{self.place(number)}: expected a text, got {value!r}")
        check_text(value, self.place(number))
        return value.strip()

    def summary(self, what: str, columns: Sequence[str], used: Sequence[Hashable], incomplete: int = 0) -> str:
        """Return a one-line summary of what was read: the columns, how, duplicates, and what was left out."""
        names = [self.header[place] for place in self.pick(columns)] if self.header else []
        how = [f"column{'s' * (len(names) > 1)} {', '.join(names)}"] if names else []
        left_out = {f"blank {self.unit}": self.blank, "incomplete row": incomplete}
        return summary(self.path, what, used, left_out, (*how, *filter(None, [self.how])))

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.header) or (len(self.rows[0][1]) if self.rows else 0)

    def pairs(self) -> list[tuple[str, ...]]:
        """Return the header's names of each of PAIRS that it has."""
        return [pair for names in PAIRS for pair in product(*(self.matching([name]) for name in names))]

    def matching(self, names: Iterable[str]) -> list[str]:
        """Return the header's columns whose `normal` name is one of these."""
        return [column for name in names for column in self.header if normal(column) == name]

    def pick(self, columns: Sequence[str]) -> tuple[int, ...]:
        """Return the indices of columns given by name, or by number from 1; refuse the same column twice."""
        places = tuple(self._place_of(column) for column in columns)
        if len(set(places)) < len(places):
            raise ValueError(f"{self.path}: expected different columns, got {', '.join(columns)}")
        return places

    def _place_of(self, column: str) -> int:
        same = [i for i, name in enumerate(self.header) if name == column]
        same = same or [i for i, name in enumerate(self.header) if name.casefold() == column.casefold()]
        if len(same) == 1:
            return same[0]
        if not same and column.isdecimal() and 1 <= int(column) <= self.width:
            return int(column) - 1
        if len(same) > 1:
            raise ValueError(f"{self.path}: {len(same)} columns are named {column!r}; give the column's number instead")
        names = f"its columns are {', '.join(self.header)}" if self.header else "its first line has no such name"
        raise ValueError(f"{self.path}: no column {column!r}: {names}; give a name, or a number from 1 to {self.width}")


def normal(name: str) -> str:
    """Return a column's name in the form of HEADER_NAMES."""
    return name.strip().casefold().replace(" ", "_").replace("-", "_")


def summary(
    path: Path, what: str, used: Sequence[Hashable], left_out: Mapping[str, int], how: Sequence[str] = ()
) -> str:
    """Return a one-line summary of what was read of a file: how, the number of duplicates, and what was left out."""
    counts = {"duplicate": (len(used) - len(set(used)), "kept")}
    counts |= {noun: (count, "left out") for noun, count in left_out.items()}
    parts = [f"{count:,} {noun}{'s' if count > 1 else ''} {fate}" for noun, (count, fate) in counts.items() if count]
    return "; ".join([f"{path.name}: {len(used):,} {what}", *how, *([", ".join(parts)] if parts else [])])


def format_of(path: Path) -> str:
    """Return a file's format, one of FORMATS, by its extension, ignoring case; a file without one is a .txt."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    if suffixes and suffixes[-1] not in FORMATS:
        raise ValueError(f"{path}: expected a file that ends with {', '.join(FORMATS)}, got {suffixes[-1]}; convert it")
    return suffixes[-1] if suffixes else ".txt"


def read_table(path: Path, columns: Sequence[str] = ()) -> Table:
    """Return a file's table. A .txt, .tsv or .csv has a header if its first line has one of HEADER_NAMES or `columns`.

    A .txt or .tsv file is quoted by csv's rules or not at all: see `_by_tabs`.
    """
    kind = format_of(path)
    if kind == ".parquet":
        return _read_parquet(path)
    lines = checked_lines(path)
    if kind == ".jsonl":
        return _read_objects(path, lines)
    how = ""
    if kind == ".csv":
        try:
            rows: Sequence[Row] = list(_by_commas(lines))
        except csv.Error as error:
            raise ValueError(f"{path}, {error}; correct its quotes, or write the file as .jsonl") from error
    else:
        rows, how = _by_tabs(path, lines)
    full = _full(rows)
    names = HEADER_NAMES | {normal(name) for name in columns if not name.isdecimal()}
    header: tuple[str, ...] = ()
    if full and any(normal(cell) in names for cell in full[0][1]):
        header = tuple(cell.strip() for cell in full.pop(0)[1])
    if not header:
        how = "; ".join(filter(None, ("no header", how)))
        if full and len(full[0][1]) == 1:
            check_first(path, full[0][1][0])
    table = Table(path, header, full, len(rows) - len(full) - bool(header), how)
    for number, cells in full:
        if len(cells) != table.width:
            raise ValueError(
                f"{table.place(number)}: {len(cells)} columns, expected {table.width} as in the first line; "
                "separate columns by tabs (.tsv), or by commas with quotes around a text that has one (.csv)"
            )
    return table


def check_first(path: Path, line: str) -> None:
    """Refuse a first line, read as one text, that looks like a header of several columns or like a JSON object."""
    names = re.split(r"[,;|\t]", line)
    named = all(re.fullmatch(r'"?[\w-]+"?', name) for name in names)
    if len(names) > 1 and named and HEADER_NAMES & {normal(name.strip('"')) for name in names}:
        raise ValueError(
            f"{path}: its first line is {line!r}, expected names with commas between (.csv) or tabs (.tsv)"
        )
    if re.match(r'\{\s*"[^"]*"\s*:.*\}\s*$', line):
        raise ValueError(f"{path}: its first line is an object of JSON, {line[:60]}; rename it to .jsonl")


def checked_lines(path: Path) -> list[str]:
    """Return a file's lines; refuse what `check_text` refuses, and lines that end in "\\r" as on old Macs."""
    lines = read_lines(path)
    if len(lines) == 1 and "\r" in lines[0]:
        raise ValueError(f'{path}: a single line with carriage returns in it; convert them to line feeds ("\\n")')
    for number, line in enumerate(lines, 1):
        check_text(line, f"{path}, line {number}")
    return lines


def check_text(text: str, place: str) -> None:
    """Refuse a text with a NUL, which UTF-16 read as UTF-8 has, or with more than MOST_CHARACTERS."""
    if "\0" in text:
        raise ValueError(f"{place}: expected UTF-8, got a NUL character (is it UTF-16?); convert the file")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{place}: {len(text):,} characters, expected at most {MOST_CHARACTERS:,}; split the text")


def _by_commas(lines: Sequence[str], delimiter: str = ",") -> Iterator[Row]:
    """Yield rows by csv's strict rules: nothing may follow a closing quote. A quoted cell may span lines."""
    csv.field_size_limit(MOST_CHARACTERS)
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            yield number, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise csv.Error(f"line {number}: {error}") from error


def _by_tabs(path: Path, lines: Sequence[str]) -> tuple[Sequence[Row], str]:
    """Return a tab-separated file's rows, and how its quotes were read: by csv's rules if the whole file obeys them.

    Otherwise they are kept. They are also kept if the file obeys the rules only by chance: a quoted cell would span
    several lines, yet each line has all columns.
    """
    plain: list[Row] = [(number, line.split("\t")) for number, line in enumerate(lines, 1)]
    if '"' not in "".join(lines):
        return plain, ""
    try:
        quoted = list(_by_commas(lines, "\t"))
    except csv.Error as error:
        return plain, f"quotes kept, as it is not quoted by csv's rules ({error})"
    if _full(plain) == _full(quoted):
        return plain, ""
    widths = {len(cells) for _, cells in _full(plain)}
    if len(quoted) < len(plain) and len(widths) == 1:
        if widths == {1}:
            raise ValueError(
                f"{path}: its quotes may be part of a text or be around lines; write the file as .txt, .csv or .jsonl"
            )
        return plain, "quotes kept, as every line has all columns"
    return quoted, "quoted by csv's rules"


def _full(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that are not blank."""
    return [row for row in rows if any(cell.strip() if isinstance(cell, str) else cell is not None for cell in row[1])]


def _read_objects(path: Path, lines: Sequence[str]) -> Table:
    """Return the table of a .jsonl file: an object in each line. A key that is missing in a line is None there."""
    objects = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                value = json.loads(line)
                json.dumps(value, ensure_ascii=False).encode()  # refuses half a surrogate pair
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error}); correct it") from error
            if not isinstance(value, dict):
                raise ValueError(f'{path}, line {number}: expected an object such as {{"text": ...}}, got {line[:60]}')
            objects.append((number, value))
    header = tuple(dict.fromkeys(name for _, value in objects for name in value))
    rows = [(number, [value.get(name) for name in header]) for number, value in objects]
    full = _full(rows)
    return Table(path, header, full, len(lines) - len(full))


def _read_parquet(path: Path) -> Table:
    import pyarrow.parquet as pq  # lazy: slow import

    try:
        table = pq.ParquetFile(path).read()  # not `read_table`, which adds columns by the names of folders
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a .parquet file, or damaged ({error}); copy it again") from error
    rows = list(enumerate(zip(*(column.to_pylist() for column in table.columns), strict=True), 1))
    full = _full(rows)
    return Table(path, tuple(table.column_names), full, len(rows) - len(full), unit="row")
