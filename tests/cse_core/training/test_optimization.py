"""Optimizers against their update rules, and the staircase by step."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cse_core.training.loop import Execution, Loop
from cse_core.training.optimization import optimizer_of, schedule_of, staircase
from tests.support.training import RUN, TINY


def test_the_staircase_has_the_published_rates_by_step() -> None:
    """Rates over 5,000 steps: 1e-5, 8e-6, 6e-6, 4e-6, 2e-6 with boundaries at 500, 1,000, 1,500 and 2,000."""
    rates = {0: 1e-5, 499: 1e-5, 500: 1e-5, 501: 8e-6, 1000: 8e-6, 1001: 6e-6, 1500: 6e-6, 1501: 4e-6}
    rates |= {2000: 4e-6, 2001: 2e-6, 4999: 2e-6}
    assert {step: 1e-5 * staircase(step, 5000) for step in rates} == pytest.approx(rates, rel=1e-12)
    for steps in (1, 3, 10, 37):
        shares = [staircase(step, steps) for step in range(steps)]
        expected = [1 - 0.2 * sum(step * 10 > k * steps for k in (1, 2, 3, 4)) for step in range(steps)]
        assert shares == pytest.approx(expected)


def test_a_run_steps_down_the_staircase() -> None:
    run, parameter = replace(RUN, schedule="staircase", warmup=0.0), nn.Parameter(torch.zeros(2))
    optimizer = optimizer_of(run, [parameter])
    schedule, rates = schedule_of(run, optimizer, 20), []
    for _ in range(20):
        rates.append(optimizer.param_groups[0]["lr"] / run.learning_rate)
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([1.0] * 3 + [0.8] * 2 + [0.6] * 2 + [0.4] * 2 + [0.2] * 11)


def stepped(run_changes: dict, gradients: list[Tensor], start: Tensor) -> Tensor:
    run = replace(RUN, **run_changes)
    parameter = nn.Parameter(start.clone())
    optimizer = optimizer_of(run, [parameter])
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


def test_rmsprop_is_its_update_rule() -> None:
    """s <- 0.9 s + 0.1 g g; w <- w - r g / (sqrt(s) + 1e-7): no momentum, no decay."""
    start, gradients = torch.ones(1, 2), [torch.tensor([[0.5, -2.0]]), torch.tensor([[0.1, 1e-9]])]
    weight, mean = [1.0, 1.0], [0.0, 0.0]
    for gradient in gradients:
        for i, g in enumerate(gradient[0].tolist()):
            mean[i] = 0.9 * mean[i] + 0.1 * g * g
            weight[i] -= 3e-4 * g / (mean[i] ** 0.5 + 1e-7)
    assert stepped({"optimizer": "rmsprop"}, gradients, start)[0].tolist() == pytest.approx(weight, rel=1e-6)


def test_weight_decay_shrinks_weights_before_each_step_and_leaves_what_has_one_dimension() -> None:
    """AdamW: w <- (1 - r d) w, and then Adam's step, which without decay is the same."""
    gradients = [torch.full((2, 2), 0.3)]
    plain, decayed = (stepped({"weight_decay": d}, gradients, torch.ones(2, 2)) for d in (0.0, 0.5))
    assert torch.allclose(plain - decayed, torch.full((2, 2), 3e-4 * 0.5), rtol=1e-3)
    flat = [torch.full((2,), 0.3)]
    assert torch.equal(*(stepped({"weight_decay": d}, flat, torch.ones(2)) for d in (0.0, 0.5)))


@pytest.mark.slow
def test_weight_decay_moves_weights_and_neither_biases_nor_layer_norms(tmp_path: Path) -> None:
    """After one step from equal starts: by r d w where it decays, to the bit the same where it does not."""
    rate, decay = 3e-4, 1.0
    loops = []
    for weight_decay in (0.0, decay):
        run = replace(TINY, warmup=0.0, weight_decay=weight_decay)
        loop = Loop(run, Execution(tmp_path))
        start = {name: p.detach().clone() for name, p in loop.encoder.named_parameters()}
        loop.train_step(0)
        loops.append(dict(nn.ModuleList([loop.encoder, loop.modules]).named_parameters()))
    kinds = {True: 0, False: 0}
    for name, value in start.items():
        plain, decayed = (loop[f"0.{name}"] for loop in loops)
        exempt = name.endswith("bias") or "LayerNorm" in name
        kinds[exempt] += 1
        if exempt:
            assert torch.equal(plain, decayed), name
        else:
            assert torch.allclose(plain - decayed, rate * decay * value, atol=1e-7), name
    assert min(kinds.values()) > 10
    assert not torch.equal(loops[0]["1.head.0.weight"], loops[1]["1.head.0.weight"])
