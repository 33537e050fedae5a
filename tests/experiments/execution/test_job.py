"""A stored score is used again only as long as everything that it came from is the same."""

import json
import logging
import shutil
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine, Scorer, Whitened
from cse_core.evaluation.tasks import STSTask
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import ASSETS
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.train import train
from experiments.evaluate import Options
from experiments.evaluate import main as evaluate
from experiments.execution import job as jobs
from experiments.execution.job import ENVIRONMENT, ExecutionSettings, Job, Scoring, execute, load_encoder
from experiments.results import csv_record
from experiments.results.run_arrays import read_pair_scores
from experiments.results.run_result import RESULT
from experiments.results.stored_scores import files_of
from tests.support.training import TINY, few_dev_pairs

ROWS = 500
SHORT = replace(TINY, epochs=1, max_steps=2)


def write_data(folder: Path, turn: int = 0) -> Path:
    """Write SICK's trial set, with gold scores moved by some pairs."""
    (folder / "STS").mkdir(parents=True, exist_ok=True)
    (folder / "SICK").mkdir(exist_ok=True)
    lines = [f"{i}\tA cat {i % 7} sat.\tA dog {i % 5} ran.\t{1 + (i + turn) % 400 / 100}\tNEUTRAL" for i in range(ROWS)]
    (folder / "SICK/SICK_trial.txt").write_text("\n".join(["pair_ID\tA\tB\tscore\tjudgment", *lines]) + "\n")
    return folder


def score(
    store: Path,
    data: Path | None = None,
    encoder: Any = Pretrained("wiki-tiny"),  # noqa: B008 - frozen
    tasks: Sequence[str] = ("sickr_dev",),
    scorer: Scorer = Cosine(),  # noqa: B008 - frozen
    **how: Any,
) -> dict[str, Any]:
    select = "as is" if isinstance(encoder, Pretrained) else "last"
    again = how.pop("again", False)
    job = Job(encoder, "own", "mine", (Scoring(select, scorer, tuple(tasks)),))
    return execute(job, ExecutionSettings(store, data, **how), again=again)


def scores(result: Mapping[str, Any]) -> dict[str, float]:
    return {f"{cell['task']} {cell['metric']}": cell["score"] for cell in result["cells"]}


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING)
    return caplog


@pytest.fixture
def few_pairs() -> Generator[None]:
    with few_dev_pairs():
        yield


@pytest.fixture
def a(tmp_path: Path, cache: Path) -> Path:
    """A data folder."""
    return write_data(tmp_path / "a")


@pytest.fixture
def b(tmp_path: Path, cache: Path) -> Path:
    """A data folder with other gold scores."""
    return write_data(tmp_path / "b", turn=77)


