"""Curves of a study: the right points, and the same files each time."""

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from analysis import make_figures
from experiments import record
from experiments.study import Study


@pytest.fixture
def curves(study: Study) -> pd.DataFrame:
    """Two quantities at two steps; the values tell row and seed apart."""
    points = []
    for i, row in enumerate(study.rows[:3]):
        for seed, key in row.keys().items():
            for step in (32, 64):
                points.append(("small", key, "dev/stsb_dev", step, 0.1 * i + seed / 1000))
                points.append(("small", key, "loss/contrastive", step, 2.0 + i + seed / 100))
    points.append(("small", "of no row", "loss/contrastive", 32, 99.0))
    return pd.DataFrame(points, columns=record.CURVES)


def test_points_of_the_studys_runs_only(study, curves):
    found = make_figures.study_curves(study, curves)
    assert len(found) == len(curves) - 1
    assert found["value"].max() < 99
    assert set(map(tuple, found[["row", "seed"]].to_numpy())) == {
        *((row, seed) for row in ("SimCSE", "Better") for seed in (42, 1, 2)),
        ("One seed", 42),
    }


def test_a_run_counts_in_every_row_that_has_it_and_equal_rows_come_once(study, curves):
    first = study.rows[0]
    more = (replace(first, label="Same"), replace(first, label="Fewer", seeds=(1,)))
    found = make_figures.study_curves(replace(study, rows=(*study.rows, *more)), curves)
    assert set(found.loc[found["row"] == "Fewer", "seed"]) == {1}
    assert set(found.loc[found["row"] == "SimCSE", "seed"]) == {42, 1, 2}
    assert "Same" not in set(found["row"])


def test_panels_show_means_and_ranges_with_dev_scores_first_in_points(study, curves):
    figure = make_figures.draw(study, make_figures.study_curves(study, curves))
    first, second = (panel for panel in figure.axes if panel.get_title())
    assert [first.get_title(), second.get_title()] == ["dev score, stsb_dev", "contrastive loss"]
    assert np.asarray(first.get_lines()[0].get_ydata())[0] == pytest.approx(100 * (0.042 + 0.001 + 0.002) / 3)
    band = np.asarray(second.collections[0].get_paths()[0].vertices)[:, 1]
    assert (band.min(), band.max()) == pytest.approx((2.01, 2.42))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["SimCSE", "Better", "One seed"]
    assert "1 to 3 seeds" in figure.get_suptitle()
    plt.close(figure)


def test_files_are_the_same_each_time(study, curves, tmp_path):
    curves.to_csv(tmp_path / "curves.csv", index=False)
    first = make_figures.make([study], mlruns=tmp_path, figures=tmp_path / "a")
    second = make_figures.make([study], mlruns=tmp_path, figures=tmp_path / "b")
    assert [path.relative_to(tmp_path / "a") for path in first] == [
        Path("small/toy-curves.png"),
        Path("small/toy-curves.svg"),
    ]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_study_without_curves_has_no_figure(study, tmp_path):
    assert make_figures.make([study], mlruns=tmp_path, figures=tmp_path / "a") == []
    assert not (tmp_path / "a").exists()
