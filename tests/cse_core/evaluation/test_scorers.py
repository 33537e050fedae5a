"""Cosines of pairs against sums written out, and how many texts a scorer embeds."""

import csv
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
import scipy
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from cse_core.api import evaluate
from cse_core.data import own_pairs, synthetic
from cse_core.data.corpora import lines_hash
from cse_core.data.senteval import EvalDataset, pairs
from cse_core.evaluation import scorers, suite
from cse_core.evaluation.bert_flow import fit_flow
from cse_core.evaluation.mixed_cosine import MixedCosine
from cse_core.evaluation.near_start import AveragedWithStart
from cse_core.evaluation.scorers import Cosine, Flowed, Pairs, Ranked, Scorer, Whitened, whitening
from cse_core.functional import rank_vectors
from cse_core.functional.contrastive import pair_cosines
from cse_core.models.embedding_cache import CachedEncoder, EncoderOfDistinctIds
from cse_core.models.encoder import Encoder
from cse_core.models.fp32_products import faster_products
from cse_core.models.pretrained import resolve
from cse_core.models.word_vectors import WordVectors
from cse_core.run import POOLINGS, Corpus, Pretrained
from cse_core.training.dev_scoring import DevSet
from tests.support.encoders import Recording, wiki_tiny
from tests.support.method_oracles import cosine
from tests.support.vectors import normal

TASKS: dict[str, Pairs] = {
    "first": (["a cat sat", "the river", "a dog", "no"], ["a dog", "the river", "a cat sat", "snow fell"]),
    "second": (["a dog", "snow fell on the hills"], ["a cat", "the river"]),
    "none": ([], []),
}
WITHOUT_TEMPLATE = [pooling for pooling in POOLINGS if pooling not in ("mask", "pooler_output")]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return wiki_tiny().eval()


@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 1000))
def test_pair_cosines_are_the_sums(n: int, d: int, seed: int) -> None:
    a, b = normal(n, d, seed=seed), normal(n, d, seed=seed + 1)
    scores, undefined = pair_cosines(a, b)
    expected = [cosine(x, y) for x, y in zip(a.double().tolist(), b.double().tolist(), strict=True)]
    assert scores.tolist() == pytest.approx(expected, abs=1e-14)
    assert (scores.dtype, undefined) == (np.float64, 0)


def test_pair_cosines_do_not_depend_on_lengths_and_are_bounded() -> None:
    a, b = normal(50, 6, seed=0), normal(50, 6, seed=1)
    scores = pair_cosines(a, b)[0]
    assert pair_cosines(b, a)[0].tolist() == scores.tolist()
    assert pair_cosines(a * 2**60, b / 2**60)[0].tolist() == pytest.approx(scores.tolist(), abs=1e-14)
    assert pair_cosines(-a, b)[0].tolist() == (-scores).tolist()
    assert pair_cosines(a, a * 3)[0].tolist() == pytest.approx([1] * 50, abs=1e-6)
    assert np.abs(scores).max() <= 1 + 1e-14


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_an_undefined_cosine_is_zero_and_counted(value: float) -> None:
    a, b = normal(5, 3, seed=0), normal(5, 3, seed=1)
    expected = pair_cosines(a, b)[0]
    a[1], b[3] = value, value
    scores, undefined = pair_cosines(a, b)
    assert undefined == 2
    assert scores[[1, 3]].tolist() == [0, 0]
    assert scores[[0, 2, 4]].tolist() == expected[[0, 2, 4]].tolist()


@pytest.mark.parametrize("pooling", [None, *WITHOUT_TEMPLATE])
@pytest.mark.slow
def test_a_scorer_gives_the_cosines_of_each_task_under_its_pooling(encoder: Encoder, pooling: str | None) -> None:
    found = Cosine(pooling).pair_scores(encoder, TASKS)
    other = wiki_tiny(pooling=pooling or "cls")
    assert found.keys() == TASKS.keys()
    for task, (first, second) in TASKS.items():
        a, b = ([other.encode([text])[0].double().tolist() for text in side] for side in (first, second))
        expected = [cosine(x, y) for x, y in zip(a, b, strict=True)]
        assert found[task].scores.tolist() == pytest.approx(expected, abs=1e-5)
        assert found[task].undefined == 0


