"""How jobs are handed to Ray Tune."""

import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from ray import cloudpickle, tune
from ray._private import ray_constants
from ray.tune.search import Searcher

from cse_core.lookup import look_up
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.run import Pretrained, Run
from experiments.cli.console import Bar
from experiments.execution import ray_sweep, tune_hooks
from experiments.execution.job import ExecutionSettings, Job
from experiments.execution.ray_sweep import RayConfig, run_jobs
from experiments.execution.tune_hooks import ReadyRuns, SweepCallback, unusable_runs
from tests.support.plans import BASE
from tests.support.polling import until


def job(name: str, encoder: Run | None = None) -> Job:
    return Job(encoder or Pretrained(name), "tiny", name, (), ())


def new_callback(*names: str) -> SweepCallback:
    """Return a callback that logs nothing."""
    logbook = SimpleNamespace(add=lambda key: None, live=SimpleNamespace(stop=lambda key: None))
    return SweepCallback(logbook, Bar(dict.fromkeys(names, "")))  # ty: ignore[invalid-argument-type]


def noted(config: Mapping[str, str], jobs: object, execution: ExecutionSettings) -> None:
    """A stand-in for a run that writes down when it began and ended."""
    began = time.time()
    time.sleep(0.5)
    (execution.store / config["key"]).write_text(f"{began} {time.time()}")
    tune.report({"fraction": 1.0, "failed": ""})


def together(config: Mapping[str, str], jobs: object, execution: ExecutionSettings) -> None:
    """The same, but it begins when another run has started too: the second worker may start late."""
    (execution.store / f"{config['key']}.there").touch()
    end = time.time() + 100
    while len(list(execution.store.glob("*.there"))) < 2 and time.time() < end:
        time.sleep(0.02)
    noted(config, jobs, execution)


@pytest.fixture(scope="module")
def started() -> Generator[None]:
    """Ray on three cores and a GPU, which it only counts."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # which workers can't import
    ray.init(address="local", num_cpus=3, num_gpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def execution(started: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExecutionSettings:
    monkeypatch.setattr(ray_sweep, "run_job", noted)
    (tmp_path / "store").mkdir()
    return ExecutionSettings(tmp_path / "store")


def beside(config: Mapping[str, str], jobs: Mapping[str, Job], execution: ExecutionSettings) -> None:
    """The same, but the run named "other" ends only when the student has begun, or after a minute."""
    label, end = jobs[config["key"]].label, time.time() + 60
    (execution.store / f"{label}.there").touch()
    while label == "other" and not (execution.store / "student.there").exists() and time.time() < end:
        time.sleep(0.02)
    noted(config, jobs, execution)


def kills(config: Mapping[str, str], jobs: Mapping[str, Job], execution: ExecutionSettings) -> None:
    """The same, but the teacher kills the worker of the run named "short" when it is idle."""
    label, number = jobs[config["key"]].label, execution.store / "number"
    if label == "short":
        number.write_text(str(os.getpid()))
        until(lambda: (execution.store / "teacher.there").exists())  # on the other worker, which may start late
    if label == "teacher":
        (execution.store / "teacher.there").touch()
        (short,) = [key for key, each in jobs.items() if each.label == "short"]
        until(lambda: (execution.store / short).exists())
        time.sleep(3)
        os.kill(int(number.read_text()), signal.SIGKILL)
        time.sleep(1)
    noted(config, jobs, execution)


def run(jobs: Sequence[Job], execution: ExecutionSettings, cluster: RayConfig) -> list[tuple[float, ...]]:
    """Return when each began and ended."""
    usable = unusable_runs({each.key: each.name for each in jobs}, pd.DataFrame(), execution)
    callback = new_callback(*(each.key for each in jobs))
    run_jobs(jobs, execution, cluster, callback, usable)
    assert callback.failed == {}
    return [tuple(map(float, (execution.store / each.key).read_text().split())) for each in jobs]


@pytest.mark.slow
def test_two_runs_that_each_take_half_a_gpu_share_one(
    execution: ExecutionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_sweep, "run_job", together)
    cluster = RayConfig(workers=6, gpus_per_run=0.5)
    found = run([job(name) for name in "abcdef"], replace(execution, device="cuda"), cluster)
    assert max(sum(began <= at < end for began, end in found) for at, _ in found) == 2


def test_an_error_in_a_users_file_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the name of one of this project's files, in which the error arises."""
    path, reports = tmp_path / "lookup.py", list[Mapping[str, Any]]()
    defined: dict[str, Any] = {"__name__": "lookup", "look_up": look_up}
    exec("def loss():\n    return look_up('head', 'a', {'b': 1})\n", defined)
    monkeypatch.setattr(ray_sweep, "execute_shared", lambda *given, **how: defined["loss"]())
    monkeypatch.setattr(ray_sweep.tune, "report", reports.append)
    mine, other = replace(job("a"), file=str(path)), job("b")
    for each in (mine, other):
        ray_sweep.run_job({"key": each.key}, {each.key: each}, ExecutionSettings(tmp_path))
    named, plain = (report["failed"] for report in reports)
    assert named == f"{plain} (lookup.py, line 2)"
    assert "unknown head 'a'" in plain


