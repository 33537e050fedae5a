"""Files of one's own: every format holds the same, what pandas writes is read back, and errors name the line."""

import gzip
import json
import lzma
import tempfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cse_core.data import text_files
from cse_core.data.text_files import FORMATS, format_of, read_table

NAMES = ["sentence1", "sentence2", "score"]
QUOTES = [("The owl waits.", 'He said "The owl waits."', "1"), ('"A hen eats." she wrote', "a, b", "2.5")]


def write(path: Path, frame: pd.DataFrame) -> Path:
    {
        ".csv": lambda: frame.to_csv(path, index=False),
        ".tsv": lambda: frame.to_csv(path, sep="\t", index=False),
        ".jsonl": lambda: frame.to_json(path, orient="records", lines=True, force_ascii=False),
        ".parquet": lambda: frame.to_parquet(path),
    }[path.suffix.lower()]()
    return path


def cells(path: Path) -> list[tuple]:
    return [tuple(row) for _, row in read_table(path).rows]


def said(path: Path, content: str) -> tuple[list[tuple], str]:
    """The rows of a file of that content, and how it was read."""
    path.write_text(content)
    return cells(path), read_table(path).how


TEXT = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), min_size=1).filter(str.strip)
ROWS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from([".csv", ".CSV", ".jsonl", ".JsonL", ".parquet", ".tsv"]))
def test_what_pandas_writes_is_read_back(rows: list[tuple[str, str]], suffix: str) -> None:
    if suffix == ".tsv":  # in which cells over several lines can be ambiguous
        rows = [(a.replace("\n", " ") + ".", b.replace("\n", " ") + ".") for a, b in rows]
    frame = pd.DataFrame([(*row, "NA") for row in rows], columns=NAMES)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / f"pairs{suffix}", frame)
        table = read_table(path)
    assert table.header == tuple(NAMES)
    assert [tuple(row) for _, row in table.rows] == [(*row, "NA") for row in rows]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".TSV"])
def test_a_quoted_file_is_read_as_pandas_reads_it(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"pairs{suffix}", pd.DataFrame([*QUOTES, ("two\nlines", "b", "3")], columns=NAMES))
    read = pd.read_csv(path, sep="," if suffix == ".csv" else "\t", dtype=str, keep_default_na=False)
    assert cells(path) == [*read.itertuples(index=False, name=None)]


def test_a_file_by_tabs_decides_whether_it_is_quoted(tmp_path: Path) -> None:
    plain = "".join("\t".join(row) + "\n" for row in QUOTES)
    quoted = "".join("\t".join(f'"{cell.replace(chr(34), 2 * chr(34))}"' for cell in row) + "\n" for row in QUOTES)
    rows, how = said(tmp_path / "a.tsv", plain)
    assert rows == QUOTES
    assert how == "no header; quotes kept, as it is not quoted by csv's rules (line 2: '\t' expected after '\"')"
    assert said(tmp_path / "b.tsv", quoted) == (QUOTES, "no header; quoted by csv's rules")
    assert said(tmp_path / "c.tsv", 'a\t5" wide\t1\n') == ([("a", '5" wide', "1")], "no header")  # both ways the same
    chance = '"one\ttwo\t1\nthree"\tfour\t2\n'  # a quote that opens a text, and one that ends another
    assert said(tmp_path / "d.tsv", chance)[0] == [('"one', "two", "1"), ('three"', "four", "2")]
    with pytest.raises(ValueError, match=r"e\.tsv: its quotes may be part of a text or be around lines; write"):
        said(tmp_path / "e.tsv", '"one\ntwo"\n')


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", 'a,b,1\n"c" d,e,2\n', "line 2: ',' expected after '\"'; correct its quotes"),
        ("a.csv", 'a,b,1\n"c,e,2\n', "line 2: unexpected end of data"),
        ("a.csv", 'a,"b\nb",1\nc,2\n', "line 3: 2 columns, expected 3 as in the first line"),
        ("a.tsv", "a\tb\t1\n\nc\t2\n", "line 3: 2 columns, expected 3 as in the first line"),
        ("a.jsonl", '{"text": "a"}\n\n{"text": \n', "line 3: not JSON"),
        ("a.jsonl", '{"text": "a"}\n{"text": "\\ud800"}\n', "line 2: not JSON .*surrogates not allowed"),
        ("a.jsonl", '["a"]\n', r'line 1: expected an object such as \{"text": ...\}, got \["a"\]'),
        ("a.tsv", "a\tb\n" + "c\0\td\n", r"line 2: expected UTF-8, got a NUL character \(is it UTF-16\?\)"),
        ("a.parquet", "text", r"a\.parquet: not a \.parquet file, or damaged"),
        ("a.xlsx", "", r"expected a file that ends with \.txt, \.tsv, \.csv, \.jsonl, \.parquet, got \.xlsx"),
        ("a.csv", "text;label\na;b\n", "its first line is 'text;label', expected names with commas between"),
        (
            "a.tsv",
            "sentence1,sentence2,score\na,b,1\n",
            "its first line is 'sentence1,sentence2,score', expected names",
        ),
        ("a.tsv", "a\tb\t1\rc\td\t2\r", "a single line with carriage returns in it; convert them to line feeds"),
        ("a.json", "[]", r"got \.json; convert it"),
        ("a.tsv", '"text"|"label"\n', "expected names with commas between"),
        ("a.tsv", '{"text": "a"}\n', r"its first line is an object of JSON, .*; rename it to \.jsonl"),
        ("a.jsonl", '{"a":' * 100_000, "line 1: not JSON .*recursion"),
    ],
)
def test_what_cannot_be_read_is_refused_by_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / name)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le with mark", "utf-16-be with mark", "gz", "xz"]
)
def test_a_byte_order_mark_decides_the_encoding_and_is_no_text(tmp_path: Path, encoding: str) -> None:
    text, codec = "sentence1,sentence2,score\nÉlan,東京,1\n", encoding.removesuffix(" with mark")
    path = tmp_path / "pairs.csv"
    if codec in ("gz", "xz"):
        path = tmp_path / f"pairs.csv.{codec.upper()}"
        path.write_bytes({"gz": gzip, "xz": lzma}[codec].compress(text.encode("utf-16")))
    else:
        path.write_bytes((("\ufeff" if codec != encoding else "") + text).encode(codec))
    table = read_table(path)
    assert (table.header, table.rows) == (tuple(NAMES), [(2, ["Élan", "東京", "1"])])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_byte_that_is_no_utf_8_is_named_by_its_line(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / ("a.txt.gz" if pack is gzip.compress else "a.txt")
    path.write_bytes(pack(b"a\n" * 70_000 + "caf\xe9\n".encode("latin-1") + b"b\n"))
    with pytest.raises(ValueError, match=r"a\.txt.*, line 70001: not utf-8"):
        read_table(path)


def test_a_parquet_file_has_its_own_columns_alone(tmp_path: Path) -> None:
    path = tmp_path / "lang=en" / "a.parquet"
    path.parent.mkdir()
    names = ["text", "score", "score"]
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array([1]), pa.array([2])], names=names), path)
    assert (read_table(path).header, read_table(path).rows) == (tuple(names), [(1, ("a", 1, 2))])