class TestData:
    @pytest.mark.slow
    def test_other_data_gives_the_score_of_an_empty_store_and_says_why(
        self, a: Path, b: Path, tmp_path: Path, quiet: pytest.LogCaptureFixture
    ) -> None:
        first = score(tmp_path / "store", a)
        quiet.clear()
        assert scores(score(tmp_path / "store", a)) == scores(first)
        assert not quiet.messages
        second = score(tmp_path / "store", b)
        assert scores(second) == scores(score(tmp_path / "empty", b)) != scores(first)
        assert [text for text in quiet.messages if "SICK/SICK_trial.txt changed; scored again" in text]
        assert second["data"] == score(tmp_path / "empty", b)["data"]
        assert scores(score(tmp_path / "store", a)) == scores(first)  # and back
        (a / "SICK/SICK_trial.txt").unlink()
        assert scores(score(tmp_path / "store", a)) == scores(first)
        assert "SICK/SICK_trial.txt can't be found, so it is not compared; kept" in quiet.messages[-1]

    @pytest.mark.slow
    def test_all_scores_of_a_changed_file_are_removed_and_others_stay(
        self, a: Path, b: Path, tmp_path: Path, quiet: pytest.LogCaptureFixture
    ) -> None:
        store = tmp_path / "store"
        score(store, a, scorer=Cosine("mean"))
        score(store, a, tasks=("synthetic_dev",))
        result = score(store, b)
        assert {(cell["task"], cell["scorer"]) for cell in result["cells"]} == {
            ("synthetic_dev", "cosine"),
            ("sickr_dev", "cosine"),
        }
        assert [text for text in quiet.messages if "sickr_dev by cosine mean, as is" in text and "removed" in text]
        assert read_pair_scores(store / result["key"], "as is", "cosine mean") == {}
        assert set(read_pair_scores(store / result["key"], "as is", "cosine")) == {"synthetic_dev", "sickr_dev"}

    def test_files_of_splits_that_a_scorer_is_fitted_on_are_read_too(self) -> None:
        trial = {"SICK/SICK_trial.txt"}
        whole = {*trial, "SICK/SICK_train.txt", "SICK/SICK_test_annotated.txt"}
        assert files_of("sickr_dev", Cosine()) == trial
        assert files_of("sickr_dev", Whitened(corpus=Corpus("synthetic", 9))) == trial
        assert files_of("sickr_dev", Whitened()) == files_of("sickr_dev") == whole
        for name in suite.TASKS:
            assert files_of(name) >= files_of(name, Cosine())
        assert files_of("trec_fast") == {"TREC/train_5500.label", "TREC/TREC_10.label"}
        assert "STS/STSBenchmark/sts-train.csv" in files_of("sts12_disjoint")  # only read, to leave pairs out

    @pytest.mark.slow
    def test_evaluate_prints_and_records_the_new_score(
        self, a: Path, b: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def call(data: Path, mlruns: Path, **how: Any) -> tuple[str, dict[str, float]]:
            options = Options(encoder="wiki-tiny", tasks=("sickr_dev",), data=data, mlruns=mlruns, threads=1, **how)
            evaluate(options)
            lines = csv_record.read_results("own", mlruns / "own").to_dict("records")
            return " ".join(capsys.readouterr().out.split()), scores({"cells": lines})

        said, first = call(a, tmp_path / "runs")
        assert "from an earlier call" not in said
        said, same = call(a, tmp_path / "runs")
        assert same == first
        assert "from an earlier call: sickr_dev; --again scores anew" in said
        said, second = call(b, tmp_path / "runs")
        assert "from an earlier call" not in said
        assert second.items() <= scores(score(tmp_path / "empty", b)).items()
        assert second != first
        result = next((tmp_path / "runs/own").glob("*/result.json"))
        wrong = json.loads(result.read_text())
        wrong["cells"][0]["score"] = 0.25
        result.write_text(json.dumps(wrong))
        assert "from an earlier call" in call(b, tmp_path / "runs")[0]
        said, third = call(b, tmp_path / "runs", again=True)
        assert "from an earlier call" not in said
        assert third == second


@pytest.mark.usefixtures("few_pairs")
class TestEvaluation:
    @pytest.mark.slow
    def test_another_version_is_scored_again_and_says_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: pytest.LogCaptureFixture
    ) -> None:
        score(tmp_path, tasks=("synthetic_dev",))
        monkeypatch.setattr(STSTask, "version", STSTask.version + 1)
        for _ in range(2):
            result = score(tmp_path, tasks=("synthetic_dev",))
        told = [text for text in quiet.messages if "the evaluation has version" in text]
        assert len(told) == 1
        assert {cell["version"] for cell in result["cells"]} == {STSTask.version - 1, STSTask.version}

    @pytest.mark.slow
    def test_a_users_scorer_with_other_code_scores_again(self, tmp_path: Path, quiet: pytest.LogCaptureFixture) -> None:
        @dataclass(frozen=True)
        class Mine(Cosine):
            def __str__(self) -> str:
                return "my scorer"

        result = score(tmp_path, tasks=("synthetic_dev",), scorer=Mine())
        (name,) = result["code"]
        assert name == "scorer my scorer"
        stored = tmp_path / result["key"] / RESULT
        stored.write_text(json.dumps(result | {"code": {name: "0" * 64}}))
        again = score(tmp_path, tasks=("synthetic_dev",), scorer=Mine())
        assert again["code"] == result["code"]
        assert any("the code of scorer my scorer changed; scored again" in text for text in quiet.messages)


