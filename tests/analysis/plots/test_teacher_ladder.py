"""The ladder's figure: gains against teachers' scores, whichever of them are recorded, and their order in words."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy
from analysis.plots.gain_intervals import parts_of, rungs_of, teacher_ladder
from matplotlib.axes import Axes

from analysis.plots import style
from analysis.plots.figure_data import FigureData
from experiments.plan.ladder import LOSSES, RUNGS, SHUFFLED, student_label, teacher_label
from experiments.schema.study import Study
from tests.support.figure_records import empty, figure_data_of, figure_of, less, lines_of, row_of, study_of

DOSES = dict(zip(RUNGS, (48.0, 50.0, 47.0, 53.5, 54.5, 56.0, 68.0, 72.0, 79.0, 79.0), strict=True))


@pytest.fixture
def study() -> Study:
    return study_of("ladder")


def rising_lines(study: Study) -> pd.DataFrame:
    """A record with students at 50 and a tenth of their teacher's score, those of shuffled lists at 45."""
    found = {}
    for row in study.rows:
        rung = next((rung for rung in RUNGS for loss in LOSSES if row.label == student_label(loss, rung)), None)
        for seed, key in row.keys().items():
            score = 53.0 if rung is None else 45.0 if rung == SHUFFLED else 50 + DOSES[rung] / 10
            if row.label.startswith("teacher: "):
                score = next(dose for rung, dose in DOSES.items() if teacher_label(rung) == row.label)
            else:
                score += 0.1 * (seed % 5)
            found[key, str(row.scorer)] = score / 100
    lines = lines_of(study)
    return lines.assign(score=[found[at] for at in zip(lines["key"], lines["scorer"], strict=True)])


def points(axes: Axes) -> dict[tuple[float, float], str]:
    """Where dots lie, and the colour that they are filled with."""
    dots = [line for line in axes.get_lines() if line.get_marker() == "o"]
    return {(line.get_xdata()[0], line.get_ydata()[0]): str(line.get_markerfacecolor()) for line in dots}  # ty: ignore


@pytest.mark.slow
def test_dots_are_mean_gains_over_teachers_scores_with_welchs_intervals(study: Study) -> None:
    drawn = figure_data_of(study, lines=rising_lines(study))
    figure = figure_of(teacher_ladder, drawn)
    assert [axes.get_title() for axes in figure.axes] == list(LOSSES)
    simcse = np.array(list(drawn.results.cells["SimCSE", "sts_avg"].scores.values()))
    assert simcse.mean() == pytest.approx(53.2)
    for axes in figure.axes:
        expected = [(dose, dose / 10 - 3) for rung, dose in DOSES.items() if rung != SHUFFLED] + [(79.0, -8.0)]
        np.testing.assert_allclose(sorted(points(axes)), sorted(expected))
        assert [colour for (_, y), colour in points(axes).items() if colour == "white"] == ["white"]
        by_score = [rung for _, rung in sorted((dose, RUNGS.index(rung)) for rung, dose in DOSES.items())]
        assert [text.get_text() for text in axes.texts] == [str(by_score.index(i) + 1) for i in range(len(RUNGS))]
        bars = [
            line.get_ydata()
            for line in axes.get_lines()
            if len(set(line.get_xdata())) == 1 and line.get_marker() != "o"
        ]
        test = scipy.stats.ttest_ind(simcse + 4.9, simcse, equal_var=False).confidence_interval(0.95)
        assert any(np.allclose(bar, np.array(test) + 0.0) for bar in bars)
        assert any(line.get_xdata() == pytest.approx([53.2, 53.2]) for line in axes.get_lines())


@pytest.mark.slow
def test_the_caption_has_the_order_of_the_nine_teachers_without_the_shuffled_one(study: Study) -> None:
    text = style.caption(figure_of(teacher_ladder, figure_data_of(study, lines=rising_lines(study))))
    for loss in LOSSES:
        assert f"{loss}, 9 teachers: Spearman's rho +1.00 [+" in text
    assert text.count("; the 3 within 3 points of the teacher SimCSE: rho +1.00 [+") == len(LOSSES)
    assert text.count("; the 6 without MiniLM: rho +1.00 [+") == len(LOSSES)
    assert "Teachers: 1 GloVe; 2 untrained [CLS]; 3 untrained mean; 4 untrained, whitened; 5 SimCSE; " in text
    assert "; 9 MiniLM; 10 MiniLM, shuffled. " in text
    assert "Kendall's tau +1.00 [+" in text
    assert "mean gain over 5 seeds" in text
    assert "8 epochs" in text
    assert "Missing" not in text


@pytest.mark.slow
def test_the_order_in_simcses_range_and_without_minilm_is_that_of_these_teachers(study: Study) -> None:
    (rungs, _) = (rungs_of(figure_data_of(study, lines=rising_lines(study)), loss) for loss in LOSSES)
    near, others = parts_of(rungs).values()
    assert [rung.name for rung in near] == ["untrained, whitened", "SimCSE", "larger SimCSE"]
    assert [rung.name for rung in others] == list(RUNGS[:6])
    assert [len(part) for part in parts_of([rung for rung in rungs if rung.name != "SimCSE"]).values()] == [0, 5]


@pytest.mark.slow
def test_what_is_missing_is_named_and_all_else_is_drawn(study: Study) -> None:
    gone = [row_of(study, teacher_label("GloVe")), row_of(study, student_label("ListNet", "MiniLM"))]
    lines = less(rising_lines(study), *gone)
    one_seed = row_of(study, student_label("ListMLE", "SimCSE"))
    drawn = figure_data_of(study, lines=less(lines, one_seed, seeds=(302, 303, 304, 305)))
    net, mle = (rungs_of(drawn, loss) for loss in LOSSES)
    assert {rung.name for rung in net} == set(RUNGS) - {"GloVe", "MiniLM"}
    assert {rung.name for rung in mle} == set(RUNGS) - {"GloVe"}
    text = style.caption(figure_of(teacher_ladder, drawn))
    assert "over 1 to 5 seeds" in text
    assert "ListNet, 7 teachers: Spearman's rho +1.00 [+" in text
    assert re.search(
        r"ListMLE, 8 teachers: Spearman's rho \+\S+ \(no interval\), Kendall's tau \+\S+ \(no interval\)", text
    )
    for name in (*(row.label for row in gone), f"{one_seed.label} of seed 302, 303, 304, 305"):
        assert name in text


@pytest.mark.slow
def test_two_teachers_have_no_order_and_no_record_has_no_figure(study: Study) -> None:
    kept = {student_label("ListNet", rung) for rung in RUNGS[:2]} | {"SimCSE"}
    others = [row for row in study.rows if row.label not in kept and not row.label.startswith("teacher: ")]
    drawn: FigureData = figure_data_of(study, lines=less(rising_lines(study), *others))
    figure = figure_of(teacher_ladder, drawn)
    assert [axes.get_title() for axes in figure.axes] == ["ListNet"]  # no panel for a loss without students
    text = style.caption(figure)
    assert "ListNet: no correlation of fewer than 3 teachers. ListMLE: no correlation" in text
    assert teacher_ladder(empty(study)) is None
    teachers_only = [row for row in study.rows if not row.label.startswith("teacher: ")]
    assert teacher_ladder(figure_data_of(study, lines=less(rising_lines(study), *teachers_only))) is None
