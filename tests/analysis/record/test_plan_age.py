"""The plan is older than the runs that it judges: in the committed record, and in histories made for the test."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from experiments.plan.pilots import WHITENING
from experiments.plan.planned_rows import planned_simcse, planned_study, primary, without_dropout
from experiments.results import csv_record
from experiments.schema.scales import SCALES
from experiments.schema.study import Study
from experiments.studies.catalogue import choose_studies
from tests.support.plan_age import PAGE, page_in_history, planned_lines, younger_contrasts

ROOT = Path(__file__).parents[3]


@pytest.fixture
def study() -> Study:
    scale = SCALES["small"]
    simcse, without = planned_simcse(scale, WHITENING), without_dropout(scale, WHITENING)
    return planned_study(scale, "", [simcse, without], [primary("R1", WHITENING, simcse, without)])


def scored(study: Study, commit: str) -> pd.DataFrame:
    return pd.DataFrame({"key": [study.rows[0].runs()[0].key], "commit": [commit]})


@pytest.mark.slow
def test_the_committed_record_was_planned() -> None:
    studies = choose_studies(["plan"], "small")
    assert younger_contrasts(studies, csv_record.read_results("small"), page_in_history(ROOT)) == []


def test_a_contrast_that_is_changed_after_its_runs_is_named(study: Study, tmp_path: Path) -> None:
    def git(*words: str) -> str:
        settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", "-C", str(tmp_path), *settings, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "-q")
    page = tmp_path / PAGE
    page.parent.mkdir()
    page.write_text("no plan yet\n")
    git("add", ".")
    git("commit", "-qm", "before")
    before = git("rev-parse", "--short=10", "HEAD")
    lines = "\n".join(f"| {' | '.join(line)} |" for line in planned_lines(study))
    page.write_text(f"# The plan\n{lines}\n")
    git("commit", "-qam", "the plan")
    planned = git("rev-parse", "--short=10", "HEAD")
    page_at = page_in_history(tmp_path)
    assert younger_contrasts([study], scored(study, planned), page_at) == []
    assert younger_contrasts([study], scored(study, f"{planned}+"), page_at) == []
    for commit in (before, "0123456789"):  # without the plan, and unknown here
        (found,) = younger_contrasts([study], scored(study, commit), page_at)
        assert f"R1: scored at {commit}, whose plan has no line" in found
    wider = replace(study, contrasts=(replace(study.contrasts[0], margin=2.0),))
    assert len(younger_contrasts([wider], scored(study, planned), page_at)) == 1
    assert younger_contrasts([wider], scored(study, planned)[:0], page_at) == []  # nothing was scored yet
