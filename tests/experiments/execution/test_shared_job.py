"""Jobs with run folders on shared storage resume on other machines, and nothing is done or written twice."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cse_core.data.synthetic import sentences
from cse_core.evaluation.scorers import Cosine, PairScores
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.run_state import STATE, History
from experiments.cli.sweep_options import Options
from experiments.execution import shared_job
from experiments.execution.job import ExecutionSettings, FailedTasksError, Job, Scoring
from experiments.execution.shared_job import execute_shared
from experiments.execution.sweep_setup import copy_arrays
from experiments.results import csv_record
from experiments.schema.rows import AS_IS
from experiments.storage import retries
from experiments.storage.retries import retry
from experiments.storage.shared_storage import Shared
from tests.support import tiny_study
from tests.support.shared_folders import FILES, content, fill, prepared, saved
from tests.support.training import equal, weights


class CutOffError(Exception):
    pass


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Empty shared storage in tmp_path / "shared"."""
    return prepared((tmp_path / "shared").as_uri())


def job_of(encoder: Run | Pretrained, *tasks: str, rules: tuple[str, ...] = ("last",)) -> Job:
    """A job that scores each checkpoint on the tasks."""
    scorings = tuple(Scoring(rule, Cosine(), tasks) for rule in rules if tasks)
    return Job(encoder, "tiny", "a", scorings, ("x",))


def scored_tasks(folder: Path) -> set[str]:
    return {cell["task"] for cell in json.loads((folder / "result.json").read_text())["cells"]}


@pytest.mark.slow
def test_a_run_resumes_on_another_machine_with_the_same_bits(url: str, tmp_path: Path) -> None:
    run = tiny_study.run()
    job = job_of(run, "synthetic", rules=("synthetic_dev",))
    other = prepared((tmp_path / "other").as_uri())
    here = ExecutionSettings(tmp_path / "here", shared=url, save_seconds=-1.0, share_seconds=-1.0)
    steps: list[int] = []

    def cut(step: int, history: History) -> None:
        if step == 11:
            raise CutOffError

    with pytest.raises(CutOffError):
        execute_shared(job, here, on_step=cut)
    there = execute_shared(job, replace(here, store=tmp_path / "there"), on_step=lambda s, _: steps.append(s))
    assert steps == list(range(12, 21))
    alone = execute_shared(job, replace(here, store=tmp_path / "alone", shared=other))
    assert there["cells"] == alone["cells"]
    assert not list((tmp_path / "there").rglob("model.safetensors"))  # they are published
    for place in (url, other):
        assert Shared(place).fetch(run.key, tmp_path / "fetched" / Path(place).name) == 1
    a, b = (weights(tmp_path / "fetched" / name, run, "synthetic_dev") for name in ("shared", "other"))
    assert equal(a, b)
    # The machine that was cut off comes back. It takes the other one's result and trains nothing.
    assert execute_shared(job, here, on_step=cut)["cells"] == there["cells"]
    assert not (tmp_path / "here" / run.key / "state.pt").exists()
    published = list((tmp_path / "shared" / run.key).iterdir())
    assert sorted(path.is_dir() for path in published) == [False, True]  # one folder, and its number


