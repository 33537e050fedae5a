"""Curves, losses and paths are means over seeds of what the runs logged."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.plots import curves, style
from analysis.plots.figure_data import FigureData
from tests.support.figure_records import empty, figure_data_of, figure_of, less, points_of, row_of, study_of

STEPS = tuple(range(32, 257, 32))


def by_seed(drawn: FigureData, label: str, quantity: str) -> np.ndarray:
    """(seeds, steps), read line by line."""
    frame = drawn.curves[(drawn.curves["row"] == label) & (drawn.curves["quantity"] == quantity)]
    seeds = sorted(set(frame["seed"]))
    found = {(line.seed, line.step): line.value for line in frame.itertuples()}
    return np.array([[found[seed, step] for step in STEPS] for seed in seeds])


@pytest.mark.slow
def test_curves_show_the_studys_columns_only_as_means_with_their_range() -> None:
    study = study_of("whitenedcse-figure3")
    drawn = figure_data_of(study)
    figure = figure_of(curves.curves, drawn)
    assert [axes.get_ylabel() for axes in figure.axes] == [f"{n} (lower is better)" for n in study.columns]
    for axes, name in zip(figure.axes, study.columns, strict=True):
        for i, row in enumerate(study.rows):
            found = by_seed(drawn, row.label, f"{name}/stsb_dev")
            assert found.shape == (3, len(STEPS))
            line = axes.get_lines()[i]
            assert line.get_xdata().tolist() == list(STEPS)
            assert line.get_ydata() == pytest.approx(found.mean(0))
            band = axes.collections[i].get_paths()[0].vertices[:, 1]
            assert (band.min(), band.max()) == pytest.approx((found.min(), found.max()))
        assert {text.get_text() for text in axes.texts} == {row.label for row in study.rows}


def test_dev_scores_are_in_points() -> None:
    drawn = figure_data_of(study_of("compcse-figure3"))
    (axes,) = figure_of(curves.curves, drawn).axes
    assert axes.get_lines()[0].get_ydata() == pytest.approx(100 * by_seed(drawn, "SimCSE", "dev/stsb_dev").mean(0))


def test_curves_name_what_is_missing_and_have_no_band_for_one_seed() -> None:
    study = study_of("compcse-figure3")
    simcse = row_of(study, "SimCSE")
    points = less(points_of(study), row_of(study, "w/ composition"))
    figure = figure_of(curves.curves, figure_data_of(study, points=less(points, simcse, seeds=(1, 2))))
    assert not figure.axes[0].collections
    caption = style.caption(figure)
    assert "mean over 1 seed;" in caption
    assert "Missing: SimCSE of seed 1, 2; w/ composition." in caption


@pytest.mark.slow
def test_the_rank_loss_is_shown_times_its_weight_beside_contrastive_losses() -> None:
    study = study_of("rankencoder-figure8")
    drawn = figure_data_of(study)
    (axes,) = figure_of(curves.losses, drawn).axes
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in axes.get_lines()}
    run: Any = row_of(study, "RankEncoder-SimCSE").encoder
    rank = by_seed(drawn, "RankEncoder-SimCSE", "loss/rank").mean(0)
    assert run.method.rank_weight == 0.05
    assert lines.pop("RankEncoder-SimCSE: 0.05 × rank") == pytest.approx(0.05 * rank)
    strong = {f"RankEncoder-SimCSE, lambda_train {weight:g}": weight for weight in (0.5, 2.5, 25)}
    for label, weight in strong.items():
        rank = weight * by_seed(drawn, label, "loss/rank").mean(0)
        assert lines.pop(f"{label}: {weight:g} × rank") == pytest.approx(rank)
    for label in ("SimCSE", "RankEncoder-SimCSE", *strong):
        found = by_seed(drawn, label, "loss/contrastive").mean(0)
        assert lines.pop(f"{label}: contrastive") == pytest.approx(found)
    assert not lines
    assert axes.get_yscale() == "log"
    (legend,) = axes.get_figure(root=True).legends
    assert [text.get_text() for text in legend.get_texts()] == [line.get_label() for line in axes.get_lines()]


@pytest.mark.slow
def test_paths_go_from_the_first_step_to_an_arrow_at_the_last() -> None:
    study = study_of("compcse-figure2")
    drawn = figure_data_of(study)
    figure = figure_of(curves.paths, drawn)
    (axes,) = figure.axes
    arrows = [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]
    seeds, starts = axes.collections[::2], axes.collections[1::2]
    for row, line, paths, start, arrow in zip(study.rows, axes.get_lines(), seeds, starts, arrows, strict=True):
        across, up = (by_seed(drawn, row.label, f"{n}/stsb_dev").mean(0) for n in ("uniformity", "alignment"))
        assert line.get_xdata() == pytest.approx(across)
        assert line.get_ydata() == pytest.approx(up)
        assert len(paths.get_paths()) == 3
        np.testing.assert_allclose(np.asarray(start.get_offsets()), [(across[0], up[0])])
        assert arrow.xy == pytest.approx((across[-1], up[-1]))
    assert "From step 32 (hollow mark) to step 256 (arrow), mean over 3 seeds; faint: each seed." in style.caption(
        figure
    )
    assert [text.get_text() for text in axes.texts if text not in arrows] == [row.label for row in study.rows]


@pytest.mark.slow
def test_a_step_that_lacks_one_of_the_two_is_no_point_of_a_path() -> None:
    study = study_of("compcse-figure2")
    points = points_of(study)
    lost = (points["name"] == "alignment/stsb_dev") & (points["step"] == 64)
    (axes,) = figure_of(curves.paths, figure_data_of(study, points=points[~lost])).axes
    assert all(len(line.get_xdata()) == len(STEPS) - 1 for line in axes.get_lines())


@pytest.mark.slow
def test_paths_may_end_at_steps_of_their_own() -> None:
    study = study_of("compcse-figure2")
    points = points_of(study)
    short = points["key"].isin([run.key for run in study.rows[0].runs()]) & (points["step"] == 256)
    figure = figure_of(curves.paths, figure_data_of(study, points=points[~short]))
    assert "to step 224 or 256 (arrow)" in style.caption(figure)


def test_points_along_a_path_lie_on_it() -> None:
    found = curves.between(np.array([0.0, 1.0, 1.0]), np.array([0.0, 0.0, 2.0]))
    assert found[0] == (0.0, 0.0)
    assert (found[4], found[12], found[-1]) == ((0.5, 0.0), (1.0, 1.0), (1.0, 2.0))


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("whitenedcse-figure3", curves.curves),
        ("rankencoder-figure8", curves.losses),
        ("compcse-figure2", curves.paths),
        ("rankcse-table4", curves.all_curves),
    ],
)
def test_without_curves_there_is_no_figure(name: str, draw) -> None:
    assert draw(empty(study_of(name))) is None


def test_a_record_with_other_quantities_has_no_figure() -> None:
    study = study_of("compcse-figure3")
    points: pd.DataFrame = points_of(study)
    assert curves.curves(figure_data_of(study, points=points[points["name"] == "loss"])) is None
