"""A saved encoder, opened by sentence-transformers, gives the same vectors."""

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize

from cse_core.encoder import Encoder

SENTENCES = ["A man is playing a guitar.", "", "two dogs  run", "Ünïcödé — and [MASK]", "long " * 700, "A man."]


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_sentence_transformers_gives_the_same_vectors(pooling: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained("wiki-tiny", pooling=pooling)
    encoder.save(tmp_path / "saved")
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(SENTENCES, convert_to_tensor=True)
    ours = encoder.encode(SENTENCES)
    assert torch.allclose(theirs, ours, atol=1e-5, rtol=0)
    again = Encoder.from_pretrained(tmp_path / "saved")
    assert again.pooling == pooling
    assert torch.equal(again.encode(SENTENCES), ours)


def test_a_folder_with_modules_that_we_lack_is_refused_by_their_name(tmp_path: Path) -> None:
    folder = tmp_path / "dense"
    parts = SentenceTransformer(str(_saved(tmp_path)), device="cpu")
    parts.append(Normalize())
    parts.save(str(folder))
    assert Encoder.from_pretrained(folder).pooling == "mean"  # lengths change no cosine
    parts.append(Dense(in_features=128, out_features=8))
    parts.save(str(folder))
    with pytest.raises(ValueError, match=r"modules.json: wants modules among Transformer, .*, found \S+Dense"):
        Encoder.from_pretrained(folder)


def _saved(tmp_path: Path) -> Path:
    Encoder.from_pretrained("wiki-tiny", pooling="mean").save(tmp_path / "saved")
    return tmp_path / "saved"
