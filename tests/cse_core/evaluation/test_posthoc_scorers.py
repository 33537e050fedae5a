"""Scorers that fit or rank before they compare: against scipy's Spearman, and against the fit done by hand."""

import hashlib
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from cse_core.data import synthetic
from cse_core.data.senteval import EvalDataset
from cse_core.evaluation import scorers
from cse_core.evaluation.bert_flow import fit_flow
from cse_core.evaluation.scorers import Cosine, Flowed, Pairs, Ranked, Scorer, Whitened, whitening
from cse_core.functional import rank_vectors
from cse_core.models.encoder import Encoder
from cse_core.models.word_vectors import WordVectors
from cse_core.run import Corpus
from tests.support.encoders import wiki_tiny

CORPUS = Corpus("synthetic", 300)
TASKS: dict[str, Pairs] = {
    "first": (["a cat sat", "the river", "a dog", "no"], ["a dog", "the river", "a cat sat", "snow fell"]),
    "second": (["a dog", "snow fell on the hills"], ["a cat", "the river"]),
    "none": ([], []),
}


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return wiki_tiny().eval()


class Hashed:
    """An encoder without weights: each sentence's vector is six numbers of its hash."""

    name = "hashed"

    def __init__(self, **known: Sequence[float]) -> None:
        self.known, self.passed = known, list[str]()

    def encode(self, sentences: Sequence[str], *args: Any, **kwargs: Any) -> torch.Tensor:
        self.passed += sentences
        return torch.tensor(np.array([self._vector(sentence) for sentence in sentences])).float().view(-1, 6)

    def _vector(self, sentence: str) -> Sequence[float]:
        digest = np.frombuffer(hashlib.sha256(sentence.encode()).digest(), np.uint32)
        return self.known.get(sentence) or (digest[:6] / 2**32 - 0.5).tolist()


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def drawn(size: int, seed: int) -> list[str]:
    lines = synthetic.sentences(CORPUS.lines)
    return [lines[i] for i in random.Random(seed).sample(range(CORPUS.lines), size)]


@pytest.mark.parametrize("weight", [0.1, 0.7, 1.0])
@pytest.mark.parametrize("normalise", [True, False])
def test_ranked_is_rho_of_the_rankings_mixed_with_the_cosine(cache: Path, weight: float, normalise: bool) -> None:
    scorer = Ranked(corpus=CORPUS, size=50, seed=7, weight=weight, normalise=normalise)
    found = scorer.pair_scores(Hashed(), TASKS)
    assert found.keys() == TASKS.keys()
    corpus = Hashed().encode(drawn(50, 7)).double().tolist()

    def ranking(vector: Sequence[float]) -> list[float]:
        return [cosine(vector, c) * (1 if normalise else math.hypot(*c)) for c in corpus]

    for task, sides in TASKS.items():
        expected = []
        for a, b in zip(*(Hashed().encode(side).double().tolist() for side in sides), strict=True):
            rho = spearmanr(ranking(a), ranking(b)).statistic
            expected.append(weight * rho + (1 - weight) * cosine(a, b))
        assert found[task].scores.tolist() == pytest.approx(expected, abs=1e-6)
        assert (found[task].scores.dtype, found[task].undefined) == (np.float64, 0)


@pytest.mark.slow
def test_ranked_ranks_by_the_encoder_that_is_scored(cache: Path, encoder: Encoder) -> None:
    sides = TASKS["first"]
    found = Ranked(corpus=CORPUS, size=80).pair_scores(encoder, {"first": sides})["first"].scores
    corpus, a, b = (encoder.encode(side).double().tolist() for side in (drawn(80, 42), *sides))
    for x, y, score in zip(a, b, found, strict=True):
        rho = spearmanr(*([cosine(v, c) for c in corpus] for v in (x, y))).statistic
        assert score == pytest.approx(0.1 * rho + 0.9 * cosine(x, y), abs=1e-5)


