"""Rehearsed runs are of every method and study, have the published settings, and resume to the same bits."""

from dataclasses import replace
from pathlib import Path

import pytest

from cse_core.methods import METHODS
from cse_core.methods.rankcse import RankCSE
from cse_core.run import Pretrained, Run
from cse_core.training.loop import Execution
from cse_core.training.train import train
from experiments.schema.recipes import BACKBONES
from experiments.studies.catalogue import EVERYTHING, choose_studies
from tests.benchmarks.rehearsal.rehearsed_runs import (
    MAKERS,
    PAPER,
    Limits,
    Rehearsed,
    encoders_of,
    needed_jobs,
    rehearsed_methods,
    rehearsed_studies,
    stand_in_scale,
)
from tests.benchmarks.rehearsal.stand_ins import shapes
from tests.support.rehearsals import LIMITS, SCALE
from tests.support.training import Killed, equal, stop_at, weights

PUBLISHED = stand_in_scale(shapes())
TINY = {(row.name, row.backbone): row for row in rehearsed_methods(SCALE, LIMITS, "synthetic")}


def named(name: str, backbone: str = "bert-base-uncased", limits: Limits = Limits()) -> Rehearsed:  # noqa: B008
    rows = rehearsed_methods(PUBLISHED, limits, "sts16")
    return next(row for row in rows if (row.name, row.backbone) == (name, backbone))


def run_of(row: Rehearsed) -> Run:
    assert row.run
    return row.run


def test_every_method_is_rehearsed_on_every_backbone_with_settings_under_its_published_ones() -> None:
    rows = list(rehearsed_methods(PUBLISHED, Limits(), "sts16"))
    assert {run_of(row).method.name for row in rows} == set(METHODS)
    assert {row.backbone for row in rows} == set(BACKBONES)
    papers = {run.key for make in MAKERS.values() if (run := make(PAPER, "bert-base-uncased"))}
    assert papers.isdisjoint(row.job.key for row in rows)
    for row in rows:
        run, published = run_of(row), MAKERS[row.name](PAPER, row.backbone)
        assert published
        assert run.backbone == Pretrained(f"stand-in/{row.backbone}")
        if not run.nested():
            assert run.method == published.method
        cut = {"backbone": run.backbone, "corpus": run.corpus, "method": run.method, "max_steps": 3}
        assert run == replace(published, **cut)
        assert run.corpus.lines >= 3 * run.batch_size
        assert row.changes in ("", f"corpus_size {run.corpus.lines}, published 100000")


def test_limits_of_a_machine_apply_to_teachers_too_and_are_named() -> None:
    student = run_of(row := named("rankcse", limits=Limits(batch=16, precision="fp32", steps=2)))
    assert row.changes == "batch_size 16, published 128; precision fp32, published bf16"
    for run in (student, *student.nested()):
        assert (run.batch_size, run.precision, run.max_steps, run.corpus.lines) == (16, "fp32", 2, 32)
    assert isinstance(student.method, RankCSE)
    assert [teacher.select for teacher in student.method.teachers] == ["last", "last"]
    assert [job.rules for job in needed_jobs(row)] == [("last",), ("last",)]
    assert encoders_of(student) == {"stand-in/bert-base-uncased", "stand-in/bert-large-uncased"}
    assert named("sncse", limits=Limits(parser=False)).changes == "negation words, published spacy"
    assert named("sncse").changes == ""


@pytest.mark.slow
def test_a_row_of_each_study_is_rehearsed_and_rows_differ_where_studies_do() -> None:
    rows = list(rehearsed_studies(SCALE, LIMITS, "synthetic"))
    scored = [study for study in choose_studies(list(EVERYTHING), "paper") if study.tasks]
    assert {row.study for row in rows} == {s.name for s in scored if any(one.encoder for one in s.rows)}
    methods = {row.study for row in rehearsed_methods(SCALE, LIMITS, "synthetic")}
    assert len({row.study for row in rows} - methods) == len(rows)  # whose place in the table is no study's name
    assert len({f"{row.job.key} {row.job.scorings[0].scorer}" for row in rows}) > 0.6 * len(rows)
    ranked = [row.job.scorings[0].scorer for row in rows if "rank " in str(row.job.scorings[0].scorer)]
    assert {(scorer.size, scorer.corpus.lines) for scorer in ranked} == {(64, 64)}  # ty: ignore[missing-attribute]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name, backbone in TINY if backbone == "bert-base-uncased"])
def test_every_published_run_resumes_to_the_same_bits(
    name: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    store, row = tmp_path_factory.getbasetemp() / "needed", TINY[name, "bert-base-uncased"]
    for job in needed_jobs(row):
        assert isinstance(job.encoder, Run)
        train(job.encoder, store)
    store.mkdir(exist_ok=True)
    run, apart = run_of(row), tmp_path / "apart"
    apart.mkdir()
    for job in needed_jobs(row):
        (apart / job.key).symlink_to(store / job.key)
    with pytest.raises(Killed):
        train(run, Execution(apart, save_seconds=0.0), on_step=stop_at(1))
    steps: list[int] = []
    train(run, apart, on_step=lambda step, history: steps.append(step))
    assert steps == [2, 3]
    train(run, store)
    assert equal(weights(apart, run, "last"), weights(store, run, "last"))
