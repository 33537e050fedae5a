"""BERT-flow against loops in double precision, Jacobians, closed forms and what a fit must do to correlated data."""

import math
from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cse_core.evaluation.bert_flow import ActivationNorm, AdditiveCoupling, Flow, Permutation, fit_flow
from cse_core.evaluation.bert_flow import negative_log_likelihood as likelihood_loss
from tests.support.method_oracles import drawn

seeds = st.integers(0, 10_000)
OFFSETS = torch.tensor([0.0, 5.0, -3.0, 200.0, 0.1, 1.0], dtype=torch.float64)


def moved(width: int, seed: int, *, levels: int = 2, depth: int = 2) -> Flow:
    """A flow in double precision, all of whose parameters have left their initial values, masked ones too."""
    generator = torch.Generator().manual_seed(seed)
    flow = Flow(width, levels, depth, 5, generator).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return flow


def identity(width: int, levels: int = 2, depth: int = 3) -> Flow:
    flow = Flow(width, levels, depth).double()
    for module in flow.modules():
        if isinstance(module, Permutation):
            module.order.copy_(torch.arange(len(module.order)))
    return flow


def correlated(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Vectors of a Gaussian with correlations, offsets and one large variance; its covariance."""
    mix = torch.eye(6, dtype=torch.float64) + 0.8 * drawn(6, 6, seed=99).tril(-1)
    mix[3] *= 50
    return (drawn(n, 6, seed=seed) @ mix.T + OFFSETS).float(), mix @ mix.T


def layer_loop(layer: Any, x: list[float]) -> tuple[list[float], float]:
    """One layer on one vector, from its equation, and its log |det|."""
    d = len(x)
    if isinstance(layer, ActivationNorm):
        centre, scale = layer.centre.tolist(), layer.log_scale.tolist()
        return [(x[i] - centre[i]) * math.exp(scale[i]) for i in range(d)], sum(scale)
    if isinstance(layer, Permutation):
        return [x[i] for i in layer.order.tolist()], 0.0
    h = first = x[: d // 2]
    for k in (0, 2, 4):
        weight, bias = layer.shift[k].weight.tolist(), layer.shift[k].bias.tolist()
        h = [sum(w * v for w, v in zip(row, h, strict=True)) + b for row, b in zip(weight, bias, strict=True)]
        h = [max(v, 0.0) for v in h] if k < 4 else h
    return [*first, *(a + b for a, b in zip(x[d // 2 :], h, strict=True))], 0.0


def flow_loop(flow: Flow, x: list[float]) -> tuple[list[float], float]:
    z, total = [], 0.0
    for number, layers in enumerate(flow.levels):
        for layer in layers:
            x, change = layer_loop(layer, x)
            total += change
        if number < len(flow.levels) - 1:
            kept = math.ceil(len(x) / 2)
            z, x = [*z, *x[kept:]], x[:kept]
    return [*z, *x], total


@given(st.integers(3, 7), st.integers(1, 2), st.integers(1, 2), seeds)
def test_a_flow_is_its_layers_written_out(width: int, levels: int, depth: int, seed: int) -> None:
    flow, x = moved(width, seed, levels=levels, depth=depth), drawn(2, width, seed=seed + 1)
    z, log_determinant = flow(x)
    for row, found in zip(x.tolist(), z.tolist(), strict=True):
        expected, expected_change = flow_loop(flow, row)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert log_determinant.item() == pytest.approx(expected_change, abs=1e-10)


def jacobian(flow: Flow, x: Tensor) -> Any:
    return torch.autograd.functional.jacobian(lambda v: flow(v[None])[0][0], x)


@given(st.integers(5, 8), st.integers(1, 3), seeds)
@pytest.mark.slow
def test_the_log_determinant_is_that_of_the_jacobian(width: int, levels: int, seed: int) -> None:
    flow, x = moved(width, seed, levels=levels), drawn(2, width, seed=seed + 1)
    for row in x:
        assert flow(x)[1].item() == pytest.approx(jacobian(flow, row).slogdet().logabsdet.item(), abs=1e-8)


def test_a_new_flow_is_a_permutation() -> None:
    x = drawn(5, 7, seed=0)
    for seed in range(5):
        z, log_determinant = Flow(7, generator=torch.Generator().manual_seed(seed)).double()(x)
        assert torch.equal(z.sort(1).values, x.sort(1).values)
        assert log_determinant.item() == 0
        assert not torch.equal(z, x)


def test_permutations_are_uniform() -> None:
    """Each entry of a uniformly random permutation matrix is 1 in one of d draws."""
    generator, width, draws = torch.Generator().manual_seed(0), 3, 600
    matrices = torch.stack([Permutation(width, generator)(torch.eye(width))[0] for _ in range(draws)])
    assert torch.allclose(matrices.mean(0), torch.full((3, 3), 1 / 3), atol=0.07)


def test_the_likelihood_of_the_identity_is_the_gaussians() -> None:
    x = drawn(6, 4, seed=0)
    assert torch.equal(identity(4)(x)[0][:, [2, 3, 0, 1]], x)
    expected = [sum(v * v / 2 + math.log(2 * math.pi) / 2 for v in row) / 4 for row in x.tolist()]
    assert likelihood_loss(*identity(4)(x)).tolist() == pytest.approx(expected, abs=1e-14)


def test_the_likelihood_of_a_scaled_identity_is_that_of_its_gaussian() -> None:
    flow, x = identity(3, levels=1, depth=1), drawn(6, 3, seed=0)
    gaussian = torch.distributions.Normal(torch.tensor([1.0, -2.0, 0.5]).double(), torch.tensor([0.1, 3.0, 40.0]))
    with torch.no_grad():
        flow.levels[0][0].centre.copy_(gaussian.mean)
        flow.levels[0][0].log_scale.copy_(-gaussian.stddev.log())
    assert torch.allclose(likelihood_loss(*flow(x)), -gaussian.log_prob(x).mean(1), rtol=1e-6)


def test_a_coupling_is_the_identity_at_first_and_never_changes_the_first_half() -> None:
    coupling, x = AdditiveCoupling(5, 4, torch.Generator().manual_seed(0)), drawn(3, 5, seed=0).float()
    assert torch.equal(coupling(x)[0], x)
    assert [tuple(p.shape) for p in coupling.parameters()] == [(4, 2), (4,), (4, 4), (4,), (3, 4), (3,)]
    assert all(p.abs().max() > 0.1 for p in list(coupling.parameters())[:4])
    with torch.no_grad():
        list(coupling.parameters())[4].fill_(1.0)
    moved_by = coupling(x)[0] - x
    assert moved_by.bool().tolist() == [[False, False, True, True, True]] * 3
    x[:, 2:] += 7
    assert torch.allclose(coupling(x)[0] - x, moved_by, atol=1e-5)


def test_initialising_standardises_what_leaves_each_normalisation() -> None:
    flow, x = moved(6, 0).float(), correlated(200, 1)[0]
    flow.initialise(x)
    outputs: list[Tensor] = []
    for module in flow.modules():
        if isinstance(module, ActivationNorm):
            module.register_forward_hook(lambda _module, _inputs, output: outputs.append(output[0]))
    flow(x)
    assert [o.shape[1] for o in outputs] == [6, 6, 3, 3]
    for output in outputs:
        assert torch.allclose(output.mean(0), torch.zeros(output.shape[1]), atol=1e-3)
        assert torch.allclose(output.var(0, correction=0), torch.ones(output.shape[1]), atol=1e-3)


def test_a_constant_channel_is_centred_and_not_blown_up() -> None:
    norm, x = ActivationNorm(3), correlated(50, 0)[0][:, :3].clone()
    x[:, 1] = 12345.678
    norm.initialise(x)
    assert norm.log_scale[1] == 0
    assert norm(x)[0].std(0, correction=0).tolist() == pytest.approx([1, 0, 1], abs=1e-4)
    norm.initialise(x[:1].expand(5, 3))
    assert not norm.log_scale.any()


def covariance_error(z: Tensor) -> float:
    return (torch.cov(z.T) - torch.eye(z.shape[1])).abs().mean().item()


@pytest.mark.slow
def test_fitting_explains_held_out_correlated_data_and_whitens_it() -> None:
    """No density explains new data better than its own; a fitted flow comes near it, in nats a dimension."""
    (train, covariance), test = correlated(1000, 1), correlated(1500, 2)[0]
    own = torch.distributions.MultivariateNormal(OFFSETS, covariance)
    best = -own.log_prob(test.double()).mean().item() / 6
    schedule: dict[str, Any] = {"batch_size": 200, "learning_rate": 0.03}
    start, end = (fit_flow(train, epochs=epochs, **schedule) for epochs in (0, 12))
    (z0, c0), (z1, c1) = start(test), end(test)
    before, after = (likelihood_loss(z, c).mean().item() for z, c in ((z0, c0), (z1, c1)))
    assert best - 0.01 < after < min(best + 0.25, before - 0.1)
    assert covariance_error(z1) < 0.7 * covariance_error(z0) < covariance_error(test)


def test_one_step_of_a_fit_goes_down_the_likelihoods_gradient() -> None:
    """Adam's first step moves every parameter by the learning rate against the sign of its gradient."""
    x = correlated(100, 3)[0]
    start, end = (fit_flow(x, epochs=epochs, batch_size=100, learning_rate=0.01) for epochs in (0, 1))
    likelihood_loss(*start.requires_grad_(True)(x)).mean().backward()
    compared = 0
    for a, b in zip(start.parameters(), end.parameters(), strict=True):
        assert a.grad is not None
        clear = a.grad.abs() > 1e-4
        assert torch.allclose((b - a)[clear], -0.01 * a.grad[clear].sign(), rtol=0, atol=1e-4)
        compared += int(clear.sum())
    assert compared > 150


def test_each_epoch_takes_every_vector_once_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[int]] = []
    forward = Flow.forward

    def spy(self: Flow, x: Tensor) -> tuple[Tensor, Tensor]:
        taken.append([int(v) for v in x[:, 0]])
        return forward(self, x)

    monkeypatch.setattr(Flow, "forward", spy)
    x = drawn(50, 4, seed=0).float()
    x[:, 0] = torch.arange(50)
    fit_flow(x, epochs=2, batch_size=20)
    assert [len(batch) for batch in taken] == [20, 20, 10, 20, 20, 10]
    first, second = list(chain(*taken[:3])), list(chain(*taken[3:]))
    assert sorted(first) == sorted(second) == list(range(50))
    assert len({tuple(order) for order in (first, second, range(50))}) == 3
    start = fit_flow(x, epochs=0, batch_size=20)  # initialised on the first minibatch
    assert torch.allclose(start.levels[0][0].centre, x[first[:20]].mean(0), atol=1e-5)


