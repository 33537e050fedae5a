"""DCLR against loops written from its formulas: weights, ascent, both losses, their gradients, and the whole method."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cse_core.methods.baselines.dclr import (
    DCLR,
    PUBLISHED,
    debiased_loss,
    instance_weights,
    noise_negatives,
)
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.train import train
from tests.support.method_oracles import cosine, drawn, slopes, softmax
from tests.support.method_steps import TEXTS, NoSource, check_against_loop, refuses, step_of

TAU = 0.05
sizes, seeds = st.integers(2, 6), st.integers(0, 10_000)
forms = st.sampled_from([(e, o) for e in ("zero", "logit") for o in ("cross_entropy", "binary")])


def loss_loop(
    z1: Tensor, z2: Tensor, weights: Tensor, noise: Tensor, temperature: float, exclusion: str, objective: str
) -> float:
    """The loss by sums over sentences and noise vectors."""
    a, b, v = z1.tolist(), z2.tolist(), noise.tolist()
    n, total = len(a), 0.0
    for i in range(n):
        scores, counted = [], []
        for j in range(n):
            kept = weights[i, j].item()
            scores.append(cosine(a[i], b[j]) / temperature * (kept if exclusion == "logit" else 1))
            counted.append(bool(kept) or exclusion == "logit")
        scores += [cosine(a[i], noise_vector) / temperature for noise_vector in v]
        counted += [True] * len(v)
        everything = sum(math.exp(s) for s, c in zip(scores, counted, strict=True) if c)
        if objective == "cross_entropy":
            total -= math.log(math.exp(scores[i]) / everything) / n
            continue
        for k, (score, count) in enumerate(zip(scores, counted, strict=True)):
            rest = sum(math.exp(s) for j, s in enumerate(scores) if counted[j] and j != k)
            chance = math.exp(score) / everything if k == i else rest / everything
            total -= math.log(chance) / (n * len(scores)) if k == i or count else 0.0
    return total


def uniformity_loop(z1: Tensor, z2: Tensor, noise: Tensor, temperature: float, objective: str) -> float:
    """What the ascent climbs, by sums."""
    a, b, v = z1.tolist(), z2.tolist(), noise.tolist()
    total = 0.0
    for i in range(len(a)):
        batch = [cosine(a[i], x) / temperature for x in b]
        others = [cosine(a[i], x) / temperature for x in v]
        chosen = batch + others if objective == "batch" else others
        total += (math.log(sum(math.exp(s) for s in chosen)) - batch[i]) / len(a)
    return total


def ascent_loop(
    z1: Tensor, z2: Tensor, noise: Tensor, temperature: float, steps: int, step_size: float, objective: str
) -> Tensor:
    """The ascent with slopes by central differences."""
    for _ in range(steps):
        (slope,) = slopes(lambda v: uniformity_loop(z1, z2, v, temperature, objective), noise)
        noise = noise + step_size * slope / slope.norm(dim=1, keepdim=True)
    return noise


@given(sizes, seeds, st.sampled_from([-0.3, 0.0, 0.4, 0.9]))
def test_weights_exclude_pairs_at_the_threshold_and_never_the_positive(n: int, seed: int, threshold: float) -> None:
    first, second = drawn(n, 3, seed=seed), drawn(n, 3, seed=seed + 1)
    found = instance_weights(first, second, threshold)
    for i, a in enumerate(first.tolist()):
        for j, b in enumerate(second.tolist()):
            assert found[i, j].item() == float(i == j or cosine(a, b) < threshold)


def test_a_pair_on_the_threshold_is_excluded_and_the_ends_exclude_all_or_none() -> None:
    vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [3.0, 0.0]])
    assert instance_weights(vectors, vectors, 0.0).tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 1], [0, 0, 1, 1]]
    for dtype in (torch.float32, torch.float64):
        z = torch.cat([drawn(7, 30, seed=1), -drawn(7, 30, seed=1)]).to(dtype)  # opposite pairs among them
        assert torch.equal(instance_weights(z, z, -1.0), torch.eye(14, dtype=dtype))
        assert instance_weights(z, z, 2.0).all()


@given(sizes, st.integers(0, 5), seeds, forms, st.sampled_from([0.05, 1.0]))
def test_the_loss_is_the_formula(n: int, m: int, seed: int, form: tuple[str, str], temperature: float) -> None:
    z1, z2, noise = drawn(n, 4, seed=seed), drawn(n, 4, seed=seed + 1), drawn(m, 4, seed=seed + 2)
    weights = instance_weights(drawn(n, 3, seed=seed), drawn(n, 3, seed=seed), 0.2)
    if form[1] == "binary" and n + m < 3:
        weights = torch.ones(n, n, dtype=torch.float64)  # with everything excluded the positive has p = 1
    found = debiased_loss(z1, z2, weights, noise, temperature, exclusion=form[0], objective=form[1])
    assert found.item() == pytest.approx(loss_loop(z1, z2, weights, noise, temperature, *form), rel=1e-9)


@pytest.mark.parametrize("exclusion", ["zero", "logit"])
@pytest.mark.parametrize("objective", ["cross_entropy", "binary"])
def test_the_losss_gradient_is_its_slope_and_the_noise_has_none(exclusion: str, objective: str) -> None:
    z1, z2, noise = (drawn(n, 3, seed=n, gradient=True) for n in (4, 4, 3))
    z2 = drawn(4, 3, seed=9, gradient=True)
    weights = instance_weights(drawn(4, 3, seed=2), drawn(4, 3, seed=2), 0.3)
    assert 0 < (weights == 0).sum() < 12
    loss = debiased_loss(z1, z2, weights, noise, 0.3, exclusion=exclusion, objective=objective)

    def loop(a: Tensor, b: Tensor) -> float:
        return loss_loop(a, b, weights, noise, 0.3, exclusion, objective)

    assert torch.autograd.grad(loss, noise, retain_graph=True, allow_unused=True) == (None,)
    check_against_loop(loss, loop, z1, z2, least=1e-3, atol=1e-8)


@given(st.integers(1, 4), st.integers(1, 4), seeds, st.sampled_from(["batch", "noise_only"]))
def test_the_ascent_is_the_formula(n: int, m: int, seed: int, objective: str) -> None:
    z1, z2, noise = drawn(n, 4, seed=seed), drawn(n, 4, seed=seed + 1), drawn(m, 4, seed=seed + 2)
    found = noise_negatives(z1, z2, noise, temperature=0.3, steps=3, step_size=0.1, objective=objective)
    expected = ascent_loop(z1, z2, noise, 0.3, 3, 0.1, objective)
    assert torch.allclose(found, expected, atol=1e-5)
    assert not found.requires_grad


def test_a_step_has_its_length_and_goes_uphill() -> None:
    z1, z2, noise = (drawn(5, 16, seed=seed, gradient=True) for seed in (1, 2, 3))
    settings: dict[str, Any] = {"temperature": TAU, "step_size": 0.5}
    moved = noise_negatives(z1, z2, noise, steps=1, **settings)
    assert torch.allclose((moved - noise).norm(dim=1), torch.full((5,), 0.5, dtype=torch.float64))
    assert uniformity_loop(z1, z2, moved, TAU, "batch") > uniformity_loop(z1, z2, noise, TAU, "batch") + 0.01
    assert torch.equal(noise_negatives(z1, z2, noise, steps=0, **settings), noise)
    assert (z1.grad, z2.grad, noise.grad) == (None, None, None)
    with torch.no_grad():  # its own gradient is all that it needs
        assert torch.equal(noise_negatives(z1, z2, noise, steps=1, **settings), moved)


def test_a_vector_without_gradient_stays() -> None:
    """In one dimension a cosine is 1 or -1, whatever the vector's length; a zero vector has no cosine to climb."""
    z, noise = torch.ones(3, 1), torch.tensor([[2.0], [-0.5]])
    assert torch.equal(noise_negatives(z, z, noise, temperature=TAU, steps=4, step_size=1.0), noise)
    empty = torch.empty(0, 4)
    z = torch.randn(3, 4)
    assert noise_negatives(z, z, empty, temperature=TAU, steps=4, step_size=1.0).shape == (0, 4)


