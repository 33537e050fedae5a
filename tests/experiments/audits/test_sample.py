"""An audit takes keys of recorded runs; a key that can't be trained again here is refused with the reason."""

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from experiments.audits.agreement import Recorded
from experiments.audits.audit import audit
from experiments.audits.sample import declared_jobs
from experiments.execution.job import ExecutionSettings, Job, execute
from experiments.execution.log_queue import record_results
from experiments.execution.plan import jobs_of
from experiments.results import csv_record
from experiments.schema.scales import SCALES
from experiments.schema.study_parts import Parts, choose_parts
from experiments.studies.catalogue import single
from tests.support import tiny_study
from tests.support.sweeps import leave

STUDY = tiny_study.healthy(tiny_study.SCALE)
SEVENTH = replace(tiny_study.run(), seed=7)  # no study declares this seed


@pytest.fixture(autouse=True)
def tiny_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCALES, "tiny", tiny_study.SCALE)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "mlruns"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCALES, "tiny", tiny_study.SCALE)
        jobs = jobs_of(choose_parts([STUDY], Parts(rows=("b",), seeds=(7, 7))))
        execute(jobs[SEVENTH.key], ExecutionSettings(folder / "store"))
        record_results(folder / "store", folder)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (*folder.glob("*.csv"), *folder.glob("SHA256SUMS"))}


@pytest.mark.slow
def test_a_named_run_is_trained_again_and_compared(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its temporary folder is deleted if the run agrees, and kept if it differs."""
    monkeypatch.setenv("CSE_CACHE", str(tmp_path / "cache"))  # an audit sets its own
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = files(trained)
    assert audit([STUDY], keys=[SEVENTH.key], mlruns=trained) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"1 of 1 recorded runs named, and 0 that they need; retrained in {tmp_path}/cse-audit-" in said
    assert re.search(rf"{SEVENTH.key}, healthy, a s7: .* scores, largest difference 0; .*: agrees", said)
    assert "the record agrees" in said
    assert list(tmp_path.glob("cse-audit-*")) == []
    assert files(trained) == before

    (tmp_path / "altered").mkdir()
    frame = pd.read_csv(trained / "results.csv", dtype=str)
    frame.loc[frame["metric"] == "spearman.all", "score"] = "0.123"
    frame.to_csv(tmp_path / "altered/results.csv", index=False)
    for name in ("runs.csv", "curves.csv"):
        (tmp_path / "altered" / name).write_bytes((trained / name).read_bytes())
    assert audit([STUDY], keys=[SEVENTH.key], mlruns=tmp_path / "altered") == 1
    assert "spearman.all: recorded 0.123, retrained" in " ".join(capsys.readouterr().out.split())
    assert len(list(tmp_path.glob(f"cse-audit-*/{SEVENTH.key}/result.json"))) == 1


def test_a_key_that_is_not_recorded_or_at_another_scale_is_refused(tmp_path: Path) -> None:
    leave(tmp_path / "store", "0123456789ab")
    record_results(tmp_path / "store", tmp_path)
    unknown = r"unknown run '0123456789aa' \(did you mean 0123456789ab\?\); .*runs.csv lists"
    with pytest.raises(ValueError, match=unknown):
        audit([STUDY], keys=["0123456789aa"], mlruns=tmp_path)
    with pytest.raises(ValueError, match="run 0123456789ab is recorded at scale tiny, not small: add --scale tiny"):
        audit([single("rankcse-table4", "small")], keys=["0123456789ab"], mlruns=tmp_path)
    with pytest.raises(ValueError, match="run 0123456789ab: no chosen study declares it"):
        audit([STUDY], keys=["0123456789ab"], mlruns=tmp_path)


def test_a_run_of_another_kind_of_device_is_refused(tmp_path: Path) -> None:
    key = tiny_study.run(seed=1).key
    leave(tmp_path / "store", key, environment={"device": "A processor, 2 cores", "commit": "c", "dirty": "false"})
    record_results(tmp_path / "store", tmp_path)
    with pytest.raises(ValueError, match=f"run {key}: .* recorded on another kind of device than cuda"):
        audit([STUDY], keys=[key], mlruns=tmp_path, device="cuda")


@pytest.mark.slow
def test_seeds_that_only_the_record_has_are_found() -> None:
    study = single("rankcse-table4", "small")
    recorded = Recorded.read("small", csv_record.MLRUNS)
    (more,) = choose_parts([study], Parts(rows=("SimCSE",), seeds=(77, 77)))
    (key,) = more.rows[0].keys().values()
    line = recorded.runs.iloc[[0]].assign(key=key, seed=77)
    known = replace(recorded, runs=pd.concat([recorded.runs, line]))
    assert declared_jobs([key], [study], known)[key].encoder == more.rows[0].runs()[0]
    table2 = single("rankcse-table2", "small")
    untrained = next(row for row in table2.rows if row.label == "whitening BERT-base")
    with pytest.raises(ValueError, match="an encoder that was not trained here; expected a run"):
        declared_jobs([untrained.keys()[0]], [table2], recorded)


def test_runs_of_comparisons_are_found_beside_those_of_studies() -> None:
    """The key belongs to no study at any seed, as its learning rate is one that a search drew."""
    drawn = replace(tiny_study.run(), learning_rate=1.23e-4)
    line = Recorded.read("small", csv_record.MLRUNS).runs.iloc[[0]].assign(key=drawn.key, seed=drawn.seed)
    known = Recorded(line, pd.DataFrame(), pd.DataFrame())
    with pytest.raises(ValueError, match="no chosen study declares it"):
        declared_jobs([drawn.key], [STUDY], known)
    job = Job(drawn, STUDY.scale.name, "drawn", (), ("tuned",))
    assert declared_jobs([drawn.key], [STUDY], replace(known, compared={drawn.key: job}))[drawn.key] == job
