"""A plan has each job of its studies once, teachers first, without finished jobs; lost weights are trained again."""

from dataclasses import replace
from pathlib import Path

import pytest

from cse_core.evaluation.scorers import Cosine, Ranked, Scorer
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.metrics import correlation
from cse_core.run import Run
from experiments.execution.plan import (
    blocking_reason,
    difference_from_record,
    jobs_of,
    make_plan,
    missing,
    scored_cells,
)
from experiments.schema.contrasts import Contrast
from experiments.schema.study import Study, with_seed
from experiments.storage.shared_storage import Shared
from experiments.studies.catalogue import STUDIES, choose_studies
from tests.support.plans import BASE, TAUGHT, frame, row, study, weights
from tests.support.sweeps import leave


def test_a_run_of_two_studies_is_one_job_with_both_their_tasks() -> None:
    one, two = study(row("a", BASE)), study(row("b", BASE), name="two", columns=("sickr", "stsb"))
    jobs = jobs_of([one, two])
    assert len(jobs) == 2
    job = jobs[BASE.key]
    assert job.studies == ("one", "two")
    assert [(s.select, s.tasks) for s in job.scorings] == [("stsb_dev", ("stsb", "sickr"))]


def test_a_scorer_without_what_a_task_reads_is_refused_before_anything_is_trained() -> None:
    refusal = "^two, row a: stsb_neighbours: neighbours require a corpus, which the scorer"
    with pytest.raises(ValueError, match=refusal):
        jobs_of([study(row("a", BASE), name="two", columns=("gain_trend",))])


def test_vary_all_gives_teachers_the_students_seed() -> None:
    method = RankCSE(teachers=(Teacher(BASE, 0.25), Teacher(replace(BASE, epochs=2), 0.75)))
    fixed, varied = (row("a", replace(BASE, method=method), vary=vary).runs() for vary in ("student", "all"))
    assert [run.seed for run in (*fixed, *varied)] == [42, 1] * 2
    assert [[(n.seed, n.epochs) for n in run.nested()] for run in fixed] == [[(42, 1), (42, 2)]] * 2
    assert [[(n.seed, n.epochs) for n in run.nested()] for run in varied] == [[(42, 1), (42, 2)], [(1, 1), (1, 2)]]
    assert [teacher.weight for teacher in varied[1].method.teachers] == [0.25, 0.75]  # ty: ignore[missing-attribute]
    assert fixed[0].key == varied[0].key


def test_recorded_scores_are_left_out_of_a_plan_and_missing_ones_stay(tmp_path: Path) -> None:
    jobs = jobs_of([study(row("a", BASE), columns=("stsb", "sickr"))])
    first, second = jobs.values()
    assert missing(first, scored_cells(frame(first))) is None
    left = missing(first, scored_cells(frame(first, skip="sickr")))
    assert left is not None
    assert {s.tasks for s in left.scorings} == {("sickr",)}
    assert [job.key for job in make_plan(jobs, scored_cells(frame(first)), tmp_path).pending] == [second.key]
    assert make_plan(jobs, scored_cells(frame(first, second)), tmp_path).pending == ()


@pytest.mark.parametrize("metric", ["spearman.all", "spearman.mean", "spearman.wmean", "pearson.all"])
def test_a_task_without_one_of_its_metrics_is_scored_again(metric: str) -> None:
    job = jobs_of([study(row("a", BASE), columns=("stsb", "sickr"))])[BASE.key]
    recorded = frame(job)
    lost = (recorded["task"] == "stsb") & (recorded["metric"] == metric)
    assert lost.sum() == 1
    left = missing(job, scored_cells(recorded[~lost]))
    assert left is not None
    assert [(s.select, s.tasks) for s in left.scorings] == [("stsb_dev", ("stsb",))]


def test_a_transfer_column_is_work_for_the_selected_checkpoint_until_both_accuracies_are_recorded() -> None:
    job = jobs_of([study(row("a", BASE), columns=("stsb", "mr", "trec_fast"))])[BASE.key]
    assert [(s.select, s.tasks) for s in job.scorings] == [("stsb_dev", ("stsb", "mr", "trec_fast"))]
    recorded = frame(job)
    assert missing(job, scored_cells(recorded)) is None
    left = missing(job, scored_cells(recorded[(recorded["task"] != "mr") | (recorded["metric"] != "devacc")]))
    assert left is not None
    assert [(s.select, s.tasks) for s in left.scorings] == [("stsb_dev", ("mr",))]


def test_scores_of_an_older_evaluator_do_not_count() -> None:
    job = jobs_of([study(row("a", BASE))])[BASE.key]
    assert missing(job, scored_cells(frame(job).assign(version=correlation.VERSION - 1))) is not None


