"""MixCSE against loops written from its formulas, with constants for what no gradient may reach, and its limits."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cse_core.functional.contrastive import info_nce
from cse_core.methods.baselines.mixcse import PUBLISHED, MixCSE, mixed_loss, mixed_negatives
from tests.support.method_oracles import cosine, drawn
from tests.support.method_steps import HEADLESS, Views, blank_batch, check_against_loop, loss_under, refuses

sizes, seeds = st.integers(2, 6), st.integers(0, 10_000)
shares = st.sampled_from([0.0, 0.2, 0.5, 1.0])
KINDS = [(n, e) for n in ("own", "batch", "both") for e in ("drop", "zero")]


def mixed_loop(z: list[list[float]], partner: list[int], share: float, normalise_first: bool) -> list[list[float]]:
    """The mixed vectors one by one."""
    found = []
    for i, mine in enumerate(z):
        other = z[partner[i]]
        lengths = (math.hypot(*mine), math.hypot(*other)) if normalise_first else (1.0, 1.0)
        row = [share * a / lengths[0] + (1 - share) * b / lengths[1] for a, b in zip(mine, other, strict=True)]
        found.append([x / (math.hypot(*row) or 1.0) for x in row])
    return found


def loss_loop(
    z1: Tensor,
    z2: Tensor,
    partner: Tensor,
    temperature: float,
    share: float,
    negatives: str,
    excluded: str,
    normalise_first: bool = True,
    constants: tuple[Tensor, Tensor] | None = None,
) -> float:
    """The loss by sums over a row's columns; mixed vectors are made of the `constants`, or of the views."""
    a, b, r = z1.tolist(), z2.tolist(), partner.tolist()
    first, second = (x.tolist() for x in constants or (z1, z2))
    u, w = (mixed_loop(x, r, share, normalise_first) for x in (second, first))
    n, total = len(a), 0.0
    nothing = [1.0] if excluded == "zero" else []  # e^0
    for i in range(n):
        terms = [math.exp(cosine(a[i], b[j]) / temperature) for j in range(n)]
        if negatives == "own":
            terms.append(math.exp(cosine(a[i], u[i]) / temperature))
        else:
            terms += [math.exp(cosine(a[i], u[k]) / temperature) for k in range(n) if r[k] != i] + nothing
        if negatives == "both":
            terms += [math.exp(cosine(w[i], b[j]) / temperature) for j in range(n) if j != r[i]] + nothing
        total -= math.log(terms[i] / sum(terms)) / n
    return total


def next_of(n: int) -> Tensor:
    return torch.arange(1, n + 1) % n


@given(sizes, seeds, shares, st.booleans())
def test_mixed_negatives_are_the_formula(n: int, seed: int, share: float, normalise_first: bool) -> None:
    z = drawn(n, 4, seed=seed) * torch.arange(1, n + 1).unsqueeze(1)  # of different lengths
    found = mixed_negatives(z, next_of(n), share, normalise_first=normalise_first)
    expected = torch.tensor(mixed_loop(z.tolist(), next_of(n).tolist(), share, normalise_first))
    assert torch.allclose(found, expected.double(), atol=1e-6)
    assert torch.allclose(found.norm(dim=1), torch.ones(n, dtype=torch.float64))


def test_the_share_is_the_positives() -> None:
    z = drawn(4, 8, seed=1)
    units = torch.nn.functional.normalize(z, dim=1)
    assert torch.allclose(mixed_negatives(z, next_of(4), 1.0), units)
    assert torch.allclose(mixed_negatives(z, next_of(4), 0.0), units.roll(-1, 0))
    opposite = torch.stack([z[0], -z[0]])
    assert mixed_negatives(opposite, next_of(2), 0.5).abs().max() < 1e-3  # a zero vector, not NaN


@given(sizes, seeds, shares, st.sampled_from(KINDS), st.booleans(), st.sampled_from([0.05, 1.0]))
def test_the_loss_is_the_formula(
    n: int, seed: int, share: float, kind: tuple[str, str], normalise_first: bool, temperature: float
) -> None:
    z1, z2, partner = drawn(n, 4, seed=seed), 3 * drawn(n, 4, seed=seed + 1), next_of(n)
    how: Any = {"negatives": kind[0], "excluded": kind[1], "normalise_first": normalise_first}
    found = mixed_loss(z1, z2, partner, temperature=temperature, share=share, **how)
    expected = loss_loop(z1, z2, partner, temperature, share, *kind, normalise_first)
    assert found.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stop_gradient", [True, False])
@pytest.mark.parametrize("normalise_first", [True, False])
def test_mixed_vectors_have_a_gradient_only_if_it_is_not_stopped(
    kind: tuple[str, str], stop_gradient: bool, normalise_first: bool
) -> None:
    z1, z2 = drawn(4, 3, seed=1, gradient=True), drawn(4, 3, seed=2, gradient=True)
    how: Any = {"negatives": kind[0], "excluded": kind[1], "normalise_first": normalise_first}
    loss = mixed_loss(z1, z2, next_of(4), temperature=0.3, share=0.2, stop_gradient=stop_gradient, **how)
    constants = (z1.detach().clone(), z2.detach().clone()) if stop_gradient else None

    def loop(a: Tensor, b: Tensor) -> float:
        return loss_loop(a, b, next_of(4), 0.3, 0.2, *kind, normalise_first, constants)

    check_against_loop(loss, loop, z1, z2, least=1e-3, atol=1e-8)


@given(sizes, seeds, st.sampled_from(["own", "batch", "both"]))
def test_with_the_positive_itself_the_loss_is_at_least_log_two(n: int, seed: int, negatives: str) -> None:
    z1, z2 = drawn(n, 8, seed=seed), drawn(n, 8, seed=seed + 1)
    mixed = [
        mixed_loss(z1, z2, next_of(n), temperature=0.05, share=share, negatives=negatives).item()
        for share in (1.0, 0.0)
    ]
    assert mixed[0] >= math.log(2) - 1e-12
    assert min(mixed) >= info_nce(z1, z2, 0.05).item()


def test_one_sentence_has_none_to_mix_with() -> None:
    z = drawn(1, 4, seed=1)
    with pytest.raises(ValueError, match="mixed_loss needs at least two sentences, got 1"):
        mixed_loss(z, z, torch.tensor([0]), temperature=0.05, share=0.2)


def test_the_partner_is_the_next_sentence_and_every_setting_is_handed_on() -> None:
    z1, z2 = drawn(5, 4, seed=1), 2 * drawn(5, 4, seed=2)
    for negatives, excluded in KINDS:
        kind: Any = {"negatives": negatives, "excluded": excluded}
        method = MixCSE(temperature=0.5, share=0.3, normalise_first=False, **kind)
        loss = loss_under(method, Views(z1, z2), blank_batch(5), HEADLESS)
        expected = loss_loop(z1, z2, next_of(5), 0.5, 0.3, negatives, excluded, normalise_first=False)
        assert loss.total.item() == pytest.approx(expected, rel=1e-9)
        assert loss.terms["contrastive"].item() == loss.total.item()


def test_the_published_settings() -> None:
    assert list(PUBLISHED) == ["bert-base-uncased"]
    recipe = PUBLISHED["bert-base-uncased"]
    assert (recipe.batch_size, recipe.learning_rate, recipe.epochs) == (64, 3e-5, 1)
    assert recipe.method == MixCSE(temperature=0.05, share=0.2, negatives="own")


test_impossible_settings_are_refused = refuses(MixCSE, ({"share": 1.1}, r"share must be between 0 and 1, got 1\.1"))
