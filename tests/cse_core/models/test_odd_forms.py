"""The forms in which others release weights: pickles, names with a prefix, more than an encoder, parts missing."""

import logging
import os
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import ASSETS, encoder_hash, resolve, resolve_pinned
from cse_core.run import Pretrained

WIKI_TINY, WIKI_MINI = ASSETS / "wiki-tiny", ASSETS / "wiki-mini"
TEXTS = ["a cat sat", "the river is cold"]
State = Mapping[str, Any]


def words_of(state: State) -> dict[str, Tensor]:
    """The encoder's own tensors, by names without the model's."""
    return {name.removeprefix("bert."): value for name, value in state.items() if name.startswith("bert.")}


def named(state: State, prefix: str) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in state.items()}


def other(state: State) -> dict[str, Tensor]:
    """Other numbers under the same names."""
    return {name: torch.full_like(value, 0.5) for name, value in state.items()}


def with_parts(state: State) -> dict[str, Tensor]:
    """What DiffCSE's files hold: the encoder, a discriminator of its kind, a generator with more layers, a head."""
    bare = words_of(state)
    deeper = {name.replace("layer.1.", "layer.5."): value for name, value in other(bare).items()}
    generator, discriminator = named(deeper, "generator.bert."), named(other(bare), "discriminator.bert.")
    return {**generator, **discriminator, **named(bare, "bert."), "mlp.dense.weight": torch.ones(3, 3)}


def of_tensorflow(state: State) -> dict[str, Tensor]:
    """The names of the first BERTs."""
    return {name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v for name, v in state.items()}


FORMS: dict[str, Callable[[State], State]] = {
    "a pickle": dict,
    "DataParallel": lambda state: named(state, "module."),
    "DataParallel, without the model's name": lambda state: named(words_of(state), "module."),
    "with a discriminator and a generator": with_parts,
    "DataParallel, with a discriminator and a generator": lambda state: named(with_parts(state), "module."),
    "with a pooler and position ids": lambda state: {
        **words_of(state),
        "pooler.dense.weight": torch.ones(3, 3),
        "embeddings.position_ids": torch.arange(512)[None],
    },
    "the first BERTs' names": of_tensorflow,
}


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    return load_file(WIKI_TINY / "model.safetensors")


@pytest.fixture(scope="module")
def expected() -> Tensor:
    return Encoder.from_pretrained("wiki-tiny").encode(TEXTS)


