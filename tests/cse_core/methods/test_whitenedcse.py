"""WhitenedCSE's whitening and losses against loops from the equations, closed forms, hard cases and gradients."""

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

from cse_core.data.batches import pad
from cse_core.functional.contrastive import cosine_matrix, info_nce
from cse_core.functional.whitening import group_whiten, inverse_root, whiten
from cse_core.method import Batch, Loss, Tokens
from cse_core.methods import whitenedcse
from cse_core.methods.simcse import SimCSE
from cse_core.methods.whitenedcse import WhitenedCSE, multi_positive, multi_positive_inside
from tests.support.encoders import wiki_tiny

D = 12
SCRIPT = WhitenedCSE(groups=6, views="dropout", variant="released_code")
seeds = st.integers(0, 10_000)
CHANGES = [{}, {"views": "dropout"}, {"normalise": True}, {"whitening": "group"}, {"whitening": "channel"}]
KINDS = [("pca", True), ("zca", True), *((kind, False) for kind in ("zca", "channel", "group", "shuffled_group"))]
group_counts = st.sampled_from([1, 2, 3, 4, 6, 12])


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


def rows(n: int, seed: int, d: int = D) -> torch.Tensor:
    """Correlated channels of unlike scale and mean."""
    draw = np.random.default_rng(seed)
    mixed = draw.normal(size=(n, d)) @ (np.eye(d) + 0.3 * draw.normal(size=(d, d))) * draw.uniform(0.5, 3, d)
    return torch.from_numpy(mixed + draw.normal(size=d))