def test_undefined_scores_of_a_task_are_counted_with_it() -> None:
    encoder = wiki_tiny()
    with torch.no_grad():
        for name, parameter in encoder.backbone.named_parameters():
            if name.startswith("encoder.layer.1.output.LayerNorm"):
                parameter.zero_()
    found = Cosine().pair_scores(encoder, TASKS)
    assert {task: scores.undefined for task, scores in found.items()} == {"first": 4, "second": 2, "none": 0}
    assert found["first"].scores.tolist() == [0, 0, 0, 0]
    other_layer = Cosine("first_last_mean").pair_scores(encoder, TASKS)
    assert {task: scores.undefined for task, scores in other_layer.items()} == dict.fromkeys(TASKS, 0)


CORPUS = Corpus("synthetic", 300)


def drawn(size: int, seed: int) -> list[str]:
    lines = synthetic.sentences(CORPUS.lines)
    return [lines[i] for i in random.Random(seed).sample(range(CORPUS.lines), size)]


@pytest.mark.parametrize("weight", [0.1, 0.7, 1.0])
@pytest.mark.parametrize("normalise", [True, False])
def test_ranked_is_rho_of_the_rankings_mixed_with_the_cosine(cache: Path, weight: float, normalise: bool) -> None:
    scorer = Ranked(corpus=CORPUS, size=50, seed=7, weight=weight, normalise=normalise)
    found = scorer.pair_scores(Recording(), TASKS)
    assert found.keys() == TASKS.keys()
    corpus = Recording().encode(drawn(50, 7)).double().tolist()

    def ranking(vector: Sequence[float]) -> list[float]:
        return [cosine(vector, c) * (1 if normalise else math.hypot(*c)) for c in corpus]

    for task, sides in TASKS.items():
        expected = []
        for a, b in zip(*(Recording().encode(side).double().tolist() for side in sides), strict=True):
            rho = spearmanr(ranking(a), ranking(b)).statistic
            expected.append(weight * rho + (1 - weight) * cosine(a, b))
        assert found[task].scores.tolist() == pytest.approx(expected, abs=1e-6)
        assert (found[task].scores.dtype, found[task].undefined) == (np.float64, 0)


