"""A damaged file of the record is an error that names file and line, and the file stays as it is."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import sweep
from experiments.cli.command import run_command
from experiments.results import csv_record
from experiments.results.csv_table import DamagedFileError, Table

TABLE = Table("toy.csv", {"key": str, "text": str, "count": int, "score": float}, ("key",), optional=("score",))
HEADER = "key,text,count,score\n"
GOOD = f"{HEADER}a,one,1,0.1\nb,two,2,0.2\n"
ODD = [*"\n\r\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e", "\r\n", '"', ",", "a\nb,c,1,2\n"]


def frame(*lines: tuple[Any, ...]) -> pd.DataFrame:
    return pd.DataFrame(list(lines), columns=list(TABLE.columns))


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        (GOOD[:-2], 3, "the last line does not end"),
        (GOOD[:-1], 3, "the last line does not end"),
        (GOOD[:-5], 3, "the last line does not end"),
        ("", 1, "the last line does not end"),
        (HEADER + "a,one,1\nb,two,2,0.2\n", 2, "3 cells; expected 4"),
        (HEADER + "a,one,1,0.1,\n", 2, "5 cells; expected 4"),
        (HEADER + "\na,one,1,0.1\n", 2, "0 cells; expected 4"),
        ("key,text\na,one\n", 1, "columns key, text; expected key, text, count, score"),
        (HEADER + "a,one,many,0.1\n", 2, "count is 'many'; expected a whole number"),
        (HEADER + "a,one,1.0,0.1\n", 2, "count is '1.0'; expected a whole number"),
        (HEADER + "a,one,,0.1\n", 2, "count is ''; expected a whole number"),
        (HEADER + "a,one,1,0.1\nb,two,2,0.2x\n", 3, "score is '0.2x'; expected a number"),
        (HEADER + "a,one,1,nan\n", 2, "score is 'nan'; expected a number"),
        (HEADER + "a,one,1,1e999\n", 2, "score is '1e999'; expected a number"),
        (HEADER + "a,one,1,1_0\n", 2, "score is '1_0'; expected a number"),
        (HEADER + "a,one,1,0.1\nb,two,2,0.2\na,one,1,0.1\n", 4, "a second line for a, after line 2"),
        (HEADER + 'a,"two\nlines",1,0.1\nb,two,x,0.2\n', 4, "count is 'x'"),
        (HEADER + 'a,"never closed,1,0.1\nb,two,2,0.2\n', 3, "unexpected end of data"),
        (HEADER + 'a,"one"x,1,0.1\n', 2, "expected after"),
    ],
)
def test_a_damaged_file_is_named_with_its_line_and_left_as_it_is(
    tmp_path: Path, content: str, line: int, what: str
) -> None:
    path = tmp_path / "toy.csv"
    path.write_text(content, newline="")
    for act in (lambda: TABLE.read(tmp_path), lambda: TABLE.merge(tmp_path, frame(("c", "three", 3, 0.3)))):
        with pytest.raises(DamagedFileError) as raised:
            act()
        assert str(raised.value).startswith(f"{path}, line {line}: ")
        assert what in str(raised.value)
        assert "git checkout" in str(raised.value)
    assert path.read_bytes() == content.encode()


def test_a_byte_order_mark_and_line_ends_of_windows_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "toy.csv").write_text(GOOD)
    plain = TABLE.read(tmp_path)
    (tmp_path / "toy.csv").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert TABLE.read(tmp_path).equals(plain)
    assert TABLE.merge(tmp_path, frame(("c", "three", 3, 0.3))) == 1
    assert (tmp_path / "toy.csv").read_text() == f"{GOOD}c,three,3,0.3\n"


def test_a_merge_keeps_the_exact_text_of_existing_lines(tmp_path: Path) -> None:
    existing = 'b,"two",02,2e-1\n'
    (tmp_path / "toy.csv").write_text(HEADER + existing)
    assert TABLE.merge(tmp_path, frame(("a", "one", 1, 0.1), ("b", "other", 3, 0.3))) == 1
    assert (tmp_path / "toy.csv").read_text() == f"{HEADER}a,one,1,0.1\n{existing}"


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "toy.csv").write_bytes(GOOD.encode().replace(b"two", b"\xff\xfe"))
    with pytest.raises(DamagedFileError, match=r"toy.csv, line 3: not UTF-8"):
        TABLE.read(tmp_path)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_any_text_comes_back_and_stays(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("table")
    lines = [(f"{i}", text, i, i / 10) for i, text in enumerate([*ODD, *texts])]
    assert TABLE.merge(folder, frame(*lines[1:])) == len(lines) - 1
    assert TABLE.merge(folder, frame(*lines)) == 1  # over a file that holds the others
    assert TABLE.merge(folder, frame(*lines)) == 0
    found = TABLE.read(folder).set_index("key")["text"].to_dict()
    assert found == {key: text for key, text, *_ in lines}


def test_columns_have_their_types(tmp_path: Path) -> None:
    assert TABLE.read(tmp_path).dtypes.astype(str).to_list() == ["string", "string", "int64", "float64"]
    TABLE.merge(tmp_path, frame(("a", None, 1.0, None), ("b", "two", 2, 1)))
    assert (tmp_path / "toy.csv").read_text() == HEADER + "a,,1,\nb,two,2,1.0\n"
    found = TABLE.read(tmp_path)
    assert found.dtypes.astype(str).to_list() == ["string", "string", "int64", "float64"]
    assert found["score"].isna().to_list() == [True, False]


@pytest.mark.parametrize("wrong", [{"count": 1.5}, {"count": "1"}, {"count": None}, {"score": float("inf")}])
def test_a_value_that_is_no_number_is_not_written(tmp_path: Path, wrong: dict[str, Any]) -> None:
    TABLE.merge(tmp_path, frame(("a", "one", 1, 0.1)))
    before = (tmp_path / "toy.csv").read_bytes()
    new = frame(("b", "two", 2, 0.2)).astype(object).assign(**wrong)
    with pytest.raises(ValueError, match=rf"toy.csv: {next(iter(wrong))} is .*nothing was written"):
        TABLE.merge(tmp_path, new)
    assert (tmp_path / "toy.csv").read_bytes() == before


@pytest.mark.parametrize("table", csv_record.TABLES, ids=lambda table: table.name)
@pytest.mark.slow
def test_the_committed_files_are_written_as_they_are(tmp_path: Path, table: Table) -> None:
    whole = (csv_record.MLRUNS / table.name).read_bytes()
    header, _, *others = whole.splitlines(keepends=True)
    (tmp_path / table.name).write_bytes(header + b"".join(others))
    assert table.merge(tmp_path, table.read(csv_record.MLRUNS)) == 1
    assert (tmp_path / table.name).read_bytes() == whole


@pytest.mark.slow
def test_a_merge_of_two_processes_loses_no_line(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import pandas as pd; from experiments.results.csv_table import Table\n"
        "table = Table('toy.csv', {'key': str, 'count': int}, ('key', 'count'))\n"
        "for i in range(20): table.merge(Path(sys.argv[1]), pd.DataFrame([{'key': sys.argv[2], 'count': i}]))"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), key]) for key in "ab"]
    assert [process.wait() for process in both] == [0, 0]
    found = Table("toy.csv", {"key": str, "count": int}, ("key", "count")).read(tmp_path)
    assert sorted(zip(found["key"], found["count"], strict=True)) == [(key, i) for key in "ab" for i in range(20)]


def test_a_dry_run_over_a_cut_record_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("runs.csv", "results.csv"):
        shutil.copy(csv_record.MLRUNS / name, tmp_path)
    whole = (tmp_path / "results.csv").read_bytes()
    (tmp_path / "results.csv").write_bytes(whole[:-20])
    options = sweep.Options(studies=("rankcse-table4",), dry_run=True, mlruns=tmp_path)
    with pytest.raises(SystemExit) as ended:
        run_command(lambda: sweep.main(options), (ValueError,))
    lines = whole.count(b"\n")
    cut = f"error: {tmp_path / 'results.csv'}, line {lines}: the last line does not end"
    assert str(ended.value.code).startswith(cut)
    assert "to do" not in capsys.readouterr().out
    assert (tmp_path / "results.csv").read_bytes() == whole[:-20]


@pytest.mark.parametrize("table", csv_record.TABLES, ids=lambda table: table.name)
def test_what_arrow_reads_is_what_the_strict_reader_reads(table: Table) -> None:
    """The strict reader names what is damaged; a file that only it can read takes it ten times as long."""
    fast = table._plain_frame((csv_record.MLRUNS / table.name).read_bytes())
    assert fast is not None
    pd.testing.assert_frame_equal(fast, table._frame(table._read_lines(csv_record.MLRUNS)), check_exact=True)


def test_a_changed_file_is_read_again_and_no_reader_changes_what_others_read(tmp_path: Path) -> None:
    TABLE.merge(tmp_path, frame(("a", "one", 1, 0.1)))
    first = TABLE.read(tmp_path)
    first.loc[0, "count"] = 9
    assert TABLE.read(tmp_path)["count"].to_list() == [1]
    TABLE.merge(tmp_path, frame(("b", "two", 2, 0.2)))
    assert TABLE.read(tmp_path)["count"].to_list() == [1, 2]
