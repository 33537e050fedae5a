"""Texts with equal ids: one vector, a cosine of exactly 1, ties in every scorer; recorded tasks as they were."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_core.api import evaluate
from cse_core.data import own_pairs
from cse_core.data.corpora import lines_hash
from cse_core.data.senteval import pairs
from cse_core.evaluation import scorers, suite
from cse_core.evaluation.mixed_cosine import MixedCosine
from cse_core.evaluation.scorers import Cosine, Flowed, Ranked, Scorer, Whitened
from cse_core.functional.contrastive import pair_cosines
from cse_core.models.embedding_cache import CachedEncoder, EncoderByIds
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import resolve
from cse_core.run import Corpus, Pretrained
from cse_core.training.dev_scoring import DevSet
from tests.support.encoders import wiki_tiny

ROOT = Path(__file__).parents[3]
WORDS = ["king", "river", "stone", "music", "horse", "paper", "north", "bread", "castle", "winter", "village", "hill"]
LONG = [" ".join(WORDS[i % 12] for i in range(k, k + 2 + k % 9)) for k in range(24)]
EQUAL = [(text, text.upper()) for text in LONG[:12]]  # equal ids
OTHER = [(text, LONG[(i * 7 + 3) % 24]) for i, text in enumerate(LONG[12:])]
TWICE = [(b.title(), a) for a, b in OTHER]  # the same pairs of ids once more, in the other order
ALL = [*EQUAL, *OTHER, *TWICE]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return wiki_tiny().eval()


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


@pytest.mark.parametrize("kind", ["cosine", "mean", "ranked", "centred", "whitened", "flow", "mixed"])
def test_equal_ids_score_one_and_equal_pairs_tie(encoder: Encoder, pair_file: Path, corpus: Corpus, kind: str) -> None:
    made: dict[str, Scorer] = {
        "cosine": Cosine(),
        "mean": Cosine("mean"),
        "ranked": Ranked(corpus=corpus, size=corpus.lines),
        "centred": Ranked(corpus=corpus, size=corpus.lines, similarity="centred"),
        "whitened": Whitened(dims=8),
        "flow": Flowed(pooling="cls", corpus=Corpus("synthetic", 300)),
        "mixed": MixedCosine(other=Pretrained("wiki-mini")),
    }
    scores = scores_of(encoder, made[kind], pair_file)
    assert scores[:12].tolist() == [scores[0]] * 12
    assert scores[0] == pytest.approx(1, abs=1e-12)
    if kind in ("cosine", "mean", "whitened", "flow"):
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
    view = EncoderByIds(CachedEncoder(encoder))
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


def test_the_tasks_that_keep_sentevals_noise_are_those_of_the_record() -> None:
    with (ROOT / "mlruns/results.csv").open() as file:
        recorded = {row["task"] for row in csv.DictReader(file)}
    assert recorded == suite.RECORDED


def test_a_recorded_set_is_scored_as_it_was(encoder: Encoder, monkeypatch: pytest.MonkeyPatch, pair_file: Path) -> None:
    """Under a recorded task's name, the same pairs get cosines of texts embedded apart."""
    name = own_pairs.add(pair_file)
    monkeypatch.setattr(suite, "RECORDED", suite.RECORDED | {name})
    scores = suite.evaluate(encoder, Cosine(), [name])[name].arrays["pair_scores"]
    texts = [text for pair in ALL for text in pair]
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
