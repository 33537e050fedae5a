"""A run's optimizer and the schedule of its learning rate."""

from collections.abc import Sequence

import torch
from torch import nn

from cse_core.run import Run

STAIRS = (1.0, 0.8, 0.6, 0.4, 0.2)  # shares of the learning rate, for a tenth of the steps each; the last for the rest


def optimizer_of(run: Run, trained: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer of a run's trained parameters.

    AdamW has PyTorch's betas, eps and bias correction; RMSprop has rho 0.9, eps 1e-7 and no momentum.
    """
    if run.optimizer == "rmsprop":
        return torch.optim.RMSprop(trained, lr=run.learning_rate, alpha=0.9, eps=1e-7)
    if not run.weight_decay:
        return torch.optim.AdamW(trained, lr=run.learning_rate, weight_decay=0.0, fused=True)
    groups = [  # biases and the scales of normalisations have one dimension
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": run.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=run.learning_rate, fused=True)


def schedule_of(run: Run, optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """Return the schedule of a run's learning rate over its steps.

    A linear one rises from 0 in the warmup, then falls to 0 at the last step.
    """
    if run.schedule == "staircase":
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: staircase(step, steps))
    from transformers import get_linear_schedule_with_warmup  # lazy: slow import

    return get_linear_schedule_with_warmup(optimizer, round(run.warmup * steps), steps)


def staircase(step: int, steps: int) -> float:
    """Return the share of the learning rate at a step, counted from 0 (CT, Carlsson et al., ICLR 2021).

    1, 0.8, 0.6, 0.4, 0.2 from 0, 10, 20, 30 and 40 % of the steps. The step at a boundary still has the earlier rate.
    """
    return STAIRS[sum(10 * step > stair * steps for stair in range(1, len(STAIRS)))]
