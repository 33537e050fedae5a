"""Some failures end a comparison; others only make a method lose."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.comparison import run_comparison
from experiments.comparison.comparison import Budget
from experiments.execution.job import ExecutionSettings
from experiments.execution.plan import Plan
from tests.support.comparisons import comparison_of

COMPARISON = comparison_of("simcse", "rankcse", budget=Budget(trials=1, searches=1, finals=1))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Plan], dict[str, str]]], tuple]:
    """Run the comparison where nothing trains and jobs fail for given reasons; return what it says and its calls."""

    def comparison(reasons: Callable[[Plan], dict[str, str]]) -> tuple[dict[str, str], bool, int]:
        calls = []

        def failing(work: Plan, *given: object) -> tuple[dict[str, str], bool]:
            calls.append(work)
            return reasons(work), True

        monkeypatch.setattr(run_comparison, "_run", failing)
        tracker, execution = SimpleNamespace(mlruns=tmp_path), ExecutionSettings(tmp_path / "store")
        failed, ended = run_comparison.run_comparison(COMPARISON, execution, None, tracker)  # ty: ignore[invalid-argument-type]
        return failed, ended, len(calls)

    return comparison


def of_students(work: Plan, reason: str) -> dict[str, str]:
    return {job.key: reason for job in work.pending if job.label.endswith(("search 1", "published"))}


def test_a_method_that_raises_loses_and_the_comparison_goes_on(run: Callable) -> None:
    failed, ended, calls = run(lambda work: of_students(work, "RuntimeError: no loss today"))
    assert ended
    assert calls == 2  # trials, and the finals of the published settings
    assert len(failed) == 4


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


def test_a_teacher_that_fails_ends_it_as_other_settings_would_win(run: Callable) -> None:
    def reasons(work: Plan) -> dict[str, str]:
        (teacher, *_) = [job.key for job in work.pending if job.key not in of_students(work, "")]
        return {teacher: "ValueError: does not reproduce its recorded scores"}

    assert run(reasons)[1:] == (False, 1)
