"""How jobs are handed to Ray Tune."""

import itertools
import random
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from ray import cloudpickle, tune
from ray._private import ray_constants
from ray.tune.search import Searcher

from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.run import Pretrained, Run
from experiments.cli.console import Bar
from experiments.execution import ray_sweep
from experiments.execution.job import ExecutionSettings, Job
from experiments.execution.ray_sweep import RayConfig, ReadyRuns, SweepCallback, run_jobs, unusable_runs
from tests.support.plans import BASE


def job(name: str, encoder: Run | None = None) -> Job:
    return Job(encoder or Pretrained(name), "tiny", name, (), ())


def new_callback(*names: str) -> SweepCallback:
    """Return a callback that logs nothing."""
    logbook = SimpleNamespace(add=lambda key: None, live=SimpleNamespace(stop=lambda key: None))
    return SweepCallback(logbook, Bar(dict.fromkeys(names, "")))  # ty: ignore[invalid-argument-type]


def noted(config: Mapping[str, str], jobs: object, execution: ExecutionSettings) -> None:
    """In place of a run: when it began and ended."""
    began = time.time()
    time.sleep(0.5)
    (execution.store / config["key"]).write_text(f"{began} {time.time()}")
    tune.report({"fraction": 1.0, "failed": ""})


def together(config: Mapping[str, str], jobs: object, execution: ExecutionSettings) -> None:
    """The same, once another one is there: the second worker may take its time to start."""
    (execution.store / f"{config['key']}.there").touch()
    end = time.time() + 100
    while len(list(execution.store.glob("*.there"))) < 2 and time.time() < end:
        time.sleep(0.02)
    noted(config, jobs, execution)


@pytest.fixture
def execution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[ExecutionSettings]:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # which workers can't import
    monkeypatch.setattr(ray_sweep, "run_job", noted)
    # Else the clusters that later tests start in this process could not be joined.
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", ray_constants.ENABLE_RAY_CLUSTER)
    (tmp_path / "store").mkdir()
    yield ExecutionSettings(tmp_path / "store")
    ray.shutdown()


def times(keys: Sequence[str], execution: ExecutionSettings, cluster: RayConfig) -> list[tuple[float, ...]]:
    """When each began and ended."""
    jobs = [job(key) for key in keys]
    usable = unusable_runs({each.key: each.name for each in jobs}, pd.DataFrame(), execution)
    run_jobs(jobs, execution, cluster, new_callback(*(each.key for each in jobs)), usable)
    return [tuple(map(float, (execution.store / each.key).read_text().split())) for each in jobs]


@pytest.mark.slow
def test_runs_that_require_half_a_gpu_are_two_at_a_time_on_one(
    execution: ExecutionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_sweep, "run_job", together)
    ray.init(address="local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False)  # Ray only counts
    found = times("abcdef", replace(execution, device="cuda"), RayConfig(gpus_per_run=0.5))
    assert max(sum(began <= at < end for began, end in found) for at, _ in found) == 2


@pytest.mark.slow
def test_no_more_runs_at_a_time_than_asked_for_in_their_order(execution: ExecutionSettings) -> None:
    RayConfig(workers=2).start()
    found = times("dbca", execution, RayConfig(workers=1))
    assert found == sorted(found)
    assert all(end < began for (_, end), (began, _) in itertools.pairwise(found))
    assert [path.name for path in execution.store.parent.iterdir()] == ["store"]  # nothing of Tune's is left beside it


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
    callback, running = new_callback(*(each.key for each in jobs)), []
    wrong = {each.key for each in jobs if data.draw(st.booleans())}  # does not reproduce its recorded scores
    broken = {each.key for each in jobs if data.draw(st.booleans())}
    ready, started = ReadyRuns(jobs, callback, lambda key: "not the same" if key in wrong else ""), []
    while (given_now := ready.suggest("")) != Searcher.FINISHED or running:
        if isinstance(given_now, dict):
            key = given_now["key"]
            assert needs[key] <= callback.finished - wrong - broken
            running.append(key)
            started.append(key)
        if running and (not isinstance(given_now, dict) or data.draw(st.booleans())):
            key = running.pop(data.draw(st.integers(0, len(running) - 1)))
            callback.fail(key, "it broke") if key in broken else callback.finished.add(key)
    assert len(started) == len(set(started))
    useless = broken | wrong
    for each in jobs:
        taught_well = not needs[each.key] & (useless | callback.failed.keys())
        assert (each.key in started) == taught_well
        assert (each.key in callback.finished) == (taught_well and each.key not in broken)
    assert callback.finished | callback.failed.keys() == needs.keys()


def test_the_first_in_order_that_can_start_does() -> None:
    student = job("", replace(BASE, method=RankCSE(teachers=(Teacher(BASE),))))
    other, teacher = job("other"), job("", BASE)
    callback = new_callback(other.key, teacher.key, student.key)
    ready = ReadyRuns([student, other, teacher], callback, lambda key: "")
    assert [ready.suggest("") for _ in range(3)] == [{"key": other.key}, {"key": teacher.key}, None]
    callback.finished.add(teacher.key)
    assert [ready.suggest("") for _ in range(2)] == [{"key": student.key}, Searcher.FINISHED]


def test_a_run_whose_files_can_not_be_fetched_is_unusable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def fetch(key: str, execution: ExecutionSettings) -> None:
        asked.append(key)
        raise ValueError("s3://me:secret@host/x: not what was written")

    monkeypatch.setattr(ray_sweep, "fetch_recorded", fetch)
    unusable = unusable_runs({"a": "A"}, pd.DataFrame(), ExecutionSettings(tmp_path))
    assert unusable("a") == unusable("a") == "its files can't be fetched: s3://***@host/x: not what was written"
    assert asked == ["a"]
