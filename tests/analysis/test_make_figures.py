"""Curves of a study: the right points, and the same files each time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from analysis import make_figures
from analysis.plots.figure_data import curves_of
from analysis.plots.registry import VIEWS
from experiments.results import csv_record
from experiments.schema.study import Study
from experiments.studies import catalogue
from tests.support.figure_records import arrays_of, lines_of, points_of, study_of


@pytest.fixture
def curves(study: Study) -> pd.DataFrame:
    """Two quantities at two steps; the values differ by row and seed."""
    points = []
    for i, row in enumerate(study.rows[:3]):
        for seed, key in row.keys().items():
            for step in (32, 64):
                points.append(("small", key, "dev/stsb_dev", step, 0.1 * i + seed / 1000))
                points.append(("small", key, "loss/contrastive", step, 2.0 + i + seed / 100))
    points.append(("small", "of no row", "loss/contrastive", 32, 99.0))
    return pd.DataFrame(points, columns=csv_record.CURVES)


def test_points_of_the_studys_runs_only(study, curves):
    found = curves_of(study, curves)
    assert len(found) == len(curves) - 1
    assert found["value"].max() < 99
    assert set(map(tuple, found[["row", "seed"]].to_numpy())) == {
        *((row, seed) for row in ("SimCSE", "Better") for seed in (42, 1, 2)),
        ("One seed", 42),
    }


def test_a_run_counts_in_every_row_that_has_it_and_equal_rows_come_once(study, curves):
    first = study.rows[0]
    more = (replace(first, label="Same"), replace(first, label="Fewer", seeds=(1,)))
    found = curves_of(replace(study, rows=(*study.rows, *more)), curves)
    assert set(found.loc[found["row"] == "Fewer", "seed"]) == {1}
    assert set(found.loc[found["row"] == "SimCSE", "seed"]) == {42, 1, 2}
    assert "Same" not in set(found["row"])


def check_files(study: Study, mlruns: Path, name: str) -> Path:
    """Check that a study's figure is the same each time it is made; return the PNG."""
    first, second = (make_figures.make([study], mlruns=mlruns, figures=mlruns / folder) for folder in "ab")
    assert first == [mlruns / "a" / "small" / f"{name}{suffix}" for suffix in (".png", ".svg")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    return first[0]


@pytest.mark.slow
def test_files_are_the_same_each_time(study, curves, tmp_path):
    curves.to_csv(tmp_path / "curves.csv", index=False)
    check_files(study, tmp_path, "toy-curves")


def test_a_study_without_curves_has_no_figure(study, tmp_path):
    assert make_figures.make([study], mlruns=tmp_path, figures=tmp_path / "a") == []
    assert not (tmp_path / "a").exists()


@pytest.fixture
def recorded(tmp_path: Path):
    """Write the full record of a study."""

    def write(study: Study) -> Path:
        csv_record.merge_results(tmp_path, lines_of(study))
        csv_record.CURVES_TABLE.merge(tmp_path, points_of(study))
        for row in study.rows:
            for seed, key in row.keys().items():
                for task in study.tasks:
                    path = csv_record.arrays_path(tmp_path, key, row.select, str(row.scorer), task)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    arrays: Any = arrays_of(row, seed, task)
                    np.savez(path, **arrays)
        return tmp_path

    return write


def test_every_view_is_drawn_but_tables_and_examples():
    declared = {study.view for study in catalogue.choose_studies(["all", "quickstart"], "small")}
    assert declared - set(VIEWS) == {"table", "examples"}
    assert set(VIEWS) <= declared


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_files_that_are_the_same_each_time(view, recorded):
    study = next(study for study in catalogue.choose_studies(["all"], "small") if study.view == view)
    assert check_files(study, recorded(study), study.name).stat().st_size < 400_000


def test_arrays_are_read_from_the_record_by_row_and_seed(recorded):
    study = study_of("compcse-figure4")
    mlruns = recorded(study)
    drawn = make_figures.figure_data_of(study, lines_of(study), points_of(study), mlruns)
    row = study.rows[1]
    found = drawn.arrays(row, 42, "phrases")
    assert found is not None
    np.testing.assert_array_equal(found["cosines"], arrays_of(row, 42, "phrases")["cosines"])
    assert drawn.arrays(row, 42, "stsb_dev_geometry") is None
    assert list(drawn.arrays_of("phrases")) == ["SimCSE", "DiffCSE", "CompCSE"]


def test_examples_are_no_figure_even_with_curves(recorded):
    study = study_of("rankcse-table1")
    mlruns = recorded(study)
    assert make_figures.make([study], mlruns=mlruns, figures=mlruns / "a") == []


def test_without_names_figures_and_the_reports_curves_are_drawn():
    found = make_figures.studies_to_draw(catalogue.choose_studies(["all"], "small"))
    assert {study.name for study in found if study.view == "table"} == {"rankcse-table4"}
    assert {study.view for study in found} == {"table", "examples", *VIEWS}


def test_a_label_is_no_formula_and_an_axis_keeps_its_powers(tmp_path: Path) -> None:
    label = "costs $1_{ or $2 [a]"
    figure, axes = plt.subplots()
    axes.plot([1, 1000], [1, 1000], label=label)
    axes.set(title=label, xlabel=label, yscale="log")
    axes.set_xticks([1, 1000], [label, "b"])
    axes.legend()
    drawn = make_figures.save(figure, tmp_path / "figure")[1].read_text()
    assert drawn.count(f"<!-- {label} -->") == 4
    assert "mathdefault{10" in drawn