@pytest.mark.parametrize("text", ["a dog", "in the corpus"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_vector_that_is_not_finite_is_refused_of_pairs_and_of_the_corpus(
    cache: Path, value: float, text: str
) -> None:
    text = drawn(20, 42)[3] if text == "in the corpus" else text
    with pytest.raises(ValueError, match=rf"the vector of '{re.escape(text)}' is not finite"):
        Ranked(corpus=CORPUS, size=20).pair_scores(Recording({text: [value] * 8}), TASKS)


def test_a_pair_that_ranked_cannot_score_is_zero_and_counted(cache: Path) -> None:
    broken = Recording({"a dog": [0.0] * 8, "the river": [0.0] * 8})
    scorer = Ranked(corpus=CORPUS, size=20)
    found, whole = (scorer.pair_scores(source, TASKS) for source in (broken, Recording()))
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
    Ranked(corpus=CORPUS, size=30).pair_scores(Recording(), {"many": (many, many[::-1])})
    assert sizes == [(512, 30)] * 4 + [(76, 30)] * 2


def test_each_sentence_passes_once(cache: Path) -> None:
    every = sorted({sentence for sides in TASKS.values() for side in sides for sentence in side})
    for scorer, corpus in ((Cosine(), []), (Ranked(corpus=CORPUS, size=20), drawn(20, 42))):
        encoder = Recording()
        scorer.pair_scores(encoder, TASKS)
        assert sorted(encoder.passed) == sorted([*corpus, *every])


VectorMap = Callable[[torch.Tensor], torch.Tensor]


def texts_of(split: str) -> list[str]:
    return [f"{split} {i}" for i in range(20)]


def by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every encoder's vectors come from a hash of its pooling and the text; every set's pairs are those of texts_of."""

    def own(task: str, data: Path | None) -> EvalDataset:
        texts = texts_of(task)
        return EvalDataset(task, Dataset.from_dict({"sentence1": texts[::2], "sentence2": texts[1::2]}), {})

    monkeypatch.setattr(Encoder, "encode", lambda self, sentences: hashed(self.pooling, sentences))
    monkeypatch.setattr(scorers, "pairs", own)


def hashed(pooling: str, sentences: Sequence[str]) -> torch.Tensor:
    return Recording().encode([f"{pooling} {sentence}" for sentence in sentences])


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

    def expected(pooling: str, fit: Callable[[torch.Tensor], VectorMap]) -> list[float]:
        own = [split[start::2] for split in map(texts_of, ("one", "few")) for start in (0, 1)]
        mapping = fit(hashed(pooling, [text for side in own for text in side]))
        first, second = (mapping(hashed(pooling, side)).tolist() for side in tasks["few"])
        return [cosine(*pair) for pair in zip(first, second, strict=True)]

    def whitened(x: torch.Tensor) -> VectorMap:
        return whitening(x, 4)

    def flow(seed: int) -> Callable[[torch.Tensor], VectorMap]:
        return lambda x: lambda vectors: fit_flow(x, seed=seed)(vectors)[0]

    assert scores(Whitened(dims=4)) == pytest.approx(expected("layer1_last_mean", whitened), abs=1e-9)
    assert scores(Whitened(dims=4, pooling="cls")) == pytest.approx(expected("cls", whitened), abs=1e-9)
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
    assert (str(Cosine()), str(Cosine("mean"))) == ("cosine", "cosine mean")
    assert len({str(Cosine(pooling)) for pooling in (None, *WITHOUT_TEMPLATE)}) == 6


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (Ranked, {"weight": 0.0}, r"weight must be in \(0, 1\], got 0.0"),
        (Ranked, {"weight": 1.1}, r"weight must be in \(0, 1\], got 1.1"),
        (Ranked, {"similarity": "exact_cosine"}, "similarity must be one of rank, centred, got 'exact_cosine'"),
        (Ranked, {"size": 1}, "size must be from 2 to 300, got 1"),
        (Ranked, {"size": 301}, "size must be from 2 to 300, got 301"),
        (Cosine, {"pooling": "max"}, "pooling must be one of cls, mean, .*, got 'max'"),
        (Cosine, {"pooling": "mask"}, "the pooling mask and a template go together, got 'mask' and ''"),
        (Whitened, {"pooling": "max"}, "pooling must be one of cls, .*, got 'max'"),
        (Whitened, {"pooling": "mask"}, "the pooling mask and a template go together"),
        (Flowed, {"pooling": "max"}, "pooling must be one of cls, .*, got 'max'"),
    ],
)
def test_impossible_scorers_are_refused(kind: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**({"corpus": CORPUS, "size": 9} if kind is Ranked else {}) | changes)


ROOT = Path(__file__).parents[3]
WORDS = ["king", "river", "stone", "music", "horse", "paper", "north", "bread", "castle", "winter", "village", "hill"]
LONG = [" ".join(WORDS[i % 12] for i in range(k, k + 2 + k % 9)) for k in range(24)]
EQUAL = [(text, text.upper()) for text in LONG[:12]]  # equal ids
OTHER = [(text, LONG[(i * 7 + 3) % 24]) for i, text in enumerate(LONG[12:])]
TWICE = [(b.title(), a) for a, b in OTHER]  # the same pairs of ids once more, in the other order
ALL = [*EQUAL, *OTHER, *TWICE]


@pytest.fixture
def pair_file(tmp_path: Path) -> Path:
    path = tmp_path / "cases.tsv"
    gold = np.random.default_rng(0).permutation(len(ALL)) % 7 / 2
    path.write_text("".join(f"{a}\t{b}\t{score}\n" for (a, b), score in zip(ALL, gold, strict=True)))
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    lines = [text for k, text in enumerate(LONG * 3) if k % 5 != 2] + [text.upper() for text in LONG]
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return Corpus(str(path), len(lines), lines_hash(lines))


def scores_of(encoder: Encoder, scorer: Scorer, path: Path) -> np.ndarray:
    name = own_pairs.add(path)
    return suite.evaluate(encoder, scorer, [name])[name].arrays["pair_scores"]


@pytest.mark.parametrize("kind", ["exact_cosine", "mean", "ranked", "centred", "whitened", "flow", "mixed", "averaged"])
def test_equal_ids_score_one_and_equal_pairs_tie(encoder: Encoder, pair_file: Path, corpus: Corpus, kind: str) -> None:
    made: dict[str, Scorer] = {
        "exact_cosine": Cosine(),
        "mean": Cosine("mean"),
        "ranked": Ranked(corpus=corpus, size=corpus.lines),
        "centred": Ranked(corpus=corpus, size=corpus.lines, similarity="centred"),
        "whitened": Whitened(dims=8),
        "flow": Flowed(pooling="cls", corpus=Corpus("synthetic", 300)),
        "mixed": MixedCosine(other=Pretrained("wiki-mini")),
        "averaged": AveragedWithStart(start=Pretrained("wiki-tiny")),
    }
    scores = scores_of(encoder, made[kind], pair_file)
    assert scores[:12].tolist() == [scores[0]] * 12
    assert scores[0] == pytest.approx(1, abs=1e-12)
    if kind in ("exact_cosine", "mean", "whitened", "flow", "averaged"):
        assert scores[0] == 1
    assert scores[12:24].tolist() == scores[24:].tolist()
    assert len(set(scores.tolist())) > 10
    assert np.abs(scores).max() <= scores[0]


def test_the_score_is_scipys_of_vectors_embedded_one_by_one(encoder: Encoder, pair_file: Path) -> None:
    one = {text: encoder.encode([text.lower()])[0].double() for pair in ALL for text in pair}
    cosines = [
        1.0 if a.lower() == b.lower() else float(one[a] @ one[b] / one[a].norm() / one[b].norm()) for a, b in ALL
    ]
    gold = pairs(own_pairs.add(pair_file)).table["score"][:]
    expected = scipy.stats.spearmanr(np.round(cosines, 7), gold).statistic
    (metrics,) = evaluate(encoder, str(pair_file)).values()
    assert metrics["spearman.all"] == pytest.approx(expected, abs=1e-12)


def test_another_librarys_model_is_scored_the_same(pair_file: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = resolve("wiki-tiny")
    model = SentenceTransformer(str(folder), device="cpu")  # with its pooling where a folder names none, the mean
    (expected,) = evaluate(wiki_tiny(pooling="mean").eval(), str(pair_file)).values()
    (metrics,) = evaluate(model, str(pair_file)).values()
    assert metrics["spearman.all"] == pytest.approx(expected["spearman.all"], abs=1e-12)


def test_equal_sentences_of_a_corpus_tie_in_ranks(encoder: Encoder, corpus: Corpus, pair_file: Path) -> None:
    """Spearman's rho over the corpus with its copies, by scipy on cosines of distinct texts."""
    scorer = Ranked(corpus=corpus, size=corpus.lines, weight=1.0)
    texts = [text.lower() for text in scorer.texts()]
    rows = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    assert len(rows) < len(texts) / 2
    unit = torch.nn.functional.normalize(encoder.encode(list(rows)).double(), dim=1)
    found = scores_of(encoder, scorer, pair_file)
    for place in (0, 13, 20, 30):
        sides = [torch.nn.functional.normalize(encoder.encode([t.lower()]).double(), dim=1) for t in ALL[place]]
        a, b = ((unit @ side.T)[[rows[text] for text in texts], 0].numpy().round(9) for side in sides)
        assert found[place] == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=2e-6)


def test_each_list_of_ids_is_embedded_once(encoder: Encoder, pair_file: Path) -> None:
    class Counting:
        name = "counting"
        tokenise = staticmethod(encoder.tokenise)

        def __init__(self) -> None:
            self.seen: list[str] = []

        def encode(self, sentences: Sequence[str]) -> torch.Tensor:
            self.seen += sentences
            return encoder.encode(sentences)

    counting: Any = Counting()
    suite.evaluate(counting, Cosine(), [own_pairs.add(pair_file)])
    assert len(counting.seen) == len({text.lower() for pair in ALL for text in pair})


def test_a_view_with_another_length_has_ids_of_its_own(encoder: Encoder) -> None:
    view = EncoderOfDistinctIds(CachedEncoder(encoder))
    texts = ["king river stone music horse", "King river stone north bread"]
    assert len(set(view.representatives(texts))) == 2
    cut = view.with_pooling("cls", longest=4)  # two words between the special tokens
    assert cut is view.with_pooling("cls", longest=4)
    first, second = cut.encode(texts)
    assert torch.equal(first, second)
    assert not torch.equal(*view.encode(texts))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 1000))
