"""WhitenedCSE: whitening, losses and controls against loops from the equations, closed forms, hard cases, gradients."""

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck

from cse_core.functional.contrastive import cosine_matrix, info_nce
from cse_core.functional.whitening import RunningWhitening, group_whiten, inverse_root, random_rotation
from cse_core.method import Loss
from cse_core.methods import whitenedcse
from cse_core.methods.whitenedcse import WhitenedCSE, multi_positive, multi_positive_inside
from tests.support.method_steps import Encoded, blank_batch, loss_under, seeded, views_of

D = 12
SCRIPT = WhitenedCSE(groups=6, views="dropout", variant="released_code")
seeds = st.integers(0, 10_000)
CHANGES = [{}, {"views": "dropout"}, {"normalise": True}, {"whitening": "group"}, {"whitening": "channel"}]
KINDS = [("pca", True), ("zca", True), *((kind, False) for kind in ("zca", "channel", "group", "shuffled_group"))]
group_counts = st.sampled_from([1, 2, 3, 4, 6, 12])


def rows(n: int, seed: int, d: int = D) -> torch.Tensor:
    """Correlated channels of unlike scale and mean."""
    draw = np.random.default_rng(seed)
    mixed = draw.normal(size=(n, d)) @ (np.eye(d) + 0.3 * draw.normal(size=(d, d))) * draw.uniform(0.5, 3, d)
    return torch.from_numpy(mixed + draw.normal(size=d))


def whole(x: torch.Tensor, kind: str) -> torch.Tensor:
    """Whitened over all channels by the rows' own statistics: without momentum, earlier ones don't count."""
    return RunningWhitening(x.shape[1], kind, momentum=0.0, eps=1e-5, detach=True)(x)


def shuffled(seed: int, d: int = D) -> torch.Tensor:
    return torch.randperm(d, generator=seeded(seed))


def by_loops(x: torch.Tensor, groups: int, order: Sequence[int] = range(D), eps: float = 1e-5) -> torch.Tensor:
    """Section 3.2 group by group, with a matrix square root that uses no eigenvectors."""
    table, white = x.numpy(), np.full(x.shape, np.nan)
    for channels in np.split(np.array(order), groups):
        centred = table[:, channels] - sum(row[channels] for row in table) / len(table)
        covariance = sum(np.outer(row, row) for row in centred) / len(table)
        white[:, channels] = np.linalg.solve(scipy.linalg.sqrtm(covariance + eps * np.eye(len(channels))), centred.T).T
    return torch.from_numpy(white)


@given(st.integers(2, 20), group_counts, seeds, st.sampled_from([1e-5, 0.1]), st.booleans())
def test_group_whitening_is_the_equation(n: int, groups: int, seed: int, eps: float, degenerate: bool) -> None:
    x, p = rows(n, seed), shuffled(seed)
    if degenerate:
        x[:, 3], x[1] = 7.0, x[0]  # a constant channel and two equal rows
    assert torch.allclose(group_whiten(x, groups, p, eps), by_loops(x, groups, p.tolist(), eps), rtol=0, atol=1e-6)
    assert torch.allclose(group_whiten(x, groups, eps=eps), by_loops(x, groups, eps=eps), rtol=0, atol=1e-6)


