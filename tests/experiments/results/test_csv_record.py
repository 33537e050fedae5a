"""The record keeps the earliest score of a cell, and a merge neither removes nor changes a line."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.results import csv_record
from experiments.results.csv_table import DisagreementError, Table


def line(**changes: Any) -> dict[str, Any]:
    numbers = {"seed": 1, "seconds": 1.0, "score": 0.5, "pairs": 10, "step": 4, "version": 1}
    return dict.fromkeys(csv_record.RESULTS, "x") | {"scale": "small"} | numbers | changes


def write(folder: Path, *lines: dict[str, Any]) -> int:
    return csv_record.RESULTS_TABLE.merge(folder, pd.DataFrame(list(lines), columns=csv_record.RESULTS))


def read(folder: Path) -> pd.DataFrame:
    return csv_record.RESULTS_TABLE.read(folder)


def test_the_earliest_score_of_a_cell_stays(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    assert write(tmp_path, line(score=0.1)) == 1
    before = path.read_bytes()
    assert write(tmp_path, line(score=0.9), line(score=0.8)) == 0
    assert path.read_bytes() == before
    assert write(tmp_path, line(task="y", score=0.2), line(task="y", score=0.3)) == 1
    assert sorted(read(tmp_path)["score"]) == [0.1, 0.2]


@pytest.mark.parametrize("name", csv_record.CELL)
def test_every_part_of_a_cells_name_distinguishes_cells(tmp_path: Path, name: str) -> None:
    write(tmp_path, line())
    assert write(tmp_path, line(**{name: 2 if name == "version" else "y"})) == 1


def test_recorded_lines_keep_every_character(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    odd = ",".join(csv_record.SCORES) + "\n" + "k,last,c  d,t,q,0.10000000000000001,10,,1,c\n"
    path.write_text(odd)
    write(tmp_path, line())
    assert odd.splitlines()[1] in path.read_text().splitlines()
    assert len(path.read_text().splitlines()) == 3


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20, unique=True))
def test_scores_come_back_to_the_last_digit(tmp_path_factory: pytest.TempPathFactory, scores: list[float]) -> None:
    folder = tmp_path_factory.mktemp("record")
    write(folder, *(line(task=str(i), score=score) for i, score in enumerate(scores)))
    back = read(folder).set_index("task")["score"]
    assert [back[str(i)] for i in range(len(scores))] == scores


def test_commas_and_quotes_in_settings_survive(tmp_path: Path) -> None:
    csv_record.merge_results(tmp_path, pd.DataFrame([line(settings='a="1", b=2', device="CPU, 2 cores")]))
    assert csv_record.read_results("small", tmp_path)["settings"].tolist() == ['a="1", b=2']


def test_scores_are_read_with_their_runs_and_each_run_has_one_line(tmp_path: Path) -> None:
    first = [line(task=task, key="k", seconds=1.5, settings="a=1") for task in ("s", "t")]
    other = [line(task="s", key="l", seconds=2.5)]
    assert csv_record.merge_results(tmp_path, pd.DataFrame([*first, *other])) == 3
    assert csv_record.merge_results(tmp_path, pd.DataFrame([line(task="u", key="k", seconds=9.0)])) == 1
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 1 + 2
    found = csv_record.read_results("small", tmp_path)
    assert list(found.columns) == csv_record.RESULTS
    assert found.groupby("key")["seconds"].unique().map(list).to_dict() == {"k": [1.5], "l": [2.5]}
    assert found.groupby("key")["task"].unique().map(list).to_dict() == {"k": ["s", "t", "u"], "l": ["s"]}


def test_scores_of_a_run_that_is_not_recorded_are_refused(tmp_path: Path) -> None:
    csv_record.merge_results(tmp_path, pd.DataFrame([line(key="k"), line(key="l")]))
    path = tmp_path / "runs.csv"
    path.write_text("".join(text for text in path.read_text().splitlines(keepends=True) if not text.startswith("l,")))
    with pytest.raises(ValueError, match=r"results.csv has scores of run l, which runs.csv lacks"):
        csv_record.read_results("small", tmp_path)


def of_a_machine(folder: Path, *keys: str, score: float) -> Path:
    """A record with a score, a point of a curve and an array for each run."""
    csv_record.merge_results(folder, pd.DataFrame([line(key=key, score=score) for key in keys]))
    points = pd.DataFrame([("small", key, "loss", 1, score) for key in keys], columns=csv_record.CURVES)
    csv_record.CURVES_TABLE.merge(folder, points)
    for key in keys:
        (folder / "figure_data" / key).mkdir(parents=True)
        (folder / "figure_data" / key / "a.npz").write_text(str(score))
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.suffix != ".lock" and path.is_file()
    }


def test_another_machines_record_adds_what_is_new_and_changes_nothing(tmp_path: Path) -> None:
    mine = of_a_machine(tmp_path / "mine", "both", "mine", score=0.1)
    theirs = of_a_machine(tmp_path / "theirs", "theirs", score=0.2)
    of_a_machine(theirs, "both", score=0.100002)  # as much as the kind of processor moves a score
    added = dict.fromkeys(("runs.csv", "results.csv", "curves.csv", "figure_data"), 1)
    assert csv_record.merge_folder(theirs, mine) == added | {"pairs.csv": 0, "searches.csv": 0}
    found = csv_record.read_results("small", mine).set_index("key")["score"]
    assert found.to_dict() == {"both": 0.1, "mine": 0.1, "theirs": 0.2}
    assert (mine / "figure_data" / "both" / "a.npz").read_text() == "0.1"
    assert (mine / "figure_data" / "theirs" / "a.npz").read_text() == "0.2"
    before = contents(mine)
    assert set(csv_record.merge_folder(theirs, mine).values()) == {0}
    assert contents(mine) == before


@pytest.mark.parametrize("cells", [1, 30])
def test_records_that_disagree_are_not_merged_and_the_lines_are_named(tmp_path: Path, cells: int) -> None:
    keys = [f"run{i}" for i in range(cells)]
    mine = of_a_machine(tmp_path / "mine", *keys, score=0.1)
    theirs = of_a_machine(tmp_path / "theirs", *keys, "new", score=0.2)
    before = contents(mine)
    with pytest.raises(DisagreementError) as caught:
        csv_record.merge_folder(theirs, mine)
    said = str(caught.value).splitlines()
    assert said[0].startswith(f"{mine} and {theirs} disagree, nothing was written; find out which is right, and remove")
    first = line(key="run0")
    cell = " ".join(str(first[name]) for name in csv_record.CELL)
    assert said[1] == f"  results.csv, {cell}: score is 0.1 here and 0.2 there"
    if cells == 1:
        assert said[2:] == ["  curves.csv, run0 loss 1: value is 0.1 here and 0.2 there"]
    else:
        assert (len(said), said[-1]) == (22, "  and 40 more")
    assert contents(mine) == before


@pytest.mark.parametrize(
    ("table", "changed"),
    [
        (csv_record.PAIRS_TABLE, {"difference": 0.3}),
        (csv_record.SEARCHES_TABLE, {"score": 0.3}),
        (csv_record.SEARCHES_TABLE, {"score": None}),
        (csv_record.RESULTS_TABLE, {"pairs": 7}),
        (csv_record.RUNS_TABLE, {"seed": 7}),
    ],
)
def test_every_file_can_disagree_in_its_outcomes(tmp_path: Path, table: Table, changed: dict[str, Any]) -> None:
    filled: dict[type, Any] = {str: "a", int: 1, float: 0.1}
    same = {name: filled[kind] for name, kind in table.columns.items()}
    table.merge(tmp_path, pd.DataFrame([same]))
    apart = {"commit": "other", "device": "other", "seconds": 9.0}
    unlike = {name: value for name, value in apart.items() if name in table.columns}
    assert table.disagreements(tmp_path, pd.DataFrame([same | unlike])) == []
    ((key, found),) = table.disagreements(tmp_path, pd.DataFrame([same | changed]))
    assert key == ("a" if "key" in table.columns else "")
    assert found.startswith(f"{table.name}, a")
    assert f": {next(iter(changed))} is " in found
    assert table.disagreements(tmp_path, pd.DataFrame([same | changed | {table.identity[0]: "b"}])) == []


@pytest.mark.parametrize("broken", ["searches.csv", "results.csv", "runs.csv"])
def test_a_record_that_is_broken_anywhere_adds_nothing(tmp_path: Path, broken: str) -> None:
    mine, theirs = of_a_machine(tmp_path / "mine", "a", score=0.1), of_a_machine(tmp_path / "theirs", "b", score=0.2)
    if broken == "runs.csv":
        (theirs / broken).write_text(",".join(csv_record.RUNS) + "\n")  # no run for the score of b
    else:
        (theirs / broken).write_text("key,other\n")
    before = contents(mine)
    with pytest.raises(ValueError, match=r"theirs.*(columns key, other; expected|scores of run b)"):
        csv_record.merge_folder(theirs, mine)
    assert contents(mine) == before


def test_a_folder_without_a_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"expected a record, runs\.csv"):
        csv_record.merge_folder(tmp_path / "away", tmp_path)


def test_quickstart_has_a_record_of_its_own(tmp_path: Path) -> None:
    assert csv_record.folder_for("quickstart", tmp_path) == tmp_path / "quickstart"
    assert csv_record.folder_for("small", tmp_path) == csv_record.folder_for("paper", tmp_path) == tmp_path


def test_curves_are_averaged_between_evaluations() -> None:
    curves = {"loss": [[step, float(step)] for step in range(1, 7)], "dev/a": [[4, 0.5]]}
    result = {"scale": "small", "key": "k", "eval_steps": 4, "curves": curves}
    assert [(p["name"], p["step"], p["value"]) for p in csv_record.curve_lines(result)] == [
        ("loss", 4, 2.5),
        ("loss", 8, 5.5),
        ("dev/a", 4, 0.5),
    ]


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(OSError, match="can't be written"):
        csv_record.check_writable(blocked / "mlruns")
    read_only = Path("/proc/sys")  # no permission bits stop root, but this file system refuses new files
    with pytest.raises(PermissionError, match=r"/proc/sys: can't be written .*choose another folder with --mlruns"):
        csv_record.check_writable(read_only)


def test_a_commit_is_ten_digits_and_a_plus_where_code_differed() -> None:
    commit = "0123456789abcdef"
    assert csv_record.commit_of({"commit": commit, "dirty": "false"}) == "0123456789"
    assert csv_record.commit_of({"commit": commit, "dirty": "true"}) == "0123456789+"