def test_a_recorded_teacher_is_trained_again_only_if_its_weights_are_needed_and_gone(tmp_path: Path) -> None:
    jobs = jobs_of([study(row("taught", TAUGHT))])
    recorded = frame(jobs[BASE.key])
    work = make_plan(jobs, scored_cells(recorded), tmp_path)
    assert work.retrained == {BASE.key}
    assert work.levels[0][0].key == BASE.key
    weights(tmp_path, BASE, "stsb_dev")
    work = make_plan(jobs, scored_cells(recorded), tmp_path)
    assert work.retrained == frozenset()
    assert BASE.key not in {job.key for job in work.pending}
    assert make_plan(jobs, scored_cells(frame(*jobs.values())), tmp_path / "elsewhere").pending == ()


def test_on_a_cluster_weights_count_where_every_machine_finds_them(tmp_path: Path) -> None:
    jobs, url = jobs_of([study(row("taught", TAUGHT))]), (tmp_path / "shared").as_uri()
    recorded = frame(jobs[BASE.key])
    weights(tmp_path / "store", BASE, "stsb_dev")
    assert make_plan(jobs, scored_cells(recorded), tmp_path / "store", url).retrained == {BASE.key}
    Shared(url).prepare()
    assert Shared(url).publish(tmp_path / "store" / BASE.key, 0)
    work = make_plan(jobs, scored_cells(recorded), tmp_path / "elsewhere", url)
    assert work.retrained == frozenset()
    assert BASE.key not in {job.key for job in work.pending}


def test_a_run_trained_again_for_one_score_keeps_every_rules_checkpoint(tmp_path: Path) -> None:
    job = jobs_of([study(row("a", BASE), row("b", BASE, select="last"))])[BASE.key]
    recorded = frame(job)
    recorded = recorded[recorded["select"] != "last"]
    left = make_plan({job.key: job}, scored_cells(recorded), tmp_path).pending[0]
    assert {s.select: s.tasks for s in left.scorings} == {"last": ("stsb",), "stsb_dev": ()}


def test_a_job_whose_teacher_failed_is_named_with_it() -> None:
    jobs = jobs_of([study(row("taught", TAUGHT))])
    reason = blocking_reason(jobs[TAUGHT.key], {BASE.key: "no"})
    assert reason == f"not started: it needs run {BASE.key}, which failed"
    assert blocking_reason(jobs[BASE.key], {TAUGHT.key: "no"}) == ""


def test_a_rerun_that_differs_from_the_record_is_noticed(tmp_path: Path) -> None:
    job = jobs_of([study(row("a", BASE))])[BASE.key]
    name = {"select": "stsb_dev", "scorer": "cosine", "task": "stsb", "metric": "spearman.all"}
    cell = {**name, "pairs": 9, "step": 1, "version": 1}
    leave(tmp_path / "same", job.key, cells=[cell | {"score": 0.5}])
    assert difference_from_record(job.key, "a", frame(job), tmp_path / "same") == ""
    leave(tmp_path / "other", job.key, cells=[cell | {"score": 0.501}])
    found = difference_from_record(job.key, "a", frame(job), tmp_path / "other")
    assert "stsb_dev, cosine, stsb, spearman.all is 0.501000, recorded 0.500000." in found


RANKS = Ranked(corpus=BASE.corpus, size=50)
SCORERS = (Cosine(), RANKS)


def scorings(*studies: Study) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.select, str(one.scorer), one.tasks) for one in jobs_of(studies)[BASE.key].scorings]


def test_a_run_under_two_scorers_is_scored_under_each_with_its_own_tasks() -> None:
    other = replace(RANKS, weight=1.0)
    one = study(row("cosine", BASE), columns=("stsb", "sts12"))
    two = study(row("ranks", BASE, scorer=RANKS), name="two", columns=("sickr",))
    three = study(row("again", BASE), row("other", BASE, scorer=other), name="three", columns=("stsb", "sts13"))
    assert scorings(one, two, three) == [
        ("stsb_dev", "cosine", ("stsb", "sts12", "sts13")),
        ("stsb_dev", str(RANKS), ("sickr",)),
        ("stsb_dev", str(other), ("stsb", "sts13")),
    ]


def test_two_checkpoints_of_a_run_are_scored_each_with_its_own_tasks() -> None:
    two = study(row("last", BASE, select="last"), name="two", columns=("sickr",))
    expected = [("stsb_dev", "cosine", ("stsb",)), ("last", "cosine", ("sickr",))]
    assert scorings(study(row("best", BASE)), two) == expected


def test_a_row_selected_on_transfer_has_its_four_snapshots_scored() -> None:
    expected = [(select, "cosine", ("mr",)) for select in ("quarter_1", "quarter_2", "quarter_3", "last")]
    assert scorings(study(row("a", BASE, select="transfer_dev"), columns=("mr",))) == expected


