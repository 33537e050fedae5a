"""Vectors of the training examples: computed once per checkpoint, never another checkpoint's."""

import shutil
from pathlib import Path

import pytest
import torch

from cse_core import vectors
from cse_core.data import examples
from cse_core.encoder import Encoder
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained
from cse_core.vectors import Examples


@pytest.fixture
def source(tmp_path: Path, cache: Path) -> Examples:
    torch.set_num_threads(1)
    student = Encoder.from_pretrained("wiki-tiny")
    table = examples(Corpus("synthetic", 40), SimCSE(), student.tokenizer, 32)
    return Examples(table, student, tmp_path, device=torch.device("cpu"))


def test_encoders_that_differ_in_pooling_alone_have_vectors_of_their_own(source: Examples, tmp_path: Path) -> None:
    for pooling in ("cls", "mean"):
        Encoder.from_pretrained("wiki-tiny", pooling=pooling).save(tmp_path / pooling)
        found = source.vectors(Pretrained(str(tmp_path / pooling)), select="last")
        expected = Encoder.from_pretrained("wiki-tiny", pooling=pooling).embed(source.table["text"])
        assert torch.allclose(found, expected, atol=1e-6)


def test_encoders_that_differ_in_configuration_have_vectors_of_their_own(source: Examples, tmp_path: Path) -> None:
    Encoder.from_pretrained("wiki-tiny").save(tmp_path / "two")
    shutil.copytree(tmp_path / "two", tmp_path / "four")
    config = tmp_path / "four" / "config.json"
    config.write_text(config.read_text().replace('"num_attention_heads": 2', '"num_attention_heads": 4'))
    two, four = (source.vectors(Pretrained(str(tmp_path / name)), select="last") for name in ("two", "four"))
    assert not torch.allclose(two, four, atol=1e-2)


def test_the_second_reader_computes_nothing(source: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    first = source.vectors(Pretrained("wiki-tiny"), select="last")
    monkeypatch.setattr(vectors.Encoder, "from_pretrained", None)  # calling it would raise
    assert torch.equal(source.vectors(Pretrained("wiki-tiny"), select="last"), first)


def test_a_teacher_with_another_vocabulary_is_refused(source: Examples, tmp_path: Path) -> None:
    other = Encoder.from_pretrained("wiki-tiny")
    other.tokenizer.add_tokens(["[NEW]"])
    other.save(tmp_path / "other")
    with pytest.raises(ValueError, match="different vocabularies; a teacher reads the student's ids"):
        source.vectors(Pretrained(str(tmp_path / "other")), select="last")
