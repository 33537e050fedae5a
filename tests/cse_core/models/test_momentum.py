"""Copies are the encoder, the slow one against its recursion, the queue against a list; what of both is saved."""

import copy
import io
import math
from collections import deque
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cse_core.data.batches import pad
from cse_core.method import Tokens
from cse_core.models.encoder import Encoder
from cse_core.models.momentum import Queue, Slow, cosine_decay, move_towards
from tests.support.encoders import wiki_tiny
from tests.support.method_steps import seeded
from tests.support.one_by_one import perturb

TEXTS = ["a cat sat on a mat", "the river rose", "no"]


def encoder_of(dropout: float = 0.3) -> Encoder:
    return wiki_tiny(pooling="cls", dropout=dropout).train()


def tokens_of(encoder: Encoder) -> Tokens:
    return pad(encoder.tokenise(TEXTS), encoder.pad_id)


def linear(seed: int) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(3, 2).double()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 1000))
def test_the_slow_weights_are_the_recursion(decays: list[float], seed: int) -> None:
    slow, online = linear(seed), linear(seed + 1)
    expected = [value.tolist() for value in slow.state_dict().values()]
    for step, decay in enumerate(decays):
        perturb(online, step)
        move_towards(slow, online, decay)
        theirs = [value.tolist() for value in online.state_dict().values()]
        for mine, their in zip(expected, theirs, strict=True):
            for i, value in enumerate(their):
                rows = zip(mine[i], value, strict=True) if isinstance(value, list) else ()
                mixed: Any = [decay * a + (1 - decay) * b for a, b in rows]
                mine[i] = mixed or decay * mine[i] + (1 - decay) * value
    for found, value in zip(slow.state_dict().values(), expected, strict=True):
        assert torch.allclose(found, torch.tensor(value, dtype=torch.float64), atol=1e-12)


def test_decay_0_gives_the_online_bits_and_1_never_moves() -> None:
    encoder = encoder_of()
    slow = Slow(encoder)
    start = copy.deepcopy(slow.encoder.state_dict())
    perturb(encoder, 1)
    assert all(torch.equal(value, start[name]) for name, value in slow.encoder.state_dict().items())
    slow.update(1.0)
    assert all(torch.equal(value, start[name]) for name, value in slow.encoder.state_dict().items())
    slow.update(0.0)
    online = encoder.state_dict()
    assert all(torch.equal(value, online[name]) for name, value in slow.encoder.state_dict().items())
    assert slow.updates == 2


def test_further_modules_move_with_it() -> None:
    slow, head = Slow(encoder_of()), linear(5).float()
    copied: Any = slow.follow(head)
    assert not any(parameter.requires_grad for parameter in slow.parameters())
    before, online = copied.weight.clone(), head.weight.detach().clone()
    perturb(head, 2)
    slow.update(0.25)
    assert torch.equal(copied.weight, 0.25 * before + 0.75 * head.weight)
    assert not torch.equal(head.weight, online)
    assert head.weight.requires_grad


@pytest.mark.parametrize("dropout", [False, True])
def test_a_call_has_no_gradient_and_dropout_only_where_asked(dropout: bool) -> None:
    encoder = encoder_of()
    modules = nn.ModuleDict({"slow": Slow(encoder, dropout=dropout)}).train()
    slow, tokens = modules["slow"], tokens_of(encoder)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    (found,) = slow(tokens)
    assert not found.requires_grad
    assert torch.equal(torch.get_rng_state(), before) != dropout
    assert torch.allclose(found, encoder.encode(TEXTS), atol=1e-5) != dropout
    assert slow.training
    encoder.precision = "bf16"
    half: Any = Slow(encoder).train()
    assert 1e-4 < (half(tokens)[0] - encoder.encode(TEXTS)).abs().max() < 0.2


def test_the_state_has_the_copies_and_the_count_but_not_the_online_encoder() -> None:
    encoder, head = encoder_of(), linear(3).float()
    slow = Slow(encoder)
    slow.follow(head)
    names = {name for name, _ in slow.named_parameters()}
    assert names == {f"encoder.{name}" for name, _ in encoder.named_parameters()} | {"copies.0.weight", "copies.0.bias"}
    perturb(encoder, 1)
    slow.update(0.5)
    slow.update(0.5)
    assert type(slow.state_dict()["_extra_state"]) is int
    assert "updates" not in slow.state_dict()
    again = Slow(encoder)
    again.follow(head)
    again.load_state_dict(saved_and_loaded(slow.state_dict()))
    assert again.updates == 2
    for one in (slow, again):
        one.update(0.3)
    assert all(torch.equal(a, b) for a, b in zip(slow.parameters(), again.parameters(), strict=True))
    assert len(list(nn.ModuleList([encoder, slow]).parameters())) == 2 * len(list(encoder.parameters())) + 2


