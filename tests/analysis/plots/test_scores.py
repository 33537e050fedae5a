"""Dots, grids, lines and planes show the record's numbers."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import scipy
from matplotlib.patches import Rectangle

from analysis.plots import hyperparameters, scores, style
from analysis.plots.figure_data import FigureData
from tests.support.figure_records import (
    dots_of,
    figure_data_of,
    figure_of,
    less,
    lines_of,
    ranges_of,
    row_of,
    study_of,
)


def numbers(drawn: FigureData, label: str, name: str) -> np.ndarray:
    return np.array(list(drawn.results.cells[label, name].scores.values()))


def half_interval(values: np.ndarray) -> float:
    return scipy.stats.t(len(values) - 1).ppf(0.975) * values.std(ddof=1) / np.sqrt(len(values))


def lengths(axes) -> list[np.ndarray]:
    """The ends of each upright bar."""
    lines = [line for line in axes.get_lines() if len(set(line.get_xdata())) == 1 and len(set(line.get_ydata())) == 2]
    return [ends for line in lines if np.isfinite(ends := np.asarray(line.get_ydata())).all()]


@pytest.mark.slow
def test_each_metric_has_a_panel_of_differences_from_its_first_method() -> None:
    study = study_of("rankcse-figure1")
    drawn = figure_data_of(study)
    figure = figure_of(scores.dots, drawn)
    for axes, rows in zip(figure.axes, (study.rows[:4], study.rows[4:]), strict=True):
        base, *found = [numbers(drawn, row.label, "groups_avg") for row in rows]
        assert sorted(x for x, _ in dots_of(axes)) == pytest.approx(sorted(each.mean() - base.mean() for each in found))
        for at, values in enumerate(found):
            welch = scipy.stats.ttest_ind(values, base, equal_var=False).confidence_interval()
            assert ranges_of(axes)[at] == pytest.approx((welch.low, welch.high))
        printed = [row.published.value("groups_avg") or 0.0 for row in rows if row.published]
        shown = [line.get_xdata()[0] for line in axes.get_lines() if line.get_marker() == "D"]
        assert shown == pytest.approx([value - printed[0] for value in printed[1:]])
        metric = rows[0].label.partition(", ")[2]
        assert axes.get_title().startswith(f"{metric}, SimCSE: {base.mean():.2f}")
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == ["DiffCSE", "RankCSE-listNet", "RankCSE-listMLE"]
    assert "3 seeds" in style.caption(figure)
    assert "of independent seeds (Welch)" in style.caption(figure)
    assert "Missing" not in style.caption(figure)


@pytest.mark.slow
def test_the_chance_level_is_named_where_the_record_has_it() -> None:
    study = study_of("rankcse-figure1")
    lines = lines_of(study)
    chance = lines[lines["metric"] == "ndcg.linear"].assign(metric="ndcg.linear.random", score=0.87)
    figure = figure_of(scores.dots, figure_data_of(study, lines=pd.concat([lines, chance])))
    titles = [axes.get_title().partition(", chance ")[2] for axes in figure.axes]
    assert titles == ["0.00", "87.00"]
    without = figure_of(scores.dots, figure_data_of(study, lines=lines))
    assert "chance" not in without.axes[1].get_title()


def test_rows_of_a_base_stand_below_it_and_differ_from_it_seed_by_seed() -> None:
    drawn = figure_data_of(study_of("rankencoder-figure4"))
    (axes,) = figure_of(scores.dots, drawn).axes
    assert np.diff(axes.get_yticks()).tolist() == [1, 2.5, 1, 2.5, 1]
    ranks, base = (numbers(drawn, f"PromptBERT, {what}", "sts_avg") for what in ("+RankEncoder", "base"))
    half, middle = half_interval(ranks - base), (ranks - base).mean()
    assert ranges_of(axes)[axes.get_yticks()[2]] == pytest.approx((middle - half, middle + half))
    assert f"PromptBERT, base: {base.mean():.2f}" in [text.get_text() for text in axes.texts]


def test_a_row_without_scores_has_a_dash_and_is_named() -> None:
    study = study_of("rankencoder-figure4")
    gone = row_of(study, "SNCSE, base")
    figure = figure_of(scores.dots, figure_data_of(study, lines=less(lines_of(study), gone)))
    assert len(dots_of(figure.axes[0])) == 4
    assert sum(text.get_text() == "–" for text in figure.axes[0].texts) == 2  # no base, no difference
    assert "Missing: SNCSE, base." in style.caption(figure)


def test_a_grid_shows_means_at_their_settings_and_frames_the_best() -> None:
    study = study_of("rankencoder-lambda")
    drawn = figure_data_of(study)
    axes = figure_of(hyperparameters.grid, drawn).axes[0]
    trains, infers = ([float(t.get_text()) for t in a.get_ticklabels()] for a in (axes.yaxis, axes.xaxis))
    shown = axes.collections[0].get_array()
    expected = {
        (t, i): numbers(drawn, f"lambda_train {t:g}, lambda_inf {i:g}", "sts_avg") for t in trains for i in infers
    }
    for (train, infer), found in expected.items():
        assert shown[trains.index(train), infers.index(infer)] == pytest.approx(found.mean())
    assert len(expected) == len(study.rows)
    train, infer = max(expected, key=lambda at: expected[at].mean())
    (frame,) = [patch for patch in axes.patches if isinstance(patch, Rectangle) and not patch.get_fill()]
    assert (int(frame.get_x()), int(frame.get_y())) == (infers.index(infer), trains.index(train))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("lambda inf", "lambda train")


def test_a_grid_frames_all_that_are_best() -> None:
    study = study_of("rankencoder-lambda")
    drawn = figure_data_of(study)
    firsts = {row.label: drawn.results.cells[row.label, "sts_avg"] for row in study.rows}
    assert len(firsts) == 35
    lines = lines_of(study)
    best = lines["key"].isin(list(row_of(study, "lambda_train 0.1, lambda_inf 0").keys().values()))
    best &= lines["scorer"] == str(row_of(study, "lambda_train 0.1, lambda_inf 0").scorer)
    other = lines["scorer"] == str(row_of(study, "lambda_train 0.1, lambda_inf 0.5").scorer)
    lines = lines.assign(score=lines["score"].mask(best | other, 0.9))
    figure = figure_of(hyperparameters.grid, figure_data_of(study, lines=lines))
    frames = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and not patch.get_fill()]
    assert len(frames) == 8  # one cell without ranks at inference, and the seven lambda_train at lambda_inf 0.5


def test_a_grid_draws_lines_of_equal_scores_once() -> None:
    study = study_of("rankencoder-lambda")
    figure = figure_of(hyperparameters.grid, figure_data_of(study, lines=lines_of(study).assign(score=0.5)))
    assert figure.axes[0].collections[0].get_array().shape == (1, 5)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["0.01, 0.05,\n0.1, 0.5,\n2.5, 5, 25"]
    assert "Values of lambda train on one line give the same scores" in style.caption(figure)


def test_lines_of_a_grid_without_scores_are_not_called_the_same() -> None:
    study = study_of("rankencoder-lambda")
    gone = [row for row in study.rows if row.label.split(",")[0] in ("lambda_train 2.5", "lambda_train 25")]
    figure = figure_of(
        hyperparameters.grid, figure_data_of(study, lines=less(lines_of(study), *gone).assign(score=0.5))
    )
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["0.01, 0.05,\n0.1, 0.5, 5", "2.5", "25"]


def test_colours_of_a_grid_span_at_least_four_deviations() -> None:
    study = study_of("rankcse-figure3a")
    drawn = figure_data_of(study)
    low, high = figure_of(hyperparameters.grid, drawn).axes[0].collections[0].get_clim()
    found = [numbers(drawn, row.label, "sts_avg") for row in study.rows]
    deviation, means = np.mean([each.std(ddof=1) for each in found]), [each.mean() for each in found]
    assert high - low == pytest.approx(max(4 * deviation, max(means) - min(means)))
    assert low <= min(means) <= max(means) <= high


def test_a_grid_writes_means_and_deviations_and_a_dash_where_there_is_nothing() -> None:
    study = study_of("rankcse-figure3a")
    gone = row_of(study, "tau2 0.05, tau3 0.0125")
    drawn = figure_data_of(study, lines=less(lines_of(study), gone))
    figure = figure_of(hyperparameters.grid, drawn)
    texts = {text.get_position(): text.get_text() for text in figure.axes[0].texts}
    found = numbers(drawn, "tau2 0.0125, tau3 0.05", "sts_avg")
    assert texts[2.5, 0.5] == f"{found.mean():.2f}\n±{found.std(ddof=1):.2f}"
    assert texts[0.5, 2.5] == "–"
    assert f"Missing: {gone.label}." in style.caption(figure)


def test_a_grid_of_rows_without_two_settings_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rankencoder-corpus: a grid needs rows with two settings, got .* 'cosine'"):
        figure_of(hyperparameters.grid, figure_data_of(study_of("rankencoder-corpus")))


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("BERT-base, tau2 0.025", ("BERT-base", "tau2", 0.025)),
        ("10,000 corpus sentences", ("", "corpus sentences", 10000)),
        ("cosine", ("cosine", "", None)),
    ],
)
def test_labels_say_where_a_row_lies(label: str, expected: tuple) -> None:
    assert tuple(hyperparameters.row_position(label)) == expected
    assert hyperparameters.settings("dropout 0.3, rate 3e-05") == {"dropout": 0.3, "rate": 3e-5}


def test_lines_show_differences_from_their_first_setting_seed_by_seed() -> None:
    drawn = figure_data_of(study_of("rankcse-figure3b"))
    (axes,) = figure_of(hyperparameters.lines, drawn).axes
    means = [np.asarray(line.get_ydata()) for line in axes.get_lines() if len(line.get_xdata()) == 3]
    by_line = {}
    for backbone, found in zip(("BERT-base", "BERT-large"), means, strict=True):
        first, *others = [numbers(drawn, f"{backbone}, tau2 {x:g}", "sts_avg") for x in (0.0125, 0.025, 0.05)]
        by_line[backbone] = [other - first for other in others]
        assert found == pytest.approx([0, *(each.mean() for each in by_line[backbone])])
    expected = [each.mean() + np.array([-1, 1]) * half_interval(each) for each in by_line["BERT-base"]]
    assert all(any(np.allclose(ends, each) for ends in lengths(axes)) for each in expected)
    assert len(lengths(axes)) == 2  # BERT-large has one seed
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.0125", "0.025", "0.05"]
    assert {text.get_text() for text in axes.texts} == {"BERT-base", "BERT-large (one seed)"}
    assert "RoBERTa-base, tau2 0.0125 and 2 more (not run" in style.caption(axes.figure)


@pytest.mark.slow
def test_what_has_no_setting_is_a_dashed_line_in_every_panel() -> None:
    study = study_of("rankencoder-corpus")
    drawn = figure_data_of(study)
    figure = figure_of(hyperparameters.lines, drawn)
    for axes, name in zip(figure.axes, study.columns, strict=True):
        first, *others = [
            numbers(drawn, f"{n} corpus sentences", name).mean() for n in ("1,000", "3,000", "10,000", "16,384")
        ]
        (dashed,) = [line for line in axes.get_lines() if line.is_dashed()]
        assert dashed.get_ydata()[0] == pytest.approx(numbers(drawn, "cosine", name).mean() - first)
        (ys,) = [line.get_ydata() for line in axes.get_lines() if len(line.get_xdata()) == 4]
        assert ys == pytest.approx([0, *(other - first for other in others)])
        assert [text.get_text() for text in axes.texts] == ["cosine"]


def test_a_plane_has_means_intervals_and_colours_by_the_third_column() -> None:
    study = study_of("rankcse-figure4")
    drawn = figure_data_of(study, lines=less(lines_of(study), row_of(study, "DiffCSE")))
    figure = figure_of(scores.scatter, drawn)
    axes, bar = figure.axes
    shown = [row.label for row in study.rows if row.label != "DiffCSE"]
    means = {n: [numbers(drawn, label, n).mean() for label in shown] for n in study.columns}
    (points,) = axes.collections
    np.testing.assert_allclose(points.get_offsets(), np.stack([means["uniformity"], means["alignment"]], 1))
    low, high = bar.get_ylim()
    colours = mpl.colormaps["cividis"]((np.array(means["sts_avg"]) - low) / (high - low))
    np.testing.assert_allclose(points.get_facecolors(), colours, atol=1e-6)
    assert low <= min(means["sts_avg"]) <= max(means["sts_avg"]) <= high
    assert [text.get_text() for text in axes.texts] == shown
    spread = numbers(drawn, "SimCSE", "alignment")
    assert any(np.allclose(ends, spread.mean() + np.array([-1, 1]) * half_interval(spread)) for ends in lengths(axes))
    assert "Missing: DiffCSE." in style.caption(figure)
