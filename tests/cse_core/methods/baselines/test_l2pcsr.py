"""L2P-CSR's attack against a loop with slopes by differences, on a toy encoder; the method on a real one."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from cse_core.functional.contrastive import info_nce
from cse_core.method import Factors, Loss, Tokens, starting_encoder
from cse_core.methods.baselines.l2pcsr import L2PCSR, PUBLISHED, ascend, attack, binarize
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from experiments.schema.scales import RESCALED
from tests.support.encoders import wiki_tiny
from tests.support.method_oracles import cosine, drawn
from tests.support.method_steps import batch_of, refuses, seeded, step_of

PLAIN = L2PCSR(layers=2)


def uniform(*shape: int, seed: int) -> Tensor:
    return torch.rand(*shape, generator=seeded(seed), dtype=torch.float64)


def toy_loop(
    embedded: np.ndarray, weights: np.ndarray, mask: np.ndarray, tokens: np.ndarray, features: np.ndarray, tau: float
) -> float:
    """InfoNCE of three layers x <- tanh(x W + mean of the real x), each state before it times (M + N)/2."""
    vectors = []
    for row, (x, real) in enumerate(zip(embedded, mask, strict=True)):
        for level, weight in enumerate(weights):
            x = np.array([x[j] * (tokens[level, row, j] + features[level]) / 2 for j in range(len(x))])
            mean = sum(x[j] for j in range(len(x)) if real[j]) / real.sum()
            x = np.array([np.tanh(state @ weight + mean) for state in x])
        vectors.append(x[0].tolist())
    first, second = vectors[: len(vectors) // 2], vectors[len(vectors) // 2 :]
    total = 0.0
    for i, a in enumerate(first):
        chances = [math.exp(cosine(a, b) / tau) for b in second]
        total -= math.log(chances[i] / sum(chances)) / len(first)
    return total


def toy(embedded: Tensor, weights: Tensor, mask: Tensor, tokens: Tensor, features: Tensor, tau: float) -> Tensor:
    """The same by tensors."""
    x = embedded
    for level, weight in enumerate(weights):
        x = x * (tokens[level].unsqueeze(-1) + features[level]) / 2
        mean = (x * mask.unsqueeze(-1)).sum(1, keepdim=True) / mask.sum(1)[:, None, None]
        x = torch.tanh(x @ weight + mean)
    first, second = x[:, 0].chunk(2)
    return info_nce(first, second, tau)


def ascend_loop(scores: np.ndarray, gradient: np.ndarray, step: float, norm: str) -> np.ndarray:
    found = np.ones_like(scores)
    for place in np.ndindex(*scores.shape):
        row = gradient[place[:-1]] if norm == "row" else gradient[place]
        length = math.sqrt(float(np.sum(np.square(row))))
        if length > 0:
            found[place] = min(1.0, max(0.0, scores[place] + step * gradient[place] / length))
    return found


def attack_loop(inputs: tuple, scores: list[np.ndarray], threshold: float, steps: int, step: float, norm: str) -> Any:
    """The scores after the attack, slopes by central differences at the 0/1 masks; and the least of their sizes."""
    least = math.inf
    for _ in range(steps):
        masks = [(score > threshold).astype(float) for score in scores]
        slopes = [np.zeros_like(score) for score in scores]
        for k, mask in enumerate(masks):
            for place in np.ndindex(*mask.shape):
                sides = []
                for sign in (1, -1):
                    moved = [one.copy() for one in masks]
                    moved[k][place] += sign * 1e-6
                    sides.append(toy_loop(*inputs[:3], *moved, inputs[3]))
                slopes[k][place] = (sides[0] - sides[1]) / 2e-6
            least = min(least, float(np.abs(slopes[k][slopes[k] != 0]).min()))
        scores = [ascend_loop(s, g, step, n) for s, g, n in zip(scores, slopes, (norm, "row"), strict=True)]
    return *scores, least


@given(st.integers(0, 10_000), st.sampled_from(["entry", "row"]), st.sampled_from([0.1, 0.7]))
def test_a_step_is_the_formula(seed: int, norm: str, step: float) -> None:
    scores, gradient = uniform(2, 3, 4, seed=seed), drawn(2, 3, 4, seed=seed + 1)
    gradient[0, 1], gradient[1, 0, 2], gradient[1, 2] = 0, 0, gradient[1, 2] * 1e-30
    found = ascend(scores, gradient, step, norm)
    np.testing.assert_allclose(found, ascend_loop(scores.numpy(), gradient.numpy(), step, norm), atol=1e-12)
    assert torch.equal(found[0, 1], torch.ones(4, dtype=torch.float64))


def test_an_overflown_gradient_keeps_what_it_would_spoil() -> None:
    scores = torch.full((3,), 0.5)
    assert ascend(scores, torch.tensor([torch.inf, -1.0, torch.nan]), 0.1, "entry").tolist() == pytest.approx(
        [1, 0.4, 1]
    )


@pytest.mark.parametrize("norm", ["entry", "row"])
@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.slow
def test_the_attack_is_the_loop_on_a_toy_encoder(norm: str, steps: int) -> None:
    n, t, d = 3, 4, 5
    embedded, weights = drawn(2 * n, t, d, seed=1), drawn(3, d, d, seed=2)
    mask = torch.arange(t) < torch.tensor([4, 2, 3, 4, 2, 3]).unsqueeze(1)
    scores = [0.5 * uniform(3, 2 * n, t, seed=3), 0.5 * uniform(3, d, seed=4)]  # many that change side
    settings: dict[str, Any] = {"threshold": 0.15, "steps": steps, "step_size": 0.1, "token_norm": norm}
    found = attack(lambda m, f: toy(embedded, weights, mask, m, f, 0.5), *scores, **settings)
    inputs = (embedded.numpy(), weights.numpy(), mask.numpy(), 0.5)
    *expected, least = attack_loop(inputs, [score.numpy() for score in scores], 0.15, steps, 0.1, norm)
    assert least > 1e-6  # no sign is that of a rounding error
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    masks = [binarize(score, 0.15) for score in found]
    loss = toy(embedded, weights, mask, *masks, 0.5).item()
    assert loss == pytest.approx(toy_loop(*inputs[:3], *(m.numpy() for m in masks), 0.5), rel=1e-9)
    if steps:
        start = [binarize(score, 0.15) for score in scores]
        assert not all(torch.equal(a, b) for a, b in zip(masks, start, strict=True))
        assert loss > toy(embedded, weights, mask, *start, 0.5).item()
        padding = ~mask.expand(3, -1, -1)
        if norm == "entry":
            assert (found[0][padding] == 1).all()  # without gradient: kept


def test_masks_are_zero_or_one_and_their_factors_zero_half_or_one() -> None:
    tokens, features = binarize(uniform(2, 3, 50, seed=1), 0.5), binarize(uniform(3, 20, seed=2), 0.5)
    assert set(tokens.unique().tolist()) == set(features.unique().tolist()) == {0.0, 1.0}
    assert binarize(torch.tensor([0.05, 0.050001]), 0.05).tolist() == [0, 1]
    assert ((tokens.unsqueeze(-1) + features[:, None]) / 2).unique().tolist() == [0.0, 0.5, 1.0]


def text_of(encoder: Encoder) -> Tokens:
    return batch_of(SimCSE(), encoder, length=9)["text"]


def read_by(method: Any, encoder: Encoder) -> tuple[Loss, list[tuple[Tokens, ...]]]:
    """The loss, and what the encoder read in each pass."""
    read: list[tuple[Tokens, ...]] = []
    hook = encoder.register_forward_pre_hook(lambda _, tokens: read.append(tokens))
    loss = step_of(method, encoder).loss
    hook.remove()
    return loss, read


def factors_of(tokens: Tokens) -> Factors:
    assert tokens.factors is not None
    return tokens.factors


def test_both_views_have_masks_of_their_own_and_share_the_features(encoder: Encoder) -> None:
    loss, read = read_by(replace(PLAIN, threshold=0.2), encoder)
    assert [len(tokens) for tokens in read] == [2] * 5
    first, second = read[-1]
    assert factors_of(first).features is factors_of(second).features
    assert not torch.equal(factors_of(first).tokens, factors_of(second).tokens)
    n, k, t = factors_of(first).tokens.shape
    assert (n, k, t) == (6, 2, first.ids.shape[1])
    dropped = torch.cat([factors_of(view).tokens == 0 for view in (first, second)])
    real = torch.cat([first.mask, second.mask]).unsqueeze(1).expand_as(dropped)
    share = (dropped & real).sum().item() / real.sum().item()
    assert loss.terms["share_tokens_dropped"].item() == pytest.approx(share)
    assert 0 < share < 1
    features = (factors_of(first).features == 0).double().mean().item()
    assert loss.terms["share_features_dropped"].item() == pytest.approx(features)
    assert features == pytest.approx(0.2, abs=0.1)


def test_only_the_second_view_is_perturbed_where_that_is_asked_for(encoder: Encoder) -> None:
    _, passes = read_by(replace(PLAIN, views="second", steps=1), encoder)
    assert [[tokens.factors is None for tokens in read] for read in passes] == [[True], [False]] * 2


def test_special_tokens_can_be_spared(encoder: Encoder) -> None:
    for spare in (False, True):
        views = read_by(replace(PLAIN, threshold=0.6, spare_specials=spare), encoder)[1][-1]
        special = torch.isin(views[0].ids, torch.tensor(encoder.tokenizer.all_special_ids)) & views[0].mask
        assert special.sum() == 12
        kept = [factors_of(view).tokens.transpose(1, 2)[special].bool() for view in views]
        assert all(part.all() for part in kept) == spare
        others = [factors_of(view).tokens.transpose(1, 2)[views[0].mask & ~special].bool() for view in views]
        assert not all(part.all() for part in others)


def test_the_attack_raises_the_loss_and_touches_no_parameters_gradient(encoder: Encoder) -> None:
    """Without dropout, so that every pass is of the same network."""
    still = wiki_tiny(dropout=0.0).train()
    head = PLAIN.modules(still, seeded(2))["head"]
    text = text_of(still)

    def objective(tokens: Tensor, features: Tensor) -> Tensor:
        views = [replace(text, factors=Factors(part, features)) for part in tokens.chunk(2)]
        first, second = (head(h) for h in still(*views))
        return info_nce(first, second, 0.05)

    generator = seeded(1)
    scores = (
        torch.rand(12, 2, text.ids.shape[1], generator=generator),
        torch.rand(2, 128, generator=generator),
    )
    settings: dict[str, Any] = {"threshold": 0.3, "step_size": 0.1}
    found = attack(objective, *scores, steps=4, **settings)
    losses = [objective(*(binarize(one, 0.3) for one in pair)).item() for pair in (scores, found)]
    assert losses[1] > losses[0] + 0.05
    assert [name for name, p in nn.ModuleList([still, head]).named_parameters() if p.grad is not None] == []
    moved = scores[0].clone()
    moved[:6].transpose(1, 2)[~text.mask] = 0.001  # what stands behind a sentence does not matter
    again = attack(objective, moved, scores[1], steps=4, **settings)
    real = text.mask.repeat(2, 1)
    assert torch.equal(again[0].transpose(1, 2)[real], found[0].transpose(1, 2)[real])
    assert torch.equal(again[1], found[1])
    assert objective(*(binarize(one, 0.3) for one in again)).item() == losses[1]


def test_packed_and_padded_passes_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the final masks of the packed pass: near 0 a gradient's sign would be its rounding error's."""
    still = wiki_tiny(dropout=0.0)
    random = replace(PLAIN, steps=0, threshold=0.3)
    packed = step_of(random, still)
    monkeypatch.setattr(Encoder, "runs_packed", False)
    padded = step_of(random, still)
    assert packed.loss.total.item() == pytest.approx(padded.loss.total.item(), rel=1e-5)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(packed.bits, padded.bits, strict=True))
    assert abs(step_of(SimCSE(), still).loss.total - padded.loss.total) > 1e-2


