"""Rankings of a corpus against scipy's Spearman, loops from the equations, limits and properties."""

import math
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, rankdata, spearmanr

from cse_core.data.senteval import distinct_sentences
from cse_core.evaluation.scorers import Ranked
from cse_core.functional import rank_vectors as rankings
from cse_core.functional.contrastive import pair_cosines
from cse_core.functional.rank_vectors import (
    _assign_ranks,
    _assign_ranks_by_sorting,
    _radix_argsort,
    pair_rank_similarity,
    rank_similarity,
    rank_vectors,
)
from cse_core.run import Corpus
from tests.support.encoders import wiki_tiny
from tests.support.method_oracles import drawn

seeds = st.integers(0, 10_000)
rules = st.sampled_from(["order", "average"])
centred = partial(rank_vectors, similarity="centred")


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def test_sentences_that_share_a_row_of_the_corpus_tie() -> None:
    a, b, corpus = drawn(5, 4, seed=0), drawn(5, 4, seed=1), drawn(6, 4, seed=2)
    places = torch.tensor([0, 3, 3, 1, 5, 2, 3, 4, 4, 0])
    found = pair_rank_similarity(a, b, corpus, places=places)
    expected = [rho(x, y, corpus[places]) for x, y in zip(a, b, strict=True)]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


def rho(a: torch.Tensor, b: torch.Tensor, corpus: torch.Tensor) -> float:
    """Spearman's rho of two vectors' cosines with the corpus."""
    first, second = ([dot(v, c) / math.hypot(*c) for c in corpus.tolist()] for v in (a.tolist(), b.tolist()))
    return float(spearmanr(first, second).statistic)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(4, 40), seeds, rules)
def test_inner_products_of_rank_vectors_are_spearmans_rho(n: int, m: int, size: int, seed: int, ties: str) -> None:
    a, b, corpus = drawn(n, 4, seed=seed), drawn(m, 4, seed=seed + 1), drawn(size, 4, seed=seed + 2)
    found = rank_similarity(a, b, corpus, ties)
    assert found.shape == (n, m)
    for i in range(n):
        for j in range(m):
            assert found[i, j].item() == pytest.approx(rho(a[i], b[j], corpus), abs=1e-9)


