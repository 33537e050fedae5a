"""An import logs every recorded run of a study once in MLflow, with its recorded scores and curves."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments.execution.log_queue import log_results
from experiments.execution.plan import jobs_of
from experiments.execution.recorded_runs import recorded_results
from experiments.import_record import command_of, fill, print_left_out, recorded_at, studies_by_scale
from experiments.results import csv_record
from experiments.schema.columns import PUBLISHED_NAMES
from experiments.schema.study import Study
from experiments.studies.catalogue import choose_studies
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.run_content import SETS, run_content
from tests.support import forked
from tests.support.sweeps import ROOT
from tests.support.tracked_job import points_of

STUDY = "rankcse-table1"
KEPT = "stsb_dev"
COMMAND = [sys.executable, str(ROOT / "experiments" / "import_record.py")]


@pytest.fixture(scope="module")
def studies() -> list[Study]:
    return choose_studies([STUDY], "small")


def filled(studies: list[Study], tracker: Tracker) -> tuple[set[str], int]:
    return fill(jobs_of(studies), "small", csv_record.MLRUNS, tracker, recorded_at(csv_record.MLRUNS))


@pytest.mark.slow
def test_an_import_logs_what_the_csv_files_have_and_a_second_one_adds_nothing(
    tracker: Tracker, studies: list[Study]
) -> None:
    keys, lacking = filled(studies, tracker)
    scores, curves = (
        pd.read_csv(csv_record.MLRUNS / name, keep_default_na=False) for name in ("results.csv", "curves.csv")
    )
    recorded = jobs_of(studies).keys() & set(scores["key"])
    assert len(keys) == lacking == len(recorded) > 3
    logged = tracker.runs("small")
    assert logged.keys() == recorded
    for key, run in logged.items():
        assert run.info.status == "FINISHED"
        assert (run.info.end_time or 0) / 1000 < (ROOT / "mlruns/runs.csv").stat().st_mtime  # not the import's time
        table = pd.read_csv(tracker.client.download_artifacts(run.info.run_id, "scores.csv"), dtype=str)
        of_run = scores[scores["key"] == key]
        columns = ["task", "metric", "scorer", "score", "version"]
        assert sorted(table[columns].values.tolist()) == sorted(of_run[columns].astype(str).values.tolist())
        own = of_run[(of_run["select"] == KEPT) & (of_run["scorer"] == "cosine")]
        main = own[own["metric"] == "spearman.all"].set_index("task")["score"].astype(float)
        for task in set(SETS) & set(main.index):
            assert run.data.metrics[f"{SETS[task]}/{PUBLISHED_NAMES[task]}"] == main[task]
        points = curves[(curves["key"] == key) & (curves["name"] == f"dev/{KEPT}")].set_index("step")["value"]
        assert points_of(tracker, run.info.run_id, "Curves/STS-B dev") == points.sort_index().to_dict()
        assert run.data.metrics["dev score"] == points[own["step"].iloc[0]] == points.max()
        assert STUDY in run.data.tags["studies"]
    student = next(run for run in logged.values() if run.data.params["method"] == "rankcse")
    assert set(student.data.tags["teachers"].split()) <= {run.info.run_id for run in logged.values()}
    before = {key: run.data.metrics for key, run in logged.items()}
    assert filled(studies, tracker) == (keys, 0)
    assert len(tracker.client.search_runs([tracker.experiment("small")])) == len(keys)
    assert {key: run.data.metrics for key, run in tracker.runs("small").items()} == before


@pytest.mark.slow
def test_runs_written_at_once_equal_those_that_mlflows_client_writes(studies: list[Study], tmp_path: Path) -> None:
    trackers = [Tracker(tmp_path / name) for name in ("one", "other")]
    results = recorded_results(jobs_of(studies), "small", csv_record.MLRUNS)
    contents = [(run_content(result), f"command {i}") for i, result in enumerate(results)]
    assert len(contents) > 3
    trackers[0].write_all(contents)
    for content, command in contents:
        trackers[1].write(content, command=command)
    one, other = (tracker.runs("small") for tracker in trackers)
    assert one.keys() == other.keys() == {content.key for content, _ in contents}
    ids = {run.info.run_id: key for runs in (one, other) for key, run in runs.items()}
    for key, run in one.items():
        expected = other[key]
        assert _comparable(run, ids) == _comparable(expected, ids)
        for name in run.data.metrics:
            assert points_of(trackers[0], run.info.run_id, name) == points_of(trackers[1], expected.info.run_id, name)
        files = [
            tracker.client.list_artifacts(each.info.run_id)
            for tracker, each in zip(trackers, (run, expected), strict=True)
        ]
        assert [[file.path for file in found] for found in files] == [["command.txt", "scores.csv"]] * 2


def _comparable(run: Any, ids: Mapping[str, str]) -> dict[str, Any]:
    """All that MLflow has of a run except times, with keys in place of MLflow's ids."""
    tags = {name: re.sub("[0-9a-f]{32}", lambda found: ids[found[0]], text) for name, text in run.data.tags.items()}
    about = {name: getattr(run.info, name) for name in ("status", "run_name", "user_id", "lifecycle_stage")}
    inputs = [(i.dataset.name, i.dataset.digest, i.dataset.source, i.tags) for i in run.inputs.dataset_inputs]
    return about | {"tags": tags, "params": run.data.params, "metrics": run.data.metrics, "inputs": str(inputs)}


