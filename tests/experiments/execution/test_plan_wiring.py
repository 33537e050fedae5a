"""Scorings of a run are merged if, and only if, checkpoint and scorer are the same."""

from dataclasses import replace

import pytest

from cse_core.evaluation.scorers import Cosine, Ranked, Scorer
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained, Run
from experiments.execution.plan import jobs_of, missing
from experiments.schema.contrasts import Contrast
from experiments.schema.study import Row, Scale, Study, with_seed

CORPUS = Corpus("synthetic", 100)
BASE = Run(method=SimCSE(), backbone=Pretrained("wiki-tiny"), corpus=CORPUS)
SCALE = Scale(name="test", title="", backbones={}, corpus=CORPUS, seeds=(42,), dev="synthetic_dev")
RANKS = Ranked(corpus=CORPUS, size=50)
SCORERS = (Cosine(), RANKS)


def study(name: str, columns: tuple[str, ...], *rows: Row) -> Study:
    return Study(name=name, source="", question="", scale=SCALE, rows=rows, columns=columns)


def row(label: str, scorer: Scorer = Cosine(), run: Run = BASE, **more: object) -> Row:  # noqa: B008 - a frozen value
    return Row(label=label, encoder=run, seeds=(42,), scorer=scorer, **more)  # ty: ignore[invalid-argument-type]


def scorings(*studies: Study) -> list[tuple[str, str, tuple[str, ...]]]:
    (job,) = jobs_of(studies).values()
    return [(one.select, str(one.scorer), one.tasks) for one in job.scorings]


def test_a_run_under_two_scorers_is_scored_under_each_with_its_own_tasks() -> None:
    one = study("one", ("stsb", "sts12"), row("cosine"))
    two = study("two", ("sickr",), row("ranks", RANKS))
    three = study("three", ("stsb", "sts13"), row("cosine again"), row("other ranks", replace(RANKS, weight=1.0)))
    assert scorings(one, two, three) == [
        ("stsb_dev", "cosine", ("stsb", "sts12", "sts13")),
        ("stsb_dev", str(RANKS), ("sickr",)),
        ("stsb_dev", str(replace(RANKS, weight=1.0)), ("stsb", "sts13")),
    ]


def test_two_checkpoints_of_a_run_are_scored_each_with_its_own_tasks() -> None:
    one = study("one", ("stsb",), row("best"))
    two = study("two", ("sickr",), row("last", select="last"))
    assert scorings(one, two) == [("stsb_dev", "cosine", ("stsb",)), ("last", "cosine", ("sickr",))]


def test_a_row_selected_on_transfer_has_its_four_snapshots_scored() -> None:
    expected = [(select, "cosine", ("mr",)) for select in ("quarter_1", "quarter_2", "quarter_3", "last")]
    assert scorings(study("one", ("mr",), row("a", select="transfer_dev"))) == expected


@pytest.mark.parametrize("unscored", SCORERS, ids=["cosine", "ranks"])
def test_a_score_by_one_scorer_does_not_replace_that_of_another(unscored: Scorer) -> None:
    (job,) = jobs_of([study("one", ("stsb",), row("cosine"), row("ranks", RANKS))]).values()
    every = {("stsb_dev", str(scorer), "stsb") for scorer in SCORERS}
    left = missing(job, {job.key: every - {("stsb_dev", str(unscored), "stsb")}})
    assert left is not None
    assert [one.scorer for one in left.scorings] == [unscored]
    assert missing(job, {job.key: every}) is None
    assert missing(job, {"another run": every}) == job


def test_nested_runs_are_scored_on_the_scales_dev_at_the_checkpoint_that_is_read() -> None:
    """By plain cosine, also nested runs of nested runs, whatever the row's own scorer, tasks and rule are."""
    teacher = replace(BASE, seed=7, method=RankCSE(teachers=(Teacher(BASE, select="last"),)))
    student = replace(BASE, method=RankCSE(teachers=(Teacher(teacher, select="synthetic_dev"),)))
    jobs = jobs_of([study("one", ("stsb",), row("student", RANKS, student, select="quarter_1"))])
    found = {key: [(s.select, str(s.scorer), s.tasks) for s in job.scorings] for key, job in jobs.items()}
    assert found == {
        student.key: [("quarter_1", str(RANKS), ("stsb",))],
        teacher.key: [("synthetic_dev", "cosine", ("synthetic_dev",))],
        BASE.key: [("last", "cosine", ("synthetic_dev",))],
    }
    assert list(jobs) == [BASE.key, teacher.key, student.key]


def test_a_study_without_tasks_is_no_work_and_one_compared_column_is() -> None:
    settings = study("settings", ("batch_size",), row("a"))
    assert jobs_of([settings]) == {}
    hidden = replace(settings, contrasts=(Contrast(plus=("a",), column="stsb"),))
    assert scorings(hidden) == [("stsb_dev", "cosine", ("stsb",))]


def test_rows_are_reseeded_with_their_teachers_only_where_these_vary() -> None:
    student = replace(BASE, method=RankCSE(teachers=(Teacher(BASE, 0.25), Teacher(replace(BASE, epochs=2), 0.75))))
    fixed, varied = (with_seed(student, 5, nested=nested) for nested in (False, True))
    assert (fixed.seed, varied.seed) == (5, 5)
    assert [run.seed for run in fixed.nested()] == [42, 42]
    assert [(run.seed, run.epochs) for run in varied.nested()] == [(5, 1), (5, 2)]
    method = varied.method
    assert isinstance(method, RankCSE)
    assert [teacher.weight for teacher in method.teachers] == [0.25, 0.75]