def tied(size: int, seed: int) -> torch.Tensor:
    """A corpus of only three directions, of different lengths: along an axis the cosines are exactly 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.cat([torch.arange(3), torch.randint(0, 3, (size,), generator=generator)])
    return torch.eye(3, dtype=torch.float64)[rows] * torch.randint(1, 9, (size + 3, 1), generator=generator)


@given(st.integers(0, 20), seeds, st.booleans())
def test_ties_take_their_mean_rank(size: int, seed: int, normalise: bool) -> None:
    corpus, axes = tied(size, seed), torch.eye(3, dtype=torch.float64)
    found = rank_similarity(axes, axes, corpus, "average", normalise=normalise)
    along = (corpus > 0).double() if normalise else corpus
    for i in range(3):
        for j in range(3):
            expected = spearmanr(along[:, i], along[:, j]).statistic
            assert found[i, j].item() == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 20), seeds)
def test_equal_cosines_have_different_ranks_by_order(size: int, seed: int) -> None:
    corpus = tied(size, seed)
    n = len(corpus)
    u = rank_vectors(torch.eye(3, dtype=torch.float64), corpus, "order")
    ranks = u * math.sqrt(n * (n**2 - 1) / 12) + (n - 1) / 2
    for axis, row in enumerate(ranks):
        assert sorted(row.tolist()) == pytest.approx(list(range(n)), abs=1e-9)
        hit = corpus[:, axis] > 0
        assert row[hit].min() > row[~hit].max()
    assert u.norm(dim=1).tolist() == pytest.approx([1] * 3)


@given(st.integers(2, 6), st.integers(2, 50), seeds, rules)
def test_rank_vectors_are_centred_of_unit_norm_and_blind_to_lengths(n: int, size: int, seed: int, ties: str) -> None:
    a, corpus = drawn(n, 4, seed=seed), drawn(size, 4, seed=seed + 1)
    u = rank_vectors(a, corpus, ties)
    assert u.sum(1).tolist() == pytest.approx([0] * n, abs=1e-9)
    assert u.norm(dim=1).tolist() == pytest.approx([1] * n)
    lengths = drawn(size, 1, seed=seed + 2).abs() + 0.1
    assert torch.equal(rank_vectors(8 * a, corpus * lengths, ties), u)
    assert torch.allclose(rank_similarity(a, -a, corpus, ties).diagonal(), torch.tensor(-1.0).double())


def test_a_corpus_that_is_all_the_same_gives_no_ranking() -> None:
    same, axes = torch.tensor([[1.0, 0.0, 0.0]]).repeat(5, 1), torch.eye(3)
    assert rank_vectors(axes, same, "average").tolist() == [[0.0] * 5] * 3
    assert rank_similarity(axes, axes, same).tolist() == [[0.0] * 3] * 3


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_vector_that_is_not_finite_is_refused(value: float) -> None:
    for side in range(3):
        a, b, corpus = given = [drawn(3, 4, seed=0), drawn(3, 4, seed=1), drawn(9, 4, seed=2)]
        given[side][1] = value
        with pytest.raises(ValueError, match="a ranking needs finite vectors, got one with NaN or infinity"):
            pair_rank_similarity(a, b, corpus)


def test_a_zero_vector_ranks_nothing() -> None:
    a, b, corpus = drawn(3, 4, seed=0), drawn(3, 4, seed=1), drawn(9, 4, seed=2)
    expected = pair_rank_similarity(a, b, corpus)
    a[1], b[1], b[2] = 0.0, 0.0, 0.0
    found = pair_rank_similarity(a, b, corpus)
    assert found.tolist() == [expected[0].item(), 0, 0]


def test_single_precision_keeps_the_order_of_a_large_corpus() -> None:
    a, corpus = drawn(2, 8, seed=0).float(), drawn(20_000, 8, seed=1).float()
    expected = rho(a[0].double(), a[1].double(), corpus.double())
    for ties in ("order", "average"):
        assert rank_similarity(a[:1], a[1:], corpus, ties).item() == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("ties", ["order", "average"])
def test_a_corpus_of_two_is_a_yes_or_no(ties: str) -> None:
    corpus = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    sides = torch.tensor([[2.0, 1.0], [3.0, 1.0], [1.0, 2.0]])
    assert rank_vectors(sides, corpus, ties).flatten().tolist() == pytest.approx(
        [math.sqrt(0.5) * sign for sign in (1, -1, 1, -1, -1, 1)]
    )
    expected = [1, 1, -1, 1, 1, -1, -1, -1, 1]
    assert rank_similarity(sides, sides, corpus, ties).flatten().tolist() == pytest.approx(expected)
    with pytest.raises(ValueError, match="at least two corpus sentences, got 1"):
        rank_vectors(sides, corpus[:1], ties)
    with pytest.raises(ValueError, match="ties must be order or average, got 'first'"):
        rank_vectors(sides, corpus, "first")


singles = st.floats(width=32, allow_nan=False)


@given(st.lists(singles | st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, math.inf, -math.inf]), min_size=2, max_size=60))
def test_single_precision_is_sorted_by_its_bits_as_by_its_values(numbers: list[float]) -> None:
    row = np.array(numbers, dtype=np.float32)
    order = _radix_argsort(row)
    expected = sorted(range(len(row)), key=lambda i: (row[i], math.copysign(1, row[i]), i))  # -0 before 0
    assert order.tolist() == expected


@pytest.mark.parametrize("levels", [1, 3, 50, 10**9])
def test_mean_ranks_in_single_precision_are_scipys(levels: int) -> None:
    scores = torch.randint(-levels, levels + 1, (3, 2_000), generator=torch.Generator().manual_seed(levels)).float()
    centred = np.stack([rankdata(row) for row in scores.double().numpy()]) - 2_001 / 2
    found = rank_vectors(torch.eye(3), scores.T, "average", normalise=False)
    expected = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    assert np.abs(found.numpy() - expected).max() < 1e-6


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("decimals", [2, 9])
def test_the_gpus_way_to_rank_is_the_cpus(average: bool, decimals: int) -> None:
    """Run on the CPU here; with two decimals nearly all are tied."""
    scores = drawn(3, 10_000, seed=decimals).float().round(decimals=decimals) + 0.0  # one zero
    ranks = (torch.arange(10_000, dtype=torch.float64) / 10_000 - 0.5).float() / 30
    expected = _assign_ranks(scores, ranks, average=average)
    assert (_assign_ranks_by_sorting(scores, ranks, average=average) - expected).abs().max() < 1e-8


@given(st.integers(3, 30), seeds, rules)
def test_without_lengths_taken_out_the_corpus_is_ranked_by_inner_product(size: int, seed: int, ties: str) -> None:
    a, corpus = drawn(2, 4, seed=seed), drawn(size, 4, seed=seed + 1) * drawn(size, 1, seed=seed + 2).exp()
    products = [[dot(v, c) for c in corpus.tolist()] for v in a.tolist()]
    ranks = [[sum(other < score for other in row) - (size - 1) / 2 for score in row] for row in products]
    expected = [[r / math.hypot(*row) for r in row] for row in ranks]
    found = rank_vectors(a, corpus, ties, normalise=False)
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), atol=1e-12)
    inner = dot(*expected)
    assert rank_similarity(a[:1], a[1:], corpus, ties, normalise=False).item() == pytest.approx(inner)
    assert pair_rank_similarity(a[:1], a[1:], corpus, ties, normalise=False).item() == pytest.approx(inner)


@pytest.mark.slow
@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 12), seeds, st.booleans(), rules)
def test_blocks_change_nothing(n: int, m: int, block: int, seed: int, normalise: bool, ties: str) -> None:
    a, b, corpus = drawn(n, 3, seed=seed), drawn(m, 3, seed=seed + 1), drawn(15, 3, seed=seed + 2)
    options: dict[str, Any] = {"ties": ties, "normalise": normalise}
    whole = rank_vectors(a, corpus, **options) @ rank_vectors(b, corpus, **options).T
    assert torch.allclose(rank_similarity(a, b, corpus, block=block, **options), whole, atol=1e-12)
    itself = rank_vectors(a, corpus, **options)
    for other in (a, a.clone()):
        assert torch.allclose(rank_similarity(a, other, corpus, block=block, **options), itself @ itself.T, atol=1e-12)
    some = drawn(n, 3, seed=seed + 3)
    pairs = pair_rank_similarity(a, some, corpus, block=block, **options)
    assert torch.allclose(pairs, rank_similarity(a, some, corpus, **options).diagonal(), atol=1e-12)


@pytest.mark.parametrize("which", [rank_similarity, pair_rank_similarity])
@pytest.mark.parametrize("block", [3, 4, 20])
def test_no_more_than_two_blocks_of_rankings_are_held(which: Any, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []
    sizes, calls = [0], [0]

    def spy(vectors: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        assert len(vectors) <= block
        found = rank_vectors(vectors, *args, **kwargs)
        held.append(weakref.ref(found))
        sizes.append(sum(len(one) for ref in held if (one := ref()) is not None))
        calls[0] += 1
        return found

    monkeypatch.setattr(rankings, "rank_vectors", spy)
    a = drawn(11, 3, seed=0)
    which(a, drawn(11, 3, seed=1), drawn(9, 3, seed=2), block=block)
    assert max(sizes) <= 2 * block
    assert max(sizes) >= min(11, block) * 2 - 1  # the spy sees what is held
    calls[0], parts = 0, math.ceil(11 / block)
    sizes.clear()
    rank_similarity(a, a, drawn(9, 3, seed=2), block=block)
    assert max(sizes) <= 2 * block
    assert calls[0] == 1 + parts * (parts - 1) // 2  # the first, and each pair's right one: the next left is kept


def r(a: torch.Tensor, b: torch.Tensor, corpus: torch.Tensor, normalise: bool = True) -> float:
    """Pearson's r of two vectors' cosines with the corpus, or of their inner products."""
    products = (
        [math.fsum((v * c).tolist()) / (v.norm() * (c.norm() if normalise else 1)) for c in corpus] for v in (a, b)
    )
    return float(pearsonr(*(torch.stack(list(row)).numpy() for row in products)).statistic)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(3, 20), seeds, st.booleans())
def test_inner_products_of_centred_vectors_are_pearsons_r(
    n: int, m: int, size: int, seed: int, normalise: bool
) -> None:
    a, b, corpus = drawn(n, 4, seed=seed), drawn(m, 4, seed=seed + 1), drawn(size, 4, seed=seed + 2)
    found = rank_similarity(a, b, corpus, block=2, normalise=normalise, similarity="centred")
    expected = [[r(x, y, corpus, normalise) for y in b] for x in a]
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), atol=1e-9)
    k = min(n, m)
    pairs = pair_rank_similarity(a[:k], b[:k], corpus, block=2, normalise=normalise, similarity="centred")
    assert torch.allclose(pairs, found[:k, :k].diagonal(), atol=1e-12)


@given(st.integers(1, 5), st.integers(2, 30), seeds)
def test_centred_vectors_are_centred_of_unit_norm_and_blind_to_lengths(n: int, size: int, seed: int) -> None:
    a, corpus, lengths = drawn(n, 4, seed=seed), drawn(size, 4, seed=seed + 1), drawn(size, 1, seed=seed + 2).exp()
    found = centred(a, corpus)
    assert torch.allclose(found.sum(1), torch.zeros(n).double(), atol=1e-9)
    assert torch.allclose(found.norm(dim=1), torch.ones(n).double())
    assert torch.allclose(centred(3 * a, lengths * corpus), found, atol=1e-9)


def test_what_does_not_vary_has_no_direction() -> None:
    """Rounding must not become a direction: 0.1's mean over a thousand sentences is 0.1 to the bit."""
    corpus = torch.tensor([[0.1, 0.7, 0.2]]).expand(1_001, 3)
    assert not centred(drawn(4, 3, seed=0).float(), corpus).any()
    assert not centred(torch.zeros(2, 3), drawn(9, 3, seed=1).float()).any()