def test_limits_of_the_loss() -> None:
    z1, z2, none = drawn(5, 8, seed=1), drawn(5, 8, seed=2), torch.empty(0, 8, dtype=torch.float64)
    alone = torch.eye(5, dtype=torch.float64)
    assert debiased_loss(z1, z2, alone, none, TAU).item() == 0  # no negative is left
    assert debiased_loss(z1, z2, alone, none, TAU, exclusion="logit") > 0
    far = -z1.mean(0, keepdim=True)  # the only candidate besides the positive
    expected = sum(
        math.log1p(math.exp((cosine(a, far[0].tolist()) - cosine(a, b)) / TAU))
        for a, b in zip(z1.tolist(), z2.tolist(), strict=True)
    )
    assert debiased_loss(z1, z2, alone, far, TAU).item() == pytest.approx(expected / 5)
    one = debiased_loss(z1[:1], z2[:1], torch.ones(1, 1), z2[1:], TAU)
    assert one.item() == pytest.approx(-math.log(softmax([cosine(z1[0].tolist(), b) / TAU for b in z2.tolist()])[0]))
    with pytest.raises(ValueError, match="needs a second sentence or a noise vector, got neither"):
        debiased_loss(z1[:1], z2[:1], torch.ones(1, 1), none, TAU)


