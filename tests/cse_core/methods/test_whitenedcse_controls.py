"""WhitenedCSE's controls: batch normalisation as the finest grouping, random rotations, dropout of features."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cse_core.functional.contrastive import info_nce
from cse_core.functional.whitening import group_whiten, random_rotation
from cse_core.method import Batch, Tokens
from cse_core.methods.whitenedcse import WhitenedCSE, multi_positive
from tests.support.method_variants import Encoded

D = 12
seeds = st.integers(0, 10_000)


def numbered(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(n: int, view: int = 0) -> torch.Tensor:
    return torch.randn(n, D, generator=numbered(view), dtype=torch.float64) * torch.arange(1, D + 1) + view + 1


def outcome(method: WhitenedCSE, n: int = 6, seed: int = 1) -> Any:
    """The loss under an identity for a head, every token of a pass being another view, and its generator."""
    text = Tokens(torch.ones(n, 3).long(), torch.ones(n, 3).bool())
    batch = Batch(torch.arange(n), {"text": text}, numbered(seed))
    encode = Encoded(lambda *tokens: tuple(features(n, view) for view, _ in enumerate(tokens)))
    torch.manual_seed(3)
    return method.loss(encode, batch, nn.ModuleDict({"head": nn.Identity()}), {}), batch.generator


@given(st.integers(2, 30), seeds, st.sampled_from([1e-5, 0.1]), st.booleans())
def test_as_many_groups_as_channels_are_batch_normalisation(n: int, seed: int, eps: float, detach: bool) -> None:
    x = features(n, seed).requires_grad_()
    p = torch.randperm(D, generator=numbered(seed))
    norm = nn.BatchNorm1d(D, eps=eps, affine=False, track_running_stats=False).double()
    for order in (None, p):
        assert torch.allclose(group_whiten(x, D, order, eps, detach=detach), norm(x), atol=1e-9)
    out = features(n, seed + 1)
    found, expected = (torch.autograd.grad((y * out).sum(), x)[0] for y in (
        group_whiten(x, D, p, eps, detach=False), norm(x)))  # fmt: skip
    assert torch.allclose(found, expected, atol=1e-6)


def test_the_method_with_a_group_a_channel_is_batch_normalisation() -> None:
    loss, _ = outcome(WhitenedCSE(groups=D, views="dropout", temperature=0.2))
    norm = nn.BatchNorm1d(D, affine=False, track_running_stats=False).double()
    anchor, *others = (norm(features(6, view)) for view in range(3))
    assert loss.total.item() == pytest.approx(multi_positive(anchor, others, 0.2).item(), abs=1e-9)


@given(st.integers(1, 20), seeds)
def test_rotations_are_orthogonal_and_by_the_generator(width: int, seed: int) -> None:
    q = random_rotation(width, numbered(seed), torch.float64)
    assert torch.allclose(q @ q.T, torch.eye(width).double(), atol=1e-12)
    assert torch.equal(q, random_rotation(width, numbered(seed), torch.float64))
    assert width == 1 or not torch.allclose(q, random_rotation(width, numbered(seed + 1), torch.float64))
    assert random_rotation(width, numbered(seed)).dtype == torch.float32


def test_rotations_are_drawn_evenly() -> None:
    """Every entry of an evenly drawn matrix has mean 0 and variance 1/3, the trace variance 1, and half reflect.

    Without the signs of R's diagonal LAPACK's first entry is never positive.
    """
    generator = numbered(0)
    draws = torch.stack([random_rotation(3, generator, torch.float64) for _ in range(4_000)])
    assert draws.mean(0).abs().max() < 5 * math.sqrt(1 / 3 / 4_000)
    assert (draws.square().mean(0) - 1 / 3).abs().max() < 5 * math.sqrt(1 / 3 / 4_000)
    traces = draws.diagonal(dim1=1, dim2=2).sum(1)
    assert traces.square().mean().item() == pytest.approx(1, abs=0.12)
    assert (torch.linalg.det(draws) > 0).double().mean().item() == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("views", ["shared", "dropout"])
def test_each_view_is_rotated_by_a_matrix_of_its_own(views: str) -> None:
    loss, generator = outcome(WhitenedCSE(whitening="rotation", views=views, positives=4, temperature=0.2))
    drawn = numbered(1)
    kept = [
        features(6, view if views == "dropout" else 0) @ random_rotation(D, drawn, torch.float64) for view in range(4)
    ]
    assert torch.equal(generator.get_state(), drawn.get_state())  # that of the permutations, and nothing else of it
    assert loss.total.item() == pytest.approx(multi_positive(kept[0], kept[1:], 0.2).item(), abs=1e-9)
    assert torch.allclose(torch.stack(loss.views), torch.stack(kept[:2]))
    whole = [h.T @ h for h in kept]  # not whitened: the spectrum is the features' own
    for view, h in enumerate(whole):
        own = features(6, view if views == "dropout" else 0)
        assert torch.allclose(torch.linalg.eigvalsh(h), torch.linalg.eigvalsh(own.T @ own), atol=1e-6)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("whitening", ["none", "shuffled_group"])
def test_dropout_of_features_comes_first_and_anew_for_each_view(whitening: str, normalise: bool) -> None:
    method = WhitenedCSE(whitening=whitening, groups=4, feature_dropout=0.5, normalise=normalise, temperature=0.2)
    loss, _ = outcome(method)
    torch.manual_seed(3)
    dropped = [nn.functional.dropout(features(6), 0.5) for _ in range(3)]
    for h in dropped:
        kept = h != 0
        assert torch.allclose(h[kept], 2 * features(6)[kept])
        assert 0.2 < kept.double().mean() < 0.8
    assert not torch.equal(dropped[0] != 0, dropped[1] != 0)
    dropped = [nn.functional.normalize(h, dim=-1) for h in dropped] if normalise else dropped
    if whitening == "shuffled_group":
        generator = numbered(1)
        orders = [torch.randperm(D, generator=generator) for _ in dropped]
        dropped = [group_whiten(h, 4, order) for h, order in zip(dropped, orders, strict=True)]
    assert loss.total.item() == pytest.approx(multi_positive(dropped[0], dropped[1:], 0.2).item(), abs=1e-9)


def test_without_dropout_of_features_no_chance_is_used() -> None:
    """The encoder's dropout and whatever comes after it stay as they were before the option was there."""
    loss, generator = outcome(WhitenedCSE(whitening="none", views="dropout", positives=2, temperature=0.2))
    left = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(left, torch.rand(1))
    assert torch.equal(generator.get_state(), numbered(1).get_state())
    assert loss.total.item() == pytest.approx(info_nce(features(6), features(6, 1), 0.2).item())


def test_impossible_settings_are_refused() -> None:
    for share in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match=rf"feature_dropout must be in \[0, 1\), got {share}"):
            WhitenedCSE(feature_dropout=share)
    with pytest.raises(ValueError, match="views 'shared' makes identical views"):
        WhitenedCSE(whitening="none", feature_dropout=0.0)
    with pytest.raises(ValueError, match="and whitening 'rotation'"):
        WhitenedCSE(whitening="rotation", views="dropout", variant="released_code")