@pytest.mark.usefixtures("few_pairs")
class TestWeights:
    @pytest.mark.slow
    def test_scores_of_earlier_weights_are_removed_when_others_are_trained(
        self, tmp_path: Path, quiet: pytest.LogCaptureFixture
    ) -> None:
        """As if the first training had had other threads: the recorded hash of its weights is replaced."""
        store = tmp_path / "store"
        first = score(store, encoder=SHORT, tasks=("synthetic_dev",))
        other = score(tmp_path / "other", encoder=SHORT, tasks=("phrases",))
        for where in (RESULT, "history.json"):
            path = store / SHORT.key / where
            path.write_text(path.read_text().replace(first["kept"]["last"]["weights"], "0" * 64))
        environment = store / SHORT.key / ENVIRONMENT
        environment.write_text(environment.read_text().replace('"commit": "', '"commit": "other'))
        shutil.rmtree(store / SHORT.key / "last")
        result = score(store, encoder=SHORT, tasks=("phrases",))
        assert {cell["task"] for cell in result["cells"]} == {"phrases"}
        assert result["kept"] == other["kept"]
        assert result["environment"] == other["environment"]  # of the second training
        assert any("synthetic_dev by cosine, last: the checkpoint has other weights" in t for t in quiet.messages)

    @pytest.mark.slow
    def test_equal_weights_keep_their_scores(self, tmp_path: Path) -> None:
        first = score(tmp_path, encoder=SHORT, tasks=("synthetic_dev",))
        shutil.rmtree(tmp_path / SHORT.key / "last")
        result = score(tmp_path, encoder=SHORT, tasks=("phrases",))
        assert {cell["task"] for cell in result["cells"]} == {"synthetic_dev", "phrases"}
        assert result["kept"] == first["kept"]

    @pytest.mark.slow
    def test_a_trial_whose_weights_another_command_has_deleted_is_not_trained_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = score(tmp_path, encoder=SHORT, tasks=("synthetic_dev",))
        shutil.rmtree(tmp_path / SHORT.key / "last")
        trained: list[Run] = []
        monkeypatch.setattr(jobs, "train", lambda run, *given, **how: trained.append(run) or train(run, *given, **how))
        scoring = Scoring("last", Cosine(), ("synthetic_dev",))
        trial = Job(SHORT, "own", "mine", (scoring,), keeps_weights=False)
        again = execute(trial, ExecutionSettings(tmp_path))
        assert (again["cells"], again["kept"]) == (first["cells"], first["kept"])
        assert trained == []
        assert execute(replace(trial, studies=("another",)), ExecutionSettings(tmp_path))["studies"] == ["another"]
        assert json.loads((tmp_path / SHORT.key / RESULT).read_text())["studies"] == ["another"]
        assert trained == []
        execute(replace(trial, scorings=(replace(scoring, tasks=("phrases",)),)), ExecutionSettings(tmp_path))
        assert trained == [SHORT]

    @pytest.mark.slow
    def test_other_threads_train_other_weights_and_a_run_says_so(
        self, tmp_path: Path, quiet: pytest.LogCaptureFixture
    ) -> None:
        first = score(tmp_path, encoder=TINY, tasks=("synthetic_dev",))
        shutil.rmtree(tmp_path / TINY.key / "last")
        again = score(tmp_path, encoder=TINY, tasks=("phrases",), threads=2)
        assert f"run {TINY.key}: trained so far with threads=1, now 2" in "\n".join(quiet.messages)
        same = again["kept"] == first["kept"]  # as on a machine with one core
        assert again["environment"]["threads"] == ("1" if same else "2")
        assert {cell["task"] for cell in again["cells"]} == ({"synthetic_dev", "phrases"} if same else {"phrases"})


@pytest.mark.parametrize("state", [False, True])
def test_a_run_that_is_compiled_in_part_says_so(
    state: bool, tmp_path: Path, quiet: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: the environment of a CPU has no such setting."""
    monkeypatch.setattr(jobs, "environment", lambda device, threads, compiled: {"compiled": str(compiled)})
    folder = tmp_path / TINY.key
    jobs._remember_environment(TINY, ExecutionSettings(tmp_path, compiled=True))
    (folder / ("state.pt" if state else "history.json")).write_text("")
    jobs._remember_environment(TINY, ExecutionSettings(tmp_path))
    assert json.loads((folder / ENVIRONMENT).read_text())["compiled"] == ("in part" if state else "True")
    assert any("trained so far with compiled=True, now False" in text for text in quiet.messages) == state


def test_saved_embeddings_are_of_one_device_and_number_of_threads(tmp_path: Path) -> None:
    def content(threads: int) -> str:
        execution = ExecutionSettings(tmp_path, threads=threads, cache=True)
        return load_encoder(Pretrained("wiki-tiny"), "as is", execution).content

    assert content(1) == content(1) != content(2)


@pytest.mark.usefixtures("few_pairs")
class TestPins:
    @pytest.mark.slow
    def test_another_encoder_of_the_same_name_is_refused_even_if_everything_is_scored(self, tmp_path: Path) -> None:
        mine = shutil.copytree(ASSETS / "wiki-tiny", tmp_path / "mine")
        score(tmp_path / "store", encoder=Pretrained(str(mine)), tasks=("synthetic_dev",))
        encoder = Encoder.from_pretrained(mine)
        with torch.no_grad():
            next(encoder.backbone.parameters()).mul_(2)
        encoder.save_pretrained(mine)
        with pytest.raises(ValueError, match=r"mine has the content .*, but the first run that used it found"):
            score(tmp_path / "store", encoder=Pretrained(str(mine)), tasks=("synthetic_dev",))

    @pytest.mark.slow
    def test_another_corpus_of_a_scorer_is_refused_even_if_everything_is_scored(self, tmp_path: Path) -> None:
        path = tmp_path / "texts.txt"
        path.write_text("".join(f"A cat {i} sat.\n" for i in range(40)))
        by = Whitened(pooling="cls", dims=2, corpus=Corpus(str(path), 40))
        score(tmp_path / "store", tasks=("synthetic_dev",), scorer=by)
        path.write_text("".join(f"A dog {i} ran.\n" for i in range(40)))
        with pytest.raises(ValueError, match=r"texts\.txt, first 40 lines has the content .*, but the first run"):
            score(tmp_path / "store", tasks=("synthetic_dev",), scorer=by)
