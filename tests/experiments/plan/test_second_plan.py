"""The second plan has the contrasts and the teachers' seeds that it states, and is older than its runs."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cse_core.evaluation.near_start import AveragedWithStart
from cse_core.evaluation.scorers import Cosine
from experiments.plan.second_plan import TEACHER_SEEDS
from experiments.results import csv_record
from experiments.schema.contrasts import ONE_LOOK
from experiments.schema.scales import PLANNED_SEEDS
from experiments.studies.catalogue import EVERYTHING, choose_studies, names_at
from tests.support.plan_age import page_in_history, younger_contrasts

STAGE_A = ["plan2-whitening", "plan2-teachers", "plan2-ranks"]
STAGE_D = ["plan2-quality", "plan2-averaged", "plan2-distances"]
ROOT = Path(__file__).parents[3]


def test_stage_a_has_four_primaries_with_one_margin() -> None:
    contrasts = [each for study in choose_studies(STAGE_A, "small") for each in study.contrasts]
    assert [each.claim for each in contrasts if each.role == ONE_LOOK] == ["A1", "A2", "A3", "A4"]
    assert {each.margin for each in contrasts} == {0.5}
    for each in contrasts:  # every gain also on disjoint pairs
        assert replace(each, role="exploratory", column="sts_disjoint_avg") in contrasts


def test_students_have_teachers_of_two_or_three_seeds_in_turn() -> None:
    (study,) = choose_studies(["plan2-teachers"], "small")
    students = [row for row in study.rows if row.teacher_seeds]
    assert len(students) == 8
    for row in students:
        runs = row.runs()
        assert [run.seed for run in runs] == list(PLANNED_SEEDS[:10])
        teachers = [teacher for run in runs for teacher in run.nested()]
        medium = "wiki-medium" in row.label
        seeds = [42, 1] * 5 if medium else [*TEACHER_SEEDS * 3, TEACHER_SEEDS[0]]
        assert [teacher.seed for teacher in teachers] == seeds
        assert {teacher.backbone.name for teacher in teachers} == {"wiki-medium" if medium else "wiki-tiny"}


def test_its_studies_have_a_scale_of_their_own() -> None:
    for scale in ("small", "paper"):
        scales = {study.name: study.scale.name for study in choose_studies(["plan2"], scale)}
        assert {name for name, at in scales.items() if at == "minilm"} == set(STAGE_D)
        assert {at for name, at in scales.items() if name not in STAGE_D} == {"small"}
    assert names_at("minilm") == list(STAGE_D)
    assert not any(name.startswith("plan2") for name in names_at("paper"))


def test_stage_d_compares_each_paper_and_composition_with_its_rival() -> None:
    (study,) = choose_studies(["plan2-quality"], "minilm")
    primaries = {each.claim: (*each.plus, *each.minus) for each in study.contrasts if each.role == ONE_LOOK}
    assert primaries == {
        "D1": ("ListNet", "SimCSE"),
        "D2": ("RankEncoder", "SimCSE"),
        "D3": ("WhitenedCSE, dropout views", "SimCSE"),
        "D4": ("CompCSE", "SimCSE"),
        "D5": ("CompCSE", "two random crops"),
    }
    runs = [run for row in study.rows for run in row.runs()]
    assert {(run.backbone.name, run.max_steps) for run in runs} == {("minilm-remasked", 160)}
    assert {row.seeds for row in study.rows} == {PLANNED_SEEDS[:10]}


@pytest.mark.slow
def test_the_second_plan_is_older_than_its_runs() -> None:
    """Runs that another study declares too may be older; the plan says which these are."""
    studies = choose_studies(list(EVERYTHING), "small")
    others = {key for study in studies for row in study.rows for key in row.keys().values()}
    page_at = page_in_history(ROOT, "experiments/PLAN2.md")
    for study in choose_studies([*STAGE_A, "plan2-quality"], "small"):
        results = csv_record.read_results(study.scale.name)
        assert younger_contrasts([study], results[~results["key"].isin(others)], page_at) == []


@pytest.mark.slow
def test_the_seeds_added_on_six_layers_were_planned_before_they_ran() -> None:
    """Seeds 801 and 802 are stage C's, and were known."""
    (study,) = choose_studies(["plan2-six-layers"], "small")
    added = {key for row in study.rows for seed, key in row.keys().items() if seed in PLANNED_SEEDS}
    results = csv_record.read_results("small")
    results = results[results["key"].isin(added)]
    assert results["key"].nunique() == len(added) == 15
    check_unchanged("After stage C", set(results["commit"].str.rstrip("+")))


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["B", "C"])
def test_the_text_of_a_comparison_is_that_of_the_commits_that_ran_it(stage: str) -> None:
    searches = csv_record.read_searches("small")
    searches = searches[searches["search"].str.startswith({"B": "tuned ", "C": "tuned-medium "}[stage])]
    check_unchanged(f"Stage {stage}", set(searches["commit"].str.rstrip("+")))


def check_unchanged(section: str, commits: set[str]) -> None:
    """Check that a section of the plan reads at each commit as it does today."""
    page_at = page_in_history(ROOT, "experiments/PLAN2.md")

    def text(page: str | None) -> str:
        assert page
        (found,) = re.findall(rf"^## {section}: .*?(?=^## )", page, re.MULTILINE | re.DOTALL)
        return " ".join(found.split())

    now = text((ROOT / "experiments/PLAN2.md").read_text(encoding="utf-8"))
    assert commits
    for commit in commits:
        assert text(page_at(commit)) == now, commit


def test_averages_with_the_start_are_those_of_stage_d_encoders_by_another_scorer() -> None:
    quality, averaged, distances = (choose_studies([name], "minilm")[0] for name in STAGE_D)
    keys = {row.label: row.keys() for row in quality.rows}
    plain = [row.label for row in averaged.rows if row.scorer == Cosine()]
    moved = {row.label: row for row in averaged.rows if row.label not in plain}
    assert list(moved) == [f"{label}, averaged" for label in plain]
    for row in averaged.rows:
        assert row.keys() == keys[row.label.removesuffix(", averaged")]
    start = next(row for row in quality.rows if row.label == "SimCSE").runs()[0].backbone
    assert {row.scorer for row in (*moved.values(), *distances.rows)} == {AveragedWithStart(start=start)}
    trained = [row.label for row in quality.rows if row.scorer == Cosine()]
    assert {row.label: row.keys() for row in distances.rows} == {label: keys[label] for label in trained}
    assert not any(each.role == ONE_LOOK for each in averaged.contrasts)
    pairs = {(*each.plus, *each.minus): each.paired for each in averaged.contrasts}
    assert all(pairs[f"{label}, averaged", label] for label in plain)
    assert {(*sides, paired) for sides, paired in pairs.items() if sides[1] not in plain} == {
        (f"{gains}, averaged", "SimCSE, averaged", False) for gains in ("WhitenedCSE, dropout views", "CompCSE")
    }
