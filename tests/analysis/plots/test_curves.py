"""Curves, losses and paths are means over seeds of what the runs logged."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy

from analysis.plots import curves, style
from analysis.plots.figure_data import FigureData
from tests.support.figure_records import figure_data_of, figure_of, less, points_of, row_of, study_of

STEPS = tuple(range(32, 257, 32))


def by_seed(drawn: FigureData, label: str, quantity: str) -> np.ndarray:
    """(seeds, steps), read line by line."""
    frame = drawn.curves[(drawn.curves["row"] == label) & (drawn.curves["quantity"] == quantity)]
    seeds = sorted(set(frame["seed"]))
    found = {(line.seed, line.step): line.value for line in frame.itertuples()}
    return np.array([[found[seed, step] for step in STEPS] for seed in seeds])


def mean_of(axes: Any) -> list[np.ndarray]:
    """The heights of the lines that have a point a step."""
    return [np.asarray(line.get_ydata()) for line in axes.get_lines() if len(line.get_xdata()) == len(STEPS)]


def bands_of(axes: Any) -> list[tuple[float, float]]:
    found = [each.get_paths()[0].vertices[:, 1] for each in axes.collections if each.get_paths()]
    return [(band.min(), band.max()) for band in found]


@pytest.mark.slow
def test_curves_show_the_studys_columns_only_as_means_with_their_range() -> None:
    study = study_of("whitenedcse-figure3")
    drawn = figure_data_of(study)
    figure = figure_of(curves.curves, drawn)
    assert [axes.get_ylabel() for axes in figure.axes] == [f"{n} (lower is better)" for n in study.columns]
    for axes, name in zip(figure.axes, study.columns, strict=True):
        for row, line, band in zip(study.rows, mean_of(axes), bands_of(axes), strict=True):
            found = by_seed(drawn, row.label, f"{name}/stsb_dev")
            assert found.shape == (3, len(STEPS))
            assert line == pytest.approx(found.mean(0))
            assert band == pytest.approx((found.min(), found.max()))
        assert {text.get_text() for text in axes.texts} == {row.label for row in study.rows}


def test_dev_scores_are_in_points() -> None:
    drawn = figure_data_of(study_of("compcse-figure3"))
    (axes,) = figure_of(curves.curves, drawn).axes
    assert mean_of(axes)[0] == pytest.approx(100 * by_seed(drawn, "SimCSE", "dev/stsb_dev").mean(0))


def test_curves_name_what_is_missing_and_have_no_band_for_one_seed() -> None:
    study = study_of("compcse-figure3")
    simcse = row_of(study, "SimCSE")
    points = less(points_of(study), row_of(study, "w/ composition"))
    figure = figure_of(curves.curves, figure_data_of(study, points=less(points, simcse, seeds=(1, 2))))
    assert not np.isfinite(bands_of(figure.axes[0])).any()
    caption = style.caption(figure)
    assert "mean over 1 seed;" in caption
    assert "Missing: SimCSE of seed 1, 2; w/ composition." in caption


@pytest.mark.slow
def test_a_table_has_a_panel_a_row_with_differences_from_the_first_in_dev_score() -> None:
    study = study_of("rankcse-table4")
    drawn = figure_data_of(study)
    panels = [axes for axes in figure_of(curves.all_curves, drawn).axes if axes.get_title()]
    rows = [row.label for row in study.rows if row.label in set(drawn.curves["row"])][1:]
    assert [" ".join(axes.get_title().split()) for axes in panels] == rows
    seeds = sorted(row_of(study, "SimCSE").seeds)
    for axes, label in zip(panels, rows, strict=True):
        base, ours = (by_seed(drawn, name, "dev/stsb_dev") for name in ("SimCSE", label))
        shared = [seeds.index(seed) for seed in sorted(row_of(study, label).seeds)]
        difference = 100 * (ours - base[shared])
        assert mean_of(axes)[0] == pytest.approx(difference.mean(0))
        p = scipy.stats.ttest_1samp(difference[:, -1], 0).pvalue if len(shared) > 1 else 1
        direction = "open" if p > 0.05 else "better" if difference[:, -1].mean() > 0 else "worse"
        (line,) = [line for line in axes.get_lines() if len(line.get_xdata()) == len(STEPS)]
        assert line.get_color() == style.DIRECTIONS[direction]
        assert axes.get_ylim() == panels[0].get_ylim()


@pytest.mark.slow
def test_a_table_of_few_rows_has_its_losses_too() -> None:
    drawn = figure_data_of(study_of("quickstart", "quickstart"))
    figure = figure_of(curves.all_curves, drawn)
    assert ", bands from smallest to largest" in style.caption(figure)
    panels = {axes.get_ylabel(): axes for axes in figure.axes}
    losses = panels["losses, nats"]
    assert losses.get_title() == "SimCSE"
    assert [text.get_text() for text in losses.get_legend().get_texts()] == ["contrastive", "rank", "minimised"]
    assert mean_of(losses)[0] == pytest.approx(by_seed(drawn, "SimCSE", "loss/contrastive").mean(0))
    assert mean_of(losses)[-1] == pytest.approx(by_seed(drawn, "SimCSE", "loss").mean(0))


@pytest.mark.slow
def test_the_weighted_rank_loss_is_a_share_of_the_contrastive_which_differs_from_simcses() -> None:
    study = study_of("rankencoder-figure8")
    drawn = figure_data_of(study)
    ratios, differences = figure_of(curves.losses, drawn).axes
    weights = {"RankEncoder-SimCSE": 0.05}
    weights |= {f"RankEncoder-SimCSE, lambda_train {weight:g}": weight for weight in (0.5, 2.5, 25)}
    base = by_seed(drawn, "SimCSE", "loss/contrastive")
    for (label, weight), ratio, difference in zip(weights.items(), mean_of(ratios), mean_of(differences), strict=True):
        rank, contrastive = (by_seed(drawn, label, f"loss/{name}") for name in ("rank", "contrastive"))
        assert ratio == pytest.approx((100 * weight * rank / contrastive).mean(0))
        assert difference == pytest.approx((contrastive - base).mean(0))
    assert {text.get_text() for text in ratios.texts} == {"0.05", "0.5", "2.5", "25"}
    assert ratios.get_yscale() == "log"


@pytest.mark.slow
def test_paths_go_from_a_hollow_mark_to_a_filled_one() -> None:
    study = study_of("compcse-figure2")
    drawn = figure_data_of(study)
    figure = figure_of(curves.paths, drawn)
    (axes,) = figure.axes
    *lines, firsts, lasts = np.split(np.array(axes.get_lines(), dtype=object), [15, 20, 25])[0:4]
    seeds, means = lines
    assert len(seeds) == 3 * len(study.rows)
    for row, line, first, last in zip(study.rows, means, firsts, lasts, strict=True):
        across, up = (by_seed(drawn, row.label, f"{n}/stsb_dev").mean(0) for n in ("uniformity", "alignment"))
        assert line.get_xdata() == pytest.approx(across)
        assert line.get_ydata() == pytest.approx(up)
        assert (first.get_xdata()[0], first.get_ydata()[0]) == pytest.approx((across[0], up[0]))
        assert (last.get_xdata()[0], last.get_ydata()[0]) == pytest.approx((across[-1], up[-1]))
        assert (first.get_markerfacecolor(), last.get_markerfacecolor()) == ("white", last.get_markeredgecolor())
    words = "From step 32 (hollow mark) to step 256 (filled mark), mean over 3 seeds; faint: each seed."
    assert words in style.caption(figure)
    assert [text.get_text() for text in axes.texts] == [row.label for row in study.rows]


@pytest.mark.slow
def test_a_step_without_one_of_the_two_is_no_point_of_a_path() -> None:
    study = study_of("compcse-figure2")
    points = points_of(study)
    lost = (points["name"] == "alignment/stsb_dev") & (points["step"] == 64)
    (axes,) = figure_of(curves.paths, figure_data_of(study, points=points[~lost])).axes
    assert {len(line.get_xdata()) for line in axes.get_lines()} == {len(STEPS) - 1, 1}


@pytest.mark.slow
def test_paths_may_end_at_steps_of_their_own() -> None:
    study = study_of("compcse-figure2")
    points = points_of(study)
    short = points["key"].isin([run.key for run in study.rows[0].runs()]) & (points["step"] == 256)
    figure = figure_of(curves.paths, figure_data_of(study, points=points[~short]))
    assert "to step 224 or 256 (filled mark)" in style.caption(figure)


def test_a_record_with_other_quantities_has_no_figure() -> None:
    study = study_of("compcse-figure3")
    points: pd.DataFrame = points_of(study)
    assert curves.curves(figure_data_of(study, points=points[points["name"] == "loss"])) is None