def test_ranks_and_centred_cosines_are_the_two_profiles() -> None:
    a, corpus = drawn(3, 4, seed=0), drawn(30, 4, seed=1)
    assert not torch.allclose(rank_vectors(a, corpus), centred(a, corpus), atol=0.01)
    with pytest.raises(ValueError, match="similarity must be one of rank, centred, got 'cosine'"):
        rank_similarity(a, a, corpus, similarity="cosine")
    with pytest.raises(ValueError, match="at least two corpus sentences, got 1"):
        centred(a, corpus[:1])


@pytest.mark.slow
@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_ranked_scores_by_pearsons_r(weight: float, cache: Path) -> None:
    encoder = wiki_tiny()
    scorer = Ranked(corpus=Corpus("synthetic_dev", 60), size=40, weight=weight, similarity="centred")
    sides = ["a cat sat", "snow fell", "no"], ["a dog sat", "the river rose", "yes"]
    corpus, a, b = (encoder.encode(some).double() for some in (scorer.texts(), *sides))
    expected = weight * torch.tensor([r(x, y, corpus) for x, y in zip(a, b, strict=True)]).double()
    expected += (1 - weight) * torch.from_numpy(pair_cosines(a, b)[0])
    scores = scorer.pair_scores(encoder, {"task": sides})["task"].scores
    assert scores.tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    vectors = [scorer.vectors(encoder, side) for side in sides]
    assert pair_cosines(*vectors)[0].tolist() == pytest.approx(scores.tolist(), abs=1e-5)


@pytest.mark.slow
def test_ranked_reads_another_set_than_a_training_corpus(cache: Path) -> None:
    scorer = Ranked(corpus=Corpus("synthetic_dev", 60), size=60)
    assert sorted(scorer.texts()) == sorted(distinct_sentences("synthetic_dev")[:60])
    assert str(scorer) == "rank 0.1 of 60 from synthetic_dev:60 seed 42"
    forms: list[dict[str, Any]] = [{}, {"similarity": "centred"}]
    found = [str(Ranked(corpus=Corpus("subj", 9), size=9, **form)) for form in forms]
    assert found == ["rank 0.1 of 9 from subj:9 seed 42", "centred 0.1 of 9 from subj:9 seed 42"]
