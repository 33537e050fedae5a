"""Centred cosines to a corpus, the control of RankEncoder's ranks, against Pearson's r; and whose corpus it is."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr

from cse_core.data.batches import pad
from cse_core.data.senteval import distinct_sentences
from cse_core.evaluation.scorers import Ranked
from cse_core.functional.contrastive import pair_cosines
from cse_core.functional.rank_vectors import (
    centred_vectors,
    pair_rank_similarity,
    profile_vectors,
    rank_similarity,
    rank_vectors,
)
from cse_core.method import Batch
from cse_core.methods.rankencoder import RankEncoder, rank_loss
from cse_core.run import Corpus, Pretrained
from tests.support.encoders import wiki_tiny
from tests.support.method_steps import encoder_for

seeds = st.integers(0, 10_000)


def draw(n: int, d: int, seed: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def r(a: torch.Tensor, b: torch.Tensor, corpus: torch.Tensor, normalise: bool = True) -> float:
    """Pearson's r of two vectors' cosines, else inner products, with the corpus."""
    products = (
        [math.fsum((v * c).tolist()) / (v.norm() * (c.norm() if normalise else 1)) for c in corpus] for v in (a, b)
    )
    return float(pearsonr(*(torch.stack(list(row)).numpy() for row in products)).statistic)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(3, 20), seeds, st.booleans())
def test_inner_products_of_centred_vectors_are_pearsons_r(
    n: int, m: int, size: int, seed: int, normalise: bool
) -> None:
    a, b, corpus = draw(n, 4, seed), draw(m, 4, seed + 1), draw(size, 4, seed + 2)
    found = rank_similarity(a, b, corpus, block=2, normalise=normalise, similarity="centred")
    expected = [[r(x, y, corpus, normalise) for y in b] for x in a]
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), atol=1e-9)
    k = min(n, m)
    pairs = pair_rank_similarity(a[:k], b[:k], corpus, block=2, normalise=normalise, similarity="centred")
    assert torch.allclose(pairs, found[:k, :k].diagonal(), atol=1e-12)


@given(st.integers(1, 5), st.integers(2, 30), seeds)
def test_centred_vectors_are_centred_of_unit_norm_and_blind_to_lengths(n: int, size: int, seed: int) -> None:
    a, corpus, lengths = draw(n, 4, seed), draw(size, 4, seed + 1), draw(size, 1, seed + 2).exp()
    found = centred_vectors(a, corpus)
    assert torch.allclose(found.sum(1), torch.zeros(n).double(), atol=1e-9)
    assert torch.allclose(found.norm(dim=1), torch.ones(n).double())
    assert torch.allclose(centred_vectors(3 * a, lengths * corpus), found, atol=1e-9)


def test_what_does_not_vary_has_no_direction() -> None:
    """Rounding must not become a direction: 0.1's mean over a thousand sentences is 0.1 to the bit."""
    corpus = torch.tensor([[0.1, 0.7, 0.2]]).expand(1_001, 3)
    assert not centred_vectors(draw(4, 3, 0).float(), corpus).any()
    assert not centred_vectors(torch.zeros(2, 3), draw(9, 3, 1).float()).any()


def test_ranks_and_centred_cosines_are_the_two_profiles() -> None:
    a, corpus = draw(3, 4, 0), draw(30, 4, 1)
    assert torch.equal(profile_vectors(a, corpus, "average"), rank_vectors(a, corpus, "average"))
    assert torch.equal(profile_vectors(a, corpus, similarity="centred"), centred_vectors(a, corpus))
    assert not torch.allclose(profile_vectors(a, corpus), centred_vectors(a, corpus), atol=0.01)
    with pytest.raises(ValueError, match="similarity must be one of rank, centred, got 'cosine'"):
        rank_similarity(a, a, corpus, similarity="cosine")
    with pytest.raises(ValueError, match="at least two corpus sentences, got 1"):
        centred_vectors(a, corpus[:1])


def test_rankencoder_learns_pearsons_r_with_centred_cosines() -> None:
    """The rank term by its equation, over R of centred cosines."""
    method = RankEncoder(base=Pretrained("a"), lower=-0.5, upper=0.9, similarity="centred")
    encoder, texts = encoder_for(method), ["a cat sat", "the river rose", "snow fell", "no"]
    tokens = pad(method.examples(texts, encoder.tokenizer, 8)["text"], encoder.pad_id)
    modules = method.modules(encoder, torch.Generator().manual_seed(2))
    base, corpus = draw(4, 6, 0).float(), torch.nn.functional.normalize(draw(40, 6, 1).float(), dim=-1)
    batch = Batch(torch.arange(4), {"text": tokens}, torch.Generator().manual_seed(1))
    loss = method.loss(encoder.train(), batch, modules, {"base_first": base, "corpus": corpus})
    assert loss.views is not None
    z1, z2 = (torch.nn.functional.normalize(view, dim=-1) for view in loss.views)
    ranks = torch.tensor([[r(x, y, corpus) for y in base.double()] for x in base.double()])
    assert loss.terms["rank"].item() == pytest.approx(rank_loss(ranks, z1 @ z2.T, -0.5, 0.9).item(), rel=1e-4)


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