@given(group_counts, seeds)
def test_each_whitened_group_has_covariance_one(groups: int, seed: int) -> None:
    p = shuffled(seed)
    white = group_whiten(rows(60, seed), groups, p, eps=0.0)
    covariance = (white.T @ white / 60)[p][:, p]
    same = torch.block_diag(*[torch.ones(D // groups, D // groups)] * groups).bool()
    assert torch.allclose(covariance[same], torch.eye(D).double()[same], atol=1e-9)
    assert groups == 1 or covariance[~same].abs().max() > 0.01  # whitened within groups only


@given(group_counts, seeds)
def test_whitening_goes_with_the_channels_and_the_rows(groups: int, seed: int) -> None:
    x, p, q, order = rows(20, seed), shuffled(seed), shuffled(seed + 1), shuffled(seed, 20)
    assert torch.allclose(group_whiten(x[:, q], groups, p), group_whiten(x, groups, q[p])[:, q], atol=1e-9)
    assert torch.allclose(group_whiten(x[order], groups, p), group_whiten(x, groups, p)[order], atol=1e-9)
    assert torch.equal(group_whiten(x, D, p), group_whiten(x, D))  # the permutation is undone exactly


@given(seeds)
def test_whole_whitenings_are_their_references(seed: int) -> None:
    x = rows(30, seed)
    assert torch.allclose(whole(x, "zca"), by_loops(x, 1), atol=1e-6)
    assert torch.allclose(group_whiten(x, D), nn.functional.batch_norm(x, None, None, training=True), atol=1e-9)
    centred = x.numpy() - x.numpy().mean(0)
    _, deviations, axes = np.linalg.svd(centred / math.sqrt(30))  # from high to low
    expected = (centred @ axes.T / np.sqrt(deviations**2 + 1e-5))[:, ::-1]
    assert np.allclose(np.abs(whole(x, "pca").numpy()), np.abs(expected), atol=1e-6)  # signs are arbitrary
    constant = torch.full((5, D), 0.1)
    whites = whole(constant, "pca"), whole(constant, "zca"), group_whiten(constant, D)
    assert max(white.abs().max() for white in whites) < 1e-4


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("width", [32, 64])
def test_fewer_rows_than_channels_stay_finite(width: int, scale: float) -> None:
    """Rounding makes eigenvalues negative that are 0; the whitened rows have rank 7 and variance 1."""
    draw = torch.randn(8, 64, generator=seeded(0))
    white = group_whiten(scale * draw, 64 // width)
    assert torch.stack([white, whole(scale * draw, "pca")]).isfinite().all()
    if scale == 1:  # a larger one drowns eps in rounding, a smaller one drowns in eps
        spread = torch.linalg.eigvalsh(white[:, :width].T @ white[:, :width] / 8)
        assert torch.allclose(spread, (torch.arange(width) >= width - 7).float(), atol=0.01)


def test_all_groups_take_one_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes, eigh = [], torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda s: shapes.append(tuple(s.shape)) or eigh(s))
    group_whiten(torch.randn(64, 768), 384, shuffled(0, 768))
    assert shapes == [(384, 2, 2)]


def test_a_detached_matrix_is_a_constant_to_the_gradient() -> None:
    x, p, out = rows(16, 0).requires_grad_(), shuffled(0), rows(16, 1)
    centred = x - x.mean(0)
    frozen = centred @ torch.linalg.lstsq(centred, group_whiten(x, 4, p)).solution.detach()  # one matrix fits exactly
    whites = frozen, group_whiten(x, 4, p), group_whiten(x, 4, p, detach=False)
    expected, found, free = (torch.autograd.grad((white * out).sum(), x)[0] for white in whites)
    assert torch.allclose(found, expected, rtol=0, atol=1e-6)
    assert (free - expected).abs().max() > 0.01


def test_the_whole_gradient_equals_finite_differences() -> None:
    p, loose = shuffled(3, 4), rows(9, 1, 3)
    for x in (rows(6, 0, 4), torch.cat([torch.eye(4), -torch.eye(4)]).double()):  # the latter's covariance is I/4
        for groups in (1, 2, 4):
            assert gradcheck(lambda x, g=groups: group_whiten(x, g, p, 0.01, detach=False), x.requires_grad_())
    batch = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, 1.0, 2.0])), loose.T @ loose / 9]).double()
    assert gradcheck(lambda s: inverse_root((s + s.mT) / 2, 0.1), batch.requires_grad_())
    (grad,) = torch.autograd.grad(inverse_root(batch, 0.1)[:, 0].sum(), batch)
    assert torch.allclose(grad, grad.mT)


@given(st.integers(2, 6), st.integers(1, 4), seeds, st.booleans())
def test_the_losses_are_their_equations(n: int, count: int, seed: int, weighted: bool) -> None:
    anchor, *positives = (rows(n, seed + p, 5) for p in range(count + 1))
    weights = [0.3 + 0.5 * p if weighted else 1.0 for p in range(count)]
    outside = inside = printed = 0.0
    for i in range(n):
        s = [(cosine_matrix(anchor, p)[i] / 0.2).tolist() for p in positives]
        losses = [math.log(sum(map(math.exp, row))) - row[i] for row in s]
        shares = [math.exp(-row[i]) / sum(map(math.exp, row)) for row in s]
        outside += sum(w * ce for w, ce in zip(weights, losses, strict=True)) / n
        inside += math.log(sum(w * math.exp(ce) for w, ce in zip(weights, losses, strict=True))) / n
        printed -= math.log(sum(w * share for w, share in zip(weights, shares, strict=True))) / n
    found = [multi_positive(anchor, positives, 0.2, weights if weighted else None).item()]
    found += [multi_positive_inside(anchor, positives, 0.2, weights, printed=p).item() for p in (False, True)]
    assert found == pytest.approx([outside, inside, printed], abs=1e-6)


