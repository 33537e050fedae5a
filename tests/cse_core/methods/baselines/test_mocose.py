"""MoCoSE: heads by formula, the whole loss one sentence at a time over steps, its identities, its dropout."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cse_core.methods.baselines.mocose import PUBLISHED, MoCoSE
from experiments.schema.scales import RESCALED
from tests.support.method_cases import UNSTATED
from tests.support.method_steps import TEXTS, batch_of, encoder_of, refuses, rows_of, seeded
from tests.support.one_by_one import nce, perturb, vector_of

SHORT = MoCoSE(queue_size=8, first=3, momentum=0.5, momentum_steps=5, temperature=0.3)


def without_dropout(modules: nn.Module) -> Any:
    for part in modules.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return modules


def norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / math.sqrt(((x - x.mean()) ** 2).mean() + 1e-12) * scale + shift


def through(parts: Sequence[nn.Module], vector: Tensor) -> Tensor:
    """p, then g, then q where it is given, by their formulas for one vector in double precision."""
    x = vector.double().numpy()
    for part in parts:
        w = [value.detach().double().numpy() for value in part.state_dict().values()]
        x = w[0] @ x + w[1]
        if len(w) > 2:  # g and q have a LayerNorm
            x = norm(x, w[2], w[3])
        if len(w) > 4:  # q a second linear map and tanh
            x = np.tanh(w[4] @ x + w[5])
    return torch.from_numpy(x)


def test_the_heads_are_drawn_with_deviation_002_and_drop_a_tenth() -> None:
    modules = MoCoSE().modules(encoder_of(0.3), seeded())
    heads = nn.ModuleList([modules[name] for name in ("pooler", "projection", "predictor")])
    linear = [part for part in heads.modules() if isinstance(part, nn.Linear)]
    assert len(linear) == 4
    for part in linear:
        assert part.weight.std().item() == pytest.approx(0.02, abs=4 * 0.02 / math.sqrt(2 * 128**2))
        assert part.bias.abs().max() == 0
    norms = [part for part in heads.modules() if isinstance(part, nn.LayerNorm)]
    assert [part.eps for part in norms] == [1e-12] * 2
    assert {part.p for part in heads.modules() if isinstance(part, nn.Dropout)} == {0.1}
    again = MoCoSE().modules(encoder_of(0.3), seeded())
    assert all(torch.equal(a, b) for a, b in zip(modules.parameters(), again.parameters(), strict=True))


def test_the_loss_is_the_equation_step_after_step() -> None:
    """Slow weights, slow heads and queue by hand, each sentence by itself; the online weights move between steps.

    After the last of its five steps the slow branch stands still.
    """
    encoder = encoder_of()
    modules = without_dropout(SHORT.modules(encoder, seeded()).train())
    online = [modules[name] for name in ("pooler", "projection", "predictor")]
    slow = [copy.deepcopy(part).eval() for part in (encoder.backbone, *online[:2])]
    queue = list(modules["queue"].newest.double())
    assert [len(queue), len(modules["queue"].vectors)] == [3, 8]
    for step in range(5):
        batch = batch_of(SHORT, encoder, TEXTS[step % 2 :])
        found = SHORT.loss(encoder, batch, modules, {})
        decay = 1 - (1 - 0.5) * (math.cos(math.pi * (step + 1) / 5) + 1) / 2
        with torch.no_grad():
            for mine, theirs in zip(slow, (encoder.backbone, *online[:2]), strict=True):
                for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
                    a.copy_(decay * a + (1 - decay) * b)
        rows = rows_of(batch["text"])
        reference: Any = copy.deepcopy(encoder.backbone).eval()
        queries = [through(online, vector_of(reference, row)) for row in rows]
        keys = [through(slow[1:], vector_of(slow[0], row)) for row in rows]
        assert found.total.item() == pytest.approx(nce(queries, keys, queue, 0.3), rel=1e-5)
        queue = [*queue, *keys][-8:]
        assert torch.allclose(modules["queue"].newest.double(), torch.stack(queue), atol=2e-5)
        for i, part in enumerate((encoder, *online)):
            perturb(part, 10 * step + i)


def test_the_target_branch_has_dropout_of_its_own() -> None:
    """Its encoder's and its heads': other bits each time, and none of the online pass's."""
    encoder = encoder_of(0.3)
    modules: Any = SHORT.modules(encoder, seeded()).train()
    tokens, keys = batch_of(SHORT, encoder)["text"], []
    for _ in range(2):
        torch.manual_seed(7)
        (h,) = encoder(tokens)
        (slow,) = modules["slow"](tokens)
        keys.append(slow)
        assert not torch.allclose(h, slow, atol=0.1)
    assert torch.equal(*keys)
    assert not torch.equal(keys[0], modules["slow"](tokens)[0])
    head = modules["slow"].copies[1]
    assert head.training
    assert not torch.equal(head(keys[0]), head(keys[0]))


def test_without_a_queue_the_keys_of_the_batch_are_all() -> None:
    encoder = encoder_of()
    method = replace(SHORT, queue_size=0, first=0)
    modules = without_dropout(method.modules(encoder, seeded()).train())
    losses = [method.loss(encoder, batch_of(SHORT, encoder), modules, {}).total.item() for _ in range(2)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    longer = without_dropout(SHORT.modules(encoder, seeded()).train())
    assert SHORT.loss(encoder, batch_of(SHORT, encoder), longer, {}).total.item() > losses[0]


test_impossible_settings_are_refused = refuses(
    partial(replace, SHORT),
    ({"queue_size": -1, "first": 0}, "queue_size must be zero or positive, got -1"),
    ({"first": 9}, r"first must be in \[0, 8\], the queue_size, got 9"),
    ({"queue_size": 0}, r"first must be in \[0, 0\], the queue_size, got 3"),
    ({"momentum": -0.1}, r"momentum must be in \[0, 1\], got -0.1"),
    ({"momentum_steps": 0}, "momentum_steps must be at least 1, got 0"),
)


def test_published_settings() -> None:
    rows = {"bert-base-uncased": (64, 3e-5), "bert-large-uncased": (32, 1e-5)}
    assert set(PUBLISHED) == set(rows) == set(RESCALED["mocose"])
    for backbone, (batch_size, rate) in rows.items():
        stated = {"batch_size": batch_size, "learning_rate": rate, "weight_decay": 1e-6}
        assert PUBLISHED[backbone].training == UNSTATED | stated
        assert PUBLISHED[backbone].method == MoCoSE(queue_size=512, first=128, momentum=0.85, momentum_steps=15_000)
        assert RESCALED["mocose"][backbone] == {"momentum_steps": 16_384 // 64}
