"""MLflow is filled from the record: every recorded run of a study, once, with what the record has of it."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments.execution.log_queue import log_results
from experiments.execution.plan import jobs_of
from experiments.execution.recorded_runs import recorded_results
from experiments.import_record import fill, studies_by_scale
from experiments.results import csv_record
from experiments.schema.study import Study
from experiments.studies.catalogue import choose_studies
from experiments.tracking.mlflow_log import Tracker
from experiments.tracking.run_content import run_content
from tests.support import forked
from tests.support.sweeps import ROOT
from tests.support.tracked_job import points_of

STUDY = "rankcse-table1"
KEPT = "stsb_dev"


@pytest.fixture(scope="module")
def studies() -> list[Study]:
    return choose_studies([STUDY], "small")


@pytest.mark.slow
def test_an_import_has_what_the_csv_files_have_and_a_second_one_adds_nothing(
    tracker: Tracker, studies: list[Study]
) -> None:
    count, lacking = fill(studies, csv_record.MLRUNS, tracker)
    scores, curves = (
        pd.read_csv(csv_record.MLRUNS / name, keep_default_na=False) for name in ("results.csv", "curves.csv")
    )
    recorded = jobs_of(studies).keys() & set(scores["key"])
    assert count == lacking == len(recorded) > 3
    logged = tracker.runs("small")
    assert logged.keys() == recorded
    for key, run in logged.items():
        assert run.info.status == "FINISHED"
        own = scores[(scores["key"] == key) & (scores["select"] == KEPT) & (scores["scorer"] == "cosine")]
        for line in own[own["metric"] == "spearman.all"].to_dict("records"):
            assert run.data.metrics[f"test/{line['task']}"] == float(line["score"])
        points = curves[(curves["key"] == key) & (curves["name"] == f"dev/{KEPT}")].set_index("step")["value"]
        assert points_of(tracker, run.info.run_id, f"dev/{KEPT}") == points.sort_index().to_dict()
        assert run.data.metrics[f"kept/{KEPT}"] == points[own["step"].iloc[0]] == points.max()
        assert STUDY in run.data.tags["studies"]
    student = next(run for run in logged.values() if run.data.params["method"] == "rankcse")
    assert set(student.data.tags["teachers"].split()) <= {run.info.run_id for run in logged.values()}
    before = {key: run.data.metrics for key, run in logged.items()}
    assert fill(studies, csv_record.MLRUNS, tracker) == (count, 0)
    assert len(tracker.client.search_runs([tracker.experiment("small")])) == count
    assert {key: run.data.metrics for key, run in tracker.runs("small").items()} == before


@pytest.mark.slow
def test_runs_that_are_written_at_once_are_those_that_mlflows_client_writes(
    studies: list[Study], tmp_path: Path
) -> None:
    trackers = [Tracker(tmp_path / name) for name in ("one", "other")]
    contents = [
        (run_content(result), f"command {i}") for i, result in enumerate(recorded_results(studies, csv_record.MLRUNS))
    ]
    assert len(contents) > 3
    trackers[0].log_new("small", contents)
    for content, command in contents:
        trackers[1].complete(content, None, command=command)
    one, other = (tracker.runs("small") for tracker in trackers)
    assert one.keys() == other.keys() == {content.key for content, _ in contents}
    for key, run in one.items():
        expected, ids = other[key], {run.info.run_id: key for each in (one, other) for key, run in each.items()}
        assert _comparable(run, ids) == _comparable(expected, ids)
        for name in run.data.metrics:
            assert points_of(trackers[0], run.info.run_id, name) == points_of(trackers[1], expected.info.run_id, name)
        files = [
            tracker.client.list_artifacts(each.info.run_id)
            for tracker, each in zip(trackers, (run, expected), strict=True)
        ]
        assert [[file.path for file in found] for found in files] == [["command.txt"]] * 2


def _comparable(run: Any, ids: Mapping[str, str]) -> dict[str, Any]:
    """All that MLflow has of a run, with keys in place of its own ids, without times."""
    tags = {name: re.sub("[0-9a-f]{32}", lambda found: ids[found[0]], text) for name, text in run.data.tags.items()}
    about = {name: getattr(run.info, name) for name in ("status", "run_name", "user_id", "lifecycle_stage")}
    inputs = [(i.dataset.name, i.dataset.digest, i.dataset.source, i.tags) for i in run.inputs.dataset_inputs]
    return about | {"tags": tags, "params": run.data.params, "metrics": run.data.metrics, "inputs": str(inputs)}


@pytest.mark.slow
def test_a_sweep_adds_what_an_imported_run_lacks_and_an_import_what_a_killed_one_left(
    tracker: Tracker, studies: list[Study], tmp_path: Path
) -> None:
    first, second, *_ = recorded_results(studies, csv_record.MLRUNS)
    imported = tracker.complete(run_content(first), None)
    begun, _ = tracker.begin(run_content(second | {"cells": [], "curves": {}, "kept": {}}))
    new = first["cells"][0] | {"task": "more", "metric": "spearman.all", "select": KEPT, "score": 0.25}
    result = first | {"cells": [*first["cells"], new], "studies": ["later"], "scoring_seconds": 1.5, "finished": "now"}
    (tmp_path / "store" / first["key"]).mkdir(parents=True)
    (tmp_path / "store" / first["key"] / "result.json").write_text(json.dumps(result))
    for _ in range(2):
        log_results(tmp_path / "store", tracker)
    fill(studies, csv_record.MLRUNS, tracker)
    runs = tracker.runs("small")
    assert (runs[first["key"]].info.run_id, runs[second["key"]].info.run_id) == (imported, begun)
    assert runs[second["key"]].info.status == "FINISHED"
    assert runs[first["key"]].data.metrics["test/more"] == 0.25
    assert {"later", STUDY} <= set(runs[first["key"]].data.tags["studies"].split())
    for name in runs[first["key"]].data.metrics:
        points_of(tracker, imported, name)  # each once
    log_results(tmp_path / "store", tracker)
    assert tracker.runs("small")[first["key"]].data.tags == runs[first["key"]].data.tags


@pytest.mark.slow
def test_every_scale_of_a_record_is_imported() -> None:
    recorded = pd.read_csv(csv_record.MLRUNS / "runs.csv", usecols=["scale"])["scale"]
    found = set(studies_by_scale(csv_record.MLRUNS)) - {"quickstart"}  # it has a record of its own
    assert found == set(recorded) > {"small"}


@pytest.mark.slow
def test_a_folder_without_a_record_is_named(tmp_path: Path) -> None:
    given = [sys.executable, str(ROOT / "experiments" / "import_record.py"), "--mlruns", str(tmp_path)]
    done = forked.run(given)
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
    given = [sys.executable, str(ROOT / "experiments" / "import_record.py")]
    given += ["--mlruns", str(tmp_path), "--record", str(a_tenth)]
    for expected in (r"small: (\d+) of \1 runs logged", r"small: 0 of (\d+) runs logged"):
        done = forked.run(given)
        assert done.returncode == 0, done.stderr
        found = re.search(expected, " ".join(done.stdout.split()))
        assert found, done.stdout
        assert int(found[1]) > 90
        assert f"{found[1]}/{found[1]}" in done.stdout  # the bar
