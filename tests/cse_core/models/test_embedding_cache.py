"""An encoder with a memory: what reaches the encoder, what comes back, and what is found again on disk."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from cse_core.evaluation.scorers import Cosine, Ranked, Scorer, Whitened
from cse_core.models.embedding_cache import CachedEncoder, cut_warning
from cse_core.models.encoder import Encoder
from cse_core.models.foreign import ForeignEncoder
from cse_core.models.word_vectors import WordVectors
from cse_core.run import Corpus
from tests.support.encoders import TEXTS, Recording, same, wiki_tiny

TASKS = {"first": (TEXTS[:3], TEXTS[2:]), "second": (TEXTS[1:3], (TEXTS[3], "a cat"))}
EVERY = {text for sides in TASKS.values() for side in sides for text in side}


class Shaped:
    """An encoder that gives zeros of one shape, whatever it is asked."""

    name = "shaped"

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def encode(self, sentences: Sequence[str]) -> Tensor:
        return torch.zeros(self.shape)


def calls_for_texts(content: str = "content") -> list[list[str]]:
    """What a new memory of this content asks its encoder, so as to give the right vectors of TEXTS."""
    fake = Recording()
    assert same(CachedEncoder(fake, content).encode(TEXTS), Recording().encode(TEXTS))
    return fake.calls


def kept_by(content: str, cache: Path) -> Path:
    """The file that a memory of this content leaves."""
    before = set(cache.rglob("*.npz"))
    calls_for_texts(content)
    (path,) = set(cache.rglob("*.npz")) - before
    return path


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return wiki_tiny().eval()


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | None, str]]:
    """What passes through real encoders from here on: pooling, limit of tokens and text."""
    passed: list[tuple[str, int | None, str]] = []
    real = Encoder.encode

    def spy(self: Encoder, sentences: Sequence[str], *args: Any, **kwargs: Any) -> Tensor:
        passed.extend((self.pooling, self.longest, sentence) for sentence in sentences)
        return real(self, sentences, *args, **kwargs)

    monkeypatch.setattr(Encoder, "encode", spy)
    return passed


def test_only_new_sentences_reach_the_encoder_all_in_one_go() -> None:
    fake = Recording()
    memory = CachedEncoder(fake)
    memory.fill(["b", "a", "b", "a"])
    assert memory.encode(["a", "c", "b", "c", "d"]).shape == (5, 8)
    memory.fill(iter(["d", "a"]))
    memory.encode(["a", "b"])
    assert fake.calls == [["b", "a"], ["c", "d"]]
    assert memory.name == "recording"


def test_vectors_come_in_the_order_asked_for_duplicates_and_all() -> None:
    memory = CachedEncoder(Recording())
    for asked in (["b", "a", "b", "b"], ["c", "b", "d", "a", "c"], ["a"]):
        assert same(memory.encode(asked), torch.cat([Recording().encode([text]) for text in asked]))


def test_scorers_share_what_is_embedded(cache: Path) -> None:
    fake = Recording()
    memory = CachedEncoder(fake)
    ranked = Ranked(corpus=Corpus("synthetic", 60), size=40)
    scorers: list[Scorer] = [Cosine(), ranked, Ranked(corpus=ranked.corpus, size=20, seed=1, weight=1.0), Cosine()]
    for scorer in scorers:
        assert scorer.view(memory) is memory
        found = scorer.pair_scores(memory, TASKS)
        assert {task: len(scores.scores) for task, scores in found.items()} == {"first": 3, "second": 2}
        scorer.vectors(memory, TEXTS)
    assert len(fake.passed) == len(set(fake.passed)) > len(EVERY)
    assert set(fake.passed) >= EVERY
    assert CachedEncoder.wrap(memory) is memory
    assert CachedEncoder.wrap(fake).encoder is fake


def test_views_share_what_is_embedded(encoder: Encoder, embedded: list, cache: Path) -> None:
    memory = CachedEncoder(encoder)
    corpus = Corpus("synthetic", 300)
    for _ in range(2):
        for scorer in (Cosine(), Cosine("mean"), Whitened(pooling="mean", corpus=corpus, dims=20)):
            scorer.pair_scores(memory, TASKS)
            scorer.vectors(memory, TEXTS)
    assert len(embedded) == len(set(embedded)) == 3 * len(EVERY) + 300
    assert {(pooling, longest) for pooling, longest, _ in embedded} == {("cls", None), ("mean", None), ("mean", 64)}


def test_a_view_is_the_encoder_under_that_pooling_and_shared(encoder: Encoder) -> None:
    memory = CachedEncoder(encoder)
    keys = [("cls", "", None), ("mean", "", None), ("mean", "", 4), ("mask", "{} is [MASK] .", None)]
    found = [memory.with_pooling(*key).encode(TEXTS) for key in keys]
    for key, vectors in zip(keys, found, strict=True):
        assert memory.with_pooling(*key) is memory.with_pooling(*key)
        torch.testing.assert_close(vectors, encoder.with_pooling(*key).encode(TEXTS))
    assert all(not torch.allclose(a, b, atol=1e-3) for i, a in enumerate(found) for b in found[:i])
    torch.testing.assert_close(found[0], memory.encode(TEXTS))
    assert (memory.with_pooling("mean").name, encoder.pooling) == ("wiki-tiny", "cls")


def test_word_vectors_have_no_views() -> None:
    words = WordVectors("my words", {"a": 0}, np.ones((1, 3), np.float32))
    with pytest.raises(ValueError, match="my words: word vectors have no pooling, got 'mean'"):
        CachedEncoder(words).with_pooling("mean")
    assert CachedEncoder(words).encode(["a", "b", "a"]).tolist() == [[1] * 3, [0] * 3, [1] * 3]


@pytest.mark.parametrize("shape", [(3,), (2, 4), (4, 4), (3, 4, 1), ()])
def test_an_encoder_that_gives_anything_but_a_row_a_sentence_is_refused(shape: tuple[int, ...]) -> None:
    memory, shown = CachedEncoder(Shaped(*shape)), str(shape)
    for _ in range(2):  # and nothing of it is remembered
        with pytest.raises(ValueError) as caught:
            memory.encode(["a", "b", "a", "c"])
        assert str(caught.value) == f"shaped: expected 3 vectors, got the shape {shown}"
    assert memory.encode([]).numel() == 0


def test_no_sentences_need_no_encoder(encoder: Encoder, cache: Path) -> None:
    fake = Recording()
    for memory in (CachedEncoder(fake), CachedEncoder(encoder), CachedEncoder(encoder, "content")):
        assert len(memory.encode([])) == 0
    memory = CachedEncoder(fake)
    memory.encode(["a"])
    assert memory.encode([]).shape == (0, 8)
    assert fake.calls == [["a"]]
    assert not list(cache.rglob("*.npz"))


def test_sentences_are_the_same_only_letter_for_letter(cache: Path) -> None:
    texts = ["", " ", "a cat", "a  cat", "a cat ", "A cat", "\ud800", "\udfff", "caf\u00e9", "cafe\u0301", "\0"]
    fake = Recording()
    memory = CachedEncoder(fake, "content")
    vectors = memory.encode([*texts, *texts])
    assert fake.calls == [texts]
    assert len({tuple(row) for row in vectors.tolist()}) == len(texts)
    assert same(vectors[: len(texts)], vectors[len(texts) :])
    assert same(CachedEncoder(Recording(), "content").encode(texts[::-1]), vectors[: len(texts)].flip(0))


class TestOnDisk:
    def test_the_next_process_embeds_nothing_and_gets_the_same_bits(self, cache: Path) -> None:
        first, second = Recording(), Recording()
        vectors = CachedEncoder(first, "some content").encode(TEXTS)
        memory = CachedEncoder(second, "some content")
        assert same(memory.encode(TEXTS[::-1]), vectors.flip(0))
        assert second.calls == []
        assert memory.encode([*TEXTS, "new"]).shape == (len(TEXTS) + 1, 8)
        assert second.calls == [["new"]]
        assert {path.suffix for path in (cache / "embeddings").rglob("*") if path.is_file()} == {".npz"}

    def test_another_content_is_another_encoder(self, cache: Path) -> None:
        for content in ("some content", "some other content", ""):
            assert calls_for_texts(content) == [list(TEXTS)]

    def test_every_filling_is_found(self, cache: Path) -> None:
        memory = CachedEncoder(Recording(), "content")
        vectors = [memory.encode(TEXTS[:2]), memory.encode(TEXTS[1:])[1:]]
        other = CachedEncoder(Recording(), "content")
        other.encode(TEXTS[:1])
        other.encode(["a third"])
        assert len(list(cache.rglob("*.npz"))) == 3
        fake = Recording()
        found = CachedEncoder(fake, "content").encode([*TEXTS, "a third"])
        assert fake.calls == []
        assert same(found, torch.cat([*vectors, Recording().encode(["a third"])]))

    def test_two_that_have_kept_the_same_do_not_get_in_each_others_way(self, cache: Path) -> None:
        fakes = [Recording() for _ in range(3)]
        one, two = (CachedEncoder(fake, "content") for fake in fakes[:2])
        two.encode(["apart"])  # from here on it knows what was on disk
        one.encode(TEXTS)
        two.encode(TEXTS[1:])
        assert fakes[1].calls == [["apart"], list(TEXTS[1:])]
        assert same(CachedEncoder(fakes[2], "content").encode([*TEXTS, "apart"]), Recording().encode([*TEXTS, "apart"]))
        assert fakes[2].calls == []

    def test_a_half_written_file_is_not_read(self, cache: Path) -> None:
        path = kept_by("content", cache)
        path.with_suffix(".part").write_bytes(path.read_bytes()[:100])
        path.unlink()
        assert calls_for_texts() == [list(TEXTS)]
        assert path.is_file()
        assert CachedEncoder(Shaped(), "content").encode(TEXTS).shape == (len(TEXTS), 8)

    def test_what_could_not_be_written_leaves_no_whole_file(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(file: Any, **arrays: Any) -> None:
            file.write(b"half")
            raise OSError("no space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(np, "savez", full)
            with pytest.raises(OSError, match="no space left"):
                CachedEncoder(Recording(), "content").encode(TEXTS)
        assert list(cache.rglob("*.npz")) == []
        assert calls_for_texts() == [list(TEXTS)]

    def test_without_content_nothing_is_written(self, encoder: Encoder, cache: Path) -> None:
        CachedEncoder(Recording()).encode(TEXTS)
        memory = CachedEncoder(encoder)
        memory.encode(TEXTS)
        memory.with_pooling("mean").encode(TEXTS)
        assert not cache.exists()

    def test_each_view_has_its_own(self, encoder: Encoder, embedded: list, cache: Path) -> None:
        keys = [("mean", "", None), ("mean", "", 4), ("cls", "", None), ("mask", "{} is [MASK] .", None)]

        def vectors() -> list[Tensor]:
            memory = CachedEncoder(encoder, "content")
            found = [memory.encode(TEXTS), *(memory.with_pooling(*key).encode(TEXTS) for key in keys)]
            assert len(embedded) == 5 * len(TEXTS)
            return found

        before, after = vectors(), vectors()
        assert all(same(a, b) for a, b in zip(before, after, strict=True))
        CachedEncoder(encoder, "content").with_pooling("top2_mean").encode(TEXTS)
        assert len(embedded) == 6 * len(TEXTS)


def test_progress_counts_what_is_embedded(encoder: Encoder) -> None:
    reported: list[tuple[str, int, int]] = []
    texts = [f"{'very ' * (i % 3)}small number {i}" for i in range(300)]
    memory = CachedEncoder(encoder)
    memory.fill(texts[:20])
    memory.fill([*texts, *texts], progress=lambda *news: reported.append(news))
    assert {(what, of) for what, _, of in reported} == {("embedding", 280)}
    assert len(reported) > 1
    assert [done for _, done, _ in reported] == sorted({done for _, done, _ in reported})
    assert reported[-1] == ("embedding", 280, 280)
    before = list(reported)
    memory.fill(texts, progress=lambda *news: reported.append(news))
    assert reported == before


def test_an_encoder_without_progress_is_asked_for_none() -> None:
    reported: list[tuple[str, int, int]] = []
    memory = CachedEncoder(Recording())
    memory.fill(TEXTS, progress=lambda *news: reported.append(news))
    assert same(memory.encode(TEXTS), Recording().encode(TEXTS))
    assert reported == []


def test_a_short_text_of_many_tokens_is_counted_as_cut() -> None:
    by_bytes = Tokenizer(BPE({byte: i for i, byte in enumerate(sorted(ByteLevel.alphabet()))}, []))
    by_bytes.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=by_bytes)
    model: Any = SimpleNamespace(tokenizer=tokenizer, max_seq_length=8, encode=len)
    said = ("set: 1 of 2 texts are longer than 8 tokens and were cut",)
    assert cut_warning("set", ForeignEncoder(model), ["東京東", "é", "é"]) == said  # nine bytes


def rewritten(path: Path, **changed: np.ndarray) -> None:
    """The same file with other arrays: a whole archive, with checksums of its own."""
    with np.load(path) as kept:
        arrays: dict[str, Any] = {**kept, **changed}
    np.savez(path, **arrays)


OFFSET_POSITIONS = np.stack([Recording().vector(text) for text in TEXTS[1:] + TEXTS[:1]]).astype(np.float32)
DAMAGES: dict[str, Any] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "cut at its end": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "vectors of other sentences": lambda path: rewritten(path, vectors=OFFSET_POSITIONS),
    "wider vectors": lambda path: rewritten(path, vectors=np.ones((len(TEXTS), 9), np.float32)),
    "fewer vectors": lambda path: rewritten(path, vectors=OFFSET_POSITIONS[:2]),
    "another type": lambda path: rewritten(path, vectors=OFFSET_POSITIONS.view(np.int32)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_embeddings_are_thrown_away_with_a_warning_and_made_again(
    damage: str, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = kept_by("content", cache)
    DAMAGES[damage](path)
    for warnings, calls in ((1, [list(TEXTS)]), (0, [])):
        caplog.clear()
        assert calls_for_texts() == calls
        told = f"{path} is not as this version wrote it"
        assert [said.startswith(told) for said in caplog.messages] == [True] * warnings


def test_embeddings_of_another_encoder_in_the_folder_are_thrown_away(cache: Path, caplog) -> None:
    own = kept_by("content", cache)
    kept_by("other content", cache).replace(own)
    assert calls_for_texts() == [list(TEXTS)]
    assert "not as this version wrote it" in caplog.text