BASE = Run(
    method=SimCSE(), backbone=Pretrained("wiki-tiny"), corpus=Corpus("synthetic", 32), batch_size=8, learning_rate=3e-4
)


def test_the_start_is_a_run_that_comes_first() -> None:
    method: Any = PUBLISHED["bert-base-uncased"].with_method(initial=BASE, select="last").method
    assert starting_encoder(method) == (BASE, "last")
    assert replace(BASE, method=method).nested_checkpoints == ((BASE, "last"),)
    assert starting_encoder(PLAIN) is None
    assert "SimCSE run" in method.substituted
    assert PLAIN.substituted == ""


def test_the_published_settings() -> None:
    assert list(PUBLISHED) == ["bert-base-uncased"]
    recipe = PUBLISHED["bert-base-uncased"]
    assert (recipe.batch_size, recipe.learning_rate, recipe.epochs, recipe.eval_steps) == (256, 1e-6, 1, 50)
    assert recipe.method == L2PCSR(threshold=0.05, steps=4, step_size=0.1, layers=3)
    assert RESCALED["l2pcsr"] == {"bert-base-uncased": {"layers": 2, "learning_rate": 1e-5}}


test_impossible_settings_are_refused = refuses(
    L2PCSR,
    ({"threshold": 1.0}, r"threshold must be below 1, got 1\.0"),
    ({"steps": -1}, "steps must be zero or positive, got -1"),
    ({"step_size": 0.0}, r"step_size must be positive, got 0\.0"),
    ({"layers": 0}, "layers must be at least 1, got 0"),
)
