"""What `cse_core` exports, against the parts that it is made of."""

import ast
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

import cse_core
from cse_core import (
    Corpus,
    Encoder,
    Flowed,
    RankCSE,
    Run,
    SimCSE,
    Teacher,
    Whitened,
    evaluate,
    make_batch,
    train,
)
from cse_core.api import Trained
from cse_core.data.corpora import lines_hash
from cse_core.data.synthetic import sentences
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine
from cse_core.method import single_column
from cse_core.methods.baselines.esimcse import ESimCSE
from cse_core.training.train import train as train_run

SETTINGS: dict[str, Any] = {"epochs": 1, "batch_size": 16, "learning_rate": 3e-4, "dropout": 0.3}
TEXTS = sentences(48)


def train_simcse(store: Path, **settings: Any) -> Trained:
    return train(SimCSE(), TEXTS, "wiki-tiny", store=store, **SETTINGS, **settings)


def test_importing_the_package_loads_no_library() -> None:
    code = (
        "import sys, cse_core; dir(cse_core); print(sorted({'torch', 'transformers', 'numpy', 'datasets'} & "
        "{name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_editors_see_the_names_that_are_exported() -> None:
    (shown,) = [node for node in ast.parse(Path(cse_core.__file__).read_text()).body if isinstance(node, ast.If)]
    seen = {node.module: {one.name for one in node.names} for node in shown.body if isinstance(node, ast.ImportFrom)}
    assert seen == {module: set(names) for module, names in cse_core.EXPORTS.items()}
    for name in cse_core.__all__:
        assert getattr(cse_core, name) is not None
        assert name in dir(cse_core)
    with pytest.raises(AttributeError, match="no attribute 'evalute'"):
        cse_core.evalute  # noqa: B018


class ByArrays:
    """An encoder of another library: it takes a list, and returns arrays of another width than float32."""

    def __init__(self, inner: Encoder) -> None:
        self.inner = inner

    def encode(self, texts: list[str]) -> NDArray[np.float64]:
        assert isinstance(texts, list)
        return self.inner.encode(texts).numpy().astype(np.float64)


class ByTensors(ByArrays):
    """One that returns tensors with a gradient."""

    def encode(self, texts: list[str]) -> Tensor:  # ty: ignore[incompatible-method-override]
        return self.inner.encode(texts).requires_grad_()


@pytest.mark.slow
def test_evaluate_gives_the_suites_numbers_for_every_kind_of_encoder(tmp_path: Path) -> None:
    encoder, tasks = Encoder.from_pretrained("wiki-tiny", pooling="mean"), ["synthetic_dev", "phrases"]
    encoder.save_pretrained(tmp_path / "mine")
    expected = {name: outcome.metrics for name, outcome in suite.evaluate(encoder, Cosine(), tasks).outcomes.items()}
    for each in (encoder, tmp_path / "mine", str(tmp_path / "mine"), ByArrays(encoder), ByTensors(encoder)):
        assert evaluate(each, tasks) == expected
    assert evaluate(encoder, "phrases") == {"phrases": expected["phrases"]}


@pytest.mark.slow
def test_evaluate_takes_another_scorer_and_refuses_what_is_no_encoder() -> None:
    encoder = Encoder.from_pretrained("wiki-tiny")
    whitened = suite.evaluate(encoder, Whitened(), ["synthetic_dev"])["synthetic_dev"]
    assert evaluate(encoder, "synthetic_dev", scorer=Whitened()) == {"synthetic_dev": whitened.metrics}
    with pytest.raises(ValueError, match="ByArrays: an encoder of another library has no pooling, got 'top2_mean'"):
        evaluate(ByArrays(encoder), "synthetic_dev", scorer=Flowed())
    with pytest.raises(ValueError, match=r"unknown task 'stsbb' \(did you mean stsb"):
        evaluate(encoder, ["stsbb"])


@pytest.mark.slow
def test_train_is_the_run_of_these_settings_on_these_sentences(tmp_path: Path) -> None:
    steps: list[int] = []
    trained, finished = (
        train_simcse(tmp_path / "a", on_step=lambda step, history: steps.append(step)) for _ in range(2)
    )
    assert (steps, finished.history) == ([1, 2, 3], trained.history)  # not trained again
    (tmp_path / "mine.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    corpus = Corpus(str(tmp_path / "mine.txt"), len(TEXTS), lines_hash(TEXTS))
    run = Run(method=SimCSE(), backbone=trained.run.backbone, corpus=corpus, **SETTINGS)
    assert run.key == trained.run.key
    train_run(run, tmp_path / "b")
    by_hand = load_file(tmp_path / "b" / run.key / "last" / "model.safetensors")
    for other in (tmp_path / "mine.txt", corpus):
        again = train(SimCSE(), other, "wiki-tiny", store=tmp_path / "c", **SETTINGS)
        assert again.run.key == run.key
        found = load_file(again.folder / "model.safetensors")
        assert all(torch.equal(found[name], value) for name, value in by_hand.items())
    assert torch.equal(again.encoder.encode(TEXTS), trained.encoder.encode(TEXTS))


@pytest.mark.slow
def test_teachers_are_trained_first_and_a_backbones_own_pooling_is_used(tmp_path: Path) -> None:
    Encoder.from_pretrained("wiki-tiny", pooling="mean").save_pretrained(tmp_path / "backbone")
    teacher = train(SimCSE(), TEXTS, tmp_path / "backbone", store=tmp_path / "first", **SETTINGS).run
    assert teacher.pooling == "mean"
    method = RankCSE(teachers=(Teacher(teacher, 0.5, "last"), Teacher(replace(teacher, seed=1), 0.5, "last")))
    student = train(method, TEXTS, "wiki-tiny", store=tmp_path / "second", **SETTINGS)
    assert student.run.pooling == "cls"
    trained = {path.parent.name for path in (tmp_path / "second").glob("*/history.json")}
    assert trained == {student.run.key, *(run.key for run in student.run.nested())}
    assert len(trained) == 3


@dataclass(frozen=True)
class Pairs(SimCSE):
    """SimCSE of each sentence and its positive."""

    name: ClassVar[str] = "pairs"
    columns: ClassVar[int] = 2

    def examples(self, texts: Any, tokenizer: Any, max_length: int) -> dict[str, list[list[int]]]:
        first, second = ([*side] for side in zip(*texts, strict=True))
        return single_column(self, first, tokenizer, max_length) | {
            "positive": single_column(self, second, tokenizer, max_length)["text"]
        }


@pytest.mark.slow
def test_a_method_may_be_trained_on_several_columns(tmp_path: Path) -> None:
    rows = [(text, f"{text} Yes.") for text in TEXTS]
    settings: Any = {"store": tmp_path, "batch_size": 8, "max_length": 16}
    listed = train(Pairs(), rows, "wiki-tiny", **settings)
    path = tmp_path / "mine.csv"
    pd.DataFrame([("x", *row) for row in rows], columns=["id", "sent0", "sent1"]).to_csv(path, index=False)
    assert train(Pairs(), path, "wiki-tiny", **settings).run.key == listed.run.key  # and is not trained again
    named = train(Pairs(), path, "wiki-tiny", columns=["sent1", "sent0"], **settings)
    assert named.run.key != listed.run.key
    with pytest.raises(ValueError, match="method esimcse: expected sentences in one column, got text, positive"):
        train(ESimCSE(), rows, "wiki-tiny", **settings)
    with pytest.raises(ValueError, match=r"example 1: expected 2 texts \(text, positive\), got \('a',\)"):
        train(Pairs(), [("a", "b"), ("a",)], "wiki-tiny", **settings)
    with pytest.raises(ValueError, match="columns text: expected a file of sentences, got a list"):
        train(SimCSE(), TEXTS, "wiki-tiny", columns=["text"], store=tmp_path)


def test_what_cannot_be_trained_on_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown setting 'learning_rat' \(did you mean learning_rate"):
        train(SimCSE(), TEXTS, "wiki-tiny", store=tmp_path, learning_rat=1e-3)
    with pytest.raises(ValueError, match=r"sentence 1: expected no line break, got 'a\\nb'"):
        train(SimCSE(), ["one", "a\nb", "three"], "wiki-tiny", store=tmp_path)
    marked = r"sentence 0: begins with a byte order mark, '\\ufeffone'; read its file as utf-8-sig"
    with pytest.raises(ValueError, match=marked):
        train(SimCSE(), ["\ufeffone", "two", "three"], "wiki-tiny", store=tmp_path)
    with pytest.raises(ValueError, match=r"example 0: expected 2 texts \(text, positive\), got \('one',\)"):
        train(SimCSE(), [("one",), ("two",), ("three",)], "wiki-tiny", store=tmp_path)
    with pytest.raises(FileNotFoundError, match="expected a list of sentences, a text file or a Corpus"):
        train(SimCSE(), "no such file", "wiki-tiny", store=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_batch_has_the_cut_tokens_of_its_sentences_and_a_generator_of_its_seed() -> None:
    encoder, long = Encoder.from_pretrained("wiki-tiny"), ["one two three four five six seven eight", "one"]
    batch = make_batch(SimCSE(), long, encoder, max_length=5, seed=3)
    ids = [row[mask].tolist() for row, mask in zip(batch["text"].ids, batch["text"].mask, strict=True)]
    whole = encoder.tokenizer(long)["input_ids"]
    assert ids == [[*whole[0][:4], whole[0][-1]], whole[1]]
    assert batch.rows.tolist() == [0, 1]
    again = make_batch(SimCSE(), long, encoder, seed=3)
    assert torch.equal(torch.rand(3, generator=batch.generator), torch.rand(3, generator=again.generator))


def test_columns_without_a_file_that_has_them_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="columns a, b: expected a file of pairs among the tasks, got synthetic_dev"):
        evaluate("wiki-tiny", "synthetic_dev", columns=("a", "b"))
    with pytest.raises(ValueError, match="columns a, b: expected a file of sentences, got a Corpus"):
        train(SimCSE(), Corpus("synthetic", 8), "wiki-tiny", store=tmp_path, columns=("a", "b"))