def test_utf_16_without_a_mark_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for text, message in (("a,b\n", "line 1: expected UTF-8, got a NUL"), ("é,b\n", "not utf-8")):
        path.write_bytes(text.encode("utf-16-le"))
        with pytest.raises(ValueError, match=message):
            read_table(path)


@pytest.mark.parametrize("suffix", FORMATS[1:4])
def test_a_text_that_is_too_long_for_memory_is_refused(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "MOST_CHARACTERS", 60)
    path = tmp_path / f"a{suffix}"
    write(path, pd.DataFrame({"text": ["short", "word " * 13]}))
    number = 2 if suffix == ".jsonl" else 3
    message = f"line {number}: (6|7|8)[0-9] characters, expected at most 60; split the text"
    with pytest.raises(ValueError, match=message):
        read_table(path)


def test_formats_are_known_by_extension_in_any_case() -> None:
    names = {
        "a": ".txt",
        "A.TXT": ".txt",
        "a.b.Tsv": ".tsv",
        "a.csv.gz": ".csv",
        "a.JSONL.XZ": ".jsonl",
        "a.gz": ".txt",
    }
    assert {name: format_of(Path(name)) for name in names} == names


def test_blank_rows_are_counted_and_missing_cells_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    objects = [{"text": "a"}, {}, {"text": " "}, {"text": None}, {"text": "b", "more": 0}]
    path.write_text("\n\n".join(map(json.dumps, objects)) + "\n")
    table = read_table(path)
    assert table.rows == [(1, ["a", None]), (9, ["b", 0])]
    assert table.blank == 7
    (tmp_path / "b.csv").write_text('text,other\n\n" ",\n"two\n\nlines",b\n')
    table = read_table(tmp_path / "b.csv")
    assert (table.rows, table.blank) == ([(4, ["two\n\nlines", "b"])], 2)


def test_columns_are_picked_by_name_or_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,Sentence One,2,gold\n7,a,b,1\n")
    table = read_table(tmp_path / "a.csv", ["sentence one"])
    assert table.header == ("id", "Sentence One", "2", "gold")
    assert table.pick(["sentence one", "2", "4"]) == (1, 2, 3)  # a name comes before a number
    assert table.pick(["Gold"]) == (3,)
    for column, message in (("score", "its columns are id, Sentence One, 2, gold"), ("5", "a number from 1 to 4")):
        with pytest.raises(ValueError, match=message):
            table.pick([column])
    for columns in (["id", "1"], ["gold", "4"]):
        with pytest.raises(ValueError, match=f"expected different columns, got {', '.join(columns)}"):
            table.pick(columns)
    (tmp_path / "b.csv").write_text("text,text\na,b\n")
    with pytest.raises(ValueError, match="2 columns are named 'text'; give the column's number instead"):
        read_table(tmp_path / "b.csv").pick(["text"])
