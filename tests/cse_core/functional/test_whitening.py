"""Whitening against covariances, the Mahalanobis form of its cosines, and sentences of STS-B."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_core.data.senteval import pairs
from cse_core.evaluation.scorers import Pairs, Whitened, whitening
from cse_core.models.embedding_cache import CachedEncoder
from tests.support.encoders import wiki_tiny
from tests.support.method_oracles import cosine, drawn


@given(st.integers(1, 6), st.integers(0, 40), st.integers(0, 1000))
def test_whitened_texts_have_the_identity_as_covariance(d: int, more: int, seed: int) -> None:
    x = (drawn(2 * d + 2 + more, d, seed=seed) @ drawn(d, d, seed=seed + 1)).float() + 3
    for dims in (None, *range(1, d + 1)):
        found = whitening(x, dims)(x)
        assert found.dtype == torch.float64
        covariance = np.cov(found.numpy(), rowvar=False, bias=True).reshape(dims or d, dims or d)
        assert np.allclose(covariance, np.eye(dims or d), atol=1e-6)
        assert torch.allclose(found.mean(0), torch.zeros(1).double(), atol=1e-6)
        assert torch.allclose(found, whitening(x)(x)[:, : dims or d], atol=1e-9)


def test_whitening_keeps_the_directions_of_the_largest_variance() -> None:
    spread, turn = torch.tensor([0.1, 5.0, 1.0, 20.0]).double(), torch.linalg.qr(drawn(4, 4, seed=0))[0]
    # The columns are exactly uncorrelated.
    latent = torch.linalg.qr(drawn(50, 4, seed=1) - drawn(50, 4, seed=1).mean(0))[0] * math.sqrt(50)
    latent = latent - latent.mean(0)
    found = whitening((latent * spread @ turn).float(), 2)((latent * spread @ turn).float())
    agreement = (found.T @ latent / 50).abs()
    assert torch.allclose(agreement, torch.eye(4).double()[[3, 1]], atol=1e-4)


@given(st.integers(2, 5), st.integers(0, 1000))
def test_whitened_cosines_are_mahalanobis_and_blind_to_any_affine_map(d: int, seed: int) -> None:
    x, a, b = drawn(30, d, seed=seed), drawn(4, d, seed=seed + 1), drawn(4, d, seed=seed + 2)
    mapping, shift = drawn(d, d, seed=seed + 3) + 3 * torch.eye(d), drawn(1, d, seed=seed + 4)
    inverse, mean = np.linalg.inv(np.cov(x.numpy(), rowvar=False, bias=True)), x.mean(0)
    (u, v), centred = (whitening(x)(side) for side in (a, b)), [(side - mean).numpy() for side in (a, b)]
    moved = whitening(x @ mapping + shift)
    p, q = (moved(side @ mapping + shift) for side in (a, b))
    for i in range(4):
        s, t = centred[0][i], centred[1][i]
        expected = s @ inverse @ t / math.sqrt((s @ inverse @ s) * (t @ inverse @ t))
        assert cosine(u[i].tolist(), v[i].tolist()) == pytest.approx(expected, abs=1e-8)
        assert cosine(p[i].tolist(), q[i].tolist()) == pytest.approx(expected, abs=1e-5)


def test_whitening_refuses_what_it_cannot_do() -> None:
    x = drawn(30, 5, seed=0)
    for dims in (-1, 0, 6):
        with pytest.raises(ValueError, match=f"whitening to {dims} of 5 dimensions: expected 1 to 5"):
            whitening(x, dims)
    flat = torch.cat([x, x[:, :1] + 2 * x[:, 1:2]], 1).float()
    with pytest.raises(ValueError, match="whitening 6 dimensions from 30 vectors that span fewer; ask for fewer dims"):
        whitening(flat)
    with pytest.raises(ValueError, match="whitening 5 dimensions from 5 vectors"):  # less one for the mean
        whitening(x[:5].float())
    with pytest.raises(ValueError, match="span fewer"):
        whitening(torch.ones(9, 2))
    assert whitening(flat, 5)(flat).var(0, correction=0).tolist() == pytest.approx([1] * 5, abs=1e-5)
    small = x * torch.logspace(0, -4, 5).double()  # little variance is not none
    assert whitening(small.float())(small).var(0, correction=0).tolist() == pytest.approx([1] * 5, abs=1e-2)


@pytest.mark.slow
def test_whitened_fits_on_all_texts_of_a_real_task(real_data: Path) -> None:
    """A year's own pairs: covariance the identity in all 128 dimensions, and the task's scores."""
    table = pairs("sts16", real_data).table
    sides: Pairs = (table["sentence1"][:], table["sentence2"][:])
    encoder = CachedEncoder(wiki_tiny())
    vectors = encoder.with_pooling("layer1_last_mean", longest=64).encode([*sides[0], *sides[1]])
    assert len(vectors) == 2 * 1186
    mapped = whitening(vectors)(vectors)
    assert np.allclose(np.cov(mapped.numpy(), rowvar=False, bias=True), np.eye(128), atol=1e-6)
    found = Whitened().pair_scores(encoder, {"sts16": sides}, data=real_data)["sts16"].scores
    a, b = mapped.numpy().reshape(2, -1, 128)
    expected = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
