"""The ladder's figure: gains against teachers' scores, whichever of them are recorded, and their order in words."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy

from analysis.plots import style
from analysis.plots.figure_data import FigureData
from analysis.plots.ladder import parts_of, rungs_of, teacher_ladder
from experiments.plan.ladder import LOSSES, RUNGS, SHUFFLED, student_label, teacher_label
from experiments.schema.study import Study
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


@pytest.mark.slow
def test_students_gains_stand_in_the_order_of_their_teachers_with_welchs_intervals(study: Study) -> None:
    drawn = figure_data_of(study, lines=rising_lines(study))
    figure = figure_of(teacher_ladder, drawn)
    simcse = np.array(list(drawn.results.cells["SimCSE", "sts_avg"].scores.values()))
    assert simcse.mean() == pytest.approx(53.2)
    by_score = sorted(DOSES, key=lambda rung: -DOSES[rung])  # the shuffled one after MiniLM, of one score
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == [f"{rung} ({DOSES[rung]:.1f})" for rung in by_score]
    for axes, loss in zip(figure.axes, LOSSES, strict=True):
        assert axes.get_title().startswith(f"{loss}: rho +1.00 [+")
        gains = {at: x for x, at in dots_of(axes)}
        expected = [-8.0 if rung == SHUFFLED else DOSES[rung] / 10 - 3 for rung in by_score]
        assert [gains[at] for at in range(10)] == pytest.approx(expected)
        test = scipy.stats.ttest_ind(simcse + 4.9, simcse, equal_var=False).confidence_interval(0.95)
        assert ranges_of(axes)[0] == pytest.approx(tuple(test))
        (dashed,) = [line for line in axes.get_lines() if line.is_dashed()]
        assert dashed.get_ydata()[0] == 6.5  # seven teachers are better than SimCSE's 53.2
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()


@pytest.mark.slow
def test_the_caption_has_the_order_of_parts_of_the_teachers(study: Study) -> None:
    text = style.caption(figure_of(teacher_ladder, figure_data_of(study, lines=rising_lines(study))))
    for loss in LOSSES:
        assert f"{loss}, the 3 within 3 points of the teacher SimCSE: rho +1.00 [+" in text
    assert text.count("; the 6 without MiniLM: rho +1.00 [+") == len(LOSSES)
    assert "gains over SimCSE in points, 5 seeds" in text
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
    figure = figure_of(teacher_ladder, drawn)
    text = style.caption(figure)
    assert "in points, 1 to 5 seeds" in text
    left, right = figure.axes
    assert left.get_title().startswith("ListNet: rho +1.00 [+")
    assert re.fullmatch(r"ListMLE: rho \+\S+ \(no interval\)", right.get_title())
    assert [len(dots_of(axes)) for axes in (left, right)] == [8, 9]
    assert [text.get_text() for text in left.texts].count("–") == 1  # MiniLM's student by ListNet
    for name in (*(row.label for row in gone), f"{one_seed.label} of seed 302, 303, 304, 305"):
        assert name in text


@pytest.mark.slow
def test_two_teachers_have_no_order_and_teachers_alone_have_no_figure(study: Study) -> None:
    kept = {student_label("ListNet", rung) for rung in RUNGS[:2]} | {"SimCSE"}
    others = [row for row in study.rows if row.label not in kept and not row.label.startswith("teacher: ")]
    drawn: FigureData = figure_data_of(study, lines=less(rising_lines(study), *others))
    figure = figure_of(teacher_ladder, drawn)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["ListNet: fewer than 3 teachers"]  # no panel for a loss without students
    students = [row for row in study.rows if not row.label.startswith("teacher: ")]
    assert teacher_ladder(figure_data_of(study, lines=less(rising_lines(study), *students))) is None