@pytest.mark.slow
def test_an_import_and_a_sweep_of_the_same_runs_leave_each_other_alone(
    tracker: Tracker, studies: list[Study], tmp_path: Path
) -> None:
    first, *_ = recorded_results(jobs_of(studies), "small", csv_record.MLRUNS)
    folder = tmp_path / "store" / first["key"]
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(
        json.dumps(first | {"scoring_seconds": 1.5, "finished": "2026-01-02T03:04:05Z"})
    )
    (folder / "history.json").write_text("{}")
    filled(studies, tracker)
    run = tracker.runs("small")[first["key"]]
    assert datetime.fromtimestamp((run.info.end_time or 0) / 1000, UTC).isoformat() == "2026-01-02T03:04:05+00:00"
    assert "history.json" in {item.path for item in tracker.client.list_artifacts(run.info.run_id)}
    (folder / "result.json").write_text(
        json.dumps(first | {"studies": ["later"], "scoring_seconds": 1.5, "finished": ""})
    )
    log_results(tmp_path / "store", tracker)
    filled(studies, tracker)
    again = tracker.runs("small")[first["key"]]
    assert again.info.run_id == run.info.run_id
    assert {"later", STUDY} <= set(again.data.tags["studies"].split())


@pytest.mark.slow
def test_an_import_replaces_what_has_other_scores_and_what_a_killed_sweep_left(
    tracker: Tracker, studies: list[Study]
) -> None:
    first, second, *_ = recorded_results(jobs_of(studies), "small", csv_record.MLRUNS)
    old = tracker.write(run_content(first | {"cells": first["cells"][1:]}))
    begun = tracker.begin(run_content(second | {"cells": [], "curves": {}, "kept": {}}))
    keys, lacking = filled(studies, tracker)
    assert lacking == len(keys)
    ids = {run.info.run_id for run in tracker.client.search_runs([tracker.experiment("small")])}
    assert len(ids) == len(keys)
    assert not ids & {old, begun}


@pytest.mark.slow
def test_every_scale_of_a_record_is_imported() -> None:
    recorded = pd.read_csv(csv_record.MLRUNS / "runs.csv", usecols=["scale"])["scale"]
    found = set(studies_by_scale(csv_record.MLRUNS)) - {"quickstart"}  # it has a record of its own
    assert found == set(recorded) > {"small"}


@pytest.mark.slow
def test_a_folder_without_a_record_is_named(tmp_path: Path) -> None:
    done = forked.run([*COMMAND, "--mlruns", str(tmp_path)])
    assert done.returncode == 1
    assert f"error: {tmp_path}: no runs to import" in done.stderr


@pytest.fixture
def a_tenth(tmp_path: Path) -> Path:
    """A record of every tenth run of the committed one: of all papers, methods and studies."""
    folder = tmp_path / "record"
    folder.mkdir()
    keys = set(csv_record.read_runs("small", csv_record.MLRUNS)["key"].iloc[::10])
    for name in ("runs.csv", "results.csv", "curves.csv"):
        lines = pd.read_csv(csv_record.MLRUNS / name, dtype=str, keep_default_na=False)
        lines[lines["key"].isin(keys)].to_csv(folder / name, index=False)
    return folder


@pytest.mark.slow
def test_a_record_is_imported_once_with_a_progress_bar(a_tenth: Path, tmp_path: Path) -> None:
    for expected in (r"small: (\d+) of \1 runs logged", r"small: 0 of (\d+) runs logged"):
        done = forked.run([*COMMAND, "--mlruns", str(tmp_path), "--record", str(a_tenth)])
        assert done.returncode == 0, done.stderr
        found = re.search(expected, " ".join(done.stdout.split()))
        assert found, done.stdout
        assert int(found[1]) > 90
        assert f"{found[1]}/{found[1]}" in done.stdout  # the bar


def test_each_recorded_run_that_is_left_out_is_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Studies of one scale may have runs that were recorded at another."""
    runs = csv_record.read_runs("", csv_record.MLRUNS)
    print_left_out(csv_record.MLRUNS, set(runs["key"].iloc[5:]))
    lines = capsys.readouterr().out.splitlines()
    assert sum(int(line.partition(": ")[2].split()[0]) for line in lines) == 5
    print_left_out(csv_record.MLRUNS, set(runs["key"]))
    assert capsys.readouterr().out == ""


def test_the_times_of_runs_are_those_of_their_lines_in_git(tmp_path: Path) -> None:
    def git(*words: str, **more: str) -> None:
        about = {**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", **more}
        about |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a"}
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, env=about)

    git("init", "-q")
    assert recorded_at(tmp_path) == {}
    lines = ["key,seed", "a,1", "b,2"]
    for i in (2, 3):
        (tmp_path / "runs.csv").write_text("".join(f"{line}\n" for line in lines[:i]))
        git("add", ".")
        git("commit", "-q", "-m", "x", GIT_COMMITTER_DATE=f"@{i}00 +0000")
    assert {key: recorded_at(tmp_path)[key] for key in "ab"} == {"a": 200_000, "b": 300_000}


def test_a_run_names_the_command_of_its_study_or_comparison() -> None:
    assert command_of("rankcse-table1", "small") == "python experiments/sweep.py rankcse-table1 --scale small"
    assert command_of("tuned", "small") == "python experiments/compare.py tuned"
