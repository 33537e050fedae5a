"""A saved encoder, opened by sentence-transformers, gives the same vectors; a folder brings no code of its own."""

import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from transformers import AutoConfig

from cse_core.models.encoder import Encoder

SENTENCES = ["A man is playing a guitar.", "", "two dogs  run", "Ünïcödé — and [MASK]", "long " * 700, "A man."]


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.slow
def test_sentence_transformers_gives_the_same_vectors(pooling: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained("wiki-tiny", pooling=pooling)
    encoder.save_pretrained(tmp_path / "saved")
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(SENTENCES, convert_to_tensor=True)
    ours = encoder.encode(SENTENCES)
    assert torch.allclose(theirs, ours, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_a_folder_with_an_unknown_module_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "dense"
    Encoder.from_pretrained("wiki-tiny", pooling="mean").save_pretrained(tmp_path / "saved")
    parts = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    parts.append(Normalize())
    parts.save(str(folder))
    assert Encoder.from_pretrained(folder).pooling == "mean"
    parts.append(Dense(in_features=128, out_features=8))
    parts.save(str(folder))
    with pytest.raises(ValueError, match=r"its modules are \S+Transformer, \S+Pooling, \S+Normalize, \S+Dense; sent"):
        Encoder.from_pretrained(folder)


def test_a_model_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    AutoConfig.for_model("bart").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ValueError, match="transformers has no encoder of texts for the model type bart"):
        Encoder.from_pretrained(tmp_path)


def test_code_in_a_models_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda *words: asked.append("?") or "y")
    config = {"model_type": "strange", "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Own"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Own: pass\n")
    with pytest.raises(ValueError, match="trust_remote_code"):
        Encoder.from_pretrained(tmp_path)
    assert asked == []
    assert not (tmp_path / "ran").exists()
