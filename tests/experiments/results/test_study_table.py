"""A study's table in the terminal has the numbers of the files, with the best row first."""

from dataclasses import replace
from pathlib import Path

import pytest

from analysis import make_tables
from analysis.cells import join
from experiments.execution import step_cost
from experiments.results import csv_record
from experiments.results.row_scores import study_scores
from experiments.results.study_table import main_column, print_study, print_tables
from experiments.schema.study import Study
from experiments.studies.catalogue import choose_studies, single
from tests.support.toy_study import SEEDS, toy_lines, toy_study


def printed(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The cells of the table's lines."""
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]


def shown(study: Study, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    print_study(study, study_scores(study, toy_lines()))
    return printed(capsys)


def test_rows_are_ordered_by_their_mean_and_then_by_the_published_number(capsys: pytest.CaptureFixture[str]) -> None:
    """The toy's average is sts12's score plus three points."""
    assert shown(toy_study(), capsys) == [
        ["Better", "64.33 ± 1.53", "3", "80.05"],
        ["One seed", "58.00", "1", "–"],
        ["SimCSE", "54.00 ± 1.00", "3", "76.25"],
        ["As it is", "43.00", "1", "–"],
        ["Elsewhere", "–", "", "76.93"],
        ["Absent", "–", "", "–"],
    ]


def test_seeds_without_a_score_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    study = toy_study()
    more = replace(study, rows=(replace(study.rows[0], seeds=(*SEEDS, 3, 4)), *study.rows[1:]))
    assert ["SimCSE", "54.00 ± 1.00", "3 of 5", "76.25"] in shown(more, capsys)


@pytest.mark.slow
def test_low_numbers_come_first_where_low_is_good(capsys: pytest.CaptureFixture[str]) -> None:
    study = single("whitenedcse-figure3", "small")
    print_tables([study], csv_record.MLRUNS)
    means = [float(cells[1].split()[0]) for cells in printed(capsys)]
    assert means == sorted(means)
    assert len(means) == 3


def test_recorded_scores_are_shown_next_to_new_ones(capsys: pytest.CaptureFixture[str]) -> None:
    study, lines = toy_study(), toy_lines()
    fresh = lines.assign(score=lines["score"] + 0.1)
    print_study(study, study_scores(study, fresh), study_scores(study, lines[lines["seed"] != 1]))
    assert printed(capsys)[0] == ["Better", "74.33 ± 1.53", "3", "64.50 ± 2.12", "2 of 3", "80.05"]


def test_the_main_column_is_an_average_or_the_first() -> None:
    chosen = {study.name: main_column(study) for study in choose_studies(["all"], "small")}
    assert chosen["rankcse-table2"] == "sts_avg"
    assert chosen["rankcse-table3"] == "transfer_avg"
    assert chosen["rankcse-table9"] == "batch_size"
    assert chosen["whitenedcse-figure3"] == "alignment"


@pytest.mark.slow
def test_the_terminal_shows_the_numbers_of_the_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("rankcse-table4", "rankencoder-table1", "rankcse-figure4"):
        study = single(name, "small")
        print_tables([study], csv_record.MLRUNS)
        cells = join(study, csv_record.read_results("small"), csv_record.read_curves("small")).cells
        expected = {}
        for row in study.rows:
            cell = cells[row.label, main_column(study)]
            mean = "–" if cell.summary is None else f"{cell.summary.mean:.2f}"
            expected[row.label] = (mean, "–" if cell.published is None else f"{cell.published:.2f}")
        assert {row[0]: (row[1].split()[0], row[-1]) for row in printed(capsys)} == expected


@pytest.mark.slow
def test_make_tables_prints_the_tables_of_named_studies(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_tables.Folders, "of", classmethod(lambda cls, mlruns: folders))
    folders = make_tables.Folders(mlruns=csv_record.MLRUNS, tables=tmp_path / "tables", pages=())
    counts = {**step_cost.all_counts(), "another test's": step_cost.StepCost("own", 1.0, 1.0)}
    monkeypatch.setattr(step_cost, "all_counts", lambda: counts)
    committed = step_cost.REMEMBERED.read_bytes()
    assert make_tables.main(("rankcse-table4",)) == 0
    assert ["SimCSE", "54.80 ± 0.52", "3", "76.25"] in printed(capsys)
    assert step_cost.REMEMBERED.read_bytes() == committed, "tables that go elsewhere change a committed file"
