"""runs.csv says what each run learns from: runs that differ only by their teachers differ there."""

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from cse_core.methods.diffcse import DiffCSE
from cse_core.methods.mlm import MLM
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.rankencoder import RankEncoder
from cse_core.run import Pretrained, Run
from experiments.execution.plan import jobs_of
from experiments.results import csv_record
from experiments.schema.teachers import UNKNOWN, teachers_of
from experiments.studies import catalogue
from tests.support import tiny_study

OLD = "key,scale,method,backbone,seed,settings,device,seconds\n"
LINES = (
    "a,small,simcse,b,1,s,d,1.5\nb,small,rankcse,b,1,s,d,1.0\nc,small,none,b,0,,d,0.0\nd,small,elsewhere,b,1,s,d,1.0\n"
)


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
    assert UNKNOWN not in set(runs["teachers"])
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


def test_a_file_from_before_is_read_and_says_what_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(OLD + LINES)
    assert csv_record.read_runs("small", tmp_path)["teachers"].to_list() == ["", "unknown", "", "unknown"]


def test_a_file_from_before_keeps_its_lines_and_gains_the_column(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(OLD + LINES)
    new = pd.DataFrame([("e", "small", "rankcse", "b", 1, "s", "d", 2.0, "a/last x1.0")], columns=csv_record.RUNS)
    assert csv_record.RUNS_TABLE.merge(tmp_path, new) == 1
    teachers = ["teachers", "", "unknown", "", "unknown"]
    expected = [f"{line},{one}" for line, one in zip((OLD + LINES).splitlines(), teachers, strict=True)]
    assert (tmp_path / "runs.csv").read_text().splitlines() == [*expected, "e,small,rankcse,b,1,s,d,2.0,a/last x1.0"]


def test_a_line_from_before_that_is_too_short_is_damage(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(OLD + LINES + "e,small,rankcse,b,1,s,d\n")
    with pytest.raises(ValueError, match=r"runs\.csv, line 6: 7 cells; expected 8"):
        csv_record.read_runs("small", tmp_path)


def test_a_run_of_an_unknown_scale_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(OLD + LINES.replace("b,small", "b,smal"))
    with pytest.raises(ValueError, match=r"runs\.csv: run b has the scale 'smal'; expected minilm, own, paper"):
        csv_record.read_results("small", tmp_path)
