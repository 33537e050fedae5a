"""MLflow has each run once with its files, and its database is made completely or not at all."""

import hashlib
import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cse_core.evaluation.scorers import Cosine, PairScores
from cse_core.evaluation.suite import GROUPS
from cse_core.run import Pretrained
from experiments.execution.job import ExecutionSettings, Job, Scoring, describe, execute
from experiments.results import csv_record
from experiments.schema.rows import AS_IS
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.mlflow_notes import FILTER
from experiments.tracking.run_content import run_content
from tests.support import forked, tiny_study
from tests.support.polling import until
from tests.support.sweeps import add_empty_database
from tests.support.tracked_job import JOB, points_of

pytestmark = pytest.mark.slow  # MLflow takes seconds to import and to make a database


def copied(store: Path, place: Path, key: str = JOB.key, **changes: object) -> Path:
    """A copy of the run's folder, under another key if one is given, whose result has changes."""
    copy = shutil.copytree(store / JOB.key, place / key)
    result = json.loads((copy / "result.json").read_text())
    (copy / "result.json").write_text(json.dumps(result | {"key": key} | changes))
    return copy


def run_ids(tracker: Tracker) -> list[str]:
    """The ids of the runs at scale tiny."""
    return [run.info.run_id for run in tracker.client.search_runs([tracker.experiment("tiny")])]


def untrained(*tasks: str, encoder: Pretrained = tiny_study.run().backbone) -> Job:  # noqa: B008 - frozen
    return Job(encoder, "tiny", "untrained", (Scoring(AS_IS, Cosine(), tasks),), ("one",))


def test_a_tracker_knows_the_keys_of_all_logged_runs(tracker: Tracker, store: Path, tmp_path: Path) -> None:
    assert tracker.keys() == set()
    own = copied(store, tmp_path, "0123456789ab", studies=[])
    for folder in (store / JOB.key, own):
        tracker.log(folder)
    assert tracker.keys() == {JOB.key, own.name}