@pytest.mark.parametrize("unscored", SCORERS, ids=["cosine", "ranks"])
def test_a_score_by_one_scorer_does_not_replace_that_of_another(unscored: Scorer) -> None:
    job = jobs_of([study(row("cosine", BASE), row("ranks", BASE, scorer=RANKS))])[BASE.key]
    every = {("stsb_dev", str(scorer), "stsb") for scorer in SCORERS}
    left = missing(job, {job.key: every - {("stsb_dev", str(unscored), "stsb")}})
    assert left is not None
    assert [one.scorer for one in left.scorings] == [unscored]
    assert missing(job, {job.key: every}) is None
    assert missing(job, {"another run": every}) == job


def test_nested_runs_are_scored_on_the_scales_dev_at_the_checkpoint_that_is_read() -> None:
    """By plain cosine, also nested runs of nested runs, whatever the row's own scorer, tasks and rule are."""
    teacher = replace(BASE, seed=7, method=RankCSE(teachers=(Teacher(BASE, select="last"),)))
    student = replace(BASE, method=RankCSE(teachers=(Teacher(teacher, select="avg_sts"),)))
    jobs = jobs_of([study(row("student", student, scorer=RANKS, select="quarter_1"), columns=("sts12",))])
    found = {key: [(s.select, str(s.scorer), s.tasks) for s in job.scorings] for key, job in jobs.items()}
    of_row = [("quarter_1", str(RANKS), ("sts12",))]
    assert found == {
        BASE.key: [("last", "cosine", ("stsb_dev",))],
        teacher.key: [("avg_sts", "cosine", ("stsb_dev",))],
        **{with_seed(student, seed, nested=False).key: of_row for seed in (42, 1)},
    }
    assert list(jobs)[:3] == [BASE.key, teacher.key, student.key]


def test_a_study_without_tasks_is_no_work_and_one_compared_column_is() -> None:
    settings = study(row("a", BASE), columns=("batch_size",))
    assert jobs_of([settings]) == {}
    hidden = replace(settings, contrasts=(Contrast(plus=("a",), column="stsb"),))
    assert scorings(hidden) == [("stsb_dev", "cosine", ("stsb",))]


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    expected = r"unknown study 'rankcse-table99' \(did you mean rankcse-table\d+ or .*\?\); there are \d+$"
    with pytest.raises(ValueError, match=expected):  # and no list of a hundred names
        choose_studies(["rankcse-table99"], "small")
    with pytest.raises(ValueError, match="unknown study 'xyz'; known: all, quickstart, rankcse, "):
        choose_studies(["xyz"], "small")
    with pytest.raises(ValueError, match="unknown scale 'tiny'; known: quickstart, small"):
        choose_studies(["rankcse"], "tiny")
    assert [study.name for study in choose_studies(["all"], "small")] == list(STUDIES)


def test_paper_scale_takes_the_published_settings_and_teachers() -> None:
    table = {one.label: one for one in choose_studies(["rankcse-table2"], "paper")[0].rows}
    run = table["RankCSE-listMLE BERT-base"].encoder
    assert isinstance(run, Run)
    assert (run.batch_size, run.learning_rate, run.epochs, run.warmup, run.dropout) == (128, 2e-5, 4, 0.05, 0.1)
    assert isinstance(run.method, RankCSE)
    base, large = run.method.teachers
    assert (base.weight, large.weight) == (1 / 3, 2 / 3)
    assert [t.encoder.backbone.name for t in (base, large)] == ["bert-base-uncased", "bert-large-uncased"]  # ty: ignore
    assert isinstance(table["DiffCSE BERT-base"].encoder, Run)
    assert isinstance(table["PCL BERT-base"].encoder, Run)
    assert table["PCL BERT-large"].why == "not run: no source states settings of PCL for BERT-large"
    assert table["PaSeR BERT-base"].why.startswith("imported: the rule that picks its phrases")


def test_a_teacher_trained_again_keeps_the_checkpoint_that_is_read(tmp_path: Path) -> None:
    jobs = jobs_of([study(row("taught", TAUGHT, select="last"))])
    recorded = frame(jobs[BASE.key])
    weights(tmp_path, BASE, "last")  # and not stsb_dev's
    assert make_plan(jobs, scored_cells(recorded), tmp_path).retrained == {BASE.key}


def test_levels_are_as_deep_as_teachers_of_teachers(tmp_path: Path) -> None:
    deeper = replace(BASE, method=RankCSE(teachers=(Teacher(TAUGHT, select="stsb_dev"),)))
    work = make_plan(jobs_of([study(row("deeper", deeper))]), scored_cells(frame()), tmp_path)
    assert [[job.key for job in level] for level in work.levels[:2]] == [[BASE.key], [TAUGHT.key]]
    assert len(work.levels[2]) == 2
