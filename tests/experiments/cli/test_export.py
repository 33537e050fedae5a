"""`export.py` exports the checkpoint of a finished run with its scores, or says why it can't."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from huggingface_hub import ModelCard

from cse_core.evaluation.scorers import Cosine
from cse_core.models.pretrained import encoder_hash
from cse_core.training.checkpoint import CheckpointError
from experiments.execution.job import ExecutionSettings, Job, Scoring, execute
from experiments.execution.log_queue import record_results
from experiments.execution.plan import jobs_of
from experiments.export import Options, main
from experiments.schema.scales import SCALES
from experiments.studies import catalogue
from tests.support import tiny_study
from tests.support.shared_folders import content
from tests.support.training import TINY


@pytest.mark.slow
def test_an_exported_checkpoint_has_its_weights_settings_and_own_scores(tmp_path: Path) -> None:
    rules = [Scoring(rule, Cosine(), ("synthetic",)) for rule in ("last", "synthetic_dev")]
    rules.append(Scoring("last", Cosine("mean"), ("synthetic_dev",)))
    result = execute(Job(TINY, "own", "simcse", tuple(rules)), ExecutionSettings(tmp_path))
    checkpoint = tmp_path / TINY.key / "last"
    before = content(checkpoint)
    main(Options(checkpoint=checkpoint, folder=tmp_path / "mine"))
    assert content(checkpoint) == before
    assert encoder_hash(tmp_path / "mine") == encoder_hash(checkpoint)
    assert not (tmp_path / "mine" / "checkpoint.json").exists()
    card = ModelCard.load(tmp_path / "mine" / "README.md")
    found = {(one.dataset_name, one.metric_type): one.metric_value for one in card.data.eval_results or []}
    assert found == {
        (cell["task"], cell["metric"]): cell["score"]
        for cell in result["cells"]
        if (cell["select"], cell["scorer"]) == ("last", "cosine")
        if cell["metric"] not in ("pearson.mean", "pearson.wmean")
    }
    assert found
    for line in (f"| key | {TINY.key} |", "| checkpoint | last |", f"| step | {result['kept']['last']['step']} |"):
        assert line in card.text


@pytest.mark.slow
def test_a_damaged_checkpoint_and_one_without_result_are_refused(tmp_path: Path) -> None:
    execute(Job(TINY, "own", "simcse", (Scoring("last", Cosine(), ("synthetic",)),)), ExecutionSettings(tmp_path))
    checkpoint = tmp_path / TINY.key / "last"
    (tmp_path / TINY.key / "result.json").rename(tmp_path / "away.json")
    with pytest.raises(FileNotFoundError, match=r"no result.json"):
        main(Options(checkpoint=checkpoint, folder=tmp_path / "mine"))
    (tmp_path / "away.json").rename(tmp_path / TINY.key / "result.json")
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"config.json: .* its manifest says"):
        main(Options(checkpoint=checkpoint, folder=tmp_path / "mine"))
    assert not (tmp_path / "mine").exists()


def test_a_folder_that_is_no_checkpoint_is_refused_with_those_that_are_near(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such folder; expected mlruns/store/KEY.*a recorded run$"):
        main(Options(checkpoint=tmp_path / "nowhere", folder=tmp_path / "mine"))
    (tmp_path / "abc" / "last").mkdir(parents=True)
    (tmp_path / "abc" / "last" / "checkpoint.json").write_text("{}")
    for given in ("abc", "abc/best", ""):
        with pytest.raises(FileNotFoundError, match=r"expected .*; there are \S*/abc/last$"):
            main(Options(checkpoint=tmp_path / given, folder=tmp_path / "mine"))


@pytest.mark.slow
def test_a_recorded_run_is_exported_by_its_key_and_trained_if_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, student = tiny_study.healthy(tiny_study.SCALE), tiny_study.taught(tiny_study.run(seed=1))
    monkeypatch.setitem(SCALES, "tiny", tiny_study.SCALE)
    monkeypatch.setitem(catalogue.STUDIES, "healthy", tiny_study.healthy)
    monkeypatch.setattr(catalogue, "names_at", lambda scale: ["healthy"])
    mlruns, jobs = tmp_path / "mlruns", jobs_of([study])
    results = {key: execute(job, ExecutionSettings(tmp_path / "elsewhere")) for key, job in jobs.items()}
    record_results(tmp_path / "elsewhere", mlruns)
    options = Options(checkpoint=Path(student.key), folder=tmp_path / "mine", scale="tiny", mlruns=mlruns)
    main(options)
    trained = mlruns / "store" / student.key / "synthetic_dev"
    assert encoder_hash(tmp_path / "mine") == encoder_hash(tmp_path / "elsewhere" / student.key / "synthetic_dev")
    found = {one.metric_value for one in ModelCard.load(tmp_path / "mine" / "README.md").data.eval_results or []}
    assert {cell["score"] for cell in results[student.key]["cells"] if cell["metric"] == "spearman.all"} <= found
    written = (trained / "checkpoint.json").stat().st_mtime_ns
    shutil.rmtree(tmp_path / "mine")
    # From the store: neither trained nor scored again, and whatever device it was trained on.
    pd.read_csv(mlruns / "runs.csv").assign(device="NVIDIA H100").to_csv(mlruns / "runs.csv", index=False)
    main(replace(options, data=tmp_path))
    assert (tmp_path / "mine" / "config.json").is_file()
    assert (trained / "checkpoint.json").stat().st_mtime_ns == written
    shutil.copytree(trained, trained.with_name("a_first"))  # in the order of names; the best by dev is exported
    main(options)
    assert encoder_hash(tmp_path / "mine") == encoder_hash(trained)
    with pytest.raises(ValueError, match="unknown scale 'tinny'"):
        main(replace(options, scale="tinny"))
    with pytest.raises(ValueError, match=r"unknown run '0123456789ab'.*runs.csv lists the recorded runs"):
        main(replace(options, checkpoint=Path("0123456789ab")))
