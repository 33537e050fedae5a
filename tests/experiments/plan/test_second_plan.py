"""The second plan: its contrasts, the teachers' seeds, and that it is older than its runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.plan.second_plan import TEACHER_SEEDS
from experiments.results import csv_record
from experiments.schema.contrasts import SECOND
from experiments.schema.scales import PLANNED_SEEDS
from experiments.studies.catalogue import EVERYTHING, choose_studies
from tests.support.plan_age import page_in_history, younger_contrasts

ROOT = Path(__file__).parents[3]


def test_stage_a_has_four_primaries_with_one_margin() -> None:
    contrasts = [each for study in choose_studies(["plan2"], "small") for each in study.contrasts]
    assert [each.subject for each in contrasts if each.kind == SECOND] == ["A1", "A2", "A3", "A4"]
    assert {each.margin for each in contrasts} == {0.5}
    for each in contrasts:  # every gain also on disjoint pairs
        assert replace(each, kind="exploratory", column="sts_disjoint_avg") in contrasts


def test_students_have_teachers_of_three_seeds_in_turn() -> None:
    (study,) = choose_studies(["plan2-teachers"], "small")
    students = [row for row in study.rows if row.teacher_seeds]
    assert len(students) == 8
    for row in students:
        runs = row.runs()
        assert [run.seed for run in runs] == list(PLANNED_SEEDS[:10])
        taught_by = [teacher.seed for run in runs for teacher in run.nested()]
        assert taught_by == [*TEACHER_SEEDS * 3, TEACHER_SEEDS[0]]
        assert len({replace(run, seed=0).nested()[0].key for run in runs}) == 3


def test_the_second_plan_is_of_scale_small_only() -> None:
    with pytest.raises(ValueError, match="scale paper: plan2-ranks is a study of scale small only"):
        choose_studies(["plan2"], "paper")


@pytest.mark.slow
def test_the_second_plan_is_older_than_its_runs() -> None:
    """Rows that another study declares too may be older: the plan says which."""
    others = {
        key for study in choose_studies(list(EVERYTHING), "small") for row in study.rows for key in row.keys().values()
    }
    results = csv_record.read_results("small")
    new = results[~results["key"].isin(others)]
    page_at = page_in_history(ROOT, "experiments/PLAN2.md")
    assert younger_contrasts(choose_studies(["plan2"], "small"), new, page_at) == []