@pytest.mark.parametrize("text", ["a dog", "in the corpus"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_vector_that_is_not_finite_is_refused_of_pairs_and_of_the_corpus(
    cache: Path, value: float, text: str
) -> None:
    text = drawn(20, 42)[3] if text == "in the corpus" else text
    with pytest.raises(ValueError, match=rf"the vector of '{re.escape(text)}' is not finite"):
        Ranked(corpus=CORPUS, size=20).pair_scores(Hashed(**{text: [value] * 6}), TASKS)


def test_a_pair_that_ranked_cannot_score_is_zero_and_counted(cache: Path) -> None:
    broken = Hashed(**{"a dog": [0.0] * 6, "the river": [0.0] * 6})
    scorer = Ranked(corpus=CORPUS, size=20)
    found, whole = (scorer.pair_scores(source, TASKS) for source in (broken, Hashed()))
    assert {task: scores.undefined for task, scores in found.items()} == {"first": 3, "second": 2, "none": 0}
    assert found["first"].scores.tolist() == [0, 0, 0, whole["first"].scores[3]]
    assert found["second"].scores.tolist() == [0, 0]


def test_ranked_holds_a_block_of_rankings_at_a_time(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def spy(vectors: torch.Tensor, corpus: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        sizes.append((len(vectors), len(corpus)))
        return real(vectors, corpus, *args, **kwargs)

    real = rank_vectors.rank_vectors
    monkeypatch.setattr(rank_vectors, "rank_vectors", spy)
    many = [f"sentence {i}" for i in range(1100)]
    Ranked(corpus=CORPUS, size=30).pair_scores(Hashed(), {"many": (many, many[::-1])})
    assert sizes == [(512, 30)] * 4 + [(76, 30)] * 2


def test_each_sentence_passes_once(cache: Path) -> None:
    every = sorted({sentence for sides in TASKS.values() for side in sides for sentence in side})
    ranked = Hashed()
    Ranked(corpus=CORPUS, size=20).pair_scores(ranked, TASKS)
    assert sorted(ranked.passed) == sorted([*drawn(20, 42), *every])


def texts_of(split: str) -> list[str]:
    return [f"{split} {i}" for i in range(20)]


def by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every encoder's vectors are Hashed's of its pooling and the text, every set's pairs are those of texts_of."""

    def own(task: str, data: Path | None) -> EvalDataset:
        texts = texts_of(task)
        return EvalDataset(task, Dataset.from_dict({"sentence1": texts[::2], "sentence2": texts[1::2]}), {})

    monkeypatch.setattr(Encoder, "encode", lambda self, sentences: hashed(self.pooling, sentences))
    monkeypatch.setattr(scorers, "pairs", own)


def hashed(pooling: str, sentences: Sequence[str]) -> torch.Tensor:
    return Hashed().encode([f"{pooling} {sentence}" for sentence in sentences])


def test_fits_are_on_all_splits_of_a_task_and_once_for_the_same_texts(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hash(monkeypatch)
    fitted: list[torch.Tensor] = []

    def spy(vectors: torch.Tensor, dims: int | None) -> Any:
        fitted.append(vectors)
        return whitening(vectors, dims)

    monkeypatch.setattr(scorers, "whitening", spy)
    tasks = dict.fromkeys(("sts12", "stsb", "stsb_dev", "sickr", "sickr_dev", "sts16"), TASKS["first"])
    found = Whitened(dims=4).pair_scores(encoder, tasks)
    stsb, sickr = (f"{name}_train {name}_dev {name}".split() for name in ("stsb", "sickr"))
    for vectors, splits in zip(fitted, (["sts12"], stsb, sickr, ["sts16"]), strict=True):
        expected = hashed("layer1_last_mean", [text for split in splits for text in texts_of(split)])
        assert sorted(vectors.tolist()) == sorted(expected.tolist())
    assert found["stsb_dev"].scores.tolist() == found["stsb"].scores.tolist() != found["sts12"].scores.tolist()


@pytest.mark.slow
def test_whitened_and_flowed_score_under_their_pooling_and_fit(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hash(monkeypatch)
    monkeypatch.setitem(scorers.SPLITS, "few", ("one", "few"))
    tasks: dict[str, Pairs] = {"few": (texts_of("one"), texts_of("other"))}

    def scores(scorer: Scorer) -> list[float]:
        return scorer.pair_scores(encoder, tasks)["few"].scores.tolist()

    def expected(pooling: str, fit: Callable[[torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]) -> list[float]:
        own = [split[start::2] for split in map(texts_of, ("one", "few")) for start in (0, 1)]
        mapping = fit(hashed(pooling, [text for side in own for text in side]))
        first, second = (mapping(hashed(pooling, side)).tolist() for side in tasks["few"])
        return [cosine(*pair) for pair in zip(first, second, strict=True)]

    def flow(seed: int) -> Callable[[torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]:
        return lambda x: lambda vectors: fit_flow(x, seed=seed)(vectors)[0]

    whitened = expected("layer1_last_mean", lambda x: whitening(x, 4))
    assert scores(Whitened(dims=4)) == pytest.approx(whitened, abs=1e-9)
    assert scores(Whitened(dims=4, pooling="cls")) == pytest.approx(
        expected("cls", lambda x: whitening(x, 4)), abs=1e-9
    )
    assert scores(Flowed()) == pytest.approx(expected("top2_mean", flow(42)), abs=1e-6)
    assert scores(Flowed(seed=4)) == scores(Flowed(seed=4)) == pytest.approx(expected("top2_mean", flow(4)), abs=1e-6)
    assert scores(Flowed(seed=4)) != scores(Flowed())
    assert scores(Flowed(pooling="cls")) == pytest.approx(expected("cls", flow(42)), abs=1e-6)
    assert np.abs(np.subtract(scores(Flowed()), scores(Cosine("top2_mean")))).mean() > 0.02


@pytest.mark.slow
def test_a_corpus_takes_the_place_of_the_tasks_texts(cache: Path, encoder: Encoder, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("\n".join(synthetic.sentences(300)))
    mine = Corpus("mine", 300)
    tasks = {"stsb": TASKS["first"]}  # whose own texts are not available here
    for scorer in (Whitened(dims=50, corpus=mine), Flowed(corpus=mine), Ranked(corpus=mine, size=30)):
        found = scorer.pair_scores(encoder, tasks, data=tmp_path)
        expected = replace(scorer, corpus=CORPUS).pair_scores(encoder, tasks)
        assert found["stsb"].scores.tolist() == expected["stsb"].scores.tolist()
    with pytest.raises(FileNotFoundError):
        Whitened().pair_scores(encoder, tasks, data=tmp_path)


def test_whitened_reads_the_first_tokens_only(cache: Path, encoder: Encoder) -> None:
    start = "the old river rose and fell"
    tasks = {"any": ([f"{start} in the night"], [f"{start} on a hill"])}
    room = 2 + len(encoder.tokenizer.tokenize(start))
    for longest, same in ((room, True), (room + 1, False)):
        score = Whitened(dims=50, corpus=CORPUS, longest=longest).pair_scores(encoder, tasks)["any"].scores
        assert (score.item() == pytest.approx(1)) == same


def test_states_behind_a_layer_norm_span_a_dimension_less(cache: Path, encoder: Encoder) -> None:
    """The normalisation takes a direction out of the last layer's states and of their means."""
    with pytest.raises(ValueError, match="whitening 128 dimensions from 300 vectors that span fewer"):
        Whitened(pooling="mean", corpus=CORPUS).pair_scores(encoder, TASKS)
    Whitened(pooling="mean", corpus=CORPUS, dims=127).pair_scores(encoder, TASKS)


def test_the_cosine_is_under_the_encoders_own_template_or_another(encoder: Encoder) -> None:
    own, other = '"{}" means [MASK].', "{} is [MASK] ."
    prompted = encoder.with_pooling("mask", own)
    for scorer, template in ((Cosine(), own), (Cosine("mask", other), other)):
        found = scorer.pair_scores(prompted, TASKS)["second"].scores.tolist()
        sides = (encoder.with_pooling("mask", template).encode(side).tolist() for side in TASKS["second"])
        assert found == pytest.approx([cosine(*pair) for pair in zip(*sides, strict=True)], abs=1e-5)
    assert Cosine("cls").pair_scores(prompted, TASKS)["second"].scores.tolist() == pytest.approx(
        Cosine().pair_scores(encoder, TASKS)["second"].scores.tolist(), abs=1e-6
    )


def test_word_vectors_have_no_pooling(cache: Path) -> None:
    table = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    words = WordVectors("words", {"a": 0, "cat": 1, "dog": 2, "the": 3}, table)
    for scorer in (Whitened(), Flowed(), Cosine("mean")):
        with pytest.raises(ValueError, match=r"words: word vectors have no pooling, got '.*mean'"):
            scorer.pair_scores(words, TASKS)
    assert Cosine().pair_scores(words, TASKS)["first"].undefined == 1
    assert Ranked(corpus=CORPUS, size=20).pair_scores(words, TASKS)["first"].undefined == 1


digests = st.integers().map(lambda n: hashlib.sha256(str(n).encode()).hexdigest())
corpora = st.builds(Corpus, st.sampled_from(["synthetic", "wiki"]), st.integers(50, 99), st.just("") | digests)
poolings = st.sampled_from(["cls", "mean", "top2_mean", "first_last_mean", "layer1_last_mean"])
ints = st.integers(2, 50)
FORMS = [
    st.builds(Cosine, st.none() | poolings),
    st.builds(
        Ranked, corpus=corpora, size=ints, seed=ints, weight=st.integers(1, 1000).map(lambda n: n / 1000),
        normalise=st.booleans(), similarity=st.sampled_from(["rank", "centred"]),
    ),
    st.builds(Whitened, pooling=poolings, dims=st.none() | ints, corpus=st.none() | corpora, longest=ints),
    st.builds(Flowed, pooling=poolings, corpus=st.none() | corpora, seed=ints),
]  # fmt: skip


@given(st.sampled_from(FORMS).flatmap(lambda form: st.tuples(form, form)))
def test_text_forms_differ_with_every_field(both: tuple[Any, Any]) -> None:
    one, other = both
    for field in fields(one):
        moved = replace(one, **{field.name: getattr(other, field.name)})
        assert (str(moved) == str(one)) == (moved == one)


def test_text_forms_of_every_kind_differ() -> None:
    kinds = [Cosine(), Cosine("mask", "{} [MASK]"), Ranked(corpus=CORPUS, size=9), Whitened(), Flowed()]
    assert len({str(scorer) for scorer in kinds}) == len(kinds)
    assert str(kinds[2]) == "rank 0.1 of 9 from synthetic:300 seed 42"


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (Ranked, {"weight": 0.0}, r"weight must be in \(0, 1\], got 0.0"),
        (Ranked, {"weight": 1.1}, r"weight must be in \(0, 1\], got 1.1"),
        (Ranked, {"similarity": "cosine"}, "similarity must be one of rank, centred, got 'cosine'"),
        (Ranked, {"size": 1}, "size must be from 2 to 300, got 1"),
        (Ranked, {"size": 301}, "size must be from 2 to 300, got 301"),
        (Whitened, {"pooling": "max"}, "pooling must be one of cls, .*, got 'max'"),
        (Whitened, {"pooling": "mask"}, "the pooling mask and a template go together"),
        (Flowed, {"pooling": "max"}, "pooling must be one of cls, .*, got 'max'"),
    ],
)
def test_impossible_scorers_are_refused(kind: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**({"corpus": CORPUS, "size": 9} if kind is Ranked else {}) | changes)
