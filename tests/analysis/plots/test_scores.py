"""Dots, grids, lines and planes show the record's numbers."""

import numpy as np
import pandas as pd
import pytest
import scipy
from matplotlib.container import ErrorbarContainer
from matplotlib.patches import Rectangle

from analysis.plots import hyperparameters, scores, style
from analysis.plots.figure_data import FigureData
from tests.support.figure_records import empty, figure_data_of, figure_of, less, lines_of, row_of, study_of


def numbers(drawn: FigureData, label: str, name: str) -> np.ndarray:
    return np.array(list(drawn.results.cells[label, name].scores.values()))


def error_bars(axes) -> list[np.ndarray]:
    """The ends of each, (2, 2)."""
    found = [bars for bars in axes.containers if isinstance(bars, ErrorbarContainer)]
    return [segment for bars in found for lines in bars.lines[2] for segment in lines.get_segments()]


def half_interval(values: np.ndarray) -> float:
    return scipy.stats.t(len(values) - 1).ppf(0.975) * values.std(ddof=1) / np.sqrt(len(values))


def marks(axes) -> dict[float, list[float]]:
    """Where marks stand, by height, without those of single seeds and of the paper."""
    found: dict[float, list[float]] = {}
    for line in axes.get_lines():
        if line.get_marker() != "None" and line.get_markeredgecolor() != style.INK and len(line.get_xdata()) == 1:
            found.setdefault(float(line.get_ydata()[0]), []).append(float(line.get_xdata()[0]))
    return found


def bars(axes) -> dict[float, np.ndarray]:
    """The ends of intervals, by height."""
    pairs = [(line.get_xdata(), line.get_ydata()) for line in axes.get_lines() if line.get_marker() == "None"]
    return {float(y[0]): np.asarray(x) for x, y in pairs if len(x) == 2 and y[0] == y[1] and x[0] != x[1]}


@pytest.mark.slow
def test_dots_are_means_with_intervals_and_differences_beside_the_published_ones() -> None:
    study = study_of("rankcse-figure1")
    drawn = figure_data_of(study)
    figure = figure_of(scores.dots, drawn)
    for left, right, rows in ((*figure.axes[:2], study.rows[:4]), (*figure.axes[2:], study.rows[4:])):
        found = [numbers(drawn, row.label, "groups_avg") for row in rows]
        assert [marks(left)[i] for i in range(4)] == [[pytest.approx(values.mean())] for values in found]
        for i, values in enumerate(found):
            half = half_interval(values)
            assert bars(left)[i] == pytest.approx([values.mean() - half, values.mean() + half])
        for i, values in enumerate(found[1:], 1):
            welch = scipy.stats.ttest_ind(values, found[0], equal_var=False).confidence_interval()
            assert marks(right)[i] == [pytest.approx(values.mean() - found[0].mean())]
            assert bars(right)[i] == pytest.approx([welch.low, welch.high])
        printed = [row.published.value("groups_avg") or 0.0 for row in rows if row.published]
        shown = [line.get_xdata()[0] for line in right.get_lines() if line.get_marker() == "D"]
        assert shown == pytest.approx([value - printed[0] for value in printed[1:]])
    assert [axes.get_title() for axes in figure.axes[::2]] == ["KCC", "NDCG"]
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == ["SimCSE", "DiffCSE", "RankCSE-listNet", "RankCSE-listMLE"]
    assert "over 3 seeds" in style.caption(figure)
    assert "from SimCSE, of independent seeds (Welch)" in style.caption(figure)
    assert "Missing" not in style.caption(figure)


