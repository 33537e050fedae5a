"""A plan has each job of its studies once, teachers first, without finished jobs; lost weights are trained again."""

from dataclasses import replace
from pathlib import Path

import pytest

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
from experiments.schema.study import with_seed
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


def test_nested_runs_are_jobs_and_come_first(tmp_path: Path) -> None:
    jobs = jobs_of([study(row("taught", TAUGHT))])
    assert set(jobs) == {BASE.key, TAUGHT.key, with_seed(TAUGHT, 1, nested=False).key}
    work = make_plan(jobs, scored_cells(frame()), tmp_path)
    assert [job.key for job in work.levels[0]] == [BASE.key]
    assert len(work.levels[1]) == 2


def test_vary_all_gives_teachers_the_students_seed() -> None:
    fixed, varied = row("f", TAUGHT), row("v", TAUGHT, vary="all")
    assert [run.nested()[0].seed for run in fixed.runs()] == [42, 42]
    assert [run.nested()[0].seed for run in varied.runs()] == [42, 1]
    assert fixed.runs()[0].key == varied.runs()[0].key
    assert fixed.runs()[1].key != varied.runs()[1].key


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
