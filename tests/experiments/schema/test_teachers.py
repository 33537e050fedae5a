"""runs.csv has the teachers of each run: runs that differ only in their teachers differ there."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cse_core.methods.diffcse import DiffCSE
from cse_core.methods.mlm import MLM
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.rankencoder import RankEncoder
from cse_core.run import Pretrained, Run
from experiments.execution.plan import jobs_of
from experiments.results import csv_record
from experiments.schema.teachers import teachers_of
from experiments.studies import catalogue
from tests.support import tiny_study


def test_a_runs_teachers_are_keys_rules_and_weights() -> None:
    one, two, none = tiny_study.run(seed=1), tiny_study.run(seed=2), Pretrained("wiki-tiny", "e22f4fc2dee1f7bf")
    both = (Teacher(one, 1 / 3, "stsb_dev"), Teacher(two, 2 / 3, "last"))
    taught = tiny_study.run(teachers=both)
    expected = f"{one.key}/stsb_dev x0.3333333333333333 + {two.key}/last x0.6666666666666666"
    assert teachers_of(taught) == expected
    assert teachers_of(tiny_study.run(teachers=(Teacher(none),))) == "wiki-tiny:e22f4fc2dee1 x1.0"
    for method, text in (
        (MLM(inner=RankCSE(teachers=both)), expected),
        (RankEncoder(base=one, select="last"), f"{one.key}/last"),
        (DiffCSE(), ""),
    ):
        assert teachers_of(replace(one, method=method)) == text
    assert teachers_of(one) == teachers_of(none) == ""


@pytest.mark.slow
def test_the_committed_record_has_the_teachers_that_are_declared() -> None:
    jobs, runs = jobs_of(catalogue.choose_studies(["all"], "small")), csv_record.read_runs("small")
    found = runs.set_index("key")["teachers"].to_dict()
    declared = {key: teachers_of(jobs[key].encoder) for key in found if key in jobs}
    assert {key: found[key] for key in declared} == declared
    named = {key for text in runs["teachers"] for key in re.findall(r"([0-9a-f]{12})/", text)}
    assert len(named) > 10
    assert named <= set(runs["key"])


@pytest.mark.slow
def test_runs_that_share_all_columns_differ_in_their_corpus_or_the_version_of_the_code() -> None:
    jobs, runs = jobs_of(catalogue.choose_studies(["all"], "small")), csv_record.read_runs("small")
    columns = [name for name in csv_record.RUNS if name not in ("key", "device", "seconds")]
    same = runs[runs.duplicated(columns, keep=False)]
    assert len(same)
    for _, group in same.groupby(columns):
        declared = [jobs[key].encoder for key in group["key"] if key in jobs]
        corpora = [run.corpus for run in declared if isinstance(run, Run)]
        assert corpora
        assert len(set(corpora)) == len(corpora) >= len(group) - 1  # an earlier version's run is declared no more


def test_a_run_of_an_unknown_scale_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(",".join(csv_record.RUNS) + "\nb,smal,rankcse,b,1,s,d,1.0,\n")
    with pytest.raises(ValueError, match=r"runs\.csv: run b has the scale 'smal'; expected minilm, own, paper"):
        csv_record.read_results("small", tmp_path)