def test_slow_storage_does_not_stop_training(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload takes longer than the interval between two of them."""
    clock, brought = [0.0], []

    def slow(self: Shared, folder: Path, rules: tuple[str, ...]) -> None:
        brought.append(clock[0])
        clock[0] += 700

    def steps(job: Job, place: ExecutionSettings, *, on_step: Callable[[int, History], None], **more: object) -> dict:
        folder = saved(place.store / job.key, 1)
        for step in range(1, 21):
            clock[0] += 100
            on_step(step, History(steps=20))
        (folder / "result.json").write_text('{"cells": [], "studies": [], "kept": {}}')
        return {}

    monkeypatch.setattr(shared_job, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(shared_job, "execute", steps)
    monkeypatch.setattr(Shared, "share_state", slow)
    execute_shared(job_of(tiny_study.run()), ExecutionSettings(tmp_path / "store", shared=url))
    assert brought == [700, 2100]  # after an upload of 700 seconds come seven steps of 100 before the next one


def test_arrays_of_runs_of_other_machines_come_into_the_record(url: str, tmp_path: Path) -> None:
    mlruns = tmp_path / "mlruns"
    drawn = replace(tiny_study.healthy(tiny_study.SCALE), view="densities")
    options = Options(mlruns=mlruns, store=tmp_path / "store", shared=url)
    assert copy_arrays([drawn], options) == {}  # there is none yet
    lacking = csv_record.missing_arrays([drawn], mlruns)
    assert len(lacking) == 3
    for key, target in lacking:
        assert Shared(url).publish(fill(tmp_path / "other" / key, **{f"figure_data/{target.name}": key.encode()}), 0)
    assert copy_arrays([drawn], options) == {}
    assert [target.read_text() for _, target in lacking] == [key for key, _ in lacking]
    assert csv_record.missing_arrays([drawn], mlruns) == []


@pytest.mark.slow
def test_scores_are_published_once_although_another_task_fails(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def equal_scores(self: Cosine, encoder: object, tasks: dict, *, data: Path | None) -> dict:
        return {task: PairScores(np.ones(len(first))) for task, (first, _) in tasks.items()}

    monkeypatch.setattr(Cosine, "pair_scores", equal_scores)
    job = job_of(tiny_study.run().backbone, "synthetic", "phrases", rules=(AS_IS,))
    for store in ("a", "b"):
        with pytest.raises(FailedTasksError, match="synthetic"):
            execute_shared(job, ExecutionSettings(tmp_path / store, shared=url))
    assert Shared(url).fetch(job.key, tmp_path / "c", weights=False) == 1
    assert scored_tasks(tmp_path / "c" / job.key) == {"phrases"}


@pytest.mark.slow
def test_scores_that_could_not_be_uploaded_are_uploaded_by_the_same_command(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_TIMEOUT_SECONDS", 0.0)
    execution = ExecutionSettings(tmp_path / "a", shared=url)

    def score(*tasks: str) -> None:
        execute_shared(job_of(tiny_study.run().backbone, *tasks, rules=(AS_IS,)), execution)

    def unreachable(self: Shared, folder: Path, after: int) -> bool:
        raise OSError("no route to host")

    score("synthetic")
    with monkeypatch.context() as cut_off:
        cut_off.setattr(Shared, "publish", unreachable)
        with pytest.raises(OSError, match="no route"):
            score("synthetic", "phrases")
    score("synthetic", "phrases")
    (key,) = (path.name for path in (tmp_path / "a").iterdir() if path.is_dir())
    assert Shared(url).fetch(key, tmp_path / "b", weights=False) == 2
    assert scored_tasks(tmp_path / "b" / key) == {"synthetic", "phrases"}


@pytest.mark.slow
def test_a_retraining_for_more_rules_resumes_where_it_was_stopped(url: str, tmp_path: Path) -> None:
    run = tiny_study.run()
    execution = ExecutionSettings(tmp_path / "a", shared=url)
    one, both = (job_of(run, "synthetic", rules=rules) for rules in (("synthetic_dev",), ("synthetic_dev", "last")))

    def stop(step: int, history: History) -> None:
        if (tmp_path / "a" / run.key / STATE).is_file():
            raise KeyboardInterrupt

    execute_shared(one, execution)
    with pytest.raises(KeyboardInterrupt):
        execute_shared(both, execution, on_step=stop)
    steps: list[int] = []
    execute_shared(both, execution, on_step=lambda step, history: steps.append(step))
    assert steps[0] > 1
    assert Shared(url).fetch(run.key, tmp_path / "b", weights=False) == 2


@pytest.mark.slow
def test_a_run_whose_teacher_is_damaged_on_storage_says_what_trains_the_teacher_again(url: str, tmp_path: Path) -> None:
    teacher = tiny_study.run()
    assert Shared(url).publish(fill(tmp_path / "other" / teacher.key), 0)  # its files are not what they should be
    job = job_of(replace(teacher, method=RankCSE(teachers=(Teacher(teacher, 1.0, "last"),))))
    damage = f"run {teacher.key}, which it needs, is damaged on file:.*same command trains"
    with pytest.raises(ValueError, match=damage):
        execute_shared(job, ExecutionSettings(tmp_path / "store", shared=url))


def test_a_listing_that_stays_stale_ends_in_an_error_that_names_the_storage(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tiny_study.run())
    assert Shared(url).publish(fill(tmp_path / "other" / job.key), 0)
    monkeypatch.setattr(Shared, "_entries", lambda self, key: [])
    done: list[str] = []

    def execute(job: Job, place: ExecutionSettings, **more: object) -> dict:
        done.append(job.key)
        folder = fill(place.store / job.key)
        (folder / "result.json").write_text('{"cells": [1], "studies": [], "kept": {}}')
        return {}

    monkeypatch.setattr(shared_job, "execute", execute)
    with pytest.raises(OSError, match=r"shared: after 5 tries its listing still does not show"):
        execute_shared(job, ExecutionSettings(tmp_path / "store", shared=url))
    assert len(done) == shared_job.TRIES


@pytest.mark.slow
def test_a_run_whose_weights_on_storage_are_damaged_is_trained_and_uploaded_again(url: str, tmp_path: Path) -> None:
    job = job_of(tiny_study.run(), "synthetic")
    first = execute_shared(job, ExecutionSettings(tmp_path / "here", shared=url))
    (damaged,) = (tmp_path / "shared").rglob("model.safetensors")
    damaged.write_bytes(damaged.read_bytes()[:-100])
    steps: list[int] = []
    for store in ("here", "there"):  # the machine that trained it and has its result, then another one
        settings = ExecutionSettings(tmp_path / store, shared=url)
        again = execute_shared(job, settings, on_step=lambda step, _: steps.append(step))
        assert again["cells"] == first["cells"]
    assert steps == list(range(1, 21))  # by the first of the two only
    assert Shared(url).fetch(job.key, tmp_path / "new") == 2
    assert (tmp_path / "new" / job.key / "last" / "model.safetensors").is_file()


class StoreError(Exception):
    """An error of a kind that some stores raise: not an OSError."""


def test_storage_that_is_unreachable_for_a_while_costs_no_run(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_INTERVAL_SECONDS", 0.01)
    shared, tried = Shared(url), []
    put = shared.files.put_file

    def unreachable(source: str, target: str) -> None:
        tried.append(target)
        if len(tried) < 4:
            raise StoreError("no endpoint")
        put(source, target)

    monkeypatch.setattr(shared.files, "put_file", unreachable)
    folder = fill(tmp_path / "a" / "key")
    assert retry(lambda: shared.publish(folder, 0))
    assert len(tried) == 3 + len(FILES)
    assert Shared(url).fetch("key", tmp_path / "b") == 1
    assert content(tmp_path / "b" / "key") == FILES
    tried.clear()
    monkeypatch.setattr(retries, "RETRY_TIMEOUT_SECONDS", 0.0)
    with pytest.raises(OSError, match="StoreError: no endpoint"):
        retry(lambda: shared.publish(folder, 1))


FIRST, SECOND = (
    job_of(replace(tiny_study.run(), corpus=Corpus("mine", 64), batch_size=32, seed=seed), "synthetic")
    for seed in (1, 2)
)


def machine(folder: Path, url: str, lines: list[str]) -> ExecutionSettings:
    """A machine whose corpus "mine" has these lines."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "mine.txt").write_text("\n".join(lines) + "\n")
    return ExecutionSettings(folder / "store", folder / "data", shared=url)


@pytest.fixture
def two_machines(url: str, tmp_path: Path) -> list[ExecutionSettings]:
    """Machines whose corpora have the same name and different sentences."""
    return [machine(tmp_path / f"{step}", url, sentences(64)[::step]) for step in (1, -1)]


@pytest.mark.slow
def test_a_machine_with_other_sentences_is_refused_before_it_trains(
    two_machines: list[ExecutionSettings], url: str, tmp_path: Path
) -> None:
    here, there = two_machines
    first = execute_shared(FIRST, here)["data"]["corpus"]
    steps: list[int] = []
    with pytest.raises(ValueError, match=f"corpus mine, first 64 lines has the content .* found {first}"):
        execute_shared(SECOND, there, on_step=lambda step, _: steps.append(step))
    assert steps == []
    assert not (tmp_path / "shared" / SECOND.key).exists()
    again = machine(tmp_path / "again", url, sentences(64))
    assert execute_shared(SECOND, again)["data"]["corpus"] == first


@pytest.mark.slow
def test_of_two_machines_that_use_a_name_at_once_one_publishes(two_machines: list[ExecutionSettings], url: str) -> None:
    here, there = two_machines
    first: list[str] = []

    def meanwhile(step: int, history: History) -> None:
        if not first:
            first.append(execute_shared(FIRST, here)["data"]["corpus"])

    with pytest.raises(ValueError, match=r"corpus mine, first 64 lines has the content .* found "):
        execute_shared(SECOND, there, on_step=meanwhile)
    assert len(first) == 1
    assert not Shared(url).holds(SECOND.key, ("last",))
    assert Shared(url).holds(FIRST.key, ("last",))
