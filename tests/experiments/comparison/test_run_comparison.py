"""Some failures end a comparison; others only make a method lose."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from cse_core.evaluation import suite
from cse_core.evaluation.suite import find_task
from cse_core.run import Pretrained
from experiments.compare import check_ready
from experiments.comparison import run_comparison
from experiments.comparison.comparison import Budget, Comparison, Scores
from experiments.comparison.recorded import check_inputs, dev_scores, record_trials
from experiments.execution.job import ExecutionSettings
from experiments.execution.plan import Plan
from experiments.results import csv_record
from tests.support.comparisons import comparison_of

COMPARISON = comparison_of("simcse", "compcse", "rankcse", budget=Budget(trials=1, searches=1, finals=1))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple]:
    """Run methods where nothing trains and jobs fail for given reasons; return what it says and its calls."""

    def comparison(reasons: Callable[[Plan], dict[str, str]], *names: str) -> tuple[dict[str, str], bool, int]:
        calls = []
        entrants = [each for each in COMPARISON.entrants if each.name in (names or ("simcse", "compcse"))]

        def failing(work: Plan, *given: object) -> tuple[dict[str, str], bool]:
            calls.append(work)
            return reasons(work), True

        monkeypatch.setattr(run_comparison, "_run", failing)
        tracker, execution = SimpleNamespace(mlruns=tmp_path), ExecutionSettings(tmp_path / "store")
        failed, ended = run_comparison.run_comparison(COMPARISON, execution, None, tracker, entrants)  # ty: ignore[invalid-argument-type]
        return failed, ended, len(calls)

    return comparison


def of_students(work: Plan, reason: str) -> dict[str, str]:
    return {job.key: reason for job in work.pending if job.label.endswith(("search 1", "published"))}


def of(work: Plan, method: str, reason: str) -> dict[str, str]:
    return {job.key: reason for job in work.pending if job.label.startswith(f"{method} ")}


def test_a_method_that_raises_waits_and_the_comparison_goes_on(run: Callable) -> None:
    """Its finals would be of the best trial that is left, and be scored on test sets."""
    raises, diverges = "RuntimeError: no loss today", "DivergedError: run 0: loss is nan at step 2 of 9"
    seen = []

    def reasons(work: Plan) -> dict[str, str]:
        seen.append({job.label for job in work.pending})
        return of(work, "compcse", raises) | of(work, "simcse", diverges)

    failed, ended, calls = run(reasons)
    assert ended
    assert calls == 2  # trials, and the finals of the published settings
    assert seen == [{"simcse search 1", "compcse search 1"}, {"simcse published"}]
    assert sorted(failed.values()) == [diverges, diverges, raises]


def test_the_best_quarter_is_trained_again_before_the_finals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = comparison_of("simcse", "compcse", budget=Budget(trials=8, searches=1, finals=1))
    recorded, stages = [], []

    def score(work: Plan, *given: object) -> tuple[dict[str, str], bool]:
        stages.append(len(work.pending))
        recorded.extend(
            (job.key, scoring.select, str(scoring.scorer), task, metric, suite.version(task), 0.5)
            for job in work.pending
            for scoring in job.scorings
            for task in scoring.tasks
            for metric in find_task(task).metrics  # ty: ignore[missing-union-attribute]
        )
        return {}, True

    def read(*given: object) -> tuple[pd.DataFrame, Scores]:
        results = pd.DataFrame(recorded, columns=[*csv_record.CELL, "score"])
        return results, dev_scores(comparison, results, csv_record.read_searches(comparison.scale.name, tmp_path))

    monkeypatch.setattr(run_comparison, "_run", score)
    monkeypatch.setattr(run_comparison, "read_scores", read)
    tracker, execution = SimpleNamespace(mlruns=tmp_path), ExecutionSettings(tmp_path / "store")
    assert run_comparison.run_comparison(comparison, execution, None, tracker) == ({}, True)  # ty: ignore[invalid-argument-type]
    assert stages == [2 * 8, 2 * 2 * 2, 2 * 2]
    assert len(csv_record.read_searches(comparison.scale.name, tmp_path)) == 2 * comparison.budget.runs


def test_a_method_whose_teachers_are_the_baseline_waits_for_it(run: Callable) -> None:
    assert run(lambda work: {}, "rankcse") == ({}, True, 0)


def test_a_command_that_does_not_run_what_a_method_waits_for_is_refused(tmp_path: Path) -> None:
    simcse, compcse, rankcse = COMPARISON.entrants
    waiting = run_comparison.not_ready(COMPARISON, COMPARISON.entrants, tmp_path)
    assert waiting.keys() == {"rankcse"}
    check_ready(COMPARISON, (simcse, rankcse), waiting)
    check_ready(COMPARISON, (compcse,), {})
    with pytest.raises(ValueError, match=r"^rankcse: its teachers or bases .* have not ended: run simcse too$"):
        check_ready(COMPARISON, (compcse, rankcse), waiting)
    budget = Budget(trials=3, searches=1, finals=1)
    after = replace(COMPARISON, name="after", transfers=COMPARISON, budget=budget)
    waiting = run_comparison.not_ready(after, after.entrants, tmp_path)
    assert waiting.keys() == {"simcse", "compcse", "rankcse"}
    with pytest.raises(ValueError, match=r"^rankcse, simcse, compcse: its settings are .* comparison test, which has"):
        check_ready(after, after.entrants, waiting)


@pytest.mark.parametrize(
    "reason",
    [
        "OSError: [Errno 28] No space left on device",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory",
        "its worker was lost: killed",
    ],
)
def test_a_failure_of_the_machine_ends_it(run: Callable, reason: str) -> None:
    failed, ended, calls = run(lambda work: of_students(work, reason))
    assert (ended, calls) == (False, 1)
    assert set(failed.values()) == {reason}


@pytest.mark.parametrize(
    "reason", ["ValueError: does not reproduce its recorded scores", "DivergedError: run 0: loss is nan at step 2 of 9"]
)
def test_a_method_whose_teacher_fails_waits_as_other_settings_would_win(
    run: Callable, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(Comparison, "has_chosen", lambda *given: True)
    seen = []

    def reasons(work: Plan) -> dict[str, str]:
        seen.append({job.label for job in work.pending if job.key in of_students(work, "")})
        teachers = [job.key for job in work.pending if job.key not in of_students(work, "")]
        return dict.fromkeys(teachers[:1], reason) | of(work, "compcse", "DivergedError: run 1: loss is nan at step 2")

    failed, ended, _ = run(reasons, "rankcse", "compcse")
    assert ended
    assert reason in failed.values()
    assert seen == [{"rankcse search 1", "compcse search 1"}, {"compcse published"}]


@pytest.mark.parametrize(
    ("reason", "finals"),
    [
        (f"FailedTasksError: synthetic_dev by cosine: spearman.all {suite.UNDEFINED}", ["compcse", "simcse"]),
        (f"FailedTasksError: synthetic_dev by cosine: the vector of 'A' {suite.NOT_FINITE}", ["compcse", "simcse"]),
        (f"FailedTasksError: b: no such file; a by cosine: spearman.all {suite.UNDEFINED}", ["simcse"]),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'words.txt'", ["simcse"]),
    ],
)
def test_a_trial_without_a_score_is_a_result_and_a_file_that_a_method_lacks_is_its_own_failure(
    run: Callable, tmp_path: Path, reason: str, finals: list[str]
) -> None:
    seen = []

    def reasons(work: Plan) -> dict[str, str]:
        seen.append({job.label for job in work.pending})
        return of(work, "simcse", "DivergedError: run 0: loss is nan at step 2 of 9") | of(work, "compcse", reason)

    _, ended, _ = run(reasons)
    assert ended
    assert sorted(seen[1]) == [f"{name} published" for name in finals]
    lines = csv_record.read_searches(COMPARISON.scale.name, tmp_path)
    assert list(lines["state"]) == ["failed"] * 2 * len(finals)


def test_a_trial_of_a_changed_method_is_recorded_beside_the_one_before(tmp_path: Path) -> None:
    """Its settings and its seed are the same; its key is another."""
    (trial, *_) = COMPARISON.stage("trials", Scores({}))
    trial = replace(trial, entrant=replace(trial.entrant, file="my_method.py"))
    changed = replace(trial, run=replace(trial.run, max_steps=7))
    for each in (trial, changed):
        record_trials(COMPARISON, [each], Scores({}), {each.run.key}, tmp_path)
    assert set(csv_record.read_searches(COMPARISON.scale.name, tmp_path)["keys"]) == {trial.run.key, changed.run.key}


def test_a_record_with_other_inputs_is_refused(tmp_path: Path) -> None:
    check_inputs(COMPARISON, tmp_path)
    corpus = COMPARISON.scale.corpus
    moved = replace(COMPARISON.scale, corpus=replace(corpus, name=f"elsewhere/{corpus.name}"))
    check_inputs(replace(COMPARISON, margin=1.0, budget=Budget(trials=2), scale=moved), tmp_path)
    other = replace(COMPARISON.scale, corpus=replace(corpus, lines=300))
    check_inputs(replace(COMPARISON, name="beside", scale=other), tmp_path)
    with pytest.raises(
        ValueError, match=r"^comparison test: .* another corpus, .* 8,192 .* 300 .*; expected another --name"
    ):
        check_inputs(replace(COMPARISON, scale=other), tmp_path)
    with pytest.raises(ValueError, match=r"^comparison test: .* another scale, quickstart, got small; expected an"):
        check_inputs(replace(COMPARISON, scale=replace(COMPARISON.scale, name="small")), tmp_path)
    first = COMPARISON.entrants[0]
    entrant = replace(first, start=replace(first.start, backbone=Pretrained("wiki-mini")))
    with pytest.raises(
        ValueError, match=r"^comparison test: .* another encoder, wiki-tiny, got wiki-mini; expected an"
    ):
        check_inputs(replace(COMPARISON, entrants=(entrant, *COMPARISON.entrants[1:])), tmp_path)