def folder_of(path: Path, state: State) -> Path:
    """An encoder's folder whose weights are a pickle."""
    shutil.copytree(WIKI_TINY, path, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save(dict(state), path / "pytorch_model.bin")
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_the_encoder_in_it_is_read(form: str, state: State, expected: Tensor, tmp_path: Path, caplog) -> None:
    folder = folder_of(tmp_path / "odd", FORMS[form](state))
    assert torch.equal(Encoder.from_pretrained(folder).encode(TEXTS), expected)
    left_out = {
        "with a pooler and position ids": "left out its pooling layer, which only the pooling pooler_output uses",
        "with a discriminator and a generator": "left out what is no part of the encoder: mlp",
    }
    named = next((text for name, text in left_out.items() if form.endswith(name)), None)
    assert caplog.messages == ([f"{folder / 'pytorch_model.bin'}: {named}"] if named else [])


def test_what_is_no_known_head_is_left_out_with_a_warning(
    state: State, expected: Tensor, tmp_path: Path, caplog
) -> None:
    folder = folder_of(tmp_path / "odd", {**state, "projector.weight": torch.ones(2), "bert.gate.bias": torch.ones(2)})
    assert torch.equal(Encoder.from_pretrained(folder).encode(TEXTS), expected)
    path = folder / "pytorch_model.bin"
    assert caplog.messages == [f"{path}: left out what is no part of the encoder: gate, projector"]
    assert caplog.records[0].levelno == logging.WARNING


@pytest.mark.parametrize("gone", ["embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.bias"])
@pytest.mark.parametrize("form", ["DataParallel", "with a discriminator and a generator"])
def test_a_weight_that_is_missing_is_never_random(form: str, gone: str, state: State, tmp_path: Path) -> None:
    fewer = {name: value for name, value in state.items() if name != f"bert.{gone}"}
    parts = FORMS[form](state) if form.startswith("with") else FORMS[form](fewer)
    folder = folder_of(tmp_path / "odd", {name: value for name, value in parts.items() if name != f"bert.{gone}"})
    with pytest.raises(ValueError, match=rf"{gone} missing, which config.json expects"):
        Encoder.from_pretrained(folder)


class Hostile:
    """Makes a folder when it is read as a pickle."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("form", ["among tensors", "a pickle", "an old pickle"])
def test_a_pickle_that_would_run_code_is_refused_and_runs_none(form: str, state: State, tmp_path: Path) -> None:
    folder, made = folder_of(tmp_path / "odd", state), tmp_path / "made"
    if form == "among tensors":
        torch.save({**state, "more": Hostile(made)}, folder / "pytorch_model.bin")
    else:
        content = pickle.dumps(Hostile(made), protocol=2 if form == "an old pickle" else None)
        (folder / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(ValueError) as caught:
        Encoder.from_pretrained(folder)
    assert str(caught.value).startswith(f"{folder / 'pytorch_model.bin'}: ")
    assert ("refused, as reading it would run posix.mkdir" in str(caught.value)) == (form != "a pickle")
    assert "weights_only" not in str(caught.value)  # torch's message says how to run it
    assert not made.exists()


class TestEncodersFolder:
    """CSE_ENCODERS."""

    @pytest.fixture
    def encoders(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "encoders").mkdir()
        monkeypatch.setenv("CSE_ENCODERS", str(tmp_path / "encoders"))
        return tmp_path / "encoders"

    @pytest.mark.parametrize(
        ("name", "place"),
        [
            ("someone/bert", "someone/bert"),
            ("someone/bert", "someone--bert"),
            ("someone/bert/unsup-bert", "someone/bert/unsup-bert"),
            ("someone/bert/unsup-bert", "someone--bert/unsup-bert"),
            ("bert-base-uncased", "bert-base-uncased"),
        ],
    )
    def test_a_hub_name_is_a_folder_in_it(self, name: str, place: str, encoders: Path) -> None:
        shutil.copytree(WIKI_TINY, encoders / place)
        assert resolve(name) == encoders / place

    def test_it_comes_after_the_embedded_and_does_not_hide_the_hub(self, encoders: Path) -> None:
        shutil.copytree(WIKI_MINI, encoders / "wiki-tiny")
        assert resolve("wiki-tiny") == WIKI_TINY
        with pytest.raises(FileNotFoundError, match=rf"nor in CSE_ENCODERS \({encoders}\), nor available from the Hug"):
            resolve("someone/absent")

    def test_a_folder_without_a_config_is_named(self, encoders: Path) -> None:
        (encoders / "someone" / "bert").mkdir(parents=True)
        with pytest.raises(FileNotFoundError, match=r"someone/bert: holds no config\.json; copy the encoder's files"):
            resolve("someone/bert")

    @pytest.mark.parametrize("value", ["encoders", "/nowhere/at/all"])
    def test_a_path_that_no_worker_could_read_is_refused(self, value: str, encoders: Path, monkeypatch) -> None:
        monkeypatch.setenv("CSE_ENCODERS", value)
        monkeypatch.chdir(encoders.parent)
        with pytest.raises(FileNotFoundError, match=f"CSE_ENCODERS is {value}: expected the absolute path of a folder"):
            resolve("someone/bert")

    def test_an_encoder_without_a_tokenizer_gets_the_named_ones(
        self, encoders: Path, expected: Tensor, cache: Path, tmp_path: Path
    ) -> None:
        bare = shutil.copytree(WIKI_TINY, encoders / "someone/bert", ignore=shutil.ignore_patterns("tokenizer*"))
        (bare / "tokenizer_config.json").write_text('{"model_max_length": 7}')  # of no tokenizer
        shutil.copytree(WIKI_TINY, encoders / "its-base", ignore=shutil.ignore_patterns("model.safetensors"))
        with pytest.raises(ValueError, match="the tokenizer has 5 tokens"):
            Encoder.from_pretrained(resolve_pinned(Pretrained("someone/bert")))
        borrowing = Pretrained("someone/bert", tokenizer="its-base")
        for _ in range(2):  # the second time the links are there
            folder = resolve_pinned(borrowing, tmp_path / "store")
            assert torch.equal(Encoder.from_pretrained(folder).encode(TEXTS), expected)
        assert encoder_hash(folder) == encoder_hash(WIKI_TINY)
        assert sorted(path.name for path in bare.iterdir()) == [
            "config.json",
            "model.safetensors",
            "tokenizer_config.json",
        ]
        assert borrowing.identity == "someone/bert"

    def test_a_tokenizer_of_its_own_is_kept(self, encoders: Path) -> None:
        shutil.copytree(WIKI_TINY, encoders / "someone/bert")
        assert resolve_pinned(Pretrained("someone/bert", tokenizer="absent")) == encoders / "someone/bert"

    def test_another_tokenizer_under_the_name_is_refused(self, encoders: Path, cache: Path, tmp_path: Path) -> None:
        shutil.copytree(WIKI_TINY, encoders / "someone/bert", ignore=shutil.ignore_patterns("tokenizer*"))
        base = shutil.copytree(WIKI_TINY, encoders / "its-base")
        borrowing = Pretrained("someone/bert", tokenizer="its-base")
        resolve_pinned(borrowing, tmp_path / "store")
        text = (base / "tokenizer.json").read_text()
        (base / "tokenizer.json").write_text(text.replace('"the"', '"teh"', 1))
        with pytest.raises(
            ValueError, match=r"backbone someone/bert has the content .*, but the first run that used it"
        ):
            resolve_pinned(borrowing, tmp_path / "store")


def test_roberta_by_its_vocabulary_and_merges(roberta: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(roberta, tmp_path / "roberta")
    whole: Any = Encoder.from_pretrained(roberta)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    whole.tokenizer.backend_tokenizer.model.save(str(folder))
    assert {path.name for path in folder.glob("[vm]*.*")} >= {"vocab.json", "merges.txt"}
    template = "This sentence : ' {} ' means [MASK]."
    found = [
        Encoder.from_pretrained(path, pooling="mask", template=template).encode(TEXTS) for path in (roberta, folder)
    ]
    assert torch.equal(*found)