def test_a_run_with_a_torn_result_is_scored_again(
    store: Path, result: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torn = copied(store, tmp_path) / "result.json"
    torn.write_text(torn.read_text()[:100])
    assert execute(JOB, ExecutionSettings(tmp_path))["cells"] == result["cells"]
    assert f"{torn} can't be read" in caplog.text


def test_a_run_is_logged_with_everything_that_explains_it(
    tracker: Tracker, store: Path, result: dict[str, Any]
) -> None:
    run_id = tracker.log(store / JOB.key)
    run = tracker.client.get_run(run_id)
    assert run.info.run_name == "Net -cons s42 one"
    assert run.info.status == "FINISHED"
    assert run.data.params["learning_rate"] == "0.0003"
    assert run.data.params.keys() == {"approach", *tiny_study.run().settings()}  # of its method, no other's
    tags = run.data.tags
    assert (tags["key"], tags["studies"], tags["scale"]) == (JOB.key, " one ", "tiny")
    assert len(tags["mlflow.source.git.commit"]) == 40
    assert tags["env.dirty"] in ("true", "false")
    assert {"env.torch", "env.device", "env.threads"} <= set(tags)
    metrics = run.data.metrics
    cells = {(c["select"], c["metric"]): c["score"] for c in result["cells"]}
    assert metrics["synthetic"] == cells["synthetic_dev", "spearman.all"]
    assert metrics["synthetic: last"] == cells["last", "spearman.all"]
    assert metrics["dev score"] == result["kept"]["synthetic_dev"]["score"]
    assert metrics["dev score"] == max(value for _, value in result["curves"]["dev/synthetic_dev"])
    assert run.info.end_time == 1000 * datetime.fromisoformat(result["finished"]).timestamp()
    assert run.info.start_time == pytest.approx(run.info.end_time - 1000 * result["seconds"], abs=1)
    table = pd.read_csv(tracker.client.download_artifacts(run_id, "scores.csv"))
    assert set(zip(table["checkpoint"], table["metric"], table["score"], strict=True)) == {
        (*place, score) for place, score in cells.items()
    }
    history = points_of(tracker, run_id, "Curves/loss contrastive")
    steps = [value for step, value in result["curves"]["loss/contrastive"] if 4 < step <= 8]
    assert history.keys() == {4, 8, 12, 16, 20}
    assert history[8] == pytest.approx(sum(steps) / 4, abs=1e-6)  # as in the record
    assert points_of(tracker, run_id, "Curves/synthetic_dev").keys() == history.keys()
    artifacts = {item.path for item in tracker.client.list_artifacts(run_id)}
    assert {"result.json", "history.json", "last", "synthetic_dev", "pair_scores", "command.txt"} <= artifacts
    assert "model_card.md" in artifacts


def test_what_a_run_read_is_an_input_with_its_hash(
    tracker: Tracker, store: Path, result: dict[str, Any], tmp_path: Path
) -> None:
    files = {"STS/STSBenchmark/sts-dev.csv": "a" * 64, "MR/rt-polarity.pos": "b" * 64, "MR/rt-polarity.neg": "c" * 64}
    copy = copied(store, tmp_path, data=result["data"] | files)
    tracker.log(copy)
    run = tracker.client.get_run(tracker.log(copy))
    assert run.inputs
    found = {each.dataset.name: (each.dataset.digest, each.tags[0].value) for each in run.inputs.dataset_inputs}
    assert found.keys() == {"synthetic", "SentEval STS/STSBenchmark/sts-dev.csv", "SentEval MR"}
    assert found["SentEval STS/STSBenchmark/sts-dev.csv"] == ("a" * 36, "evaluation")
    assert found["synthetic"] == (result["data"]["corpus"][:36], "training")
    listed = f"{'c' * 64}  MR/rt-polarity.neg\n{'b' * 64}  MR/rt-polarity.pos\n"
    assert found["SentEval MR"][0] == hashlib.sha256(listed.encode()).hexdigest()[:36]


def test_seeds_have_one_setting_and_a_student_is_linked_to_its_teacher(tracker: Tracker) -> None:
    teachers = [tiny_study.run(seed=seed) for seed in (1, 2)]
    students = [replace(tiny_study.taught(teacher), seed=teacher.seed) for teacher in teachers]
    contents = [run_content(describe(Job(run, "tiny", "a", (), ("one",)))) for run in (*teachers, *students)]
    ids = [tracker.write(content) for content in contents]
    runs = [tracker.client.get_run(run_id) for run_id in ids]
    settings = [run.data.tags["setting"] for run in runs]
    assert settings[0] == settings[1] != settings[2] == settings[3]
    assert runs[2].data.tags["teachers"] == runs[2].data.tags["mlflow.parentRunId"] == ids[0]
    assert "mlflow.parentRunId" not in runs[0].data.tags
    page = f"#/experiments/{tracker.experiment('tiny')}/runs/{ids[1]}"
    assert f"[{teachers[1].key}]({page})" in runs[3].data.tags["mlflow.note.content"]
    other = replace(tiny_study.run(seed=1), epochs=2)
    assert describe(Job(other, "tiny", "a"))["setting"] != settings[0]
    anew = tracker.write(replace(contents[0], hash="other scores"))
    student = tracker.client.get_run(ids[2]).data.tags
    assert student["teachers"] == student["mlflow.parentRunId"] == anew != ids[0]
    assert f"/runs/{anew})" in student["mlflow.note.content"]


def test_each_scale_has_an_experiment_which_says_how_to_compare(tracker: Tracker) -> None:
    for scale in ("small", "own"):
        tracker.experiment(scale)
    notes = {each.name: each.tags["mlflow.note.content"] for each in tracker.client.search_experiments()[:2]}
    assert "16,384 Wikipedia sentences" in notes["cse-study small"]
    assert "`setting`" in notes["cse-study small"]
    assert "run.py" in notes["cse-study own"]
    assert tracker.keys() == set()


def test_logging_twice_changes_nothing_and_other_scores_replace_the_run(
    tracker: Tracker, store: Path, result: dict[str, Any], tmp_path: Path
) -> None:
    first = tracker.log(store / JOB.key)
    assert tracker.log(store / JOB.key) == first
    more = result["cells"][0] | {"metric": "spearman.all", "score": 0.5, "scorer": 'mask "{}" [MASK].'}
    copy = copied(store, tmp_path, cells=[*result["cells"], more], studies=["two"])
    second = tracker.log(copy)
    assert second != first
    (run,) = tracker.client.search_runs([tracker.experiment("tiny")])
    assert run.info.run_id == second
    assert run.data.metrics["synthetic: mask  MASK."] == 0.5  # MLflow takes no brackets and no quotes
    assert run.data.tags["studies"].split() == ["two", "one"]
    assert tracker.log(copy) == second


def test_another_study_of_a_logged_run_is_added_to_its_tag(
    tracker: Tracker, store: Path, result: dict[str, Any], tmp_path: Path
) -> None:
    first = tracker.log(store / JOB.key)
    copy = copied(store, tmp_path, studies=["two"])
    content = run_content(result | {"studies": ["two"]})
    assert tracker.missing([content]) == [content]
    assert tracker.log(copy) == first
    assert tracker.missing([content]) == []
    found = tracker.client.search_runs([tracker.experiment("tiny")], FILTER.format("two"))
    assert [run.info.run_id for run in found] == [first]
    assert not tracker.client.search_runs([tracker.experiment("tiny")], FILTER.format("tw"))


def test_the_recorded_scores_of_a_run_are_logged_not_those_in_its_folder(
    tracker: Tracker, store: Path, result: dict[str, Any], tmp_path: Path
) -> None:
    """A run that was trained again on another kind of processor keeps its first scores."""
    csv_record.merge_lines("tiny", tracker.mlruns, [result])
    run_id = tracker.log(store / JOB.key)
    copy = copied(store, tmp_path, cells=[cell | {"score": cell["score"] + 1e-9} for cell in result["cells"]])
    assert tracker.log(copy) == run_id


def test_a_run_in_progress_is_replaced_by_the_finished_one(tracker: Tracker, store: Path) -> None:
    begun = tracker.begin(run_content(describe(JOB)))
    tracker.add_points(begun, {("Curves/loss", 4): (0.123, 1)})
    assert tracker.client.get_run(begun).info.status == "RUNNING"
    tracker.end(begun, "KILLED")
    again = tracker.begin(run_content(describe(JOB)))
    assert again != begun
    assert run_ids(tracker) == [again]
    whole = tracker.log(store / JOB.key)
    assert run_ids(tracker) == [whole]
    assert 0.123 not in points_of(tracker, whole, "Curves/loss").values()
    assert tracker.begin(run_content(describe(JOB))) == ""  # finished: trained again only for its weights


def test_a_deleted_experiment_is_restored(tracker: Tracker, store: Path) -> None:
    run_id = tracker.log(store / JOB.key)
    tracker.client.delete_experiment(tracker.experiment("tiny"))
    again = Tracker(tracker.mlruns)
    assert again.log(store / JOB.key) in (run_id, *(run.info.run_id for run in again.runs("tiny").values()))
    assert len(again.runs("tiny")) == 1


def test_a_kill_while_a_run_is_written_leaves_one_that_does_not_count(
    tracker: Tracker, store: Path, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = run_content(result)
    with monkeypatch.context() as killed:
        killed.setattr(tracker.client, "set_terminated", None)  # the last call
        with pytest.raises(TypeError):
            tracker.log(store / JOB.key)
    assert tracker.missing([content]) == [content]
    whole = tracker.log(store / JOB.key)
    assert tracker.missing([content]) == []
    assert run_ids(tracker) == [whole]


def test_at_most_thirty_metrics_are_logged_averages_first() -> None:
    cells = [
        {"select": select, "scorer": scorer, "task": task, "metric": metric, "score": 0.5, "version": 1}
        | {"pairs": 9, "step": 1}
        for select in ("stsb_dev", "last")
        for scorer in ("cosine", "rank 1")
        for metric in ("spearman.all", "pearson.all", "acc")
        for task in (*GROUPS["sts"], *GROUPS["transfer"], *GROUPS["sts_disjoint"])
    ]
    result = describe(JOB) | {"cells": cells, "kept": {"stsb_dev": {"step": 4, "score": 0.6}}}
    content = run_content(result | {"curves": {f"loss/{i}": [(4, 0.1)] for i in range(12)}})
    curves = {name for name, _ in content.points}
    assert len(curves) == 12
    assert len(content.metrics) == 18
    assert list(content.metrics)[:4] == ["STS average", "Transfer average", "dev score", "STS/STS12"]
    assert content.metrics["Transfer/SST"] == 0.5
    assert "STS average: last" in content.metrics or "STS average: last rank 1" in content.metrics
    assert content.table.count("\n") == 1 + len(cells)


MAKE = """
import sys
from pathlib import Path
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.run_content import run_content
Tracker(Path(sys.argv[1])).experiment("tiny")
"""


def making(mlruns: Path) -> forked.Forked:
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    return forked.Forked([sys.executable, "-c", MAKE, str(mlruns)], env=environment)


def test_a_kill_while_the_database_is_made_leaves_none_or_a_whole_one(tmp_path: Path) -> None:
    """The process is killed when the first file is there, and 1.2 seconds later."""
    for moment in range(2):
        mlruns = tmp_path / str(moment)
        process = making(mlruns)
        until(lambda at=mlruns: at.is_dir() and list(at.iterdir()))
        time.sleep(1.2 * moment)
        process.kill()
        process.wait()
        check_database(mlruns)
    assert making(tmp_path / "1").wait(timeout=600) == 0
    assert not list((tmp_path / "1").glob("*.part*"))


DIE_WRITING = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("PRAGMA cache_size = 1")  # so that the file itself is written before the end
database.execute("CREATE TABLE half (text)")
database.executemany("INSERT INTO half VALUES (?)", [("x" * 1000,)] * 1000)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_in_a_write_leaves_the_database_as_it_was_before(tmp_path: Path) -> None:
    add_empty_database(tmp_path)
    path = tmp_path / "mlflow.db"
    assert subprocess.run([sys.executable, "-c", DIE_WRITING, str(path)], check=False).returncode == -signal.SIGKILL
    assert Path(f"{path}-journal").stat().st_size > 0
    assert b"x" * 1000 in path.read_bytes()  # half of the write
    check_database(tmp_path)
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM half").fetchone() == (0,)
    tracker = Tracker(tmp_path)
    tracker.client.create_run(tracker.experiment("tiny"))


def test_drivers_that_start_at_once_all_work(tmp_path: Path) -> None:
    processes = [making(tmp_path) for _ in range(2)]
    assert [process.wait(timeout=600) for process in processes] == [0, 0]


@pytest.mark.parametrize("kind", ["garbage", "empty", "folder", "half"])
def test_a_file_that_is_no_database_is_named_with_the_remedy(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mlflow.db"
    if kind == "folder":
        path.mkdir()
    elif kind == "half":
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE experiments (name TEXT)")
    else:
        path.write_bytes(b"no database at all " * 100 * (kind == "garbage"))
    with pytest.raises(ValueError, match=r"mlflow.db: expected MLflow's database, found .* Move it to another folder"):
        check_database(tmp_path)


@pytest.mark.parametrize("name", ["a b", "ü", "a#b"])
def test_a_folder_of_any_other_name_holds_its_own_database(tmp_path: Path, name: str) -> None:
    add_empty_database(tmp_path / name)
    tracker = Tracker(tmp_path / name)
    tracker.client.create_run(tracker.experiment("tiny"))
    with sqlite3.connect(tmp_path / name / "mlflow.db") as database:
        assert database.execute("SELECT count(*) FROM runs").fetchone() == (1,)


@pytest.mark.parametrize("name", ["a?b", "%41"])
def test_a_folder_whose_name_a_database_url_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"MLflow needs a folder without \? and % in its path"):
        Tracker(tmp_path / name).client  # noqa: B018


def test_a_server_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_empty_database(tmp_path / "elsewhere")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'elsewhere/mlflow.db'}")
    assert Tracker(tmp_path / "mlruns").uri.endswith("elsewhere/mlflow.db")
    assert not (tmp_path / "mlruns" / "mlflow.db").exists()


def test_scores_are_added_to_a_finished_run_without_training_it_again(
    store: Path, result: dict[str, Any], tmp_path: Path
) -> None:
    place = ExecutionSettings(shutil.copytree(store, tmp_path / "store"))

    def never(step: int, history: object) -> None:
        raise AssertionError("trained again")

    more = replace(JOB, scorings=(Scoring("last", Cosine("mean"), ("synthetic", "synthetic_dev")),), studies=("two",))
    new = execute(more, place, on_step=never)
    assert new["cells"][: len(result["cells"])] == result["cells"]
    assert {(c["scorer"], c["task"]) for c in new["cells"]} == {
        ("cosine", "synthetic"),
        ("cosine mean", "synthetic"),
        ("cosine mean", "synthetic_dev"),
    }
    assert new["studies"] == ["one", "two"]
    assert new["finished"] == result["finished"]
    assert (place.store / JOB.key / "pair_scores" / "last cosine mean.npz").is_file()


def test_a_run_is_described_by_what_it_was_trained_with(store: Path, tmp_path: Path) -> None:
    place = ExecutionSettings(shutil.copytree(store, tmp_path / "store"), threads=2)
    later = execute(replace(JOB, scorings=(Scoring("last", Cosine("mean"), ("phrases",)),)), place)
    assert later["environment"]["threads"] == "1"


def test_undefined_scores_fail_by_name_and_cost_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def equal(self: Cosine, encoder: object, tasks: dict, *, data: Path | None) -> dict:
        return {task: PairScores(np.ones(len(first))) for task, (first, _) in tasks.items()}

    monkeypatch.setattr(Cosine, "pair_scores", equal)
    job = untrained("synthetic", "phrases")
    with pytest.raises(ValueError, match=r"synthetic by cosine: spearman.all, .* undefined \(are all its") as failure:
        execute(job, ExecutionSettings(tmp_path))
    assert str(pickle.loads(pickle.dumps(failure.value))) == str(failure.value)  # a worker's error travels
    kept = json.loads((tmp_path / job.key / "result.json").read_text())
    assert [cell["task"] for cell in kept["cells"]] == ["phrases"]
    monkeypatch.undo()
    assert {cell["task"] for cell in execute(job, ExecutionSettings(tmp_path))["cells"]} == {"synthetic", "phrases"}


def test_what_earlier_scores_came_from_stays_logged(tmp_path: Path, real_data: Path) -> None:
    """A later call for other tasks adds to hashes and warnings; it does not replace them."""
    words = Pretrained("glove-6b-50d")
    first, second = (Job(words, "own", "GloVe", (Scoring(AS_IS, Cosine(), (t,)),)) for t in ("stsb_dev", "sickr_dev"))
    place = ExecutionSettings(tmp_path, real_data)
    before = execute(first, place)
    path = tmp_path / first.key / "result.json"
    path.write_text(json.dumps(before | {"warnings": ["a pair counts as 0"]}))
    after = execute(second, place)
    assert before["data"].items() < after["data"].items()
    assert "a pair counts as 0" in after["warnings"]


def test_a_pinned_encoder_with_other_content_is_not_scored(tmp_path: Path) -> None:
    pinned = Pretrained("wiki-tiny", "0" * 64)
    with pytest.raises(ValueError, match="backbone wiki-tiny: content e22f4fc2dee1, expected 000000000000"):
        execute(untrained("synthetic", encoder=pinned), ExecutionSettings(tmp_path))