def test_a_failed_start_of_ray_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed_out(**options: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", timed_out)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    # Without this, later tests in this process could not join the clusters that they start.
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", ray_constants.ENABLE_RAY_CLUSTER)
    with pytest.raises(OSError, match=r"Ray did not start; .*: The current node timed out"):
        RayConfig().start()


@pytest.mark.slow
def test_runs_start_in_their_order_and_no_more_at_a_time_than_there_are_workers(execution: ExecutionSettings) -> None:
    found = run([job(name) for name in "dbca"], execution, RayConfig(workers=1))
    assert found == sorted(found)
    assert all(end < began for (_, end), (began, _) in itertools.pairwise(found))
    assert [path.name for path in execution.store.parent.iterdir()] == ["store"]  # Ray Tune leaves nothing


TEACHER, STUDENT = job("teacher", BASE), job("student", replace(BASE, method=RankCSE(teachers=(Teacher(BASE),))))


def run_with_lesson(name: str, execution: ExecutionSettings) -> list[tuple[float, ...]]:
    """Return when a teacher, another job and the teacher's student began and ended, on two workers."""
    return run([TEACHER, job(name), STUDENT], execution, RayConfig(workers=2))


@pytest.mark.slow
def test_a_student_starts_when_its_teacher_has_ended_while_other_runs_go_on(
    execution: ExecutionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_sweep, "run_job", beside)
    teacher, other, student = run_with_lesson("other", execution)
    assert teacher[1] < student[0] < other[1]


@pytest.mark.slow
@pytest.mark.nightly
def test_a_worker_that_is_lost_while_it_waits_for_a_run_costs_none(
    execution: ExecutionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_sweep, "run_job", kills)
    teacher, short, student = run_with_lesson("short", execution)
    assert short[1] < teacher[1] < student[0]


def taught_by(number: int, teachers: Sequence[Run]) -> Run:
    by = tuple(Teacher(run, 1 / len(teachers)) for run in teachers)
    return replace(BASE, seed=number, method=RankCSE(teachers=by) if by else BASE.method)


@given(st.lists(st.sets(st.integers(0, 6), max_size=2), min_size=1, max_size=8), st.randoms(), st.data())
def test_each_job_starts_once_and_after_those_it_needs_unless_one_failed(
    lessons: list[set[int]], chance: random.Random, data: st.DataObject
) -> None:
    """In any order, with any teachers, and whichever runs fail or do not give their recorded scores."""
    runs: list[Run] = []
    for number, teachers in enumerate(lessons):
        runs.append(taught_by(number, [runs[i] for i in teachers if i < number]))
    needs = {run.key: {nested.key for nested in run.nested()} for run in runs}
    jobs = [job("", run) for run in runs]
    chance.shuffle(jobs)
    callback, running, started = new_callback(*needs), [], []
    wrong = {key for key in needs if data.draw(st.booleans())}  # does not give its recorded scores
    broken = {key for key in needs if data.draw(st.booleans())}
    lost = {key for key in needs if data.draw(st.booleans())}  # with the idle worker that first gets it
    places = data.draw(st.integers(1, 3))
    ready = ReadyRuns(jobs, callback, lambda: places, lambda key: "not the same" if key in wrong else "")
    while (found := ready.suggest("")) != Searcher.FINISHED:
        assert running or isinstance(found, dict) or callback.failed  # otherwise the sweep would wait for ever
        if isinstance(found, dict) and found["key"] in lost:
            lost.remove(found["key"])
            callback.on_trial_error(1, [], SimpleNamespace(config=found, num_failures=2))
        elif isinstance(found, dict):
            assert needs[found["key"]] <= callback.finished - wrong - broken
            running.append(found["key"])
            started.append(found["key"])
            assert len(running) <= places
        if running and (found is None or data.draw(st.booleans())):
            key = running.pop(data.draw(st.integers(0, len(running) - 1)))
            callback.fail(key, "it broke") if key in broken else callback.finished.add(key)
    expected: set[str] = set()  # in the order of `needs` teachers come first
    for key, teachers in needs.items():
        if teachers <= expected - broken - wrong:
            expected.add(key)
    assert sorted(started) == sorted(expected)
    assert callback.finished == expected - broken
    blamed = {key for key in wrong for student, teachers in needs.items() if key in teachers}
    assert callback.failed.keys() - blamed == needs.keys() - callback.finished - blamed


def test_the_first_in_order_that_can_start_does() -> None:
    other = job("other")
    callback = new_callback(other.key, TEACHER.key, STUDENT.key)
    ready = ReadyRuns([STUDENT, other, TEACHER], callback, lambda: 3, lambda key: "")
    assert [ready.suggest("") for _ in range(3)] == [{"key": other.key}, {"key": TEACHER.key}, None]
    callback.finished.add(TEACHER.key)
    assert [ready.suggest("") for _ in range(2)] == [{"key": STUDENT.key}, None]
    callback.finished |= {STUDENT.key, other.key}
    assert ready.suggest("") == Searcher.FINISHED


def test_a_job_whose_worker_is_lost_four_times_fails() -> None:
    callback = new_callback("a")
    for failures in (3, 4):
        callback.on_trial_error(1, [], SimpleNamespace(config={"key": "a"}, num_failures=failures))
    assert callback.failed == {"a": "its worker was lost more often than a run is retried"}


def test_while_storage_is_unreachable_no_run_starts_and_the_driver_does_not_wait(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now, away = [1000.0], [True]

    def fetch(key: str, execution: ExecutionSettings) -> None:
        if away[0]:
            raise ConnectionError("no route to host")

    monkeypatch.setattr(tune_hooks, "fetch_recorded", fetch)
    monkeypatch.setattr(tune_hooks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    callback = new_callback(STUDENT.key)
    unusable = unusable_runs({BASE.key: "teacher"}, pd.DataFrame(), ExecutionSettings(tmp_path))
    ready = ReadyRuns([STUDENT], callback, lambda: 1, unusable)
    assert ready.suggest("") is None
    away[0] = False
    assert ready.suggest("") is None  # not asked again at once
    now[0] += 6
    assert ready.suggest("") == {"key": STUDENT.key}
    away[0], callback = True, new_callback(STUDENT.key)
    ready = ReadyRuns([STUDENT], callback, lambda: 1, unusable_runs({}, pd.DataFrame(), ExecutionSettings(tmp_path)))
    while (found := ready.suggest("")) is None:
        now[0] += 60
    assert found == Searcher.FINISHED
    assert 1000 + 6 + 600 <= now[0] <= 1000 + 6 + 660
    assert callback.failed[STUDENT.key] == f"not started: it needs run {BASE.key}, which failed"
    assert callback.failed[BASE.key] == "its files can't be fetched: no route to host"


def test_a_run_whose_files_can_not_be_fetched_is_unusable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def fetch(key: str, execution: ExecutionSettings) -> None:
        asked.append(key)
        raise ValueError("s3://me:secret@host/x: not what was written")

    monkeypatch.setattr(tune_hooks, "fetch_recorded", fetch)
    unusable = unusable_runs({"a": "A"}, pd.DataFrame(), ExecutionSettings(tmp_path))
    assert unusable("a") == unusable("a") == "its files can't be fetched: s3://***@host/x: not what was written"
    assert asked == ["a"]