@given(st.integers(2, 6), seeds)
def test_losses_of_one_positive_and_of_equal_ones(n: int, seed: int) -> None:
    anchor, one, other = (rows(n, seed + i, 5) for i in range(3))
    alone, own = info_nce(anchor, one, 0.05), cosine_matrix(anchor, one).diagonal().mean() / 0.05
    assert torch.equal(multi_positive(anchor, [one], 0.05), alone)
    assert torch.allclose(multi_positive_inside(anchor, [one], 0.05), alone)
    assert torch.allclose(multi_positive_inside(anchor, [one], 0.05, printed=True), alone + 2 * own)
    assert torch.allclose(multi_positive_inside(anchor, [one] * 3, 0.05), alone + math.log(3))
    assert torch.allclose(multi_positive_inside(anchor, [one, other], 0.05, [1.0, 0.0]), alone)


def features(n: int, view: int) -> torch.Tensor:
    return (torch.arange(1.0, n + 1).double().outer(torch.arange(1, D + 1) * (1 + 0.1 * view)).sin()) + 2


def orders(count: int) -> list[list[int]]:
    generator = seeded(1)
    return [torch.randperm(D, generator=generator).tolist() for _ in range(count)]


def made(method: WhitenedCSE, width: int = D) -> Any:
    return method.modules(SimpleNamespace(width=width), seeded(0)).double()


def outcome(method: WhitenedCSE, n: int = 5, modules: dict | None = None) -> tuple[Loss, list[int], torch.Generator]:
    """Loss of n sentences under an identity for a head, the views of each pass of the encoder, the used generator."""
    encode, batch = Encoded(lambda *tokens: tuple(features(n, view) for view, _ in enumerate(tokens))), blank_batch(n)
    loss = loss_under(method, encode, batch, nn.ModuleDict({"head": nn.Identity(), **(modules or {})}))
    return loss, [len(tokens) for tokens in encode.asked], batch.generator


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("objective", ["outside", "inside", "inside_printed"])
def test_each_view_is_whitened_under_its_own_permutation(changes: dict, objective: str) -> None:
    weights, groups = (1.0, 0.5, 2.0), D if "channel" in changes.values() else 4
    settings: Any = {"objective": objective, "positives": 4, "weights": weights} | changes
    loss, passes, _ = outcome(WhitenedCSE(temperature=0.2, groups=4, eps=0.01, **settings))
    kept = [features(5, view if "views" in changes else 0) for view in range(4)]
    kept = [x / x.square().sum(1, keepdim=True).sqrt() if "normalise" in changes else x for x in kept]
    permutations = [range(D)] * 4 if "whitening" in changes else orders(4)
    anchor, *others = (by_loops(x, groups, order, 0.01) for x, order in zip(kept, permutations, strict=True))
    expected = multi_positive(anchor, others, 0.2, weights)
    if objective != "outside":
        expected = multi_positive_inside(anchor, others, 0.2, weights, printed=objective == "inside_printed")
    assert loss.total.item() == pytest.approx(expected.item(), abs=1e-6)
    assert passes == ([4] if "views" in changes else [1])
    each = {f"positive_{p}": info_nce(anchor, z, 0.2).item() for p, z in enumerate(others, 1)}
    assert {k: v.item() for k, v in loss.terms.items()} == pytest.approx({"contrastive": expected.item()} | each)
    assert torch.allclose(torch.stack(views_of(loss)), torch.stack([anchor, others[0]]), atol=1e-6)