@pytest.mark.parametrize("exclusion", ["zero", "logit"])
def test_the_binary_loss_is_finite_where_a_probability_rounds_to_one(exclusion: str) -> None:
    """In fp32 at cosine 1 against -1 the softmax is exactly 1; (1 - y) log(1 - p) would be 0 times -inf."""
    z1 = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    loss = debiased_loss(z1, z1.detach(), torch.ones(2, 2), torch.empty(0, 2), TAU, objective="binary")
    loss.backward()
    assert loss.item() == pytest.approx(2 * math.exp(-40) * 2 / 4, rel=1e-4)
    assert z1.grad is not None
    assert z1.grad.isfinite().all()
    wrong = debiased_loss(z1, -z1.detach(), torch.ones(2, 2), torch.empty(0, 2), TAU, objective="binary")
    assert wrong.item() == pytest.approx((40 + 40) * 2 / 4)
    alone = torch.eye(2)
    nothing = debiased_loss(z1, z1.detach(), alone, torch.empty(0, 2), TAU, objective="binary", exclusion=exclusion)
    nothing.backward()
    assert nothing.isfinite()
    assert z1.grad.isfinite().all()


COMPLEMENT = drawn(len(TEXTS), 8, seed=5).float()


def test_the_method_puts_its_parts_together() -> None:
    method = DCLR(complement=Pretrained("a"), threshold=0.1, noise_times=1.5, steps=2, step_size=0.7, temperature=0.06)
    loss = step_of(method, targets={"complement": COMPLEMENT}).loss
    z1, z2 = (view.detach().double() for view in loss.views or ())
    weights = instance_weights(COMPLEMENT, COMPLEMENT, 0.1).double()
    noise = torch.randn(9, 128, generator=torch.Generator().manual_seed(1)).double()
    noise = noise_negatives(z1, z2, noise, temperature=0.06, steps=2, step_size=0.7)
    assert loss.total.item() == pytest.approx(
        loss_loop(z1, z2, weights, noise, 0.06, "zero", "cross_entropy"), rel=1e-5
    )
    assert loss.terms["share_excluded"].item() == pytest.approx((weights == 0).sum().item() / 30)
    assert 0 < loss.terms["share_excluded"].item() < 1


