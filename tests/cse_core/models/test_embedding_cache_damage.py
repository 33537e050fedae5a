"""Embeddings on disk that are torn, altered or another encoder's: discarded with a warning, and computed again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cse_core.models.embedding_cache import CachedEncoder
from cse_core.models.word_vectors import WordVectors
from tests.support.encoders import TEXTS, Recording, same


def rewritten(path: Path, **changed: np.ndarray) -> None:
    """The same file with other arrays: a whole archive, with checksums of its own."""
    with np.load(path) as kept:
        arrays: dict[str, Any] = {**kept, **changed}
    np.savez(path, **arrays)


def kept_by(content: str, cache: Path, texts: Sequence[str] = TEXTS) -> Path:
    """The file that a memory of this content leaves."""
    before = set(cache.rglob("*.npz"))
    CachedEncoder(Recording(), content).encode(texts)
    (path,) = set(cache.rglob("*.npz")) - before
    return path


OFFSET_POSITIONS = np.stack([Recording().vector(text) for text in TEXTS[1:] + TEXTS[:1]]).astype(np.float32)
DAMAGES: dict[str, Any] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "cut at its end": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "vectors of other sentences": lambda path: rewritten(path, vectors=OFFSET_POSITIONS),
    "wider vectors": lambda path: rewritten(path, vectors=np.ones((len(TEXTS), 9), np.float32)),
    "fewer vectors": lambda path: rewritten(path, vectors=OFFSET_POSITIONS[:2]),
    "another type": lambda path: rewritten(path, vectors=OFFSET_POSITIONS.view(np.int32)),
    "no digest": lambda path: np.savez(path, marks=np.zeros((5, 16), np.uint8), vectors=OFFSET_POSITIONS),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_embeddings_are_thrown_away_with_a_warning_and_made_again(
    damage: str, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = kept_by("content", cache)
    DAMAGES[damage](path)
    for warnings, calls in ((1, [list(TEXTS)]), (0, [])):
        fake = Recording()
        caplog.clear()
        assert same(CachedEncoder(fake, "content").encode(TEXTS), Recording().encode(TEXTS))
        assert fake.calls == calls
        assert [said.startswith(f"{path}: damaged embeddings (") for said in caplog.messages] == [True] * warnings


def test_embeddings_of_another_encoder_in_the_folder_are_thrown_away(cache: Path, caplog) -> None:
    own = kept_by("content", cache)
    other = kept_by("other content", cache)
    other.replace(own)
    fake = Recording()
    assert same(CachedEncoder(fake, "content").encode(TEXTS), Recording().encode(TEXTS))
    assert fake.calls == [list(TEXTS)]
    assert "other content than was written" in caplog.text


def test_embeddings_of_another_width_than_the_encoders_are_thrown_away(cache: Path, caplog) -> None:
    kept_by("content", cache)  # eight numbers a sentence
    words = WordVectors("my words", {"a": 0}, np.ones((1, 3), np.float32))
    assert CachedEncoder(words, "content").encode(TEXTS).shape == (len(TEXTS), 3)
    assert f"shape ({len(TEXTS)}, 8), expected ({len(TEXTS)}, 3)" in caplog.text