@pytest.mark.parametrize(("m", "n"), [(3, 5), (2, 6)])
def test_released_code_whitens_blocks_of_the_sentence_major_batch(m: int, n: int) -> None:
    """Row m i + k is view k of sentence i; block b has the rows b n to b n + n - 1, whatever sentence they are of."""
    flat = torch.stack([features(n, row % m)[row // m] for row in range(m * n)])
    white = torch.cat([by_loops(flat[b * n : b * n + n], 6, p, 0.0) for b, p in enumerate(orders(m))])
    expected = multi_positive(white[::m], [white[k::m] for k in range(1, m)], 0.05)
    loss, *_ = outcome(replace(SCRIPT, positives=m, eps=0.5), n=n)
    assert loss.total.item() == pytest.approx(expected.item(), abs=1e-6)


def test_running_statistics_by_hand() -> None:
    """Eq. 13 over three steps of two views, from mean 0 and covariance I; not at all in eval mode."""
    method = WhitenedCSE(whitening="zca", views="dropout", positives=2, momentum=0.7)
    module, mean, covariance = made(method)["whitening"], np.zeros(D), np.eye(D)
    for n in (5, 6, 7):
        white = []
        for view in (0, 1):
            x = features(n, view)
            mean = 0.7 * mean + 0.3 * x.numpy().mean(0)
            covariance = 0.7 * covariance + 0.3 * np.cov(x.numpy().T, bias=True)
            root = scipy.linalg.sqrtm(covariance + 1e-5 * np.eye(D))
            white.append(torch.from_numpy(np.linalg.solve(root, (x.numpy() - mean).T).T))
        loss, *_ = outcome(method, n=n, modules={"whitening": module})
        assert loss.total.item() == pytest.approx(info_nce(white[0], white[1], 0.05).item(), abs=1e-6)
    assert torch.allclose(module.eval()(x), white[1])
    assert np.allclose(np.vstack(list(module.state_dict().values())), np.vstack([mean, covariance]), atol=1e-9)


@pytest.mark.parametrize(("kind", "detach"), KINDS)
def test_the_method_has_the_gradient_of_its_whitening(kind: Any, detach: bool) -> None:
    method = WhitenedCSE(whitening=kind, groups=4, momentum=0.0, detach=detach)  # without momentum the batch's own
    x, out, p = rows(20, 0).requires_grad_(), rows(20, 1), shuffled(1) if kind == "shuffled_group" else None
    (white,) = method._whiten_views([x], made(method), seeded(1))
    groups = {"zca": 1, "channel": D}.get(kind, 4)
    own = whole(x, kind) if kind == "pca" else group_whiten(x, groups, p, detach=detach)
    grads = [torch.autograd.grad((each * out).sum(), x)[0] for each in (white, own)]
    assert torch.allclose(torch.stack([white, grads[0]]), torch.stack([own, grads[1]]))


@given(st.integers(2, 30), seeds, st.sampled_from([1e-5, 0.1]), st.booleans())
def test_as_many_groups_as_channels_are_batch_normalisation(n: int, seed: int, eps: float, detach: bool) -> None:
    x = rows(n, seed).requires_grad_()
    p = torch.randperm(D, generator=seeded(seed))
    norm = nn.BatchNorm1d(D, eps=eps, affine=False, track_running_stats=False).double()
    for order in (None, p):
        assert torch.allclose(group_whiten(x, D, order, eps, detach=detach), norm(x), atol=1e-9)
    out = rows(n, seed + 1)
    found, expected = (torch.autograd.grad((y * out).sum(), x)[0] for y in (
        group_whiten(x, D, p, eps, detach=False), norm(x)))  # fmt: skip
    assert torch.allclose(found, expected, atol=1e-6)


@given(st.integers(1, 20), seeds)
def test_rotations_are_orthogonal_and_by_the_generator(width: int, seed: int) -> None:
    q = random_rotation(width, seeded(seed), torch.float64)
    assert torch.allclose(q @ q.T, torch.eye(width).double(), atol=1e-12)
    assert torch.equal(q, random_rotation(width, seeded(seed), torch.float64))
    assert width == 1 or not torch.allclose(q, random_rotation(width, seeded(seed + 1), torch.float64))
    assert random_rotation(width, seeded(seed)).dtype == torch.float32


def test_rotations_are_drawn_evenly() -> None:
    """Every entry of an evenly drawn matrix has mean 0 and variance 1/3, the trace variance 1, and half reflect.

    Without the signs of R's diagonal LAPACK's first entry is never positive.
    """
    generator = seeded(0)
    draws = torch.stack([random_rotation(3, generator, torch.float64) for _ in range(4_000)])
    assert draws.mean(0).abs().max() < 5 * math.sqrt(1 / 3 / 4_000)
    assert (draws.square().mean(0) - 1 / 3).abs().max() < 5 * math.sqrt(1 / 3 / 4_000)
    traces = draws.diagonal(dim1=1, dim2=2).sum(1)
    assert traces.square().mean().item() == pytest.approx(1, abs=0.12)
    assert (torch.linalg.det(draws) > 0).double().mean().item() == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("views", ["shared", "dropout"])
def test_each_view_is_rotated_by_a_matrix_of_its_own(views: Any) -> None:
    loss, _, generator = outcome(WhitenedCSE(whitening="rotation", views=views, positives=4, temperature=0.2), 6)
    drawn = seeded(1)
    kept = [
        features(6, view if views == "dropout" else 0) @ random_rotation(D, drawn, torch.float64) for view in range(4)
    ]
    assert torch.equal(generator.get_state(), drawn.get_state())  # that of the permutations, and nothing else of it
    assert loss.total.item() == pytest.approx(multi_positive(kept[0], kept[1:], 0.2).item(), abs=1e-9)
    assert torch.allclose(torch.stack(views_of(loss)), torch.stack(kept[:2]))
    whole = [h.T @ h for h in kept]  # not whitened: the spectrum is the features' own
    for view, h in enumerate(whole):
        own = features(6, view if views == "dropout" else 0)
        assert torch.allclose(torch.linalg.eigvalsh(h), torch.linalg.eigvalsh(own.T @ own), atol=1e-6)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("whitening", ["none", "shuffled_group"])
def test_dropout_of_features_comes_first_and_anew_for_each_view(whitening: Any, normalise: bool) -> None:
    method = WhitenedCSE(whitening=whitening, groups=4, feature_dropout=0.5, normalise=normalise, temperature=0.2)
    loss, *_ = outcome(method, 6)
    torch.manual_seed(3)
    dropped = [nn.functional.dropout(features(6, 0), 0.5) for _ in range(3)]
    for h in dropped:
        kept = h != 0
        assert torch.allclose(h[kept], 2 * features(6, 0)[kept])
        assert 0.2 < kept.double().mean() < 0.8
    assert not torch.equal(dropped[0] != 0, dropped[1] != 0)
    dropped = [nn.functional.normalize(h, dim=-1) for h in dropped] if normalise else dropped
    if whitening == "shuffled_group":
        generator = seeded(1)
        orders = [torch.randperm(D, generator=generator) for _ in dropped]
        dropped = [group_whiten(h, 4, order) for h, order in zip(dropped, orders, strict=True)]
    assert loss.total.item() == pytest.approx(multi_positive(dropped[0], dropped[1:], 0.2).item(), abs=1e-9)


def test_impossible_settings_are_refused() -> None:
    x = rows(3, 0)
    for message, call in {
        r"momentum must be in \[0, 1\), got 1.0": lambda: WhitenedCSE(momentum=1.0),
        "eps must be zero or positive, got -1e-05": lambda: WhitenedCSE(eps=-1e-5),
        "groups must be at least 1, got 0": lambda: WhitenedCSE(groups=0),
        "positives must be at least 2, got 1": lambda: WhitenedCSE(positives=1),
        "one a positive, got 1 for 2 positives": lambda: WhitenedCSE(weights=(1.0,)),
        "whitening 'none' with views 'shared' makes identical views": lambda: WhitenedCSE(whitening="none"),
        "'pca' has no gradient": lambda: WhitenedCSE(whitening="pca", detach=False),
        "views 'dropout' and whitening by groups, got views 'shared'": lambda: WhitenedCSE(variant="released_code"),
        "and whitening 'zca'": lambda: replace(SCRIPT, whitening="zca"),
        "and whitening 'rotation'": lambda: replace(SCRIPT, whitening="rotation"),
        r"feature_dropout must be in \[0, 1\), got -0.1": lambda: WhitenedCSE(feature_dropout=-0.1),
        r"feature_dropout must be in \[0, 1\), got 1.0": lambda: WhitenedCSE(feature_dropout=1.0),
        r"feature_dropout must be in \[0, 1\), got nan": lambda: WhitenedCSE(feature_dropout=math.nan),
        "got groups=384 for width 1024": lambda: made(WhitenedCSE(), 1024),
        "divisor of the width, got groups=0 for width 12": lambda: group_whiten(x, 0),
        "must not be negative nor all 0, got .1.0, -1.0": lambda: multi_positive(x, [x, x], 0.05, [1.0, -1.0]),
        "at least two pairs, got 1": lambda: multi_positive_inside(x[:1], [x[:1]], 0.05),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


def test_published_settings() -> None:
    recipes = list(whitenedcse.PUBLISHED.values())
    assert {(r.batch_size, r.learning_rate, r.epochs, r.warmup) for r in recipes} == {(64, 3e-5, 1, 0.0)}
    assert [r.method for r in recipes] == [WhitenedCSE(groups=groups) for groups in (384, 256, 256, 256)]
