"""Jobs with run folders on shared storage: they resume elsewhere, and nothing is done or written twice."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cse_core.data.synthetic import sentences
from cse_core.evaluation.scorers import Cosine, PairScores
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.run import Corpus
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


class CutOffError(Exception):
    pass


@pytest.mark.slow
def test_a_run_resumes_on_another_machine_with_the_same_bits(tmp_path: Path) -> None:
    run = tiny_study.run()
    job = Job(run, "tiny", "a", (Scoring("synthetic_dev", Cosine(), ("synthetic",)),), ("x",))
    url, other = prepared((tmp_path / "shared").as_uri()), prepared((tmp_path / "other").as_uri())
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
    weights = [
        tmp_path / "fetched" / name / run.key / "synthetic_dev/model.safetensors" for name in ("shared", "other")
    ]
    a, b = map(load_file, weights)
    assert all(torch.equal(a[name], b[name]) for name in a)
    # The one that was cut off comes back: what the other found is the run's, and it is not done again.
    assert execute_shared(job, here, on_step=cut)["cells"] == there["cells"]
    assert not (tmp_path / "here" / run.key / "state.pt").exists()
    published = list((tmp_path / "shared" / run.key).iterdir())
    assert sorted(path.is_dir() for path in published) == [False, True]  # one folder, and its number


def test_a_store_that_takes_longer_than_the_interval_does_not_stop_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, job, clock, brought = prepared((tmp_path / "shared").as_uri()), Job(tiny_study.run(), "tiny", "a"), [0.0], []

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
    execute_shared(job, ExecutionSettings(tmp_path / "store", shared=url))
    assert brought == [700, 2100]  # between them seven steps, as long as it took to bring one


def test_arrays_of_runs_of_other_machines_come_into_the_record(tmp_path: Path) -> None:
    url, mlruns = prepared((tmp_path / "shared").as_uri()), tmp_path / "mlruns"
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
def test_what_the_other_tasks_found_is_published_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def equal(self: Cosine, encoder: object, tasks: dict, *, data: Path | None) -> dict:
        return {task: PairScores(np.ones(len(first))) for task, (first, _) in tasks.items()}

    monkeypatch.setattr(Cosine, "pair_scores", equal)
    url, tasks = prepared((tmp_path / "shared").as_uri()), ("synthetic", "phrases")
    job = Job(tiny_study.run().backbone, "tiny", "untrained", (Scoring(AS_IS, Cosine(), tasks),), ("x",))
    for store in ("a", "b"):
        with pytest.raises(FailedTasksError, match="synthetic"):
            execute_shared(job, ExecutionSettings(tmp_path / store, shared=url))
    assert Shared(url).fetch(job.key, tmp_path / "c", weights=False) == 1
    cells = json.loads((tmp_path / "c" / job.key / "result.json").read_text())["cells"]
    assert {cell["task"] for cell in cells} == {"phrases"}


@pytest.mark.slow
def test_scores_that_could_not_be_uploaded_are_uploaded_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_TIMEOUT_SECONDS", 0.0)
    url, backbone = prepared((tmp_path / "shared").as_uri()), tiny_study.run().backbone
    execution = ExecutionSettings(tmp_path / "a", shared=url)

    def score(*tasks: str) -> None:
        execute_shared(Job(backbone, "tiny", "untrained", (Scoring(AS_IS, Cosine(), tasks),), ("x",)), execution)

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
    cells = json.loads((tmp_path / "b" / key / "result.json").read_text())["cells"]
    assert {cell["task"] for cell in cells} == {"synthetic", "phrases"}


@pytest.mark.slow
def test_a_retraining_for_more_rules_resumes_where_it_was_stopped(tmp_path: Path) -> None:
    run, url = tiny_study.run(), prepared((tmp_path / "shared").as_uri())
    execution = ExecutionSettings(tmp_path / "a", shared=url)

    def job(*rules: str) -> Job:
        return Job(run, "tiny", "a", tuple(Scoring(rule, Cosine(), ("synthetic",)) for rule in rules))

    def stop(step: int, history: History) -> None:
        if (tmp_path / "a" / run.key / STATE).is_file():
            raise KeyboardInterrupt

    execute_shared(job("synthetic_dev"), execution)
    with pytest.raises(KeyboardInterrupt):
        execute_shared(job("synthetic_dev", "last"), execution, on_step=stop)
    steps: list[int] = []
    execute_shared(job("synthetic_dev", "last"), execution, on_step=lambda step, history: steps.append(step))
    assert steps[0] > 1
    assert Shared(url).fetch(run.key, tmp_path / "b", weights=False) == 2


@pytest.mark.slow
def test_a_run_whose_teacher_is_damaged_on_storage_says_what_trains_it_again(tmp_path: Path) -> None:
    teacher = tiny_study.run()
    url = prepared((tmp_path / "shared").as_uri())
    assert Shared(url).publish(fill(tmp_path / "other" / teacher.key), 0)  # what the files should be, they are not
    job = Job(replace(teacher, method=RankCSE(teachers=(Teacher(teacher, 1.0, "last"),))), "tiny", "student")
    with pytest.raises(
        ValueError, match=f"run {teacher.key}, which it needs, is damaged on file:.*same command trains"
    ):
        execute_shared(job, ExecutionSettings(tmp_path / "store", shared=url))


def test_a_listing_that_stays_stale_ends_in_an_error_that_names_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, job = prepared((tmp_path / "shared").as_uri()), Job(tiny_study.run(), "tiny", "a")
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
def test_a_run_whose_weights_on_storage_are_damaged_is_trained_and_uploaded_again(tmp_path: Path) -> None:
    url = prepared((tmp_path / "shared").as_uri())
    job = Job(tiny_study.run(), "tiny", "a", (Scoring("last", Cosine(), ("synthetic",)),), ("x",))
    first = execute_shared(job, ExecutionSettings(tmp_path / "here", shared=url))
    (weights,) = (tmp_path / "shared").rglob("model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-100])
    steps: list[int] = []
    for store in ("here", "there"):  # the machine that trained it, which has its result, and another one
        again = execute_shared(
            job, ExecutionSettings(tmp_path / store, shared=url), on_step=lambda s, _: steps.append(s)
        )
        assert again["cells"] == first["cells"]
    assert steps == list(range(1, 21))  # by the first of the two only
    assert Shared(url).fetch(job.key, tmp_path / "new") == 2
    assert (tmp_path / "new" / job.key / "last" / "model.safetensors").is_file()


class StoreError(Exception):
    """As stores raise them that are no OSErrors."""


def test_storage_that_is_unreachable_for_a_while_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_INTERVAL_SECONDS", 0.01)
    shared, tried = Shared(prepared((tmp_path / "shared").as_uri())), []
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
    assert Shared(shared.url).fetch("key", tmp_path / "b") == 1
    assert content(tmp_path / "b" / "key") == FILES
    tried.clear()
    monkeypatch.setattr(retries, "RETRY_TIMEOUT_SECONDS", 0.0)
    with pytest.raises(OSError, match="StoreError: no endpoint"):
        retry(lambda: shared.publish(folder, 1))


class TestPins:
    """Two machines whose files have one name and other sentences."""

    def job(self, tmp_path: Path, seed: int) -> Job:
        run = replace(tiny_study.run(), corpus=Corpus("mine", 64), batch_size=32, seed=seed)
        return Job(run, "tiny", "a", (Scoring("last", Cosine(), ("synthetic",)),), ("x",))

    def machine(self, tmp_path: Path, name: str, url: str, lines: list[str]) -> ExecutionSettings:
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / name / "data" / "mine.txt").write_text("\n".join(lines) + "\n")
        return ExecutionSettings(tmp_path / name / "store", tmp_path / name / "data", shared=url)

    @pytest.mark.slow
    def test_a_machine_with_other_sentences_is_refused_before_it_trains(self, tmp_path: Path) -> None:
        url = prepared((tmp_path / "shared").as_uri())
        here = self.machine(tmp_path, "here", url, sentences(64))
        there = self.machine(tmp_path, "there", url, sentences(64)[::-1])
        first = execute_shared(self.job(tmp_path, 1), here)["data"]["corpus"]
        steps: list[int] = []
        with pytest.raises(ValueError, match=f"corpus mine, first 64 lines has the content .* found {first}"):
            execute_shared(self.job(tmp_path, 2), there, on_step=lambda step, _: steps.append(step))
        assert steps == []
        assert [path.name for path in (tmp_path / "shared").iterdir() if path.name == self.job(tmp_path, 2).key] == []
        again = self.machine(tmp_path, "again", url, sentences(64))
        assert execute_shared(self.job(tmp_path, 2), again)["data"]["corpus"] == first

    @pytest.mark.slow
    def test_of_two_that_use_a_name_first_at_once_one_publishes(self, tmp_path: Path) -> None:
        url = prepared((tmp_path / "shared").as_uri())
        here = self.machine(tmp_path, "here", url, sentences(64))
        there = self.machine(tmp_path, "there", url, sentences(64)[::-1])
        first: list[str] = []

        def meanwhile(step: int, history: History) -> None:
            if not first:
                first.append(execute_shared(self.job(tmp_path, 1), here)["data"]["corpus"])

        late = self.job(tmp_path, 2)
        with pytest.raises(ValueError, match=r"corpus mine, first 64 lines has the content .* found "):
            execute_shared(late, there, on_step=meanwhile)
        assert len(first) == 1
        assert not Shared(url).holds(late.key, ("last",))
        assert Shared(url).holds(self.job(tmp_path, 1).key, ("last",))