def test_only_the_seed_decides_a_fit() -> None:
    x = correlated(150, 4)[0]
    kept = x.clone()
    first = fit_flow(x)
    state = torch.manual_seed(2).get_state()
    again = fit_flow(x.double())
    assert torch.equal(torch.get_rng_state(), state)
    z = first(x)[0]
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True))
    assert not torch.allclose(fit_flow(x, seed=43)(x)[0], z, atol=0.1)
    assert torch.equal(x, kept)
    assert (z.dtype, z.shape, z.requires_grad) == (torch.float32, x.shape, False)


def test_a_width_too_small_to_split_is_refused() -> None:
    for width, levels, least in ((1, 1, 2), (1, 2, 3), (2, 2, 3), (4, 3, 5)):
        with pytest.raises(ValueError, match=f"{levels} levels needs .* at least {least} dimensions, got {width}"):
            Flow(width, levels)
        assert Flow(least, levels)(drawn(2, least, seed=0).float())[0].shape == (2, least)


def test_what_has_no_flow_is_refused_in_words() -> None:
    x = drawn(20, 4, seed=0)
    wrong: list[tuple[Tensor, dict[str, Any], str]] = [
        (x[:4], {}, "more vectors than dimensions, got 4 of 4 dimensions"),
        (x.log(), {}, "finite vectors"),
        (x, {"learning_rate": 1e30, "epochs": 3}, "diverged at learning_rate"),
    ]
    for vectors, arguments, problem in wrong:
        with pytest.raises(ValueError, match=problem):
            fit_flow(vectors, **arguments)
    fit_flow(x[:5])