def shuffled(seed: int, d: int = D) -> torch.Tensor:
    return torch.randperm(d, generator=torch.Generator().manual_seed(seed))


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
    assert torch.allclose(whiten(x, "zca"), by_loops(x, 1), atol=1e-6)
    assert torch.allclose(whiten(x, "channel", 0.02), nn.functional.batch_norm(x, None, None, training=True, eps=0.02))
    centred = x.numpy() - x.numpy().mean(0)
    _, deviations, axes = np.linalg.svd(centred / math.sqrt(30))  # from high to low
    expected = (centred @ axes.T / np.sqrt(deviations**2 + 1e-5))[:, ::-1]
    assert np.allclose(np.abs(whiten(x, "pca").numpy()), np.abs(expected), atol=1e-6)  # signs are arbitrary
    assert max(whiten(torch.full((5, D), 0.1), kind).abs().max() for kind in ("pca", "zca", "channel")) < 1e-4


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("width", [32, 64])
def test_fewer_rows_than_channels_stay_finite(width: int, scale: float) -> None:
    """Rounding makes eigenvalues negative that are 0; the whitened rows have rank 7 and variance 1."""
    draw = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    white = group_whiten(scale * draw, 64 // width)
    assert torch.stack([white, whiten(scale * draw, "pca")]).isfinite().all()
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


def test_the_whole_gradient_is_that_of_differences() -> None:
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


class Views(list[int]):  # an encode of known features, and how many views each pass was asked for
    def __call__(self, *tokens: Tokens) -> tuple[torch.Tensor, ...]:
        self.append(len(tokens))
        return tuple(features(len(t.ids), view) for view, t in enumerate(tokens))

    states: Any = __call__
    still: Any = __call__


def orders(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randperm(D, generator=generator).tolist() for _ in range(count)]


def made(method: WhitenedCSE, width: int = D) -> Any:
    return method.modules(SimpleNamespace(width=width), torch.Generator().manual_seed(0)).double()


def outcome(method: WhitenedCSE, n: int = 5, modules: dict | None = None) -> tuple[Loss, list[int]]:
    """Loss of n sentences under an identity for a head, and the passes of the encoder."""
    text, encode = Tokens(torch.ones(n, 3).long(), torch.ones(n, 3).bool()), Views()
    batch = Batch(torch.arange(n), {"text": text}, torch.Generator().manual_seed(1))
    return method.loss(encode, batch, nn.ModuleDict({"head": nn.Identity(), **(modules or {})}), {}), encode


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("objective", ["outside", "inside", "inside_printed"])
def test_each_view_is_whitened_under_its_own_permutation(changes: dict, objective: str) -> None:
    weights, groups = (1.0, 0.5, 2.0), D if "channel" in changes.values() else 4
    settings: Any = {"objective": objective, "positives": 4, "weights": weights} | changes
    loss, passes = outcome(WhitenedCSE(temperature=0.2, groups=4, eps=0.01, **settings))
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
    assert torch.allclose(torch.stack(loss.views or ()), torch.stack([anchor, others[0]]), atol=1e-6)


@pytest.mark.parametrize(("m", "n"), [(3, 5), (2, 6)])
def test_released_code_whitens_blocks_of_the_sentence_major_batch(m: int, n: int) -> None:
    """Row m i + k is view k of sentence i; block b has the rows b n to b n + n - 1, whatever sentence they are of."""
    flat = torch.stack([features(n, row % m)[row // m] for row in range(m * n)])
    white = torch.cat([by_loops(flat[b * n : b * n + n], 6, p, 0.0) for b, p in enumerate(orders(m))])
    expected = multi_positive(white[::m], [white[k::m] for k in range(1, m)], 0.05)
    loss, _ = outcome(replace(SCRIPT, positives=m, eps=0.5), n=n)
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
        loss, _ = outcome(method, n=n, modules={"whitening": module})
        assert loss.total.item() == pytest.approx(info_nce(white[0], white[1], 0.05).item(), abs=1e-6)
    assert torch.allclose(module.eval()(x), white[1])
    assert np.allclose(np.vstack(list(module.state_dict().values())), np.vstack([mean, covariance]), atol=1e-9)


@pytest.mark.parametrize(("kind", "detach"), KINDS)
def test_the_method_has_the_gradient_of_its_whitening(kind: str, detach: bool) -> None:
    method = WhitenedCSE(whitening=kind, groups=4, momentum=0.0, detach=detach)  # without momentum the batch's own
    x, out, p = rows(20, 0).requires_grad_(), rows(20, 1), shuffled(1) if kind == "shuffled_group" else None
    (white,) = method._whiten_views([x], made(method), torch.Generator().manual_seed(1))
    own = group_whiten(x, 4, p, detach=detach) if "group" in kind else whiten(x, kind, detach=detach)
    grads = [torch.autograd.grad((each * out).sum(), x)[0] for each in (white, own)]
    assert torch.allclose(torch.stack([white, grads[0]]), torch.stack([own, grads[1]]))


def test_without_whitening_two_dropout_views_are_simcse_bit_for_bit() -> None:
    encoder = wiki_tiny(dropout=0.3).train()
    tokens = pad(encoder.tokenise(["a cat sat on a mat", "the river rose", "snow fell", "no"]), encoder.pad_id)
    found = []
    for method in (SimCSE(), WhitenedCSE(whitening="none", views="dropout", positives=2)):
        modules = method.modules(encoder, torch.Generator().manual_seed(2))
        batch = Batch(torch.arange(4), {"text": tokens}, torch.Generator().manual_seed(1))
        torch.manual_seed(3)
        loss = method.loss(encoder, batch, modules, {})
        assert torch.equal(batch.generator.get_state(), torch.Generator().manual_seed(1).get_state())
        found.append(
            [loss.total, *torch.autograd.grad(loss.total, list(nn.ModuleList([encoder, modules]).parameters()))]
        )
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_impossible_settings_are_refused() -> None:
    x = rows(3, 0)
    for message, call in {
        "temperature must be positive, got 0.0": lambda: WhitenedCSE(temperature=0.0),
        r"momentum must be in \[0, 1\), got 1.0": lambda: WhitenedCSE(momentum=1.0),
        "eps must be zero or positive, got -1e-05": lambda: WhitenedCSE(eps=-1e-5),
        "groups must be at least 1, got 0": lambda: WhitenedCSE(groups=0),
        "positives must be at least 2, got 1": lambda: WhitenedCSE(positives=1),
        "whitening must be one of shuffled_group, group, pca,.* got 'batch'": lambda: WhitenedCSE(whitening="batch"),
        "one a positive, got 1 for 2 positives": lambda: WhitenedCSE(weights=(1.0,)),
        "whitening 'none' with views 'shared' makes identical views": lambda: WhitenedCSE(whitening="none"),
        "'pca' has no gradient": lambda: WhitenedCSE(whitening="pca", detach=False),
        "views 'dropout' and whitening by groups, got views 'shared'": lambda: WhitenedCSE(variant="released_code"),
        "and whitening 'zca'": lambda: replace(SCRIPT, whitening="zca"),
        "got groups=384 for width 1024": lambda: made(WhitenedCSE(), 1024),
        "divisor of the width, got groups=0 for width 12": lambda: group_whiten(x, 0),
        "kind must be one of pca, zca, channel, got 'group'": lambda: whiten(x, "group"),
        "must not be negative nor all 0, got .1.0, -1.0": lambda: multi_positive(x, [x, x], 0.05, [1.0, -1.0]),
        "at least two pairs, got 1": lambda: multi_positive_inside(x[:1], [x[:1]], 0.05),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


def test_published_settings() -> None:
    recipes = list(whitenedcse.PUBLISHED.values())
    assert {(r.batch_size, r.learning_rate, r.epochs, r.warmup) for r in recipes} == {(64, 3e-5, 1, 0.0)}
    assert [r.method for r in recipes] == [WhitenedCSE(groups=groups) for groups in (384, 256, 256, 256)]