def test_noise_raises_the_loss_and_has_a_vector_at_least() -> None:
    method = DCLR(threshold=2.0, noise_times=2.0)
    assert step_of(replace(method, noise_times=0.0)).loss.total < step_of(method).loss.total
    with pytest.raises(ValueError, match=r"noise_times 0\.1 makes no noise vector of a batch of 6"):
        step_of(replace(method, noise_times=0.1))


class Cone:
    """A source of vectors whose cosines are all near 0.9, each with any other."""

    def vectors(self, *_: Any, **__: Any) -> Tensor:
        return 0.33 * drawn(1500, 400, seed=0) / 20 + torch.eye(400)[0]

    sample = vectors


def test_a_threshold_below_most_cosines_warns_and_names_one_that_leaves_out_a_tenth() -> None:
    method = DCLR(complement=Pretrained("a"), threshold=0.5)
    (warning,) = method.targets(Cone()).warnings
    assert "dclr leaves out 100% of all negatives" in warning
    suggested = float(warning.split("; one of ")[1].split()[0])
    vectors = Cone().vectors()
    shares = [(instance_weights(vectors, vectors, t) == 0).double().mean().item() for t in (suggested, 0.5)]
    assert shares == [pytest.approx(0.1, abs=0.03), pytest.approx(1, abs=1e-3)]
    assert replace(method, threshold=suggested).targets(Cone()).warnings == ()
    assert replace(method, threshold=2.0).targets(Cone()).warnings == ()


BASE = Run(method=SimCSE(), backbone=Pretrained("wiki-tiny"), corpus=Corpus("synthetic", 32), batch_size=8)


@pytest.mark.slow
def test_a_run_that_leaves_out_most_negatives_says_so(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    run = replace(BASE, method=DCLR(complement=Pretrained("wiki-tiny"), threshold=-0.9), max_steps=1)
    history = train(run, tmp_path)
    (warning,) = history.warnings
    assert "dclr leaves out" in warning
    assert warning in caplog.text


def test_complement_and_start_are_read_by_the_same_rule() -> None:
    complement, initial = replace(BASE, seed=1), replace(BASE, seed=2)
    recipe = PUBLISHED["bert-large-uncased"].with_method(complement=complement, initial=initial, select="last")
    method: Any = recipe.method
    run = replace(BASE, method=method)
    assert run.nested_checkpoints == ((complement, "last"), (initial, "last"))
    assert method.starts_from == (initial, "last")
    assert DCLR(complement=complement).starts_from is None
    assert (method.threshold, method.noise_times) == (0.9, 3.0)


def test_the_published_settings() -> None:
    found: dict[Any, Any] = {}
    for key, recipe in PUBLISHED.items():
        method: Any = recipe.method
        found[key] = (recipe.batch_size, recipe.learning_rate, recipe.epochs, method.threshold, method.noise_times)
        assert (method.steps, method.step_size, method.temperature) == (4, 1e-3, 0.05)
    assert found == {
        "bert-base-uncased": (128, 3e-5, 3, 0.9, 1.0),
        "roberta-base": (128, 3e-5, 3, 0.85, 2.5),
        "bert-large-uncased": (256, 3e-5, 1, 0.9, 3.0),
        "roberta-large": (256, 1e-5, 1, 0.85, 5.0),
    }


test_impossible_settings_are_refused = refuses(
    DCLR,
    ({"threshold": -1.0}, r"threshold must be in \(-1, 2\], got -1\.0"),
    ({"threshold": 2.1}, r"threshold must be in \(-1, 2\], got 2\.1"),
    ({"noise_times": -1.0}, r"noise_times must be zero or positive, got -1\.0"),
    ({"steps": -1}, "steps must be zero or positive, got -1"),
    ({"step_size": 0.0}, r"step_size must be positive, got 0\.0"),
)


def test_a_threshold_without_a_complement_is_refused_before_training() -> None:
    with pytest.raises(ValueError, match=r"a threshold of 0\.9 needs a complement, got none"):
        DCLR().targets(NoSource())
