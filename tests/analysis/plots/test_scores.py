"""Bars, grids, lines and planes show the record's numbers."""

import numpy as np
import pytest
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


def lengths(axes) -> list[float]:
    """Where bars end."""
    return [patch.get_x() + patch.get_width() for patch in axes.patches]


def test_bars_are_means_with_deviations_dots_and_published_values_apart() -> None:
    study = study_of("rankcse-figure1")
    drawn = figure_data_of(study)
    figure = figure_of(scores.bars, drawn)
    for here, there, rows in ((*figure.axes[:2], study.rows[:4]), (*figure.axes[2:], study.rows[4:])):
        found = [numbers(drawn, row.label, "groups_avg") for row in rows]
        assert lengths(here) == pytest.approx([f.mean() for f in found])
        ends = [f.mean() + sign * f.std(ddof=1) for f in found for sign in (-1, 1)]
        assert np.ravel([bar[:, 0] for bar in error_bars(here)]) == pytest.approx(ends)
        dots = np.concatenate(
            [np.asarray(dot.get_offsets())[:, 0] for dot in here.collections if len(dot.get_offsets()) == 3]
        )
        assert dots == pytest.approx(np.concatenate(found))
        shown = [line.get_xdata()[0] for line in there.get_lines() if line.get_marker() == "D"]
        assert shown == [row.published.value("groups_avg") for row in rows if row.published]
        assert len(shown) == 3
    assert [axes.get_title() for axes in figure.axes[::2]] == ["KCC, here", "NDCG, here"]
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == ["SimCSE", "DiffCSE", "RankCSE-listNet", "RankCSE-listMLE"]
    colours = [style.to_hex(patch.get_facecolor()) for patch in figure.axes[0].patches]
    assert colours == [style.LOOKS[name].colour.lower() for name in names]
    assert "over 3 seeds" in style.caption(figure)
    assert "Missing" not in style.caption(figure)


def test_bars_of_a_base_stand_together_and_look_as_in_the_other_groups() -> None:
    figure = figure_of(scores.bars, figure_data_of(study_of("rankencoder-figure4")))
    here = figure.axes[0]
    assert np.diff(here.get_yticks()).tolist() == [1, 1, 1.5, 1, 1, 1.5, 1, 1]
    colours = [patch.get_facecolor() for patch in here.patches]
    assert colours[1:3] == colours[4:6] == colours[7:9]
    assert len(set(colours)) == 5


def test_a_row_without_scores_has_a_dash_and_is_named() -> None:
    study = study_of("rankencoder-figure4")
    gone = row_of(study, "SNCSE, base")
    figure = figure_of(scores.bars, figure_data_of(study, lines=less(lines_of(study), gone)))
    assert len(figure.axes[0].patches) == 8
    assert sum(text.get_text() == "–" for text in figure.axes[0].texts) == 1
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
    figure = figure_of(hyperparameters.grid, figure_data_of(study, lines=lines_of(study).assign(score=0.5)))
    frames = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and not patch.get_fill()]
    assert len(frames) == len(study.rows)


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


def test_lines_have_a_point_a_setting_and_a_line_a_backbone() -> None:
    drawn = figure_data_of(study_of("rankcse-figure3b"))
    figure = figure_of(hyperparameters.lines, drawn)
    axes = figure.axes[0]
    bars = [one for one in axes.containers if isinstance(one, ErrorbarContainer)]
    for backbone, bar in zip(("BERT-base", "BERT-large"), bars, strict=True):
        xs, ys = bar.lines[0].get_data()
        assert xs.tolist() == [0.0125, 0.025, 0.05]
        assert ys == pytest.approx([numbers(drawn, f"{backbone}, tau2 {x:g}", "sts_avg").mean() for x in xs])
    base = [numbers(drawn, f"BERT-base, tau2 {x:g}", "sts_avg") for x in (0.0125, 0.025, 0.05)]
    assert np.ravel([bar[:, 1] for bar in error_bars(axes)][:3]) == pytest.approx(
        [f.mean() + sign * f.std(ddof=1) for f in base for sign in (-1, 1)]
    )
    assert [text.get_text() for text in axes.texts] == ["BERT-base (3 seeds)", "BERT-large (1 seed)"]
    assert axes.get_xscale() == "log"
    assert "RoBERTa-base, tau2 0.0125 and 2 more (not run" in style.caption(figure)


def test_what_has_no_setting_is_a_reference_in_every_panel() -> None:
    study = study_of("rankencoder-corpus")
    drawn = figure_data_of(study)
    figure = figure_of(hyperparameters.lines, drawn)
    for axes, name in zip(figure.axes, study.columns, strict=True):
        (across,) = [
            line for line in axes.get_lines() if len(set(line.get_ydata())) == 1 and len(line.get_xdata()) == 2
        ]
        assert across.get_ydata()[0] == pytest.approx(numbers(drawn, "cosine", name).mean())
        ys = next(bar for bar in axes.containers if isinstance(bar, ErrorbarContainer)).lines[0].get_ydata()
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
    assert {p.get_clim() for p in points} == {(min(means["sts_avg"]), max(means["sts_avg"]))}
    assert [text.get_text() for text in axes.texts] == shown
    spread = numbers(drawn, "SimCSE", "uniformity")
    across = [bar[:, 0] for bar in error_bars(axes) if np.ptp(bar[:, 1]) == 0]
    assert any(np.allclose(ends, spread.mean() + np.array([-1, 1]) * spread.std(ddof=1)) for ends in across)
    assert "Missing: DiffCSE." in style.caption(figure)


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("rankcse-figure1", scores.bars),
        ("rankcse-figure3a", hyperparameters.grid),
        ("rankcse-figure3b", hyperparameters.lines),
        ("rankcse-figure4", scores.scatter),
    ],
)
def test_without_any_scores_there_is_no_figure(name: str, draw) -> None:
    assert draw(empty(study_of(name))) is None