def saved_and_loaded(state: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@given(st.integers(1, 9), st.lists(st.integers(1, 12), max_size=8), st.data())
def test_the_queue_is_a_list_of_the_newest(size: int, batches: list[int], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, size))
    queue = Queue(size, 3, first, seeded(1))
    kept: deque[list[float]] = deque(queue.newest.tolist(), maxlen=size)
    for step, n in enumerate(batches):
        keys = torch.randn(n, 3, generator=seeded(step))
        queue.push(keys)
        kept.extend(keys.tolist())
        assert queue.newest.tolist() == list(kept)
        assert queue.full == (len(kept) == size)
    again = Queue(size, 3)
    again.load_state_dict(saved_and_loaded(queue.state_dict()))
    assert torch.equal(again.newest, queue.newest)


def test_the_first_vectors_are_random_and_of_length_1() -> None:
    queue = Queue(5, 64, 4, seeded(1))
    assert queue.newest.norm(dim=1).tolist() == pytest.approx([1] * 4)
    cosines = (queue.newest @ queue.newest.T)[~torch.eye(4, dtype=torch.bool)]
    assert cosines.abs().max() < 0.6
    assert len(Queue(0, 3).newest) == 0
    empty = Queue(0, 3)
    assert empty.full
    empty.push(torch.ones(2, 3))
    assert len(empty.newest) == 0
    with pytest.raises(ValueError, match=r"first must be in \[0, 3\], the queue's size, got 4"):
        Queue(3, 8, 4)


def test_what_is_held_can_be_pushed_over_before_the_backward_pass() -> None:
    """`torch.cat` copies what is held, so a loss over it keeps its gradient."""
    queue, keys = Queue(2, 3), torch.randn(2, 3, generator=seeded(1), requires_grad=True)
    queue.push(torch.ones(2, 3))
    loss = (torch.cat([keys, queue.newest]) @ keys.T).square().sum()
    (expected,) = torch.autograd.grad(loss, keys, retain_graph=True)
    queue.push(keys)
    assert not queue.newest.requires_grad
    assert torch.equal(torch.autograd.grad(loss, keys)[0], expected)


def decay_at(start: float, step: int, total: int) -> float:
    return cosine_decay(start, torch.tensor(step), total).item()


@given(st.floats(0, 1), st.integers(0, 40), st.integers(1, 10))
def test_the_decay_goes_along_a_cosine(start: float, step: int, half: int) -> None:
    total = 2 * half
    assert decay_at(start, 0, total) == pytest.approx(start)
    assert decay_at(start, total, total) == pytest.approx(1)
    assert decay_at(start, half, total) == pytest.approx((1 + start) / 2)
    assert decay_at(start, 2 * total - step, total) == pytest.approx(decay_at(start, step, total))
    assert decay_at(0.0, step, 10**18) == 0
    share = math.sin(math.pi * step / total / 2) ** 2  # (1 - cos x) / 2
    assert decay_at(start, step, total) == pytest.approx(start + (1 - start) * share, abs=1e-12)


def test_the_decay_moves_weights_as_a_float_does() -> None:
    """Bit for bit: recorded runs had the decay as a float of Python."""
    target, source = (torch.randn(64, generator=seeded(seed)) for seed in (1, 2))
    for step in range(1, 16_000, 13):
        number = 1 - (1 - 0.85) * (math.cos(math.pi * step / 15_000) + 1) / 2
        decay = cosine_decay(0.85, torch.tensor(step), 15_000)
        found, expected = (d * target + (1 - d) * source for d in (decay, number))
        assert found.dtype == torch.float32
        assert torch.equal(found, expected)


def test_copies_for_tests_are_encoders_as_loaded() -> None:
    settings: dict[str, Any] = {"pooling": "mean", "dropout": 0.3}
    with torch.no_grad():
        for parameter in wiki_tiny(**settings).parameters():
            parameter.zero_()  # reaches no later copy
    copied, loaded = wiki_tiny(**settings), Encoder.from_pretrained("wiki-tiny", **settings)
    assert copied.backbone.config.to_dict() == loaded.backbone.config.to_dict()
    assert (copied.training, copied.pooling, copied.name) == (loaded.training, loaded.pooling, loaded.name)
    assert all(parameter.requires_grad for parameter in copied.parameters())
    for encoder in (copied, loaded):
        encoder.train()
    tokens = pad(loaded.tokenise(TEXTS), loaded.pad_id)
    with torch.random.fork_rng():
        (ours,), (theirs,) = ((torch.manual_seed(0), encoder(tokens))[1] for encoder in (copied, loaded))
    assert torch.equal(ours, theirs)
