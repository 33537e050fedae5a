"""The ladder's students are the plan's runs or as long; a teacher's own score is of the vectors that teach."""

import pytest

from cse_core.evaluation.mixed_cosine import MixedCosine
from cse_core.evaluation.scorers import Cosine
from cse_core.methods.rankcse import RankCSE
from cse_core.run import Pretrained, Run
from experiments.execution.plan import jobs_of
from experiments.plan import plan_rankcse
from experiments.plan.ladder import LOSSES, RUNGS, SHUFFLED, ladder, student_label, teacher_label
from experiments.schema.scales import PLANNED_SEEDS, SCALES
from experiments.schema.study import Row

SMALL = SCALES["small"]
ROWS = {row.label: row for row in ladder(SMALL).rows}


def run_of(row: Row) -> Run:
    assert isinstance(row.encoder, Run)
    return row.encoder


def method_of(loss: str, rung: str) -> RankCSE:
    method = run_of(ROWS[student_label(loss, rung)]).method
    assert isinstance(method, RankCSE)
    return method


def test_rows_that_the_plan_has_are_its_runs() -> None:
    planned = {row.label: row for study in (plan_rankcse.teachers, plan_rankcse.losses) for row in study(SMALL).rows}
    same = {
        "SimCSE": "SimCSE",
        "ListNet taught by untrained [CLS]": "ListNet, the untrained backbone teaches",
        "ListNet taught by SimCSE": "ListNet, SimCSE teaches",
        "ListNet taught by larger SimCSE": "ListNet, the larger SimCSE teaches",
        "ListNet taught by MiniLM": "ListNet, MiniLM teaches",
        "ListNet taught by MiniLM, shuffled": "ListNet, MiniLM in shuffled order",
    }
    for ours, theirs in same.items():
        keys = planned[f"{theirs}, 8 epochs"].keys()
        assert {seed: keys[seed] for seed in PLANNED_SEEDS[:5]} == ROWS[ours].keys()


@pytest.mark.parametrize("loss", LOSSES)
def test_students_differ_in_their_teachers_only(loss: str) -> None:
    students = [run_of(ROWS[student_label(loss, rung)]) for rung in RUNGS]
    assert {(run.epochs, run.eval_steps, run.learning_rate) for run in students} == {(8, 256, 3e-4)}
    assert {method_of(loss, rung).rank for rung in RUNGS} == {LOSSES[loss]}
    assert {rung for rung in RUNGS if method_of(loss, rung).teacher_order == "shuffled"} == {SHUFFLED}
    assert method_of(loss, SHUFFLED).teachers == method_of(loss, "MiniLM").teachers
    taught = {method_of(loss, rung).teachers for rung in RUNGS}
    assert len(taught) == len(RUNGS) - 1
    assert {len(teachers) for teachers in taught} == {1, 2}
    assert all(sum(teacher.weight for teacher in teachers) == 1 for teachers in taught)


@pytest.mark.parametrize("rung", [rung for rung in RUNGS if rung != SHUFFLED])
def test_a_teachers_own_score_is_of_the_vectors_that_teach(rung: str) -> None:
    teachers, shown = method_of("ListNet", rung).teachers, ROWS[teacher_label(rung)]
    assert teachers == method_of("ListMLE", rung).teachers
    *others, last = teachers
    assert shown.encoder == last.encoder
    assert shown.keys() == ({last.encoder.seed: last.encoder.key} if isinstance(last.encoder, Run) else shown.keys())
    assert shown.select == (last.select if isinstance(last.encoder, Run) else "as is")
    if others:
        assert isinstance(others[0].encoder, Pretrained)
        assert shown.scorer == MixedCosine(other=others[0].encoder, share=others[0].weight)
    else:
        assert shown.scorer == (last.scorer or Cosine())


def test_gains_are_over_simcse_with_independent_seeds_and_judge_nothing() -> None:
    study = ladder(SMALL)
    assert {(each.minus, each.role, each.paired) for each in study.contrasts} == {(("SimCSE",), "exploratory", False)}
    students = [student_label(loss, rung) for loss in LOSSES for rung in RUNGS]
    assert [each.plus[0] for each in study.contrasts] == students
    assert not study.findings


def test_a_scale_without_the_larger_backbone_says_so() -> None:
    rows = {row.label: row for row in ladder(SCALES["quickstart"]).rows}
    for label in (student_label("ListMLE", "larger SimCSE"), teacher_label("larger SimCSE")):
        assert rows[label].why == "not run: this scale has no stand-in for BERT-large"
    assert sum(row.encoder is None for row in rows.values()) == 3


def test_a_sweep_trains_each_student_once_and_its_teachers_first() -> None:
    jobs = jobs_of([ladder(SMALL)])
    assert len(jobs) == 5 * (1 + 2 * len(RUNGS)) + 2 + 3  # students and SimCSE; two teachers; three are not trained