@pytest.mark.slow
def test_the_chance_level_is_drawn_where_the_record_has_it() -> None:
    study = study_of("rankcse-figure1")
    lines = lines_of(study)
    chance = lines[lines["metric"] == "ndcg.linear"].assign(metric="ndcg.linear.random", score=0.87)
    figure = figure_of(scores.dots, figure_data_of(study, lines=pd.concat([lines, chance])))
    assert [text.get_text() for axes in figure.axes for text in axes.texts if "chance" in text.get_text()] == [
        "chance 0.00",
        "chance 87.00",
    ]
    without = figure_of(scores.dots, figure_data_of(study, lines=lines))
    assert not any("chance" in text.get_text() for text in without.axes[2].texts)


def test_rows_of_a_base_stand_together_and_differ_from_it_seed_by_seed() -> None:
    drawn = figure_data_of(study_of("rankencoder-figure4"))
    figure = figure_of(scores.dots, drawn)
    left, right = figure.axes
    assert np.diff(left.get_yticks()).tolist() == [1, 1, 1.5, 1, 1, 1.5, 1, 1]
    colours = [line.get_markeredgecolor() for line in left.get_lines() if line.get_marker() != "None"]
    assert colours[1:3] == colours[4:6] == colours[7:9]
    assert len(set(colours)) == 5
    ranks, base = (numbers(drawn, f"PromptBERT, {what}", "sts_avg") for what in ("+RankEncoder", "base"))
    half = half_interval(ranks - base)
    middle = (ranks - base).mean()
    assert bars(right)[left.get_yticks()[4]] == pytest.approx([middle - half, middle + half])


def test_a_row_without_scores_has_a_dash_and_is_named() -> None:
    study = study_of("rankencoder-figure4")
    gone = row_of(study, "SNCSE, base")
    figure = figure_of(scores.dots, figure_data_of(study, lines=less(lines_of(study), gone)))
    assert len(marks(figure.axes[0])) == 8
    assert sum(text.get_text() == "–" for text in figure.axes[0].texts) == 1
    assert sum(text.get_text() == "–" for text in figure.axes[1].texts) == 2  # no base, no difference
    assert "Missing: SNCSE, base." in style.caption(figure)


def test_a_grid_shows_means_at_their_settings_and_frames_the_best() -> None:
    study = study_of("rankencoder-lambda")
    drawn = figure_data_of(study)
    axes = figure_of(hyperparameters.grid, drawn).axes[0]
    trains, infers = ([float(t.get_text()) for t in a.get_ticklabels()] for a in (axes.yaxis, axes.xaxis))
    shown = axes.images[0].get_array()
    expected = {
        (t, i): numbers(drawn, f"lambda_train {t:g}, lambda_inf {i:g}", "sts_avg") for t in trains for i in infers
    }
    for (train, infer), found in expected.items():
        assert shown[trains.index(train), infers.index(infer)] == pytest.approx(found.mean())
    assert len(expected) == len(study.rows)
    train, infer = max(expected, key=lambda at: expected[at].mean())
    (frame,) = [patch for patch in axes.patches if isinstance(patch, Rectangle) and not patch.get_fill()]
    assert (round(frame.get_x() + 0.47), round(frame.get_y() + 0.47)) == (infers.index(infer), trains.index(train))
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
    assert len(frames) == 8  # one of no rank at inference, and those of all lambda_train at 0.5


def test_a_grid_draws_lines_of_equal_scores_once() -> None:
    study = study_of("rankencoder-lambda")
    figure = figure_of(hyperparameters.grid, figure_data_of(study, lines=lines_of(study).assign(score=0.5)))
    assert figure.axes[0].images[0].get_array().shape == (1, 5)
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
    low, high = figure_of(hyperparameters.grid, drawn).axes[0].images[0].get_clim()
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
    assert texts[2, 0] == f"{found.mean():.2f}\n±{found.std(ddof=1):.2f}"
    assert texts[0, 2] == "–"
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


