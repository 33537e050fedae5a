"""MLflow has a copy of each run's folder, once; its database is made whole or not at all."""

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
from pathlib import Path

import numpy as np
import pytest

from cse_core.evaluation.scorers import Cosine, PairScores
from cse_core.run import Pretrained
from experiments.execution.job import ExecutionSettings, Job, Scoring, describe, execute
from experiments.schema.rows import AS_IS
from experiments.tracking.mlflow_database import check_database
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.run_content import run_content
from tests.support import forked, tiny_study
from tests.support.polling import until
from tests.support.sweeps import add_empty_database
from tests.support.tracked_job import JOB, points_of

pytestmark = pytest.mark.slow  # MLflow takes seconds to import and to make a database


def test_keys_are_those_of_all_that_is_logged(tracker: Tracker, store: Path, tmp_path: Path) -> None:
    assert tracker.keys() == set()
    own = tmp_path / "0123456789ab"
    shutil.copytree(store / JOB.key, own)
    result = json.loads((own / "result.json").read_text())
    (own / "result.json").write_text(json.dumps(result | {"studies": [], "key": own.name}))
    for folder in (store / JOB.key, own):
        tracker.log(folder)
    assert tracker.keys() == {JOB.key, own.name}


def test_a_torn_result_is_scored_again(store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(store / JOB.key, tmp_path / JOB.key)
    torn = tmp_path / JOB.key / "result.json"
    expected = json.loads(torn.read_text())["cells"]
    torn.write_text(torn.read_text()[:100])
    assert execute(JOB, ExecutionSettings(tmp_path))["cells"] == expected
    assert f"{torn} can't be read" in caplog.text


def test_a_run_is_logged_with_everything_that_explains_it(tracker: Tracker, store: Path) -> None:
    run_id = tracker.log(store / JOB.key)
    run = tracker.client.get_run(run_id)
    result = json.loads((store / JOB.key / "result.json").read_text())
    assert run.info.run_name == "Net -cons s42 one"
    assert run.info.status == "FINISHED"
    assert run.data.params["learning_rate"] == "0.0003"
    assert run.data.params.keys() == {"approach", *tiny_study.run().settings()}  # of its method, no other's
    tags = run.data.tags
    assert (tags["key"], tags["studies"], tags["scale"]) == (JOB.key, "one", "tiny")
    assert len(tags["mlflow.source.git.commit"]) == 40
    assert tags["env.dirty"] in ("true", "false")
    assert {"env.torch", "env.device", "env.threads"} <= set(tags)
    metrics = run.data.metrics
    cells = {(c["select"], c["metric"]): c["score"] for c in result["cells"]}
    assert metrics["avg"] == metrics["test/synthetic"] == cells["synthetic_dev", "spearman.all"]
    assert metrics["test/synthetic/last"] == cells["last", "spearman.all"]
    assert metrics["test/synthetic/pearson.all/last"] == cells["last", "pearson.all"]
    assert metrics["kept/synthetic_dev"] == result["kept"]["synthetic_dev"]["score"]
    assert metrics["kept/synthetic_dev"] == max(value for _, value in result["curves"]["dev/synthetic_dev"])
    history = points_of(tracker, run_id, "loss/contrastive")
    steps = [value for step, value in result["curves"]["loss/contrastive"] if 4 < step <= 8]
    assert history.keys() == {4, 8, 12, 16, 20}
    assert history[8] == pytest.approx(sum(steps) / 4, abs=1e-6)  # as in the record
    assert points_of(tracker, run_id, "dev/synthetic_dev").keys() == history.keys()
    artifacts = {item.path for item in tracker.client.list_artifacts(run_id)}
    assert {"result.json", "history.json", "last", "synthetic_dev", "pair_scores", "command.txt"} <= artifacts
    assert "model_card.md" in artifacts


def test_what_a_run_read_is_an_input_with_its_hash(tracker: Tracker, store: Path, tmp_path: Path) -> None:
    copy = tmp_path / JOB.key
    shutil.copytree(store / JOB.key, copy)
    result = json.loads((copy / "result.json").read_text())
    files = {"STS/STSBenchmark/sts-dev.csv": "a" * 64, "MR/rt-polarity.pos": "b" * 64, "MR/rt-polarity.neg": "c" * 64}
    (copy / "result.json").write_text(json.dumps(result | {"data": result["data"] | files}))
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
    ids = [tracker.complete(content, None) for content in contents]
    runs = [tracker.client.get_run(run_id) for run_id in ids]
    settings = [run.data.tags["setting"] for run in runs]
    assert settings[0] == settings[1] != settings[2] == settings[3]
    assert runs[2].data.tags["teachers"] == ids[0]
    page = f"#/experiments/{tracker.experiment('tiny')}/runs/{ids[1]}"
    assert f"[{teachers[1].key}]({page})" in runs[3].data.tags["mlflow.note.content"]
    other = replace(tiny_study.run(seed=1), epochs=2)
    assert describe(Job(other, "tiny", "a"))["setting"] != settings[0]


def test_each_scale_has_an_experiment_and_the_old_one_says_where_runs_are(tracker: Tracker) -> None:
    old = tracker.client.create_experiment("cse-study")
    tracker.experiment("small")
    names = {each.name: each.tags["mlflow.note.content"] for each in tracker.client.search_experiments()[:2]}
    assert "import_record.py" in names["cse-study"]
    assert "16,384 Wikipedia sentences" in names["cse-study small"]
    assert "`setting`" in names["cse-study small"]
    assert tracker.client.get_experiment(old).lifecycle_stage == "active"
    assert tracker.keys() == set()


def test_logging_twice_changes_nothing_and_new_scores_join(tracker: Tracker, store: Path, tmp_path: Path) -> None:
    first = tracker.log(store / JOB.key)
    assert tracker.log(store / JOB.key) == first
    copy = tmp_path / JOB.key
    shutil.copytree(store / JOB.key, copy)
    result = json.loads((copy / "result.json").read_text())
    result["cells"].append(result["cells"][0] | {"task": "more", "score": 0.25})
    result["cells"].append(result["cells"][0] | {"task": "more", "score": 0.5, "scorer": 'mask "{}" [MASK].'})
    result["studies"].append("two")
    (copy / "result.json").write_text(json.dumps(result))
    assert tracker.log(copy) == first
    run = tracker.client.get_run(first)
    assert run.data.metrics["test/more"] == 0.25
    assert run.data.metrics["test/more/mask  MASK."] == 0.5  # MLflow takes no brackets and no quotes
    assert run.data.tags["studies"] == "one two"
    assert len(tracker.client.search_runs([tracker.experiment("tiny")])) == 1


def test_an_earlier_score_counts_and_one_of_another_evaluator_is_added(
    tracker: Tracker, store: Path, tmp_path: Path
) -> None:
    copy = tmp_path / JOB.key
    shutil.copytree(store / JOB.key, copy)
    result = json.loads((copy / "result.json").read_text())
    run_id = tracker.log(copy)
    scores = points_of(tracker, run_id, "test/synthetic")
    for change, count in ((1e-9, 1), (0.1, 2)):  # another kind of processor, another version
        cells = [cell | {"score": cell["score"] + change} for cell in result["cells"]]
        changed = result | {"cells": cells, "studies": ["one", str(change)]}
        (copy / "result.json").write_text(json.dumps(changed))
        assert tracker.log(copy) == run_id
        assert len(tracker.client.get_metric_history(run_id, "test/synthetic")) == count
    run = tracker.client.get_run(run_id)
    assert run.data.metrics["test/synthetic"] == scores[0] + 0.1
    assert run.data.tags["studies"] == "one 1e-09 0.1"


def test_a_run_that_was_begun_is_continued_if_its_points_are_the_runs_own(tracker: Tracker, store: Path) -> None:
    content = run_content(json.loads((store / JOB.key / "result.json").read_text()))
    half = {point: (value, 1) for point, value in content.points.items() if point[1] <= 8}
    begun, has = tracker.begin(run_content(describe(JOB)))
    assert has == set()
    tracker.add_points(begun, half)
    assert tracker.client.get_run(begun).info.status == "RUNNING"
    tracker.end(begun, "KILLED")
    assert tracker.begin(run_content(describe(JOB))) == (begun, set(half))
    assert tracker.client.get_run(begun).info.status == "RUNNING"
    assert tracker.log(store / JOB.key) == begun
    for name in content.curves:
        found = points_of(tracker, begun, name)
        assert found == {step: value for (curve, step), value in content.points.items() if curve == name}
    assert tracker.begin(run_content(describe(JOB))) == ("", set())  # finished: trained again only for its weights


def test_a_kill_before_the_parameters_leaves_a_run_that_gets_them(tracker: Tracker, store: Path) -> None:
    bare = tracker.client.create_run(tracker.experiment("tiny"), tags={"key": JOB.key})
    assert tracker.begin(run_content(describe(JOB))) == (bare.info.run_id, set())
    assert tracker.client.get_run(bare.info.run_id).data.params["method"] == "simcse"
    assert tracker.log(store / JOB.key) == bare.info.run_id


def test_an_experiment_that_was_deleted_is_restored(tracker: Tracker, store: Path) -> None:
    run_id = tracker.log(store / JOB.key)
    tracker.client.delete_experiment(tracker.experiment("tiny"))
    again = Tracker(tracker.mlruns)
    assert again.log(store / JOB.key) in (run_id, *(run.info.run_id for run in again.runs("tiny").values()))
    assert len(again.runs("tiny")) == 1


def test_a_run_that_was_begun_with_other_points_is_logged_anew(tracker: Tracker, store: Path) -> None:
    begun, _ = tracker.begin(run_content(describe(JOB)))
    tracker.add_points(begun, {("loss/total", 4): (0.123, 1)})
    whole = tracker.log(store / JOB.key)
    assert whole != begun
    assert [run.info.run_id for run in tracker.client.search_runs([tracker.experiment("tiny")])] == [whole]
    assert 0.123 not in points_of(tracker, whole, "loss/total").values()


def test_a_kill_while_new_scores_are_logged_loses_nothing(
    tracker: Tracker, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker.log(store / JOB.key)
    copy = tmp_path / JOB.key
    shutil.copytree(store / JOB.key, copy)
    result = json.loads((copy / "result.json").read_text())
    result["cells"] += [cell | {"task": "more"} for cell in result["cells"]]
    (copy / "result.json").write_text(json.dumps(result))
    with monkeypatch.context() as killed:
        killed.setattr(tracker.client, "log_artifact", None)  # stops where the artifacts would follow
        with pytest.raises(TypeError):
            tracker.log(copy)
    assert tracker.missing([result]) == [result]
    tracker.log(copy)
    assert tracker.missing([result]) == []
    assert "test/more" in tracker.runs("tiny")[JOB.key].data.metrics


def test_a_run_made_by_hand_is_logged_beside_the_studys(tracker: Tracker, store: Path, tmp_path: Path) -> None:
    own = tmp_path / JOB.key
    shutil.copytree(store / JOB.key, own)
    result = json.loads((own / "result.json").read_text())
    (own / "result.json").write_text(json.dumps(result | {"studies": []}))
    assert tracker.log(own) != tracker.log(store / JOB.key)


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
    """Four moments, from the first file on."""
    for moment in range(4):
        mlruns = tmp_path / str(moment)
        process = making(mlruns)
        until(lambda at=mlruns: at.is_dir() and list(at.iterdir()))
        time.sleep(1.2 * moment)
        process.kill()
        process.wait()
        check_database(mlruns)
    for moment in (1, 3):
        assert making(tmp_path / str(moment)).wait(timeout=600) == 0
        assert not list((tmp_path / str(moment)).glob("*.part*"))


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


def test_three_drivers_that_start_at_once_all_work(tmp_path: Path) -> None:
    processes = [making(tmp_path) for _ in range(3)]
    assert [process.wait(timeout=600) for process in processes] == [0, 0, 0]


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


def test_scores_are_added_to_a_finished_run_without_training_it_again(store: Path, tmp_path: Path) -> None:
    place = ExecutionSettings(tmp_path / "store")
    shutil.copytree(store, place.store)

    def never(step: int, history: object) -> None:
        raise AssertionError("trained again")

    more = replace(JOB, scorings=(Scoring("last", Cosine("mean"), ("synthetic", "synthetic_dev")),), studies=("two",))
    old = json.loads((store / JOB.key / "result.json").read_text())
    new = execute(more, place, on_step=never)
    assert new["cells"][: len(old["cells"])] == old["cells"]
    assert {(c["scorer"], c["task"]) for c in new["cells"]} == {
        ("cosine", "synthetic"),
        ("cosine mean", "synthetic"),
        ("cosine mean", "synthetic_dev"),
    }
    assert new["studies"] == ["one", "two"]
    assert new["finished"] == old["finished"]
    assert (place.store / JOB.key / "pair_scores" / "last cosine mean.npz").is_file()


def test_a_run_is_described_by_what_it_was_trained_with(store: Path, tmp_path: Path) -> None:
    place = ExecutionSettings(tmp_path / "store", threads=2)
    shutil.copytree(store, place.store)
    later = execute(replace(JOB, scorings=(Scoring("last", Cosine("mean"), ("phrases",)),)), place)
    assert later["environment"]["threads"] == "1"


def test_undefined_scores_fail_by_name_and_cost_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def equal(self: Cosine, encoder: object, tasks: dict, *, data: Path | None) -> dict:
        return {task: PairScores(np.ones(len(first))) for task, (first, _) in tasks.items()}

    monkeypatch.setattr(Cosine, "pair_scores", equal)
    tasks = ("synthetic", "phrases")
    job = Job(tiny_study.run().backbone, "tiny", "untrained", (Scoring(AS_IS, Cosine(), tasks),), ("one",))
    with pytest.raises(ValueError, match=r"synthetic by cosine: spearman.all, .* undefined; are all its") as failure:
        execute(job, ExecutionSettings(tmp_path))
    assert str(pickle.loads(pickle.dumps(failure.value))) == str(failure.value)  # a worker's error travels
    kept = json.loads((tmp_path / job.key / "result.json").read_text())
    assert [cell["task"] for cell in kept["cells"]] == ["phrases"]
    monkeypatch.undo()
    assert {cell["task"] for cell in execute(job, ExecutionSettings(tmp_path))["cells"]} == set(tasks)


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
    job = Job(pinned, "tiny", "untrained", (Scoring(AS_IS, Cosine(), ("synthetic",)),), ("one",))
    with pytest.raises(ValueError, match="backbone wiki-tiny: content e22f4fc2dee1, expected 000000000000"):
        execute(job, ExecutionSettings(tmp_path))


def test_an_untrained_encoder_is_scored_as_it_is(tmp_path: Path) -> None:
    job = Job(tiny_study.run().backbone, "tiny", "untrained", (Scoring(AS_IS, Cosine(), ("synthetic",)),), ("one",))
    result = execute(job, ExecutionSettings(tmp_path))
    assert result["method"] == "none"
    assert result["seed"] == 0
    assert [c["step"] for c in result["cells"]] == [0] * 6
    assert 0.3 < result["cells"][0]["score"] < 0.8
