"""A job reports its curves and its progress while it runs."""

from pathlib import Path
from typing import Any

import pytest

from cse_core.training.run_state import History
from experiments.execution.job import ExecutionSettings, execute
from experiments.tracking.run_content import run_content
from experiments.tracking.run_reports import Reporter
from tests.support import tiny_study
from tests.support.tracked_job import JOB


@pytest.mark.slow
def test_the_reports_of_a_run_have_all_points_of_its_curves_and_say_how_far_it_is(tmp_path: Path) -> None:
    reports: list[dict[str, Any]] = []
    reporter = Reporter(JOB.eval_steps, reports.append, every=1e9)
    reporter.sent_at = float("inf")  # only evaluations
    result = execute(JOB, ExecutionSettings(tmp_path), on_step=reporter.step)
    points = {(name, step): value for report in reports for name, step, value in report["points"]}
    assert points == run_content(result).points
    assert [report["status"].split(",")[0] for report in reports] == [f"step {n} of 20" for n in (4, 8, 12, 16, 20)]
    assert all("loss " in report["status"] and "dev/synthetic_dev 0." in report["status"] for report in reports)
    assert [report["fraction"] for report in reports] == pytest.approx([0.16, 0.32, 0.48, 0.64, 0.8])


@pytest.mark.slow
def test_long_preparations_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokenising, teachers' vectors, the sentences that are scored: with an empty cache each is done."""
    monkeypatch.setenv("CSE_CACHE", str(tmp_path / "cache"))
    found: dict[str, tuple[int, int]] = {}
    teacher = tiny_study.run(seed=1)
    place = ExecutionSettings(tmp_path / "store")
    for run in (teacher, tiny_study.taught(teacher)):
        job = type(JOB)(run, "tiny", "a", JOB.scorings)
        execute(job, place, progress=lambda what, done, of: found.update({what: (done, of)}))
    assert found.keys() == {"tokenising", "embedding for teachers", "embedding"}
    assert found["tokenising"] == found["embedding for teachers"] == (320, 320)
    assert found["embedding"][0] == found["embedding"][1] > 0


def test_reports_between_evaluations_are_rare() -> None:
    reports: list[dict[str, Any]] = []
    reporter = Reporter(1000, reports.append)
    for step in range(1, 500):
        reporter.step(step, History(steps=1000))
        reporter.prepare("tokenising", step, 500)
    assert len(reports) == 1


def test_scoring_is_reported_unless_reports_end_with_training() -> None:
    for until_trained in (False, True):
        reports: list[dict[str, Any]] = []
        reporter = Reporter(5, reports.append, every=0.0, until_trained=until_trained)
        reporter.prepare("tokenising", 1, 2)
        for step in (9, 10):
            reporter.step(step, History(steps=10))
        reporter.prepare("embedding", 1, 2)
        assert [report["status"] for report in reports][3:] == ([] if until_trained else ["embedding 1 of 2"])
        assert len(reports) == 4 - until_trained