def test_lines_have_a_point_a_setting_and_differences_seed_by_seed() -> None:
    drawn = figure_data_of(study_of("rankcse-figure3b"))
    left, right = figure_of(hyperparameters.lines, drawn).axes
    means = {line.get_label(): line for line in left.get_lines() if line.get_marker() != "None"}
    assert list(means) == ["BERT-base", "BERT-large"]
    for backbone, line in means.items():
        xs, ys = line.get_data()
        assert xs.tolist() == [0.0125, 0.025, 0.05]
        assert ys == pytest.approx([numbers(drawn, f"{backbone}, tau2 {x:g}", "sts_avg").mean() for x in xs])
    assert means["BERT-large"].get_linestyle() == "None"  # one seed
    assert len([line for line in left.get_lines() if line.get_marker() == "None"]) == 3
    first, *others = [numbers(drawn, f"BERT-base, tau2 {x:g}", "sts_avg") for x in (0.0125, 0.025, 0.05)]
    intervals = [line.get_ydata() for line in right.get_lines() if line.get_marker() == "None"][1:3]
    for other, (low, high) in zip(others, intervals, strict=True):
        middle, half = (other - first).mean(), half_interval(other - first)
        assert (low, high) == pytest.approx((middle - half, middle + half))
    assert [text.get_text() for text in left.texts] == ["BERT-base (3 seeds)", "BERT-large (one seed)"]
    assert left.get_xscale() == right.get_xscale() == "log"
    assert "RoBERTa-base, tau2 0.0125 and 2 more (not run" in style.caption(left.figure)


@pytest.mark.slow
def test_what_has_no_setting_is_a_reference_in_every_panel() -> None:
    study = study_of("rankencoder-corpus")
    drawn = figure_data_of(study)
    figure = figure_of(hyperparameters.lines, drawn)
    for axes, name in zip(figure.axes[::2], study.columns, strict=True):
        across = [line for line in axes.get_lines() if len(set(line.get_ydata())) == 1 and len(line.get_xdata()) == 2]
        assert across[-1].get_ydata()[0] == pytest.approx(numbers(drawn, "cosine", name).mean())
        assert len(across) == 4  # and each seed
        (ys,) = [line.get_ydata() for line in axes.get_lines() if line.get_marker() != "None"]
        found = [numbers(drawn, f"{n} corpus sentences", name).mean() for n in ("1,000", "3,000", "10,000", "16,384")]
        assert ys == pytest.approx(found)


def test_a_plane_has_means_deviations_and_colours_by_the_third_column() -> None:
    study = study_of("rankcse-figure4")
    drawn = figure_data_of(study, lines=less(lines_of(study), row_of(study, "DiffCSE")))
    figure = figure_of(scores.scatter, drawn)
    axes = figure.axes[0]
    shown = [row.label for row in study.rows if row.label != "DiffCSE"]
    means = {n: [numbers(drawn, label, n).mean() for label in shown] for n in study.columns}
    points = [found for found in axes.collections if found.get_array() is not None]
    places = np.stack([means["uniformity"], means["alignment"]], 1)
    np.testing.assert_allclose(np.concatenate([np.asarray(p.get_offsets()) for p in points]), places)
    assert [float(p.get_array()[0]) for p in points] == pytest.approx(means["sts_avg"])
    ((low, high),) = {p.get_clim() for p in points}
    assert low <= min(means["sts_avg"]) <= max(means["sts_avg"]) <= high
    assert [text.get_text() for text in axes.texts] == shown
    spread = numbers(drawn, "SimCSE", "uniformity")
    across = [bar[:, 0] for bar in error_bars(axes) if np.ptp(bar[:, 1]) == 0]
    assert any(np.allclose(ends, spread.mean() + np.array([-1, 1]) * half_interval(spread)) for ends in across)
    assert "Missing: DiffCSE." in style.caption(figure)


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("rankcse-figure1", scores.dots),
        ("rankcse-figure3a", hyperparameters.grid),
        ("rankcse-figure3b", hyperparameters.lines),
        ("rankcse-figure4", scores.scatter),
    ],
)
def test_without_any_scores_there_is_no_figure(name: str, draw) -> None:
    assert draw(empty(study_of(name))) is None