def test_an_exact_cosine_does_not_depend_on_its_row(n: int, d: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, n, d, generator=generator)
    order = torch.randint(n, (3 * n + 1,), generator=generator)
    whole = pair_cosines(a, b, exact=True)[0]
    assert pair_cosines(a[order], b[order], exact=True)[0].tolist() == whole[order].tolist()
    assert pair_cosines(b, a, exact=True)[0].tolist() == whole.tolist()
    assert pair_cosines(a, a, exact=True)[0].tolist() == [1] * n
    assert whole.tolist() == pytest.approx(pair_cosines(a, b)[0].tolist(), abs=1e-14)


def test_an_undefined_cosine_stays_undefined_also_of_equal_vectors() -> None:
    x = torch.tensor([[0.0, 0.0], [float("nan"), 1.0], [1.0, 2.0]])
    scores, undefined = pair_cosines(x, x, exact=True)
    assert (scores.tolist(), undefined) == ([0, 0, 1], 2)


def test_the_tasks_scored_with_sentevals_rounding_noise_are_those_of_the_record() -> None:
    with (ROOT / "mlruns/results.csv").open() as file:
        recorded = {row["task"] for row in csv.DictReader(file)}
    assert recorded == suite.RECORDED


def test_a_recorded_set_is_scored_as_it_was(encoder: Encoder, monkeypatch: pytest.MonkeyPatch, pair_file: Path) -> None:
    """Under a recorded task's name, the same pairs get cosines of texts embedded apart."""
    name = own_pairs.add(pair_file)
    monkeypatch.setattr(suite, "RECORDED", suite.RECORDED | {name})
    scores = suite.evaluate(encoder, Cosine(), [name])[name].arrays["pair_scores"]
    texts = [text for pair in ALL for text in pair]
    with faster_products():  # as in evaluate
        vectors = dict(zip(texts, encoder.encode(texts), strict=True))
    sides = [torch.stack([vectors[pair[side]] for pair in ALL]) for side in (0, 1)]
    assert scores.tolist() == pair_cosines(*sides)[0].tolist()
    assert len(set(scores[:12].tolist())) > 1
    assert scorers.Cosine().view(encoder).by_ids is False


def test_a_dev_set_of_ones_own_is_scored_as_its_task(encoder: Encoder, pair_file: Path) -> None:
    dev = DevSet(encoder, pairs(own_pairs.add(pair_file)))
    assert len(dev.ids) == len({text.lower() for pair in ALL for text in pair})
    assert int(dev.counts.sum()) == 2 * len(ALL)
    (metrics,) = evaluate(encoder, str(pair_file)).values()
    assert dev.measure(encoder).score == metrics["spearman.all"]
