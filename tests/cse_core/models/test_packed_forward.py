"""The pass without padding against each model's own forward, in double precision: states, gradients, dropout."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from scipy.stats import binomtest, chisquare
from torch import Tensor
from transformers import AutoConfig, AutoModel

from cse_core.models import packed_forward
from cse_core.models.packed_forward import Layout, attend, dropout, states

LENGTHS, WORDS, PAD = (3, 7, 1, 5), 50, 1
SMALL = {"vocab_size": WORDS, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3}
SMALL |= {"intermediate_size": 40, "max_position_embeddings": 16, "pad_token_id": PAD}
KINDS = (*packed_forward.MODEL_TYPES, "electra as wide as its layers")


def model_of(kind: str, **more: Any) -> Any:
    torch.manual_seed(3)
    family, _, wide = kind.partition(" ")
    electra = family == "electra"
    embedded = {"embedding_size": SMALL["hidden_size"] if wide else 10} if electra else {}
    config = AutoConfig.for_model(family, **SMALL | embedded | more)
    config._attn_implementation = "eager"
    plain = {} if electra else {"add_pooling_layer": False}
    model = AutoModel.from_config(config, **plain).double().eval()
    with torch.no_grad():  # from their start, biases are zero and norms the identity: errors there would not show
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model


def batch(lengths: tuple[int, ...] = LENGTHS) -> tuple[Tensor, Tensor]:
    ids = torch.randint(2, WORDS, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids.masked_fill(~mask, PAD), mask


def first_position(model: Any) -> int:
    return 0 if model.config.model_type in ("bert", "electra") else PAD + 1


def packed_states(model: Any, ids: Tensor, mask: Tensor, only: Tensor | None = None) -> tuple[list[Tensor], Layout]:
    layout = Layout.of(mask, model.config.num_attention_heads)
    positions = layout.places % ids.shape[1] + first_position(model)
    return states(model, ids.flatten()[layout.places], positions, layout, only), layout


@pytest.mark.parametrize("kind", KINDS)
def test_states_of_every_layer_are_the_models_own(kind: str) -> None:
    model, (ids, mask) = model_of(kind), batch()
    expected = model(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states
    found, layout = packed_states(model, ids, mask)
    assert len(found) == len(expected) == SMALL["num_hidden_layers"] + 1
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs[mask], atol=1e-12, rtol=0)
        assert torch.equal(layout.pad(ours)[mask], ours)
        assert not layout.pad(ours)[~mask].any()


@pytest.mark.parametrize("kind", KINDS)
def test_one_token_a_row_is_that_tokens_last_state_with_the_same_gradients(kind: str) -> None:
    model, (ids, mask) = model_of(kind), batch()
    column = torch.tensor([2, 0, 0, 4])
    lengths = mask.sum(1)
    direction = torch.randn(len(ids), SMALL["hidden_size"], dtype=torch.double)
    theirs = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state[torch.arange(len(ids)), column]
    parameters = dict(model.named_parameters())
    expected = torch.autograd.grad((theirs * direction).sum(), list(parameters.values()))
    ours = packed_states(model, ids, mask, lengths.cumsum(0) - lengths + column)[0][-1]
    assert torch.allclose(ours, theirs, atol=1e-12, rtol=0)
    found = torch.autograd.grad((ours * direction).sum(), list(parameters.values()))
    for name, a, b in zip(parameters, found, expected, strict=True):
        if name.endswith("word_embeddings.weight"):
            b[PAD] = 0  # the model's own forward runs over padding too, though nothing reads it
        assert torch.allclose(a, b, atol=1e-10, rtol=0), name


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_falls_where_the_model_lets_it_fall(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without padding both layouts draw for the same numbers in the same order: given one dropout, they are equal."""
    model, (ids, mask) = model_of(kind, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.2), batch((6, 6, 6))
    monkeypatch.setattr(F, "dropout", lambda x, p=0.5, training=True, inplace=False: dropout(x, p) if training else x)
    model.train()
    torch.manual_seed(5)
    expected = model(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states
    torch.manual_seed(5)
    found, _ = packed_states(model, ids, mask)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs.flatten(0, 1), atol=1e-12, rtol=0)
    torch.manual_seed(6)
    assert not torch.allclose(packed_states(model, ids, mask)[0][-1], found[-1], atol=1e-3)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("size", [1, 4, 7, 100_001])
def test_dropout_keeps_a_share_and_scales_by_its_inverse(p: float, size: int) -> None:
    torch.manual_seed(11)
    x = torch.ones(size, dtype=torch.double, requires_grad=True)
    dropped = dropout(x, p)
    share = round(p * 2**16) / 2**16
    kept = dropped != 0
    assert torch.allclose(dropped[kept], torch.tensor(1 / (1 - share), dtype=torch.double), atol=1e-7)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(gradient, dropped.detach())
    if size > 1000:  # four numbers share a word of random bits: each place has to be right by itself
        for lane in range(4):
            part = kept[lane::4]
            assert binomtest(int(part.sum()), len(part), 1 - share).pvalue > 1e-4
        patterns = (kept[: size // 4 * 4].view(-1, 4) * torch.tensor([1, 2, 4, 8])).sum(1).bincount(minlength=16)
        bits = torch.tensor([(i >> torch.arange(4) & 1).sum() for i in range(16)], dtype=torch.double)
        expected = (1 - share) ** bits * share ** (4 - bits)
        assert chisquare(patterns.numpy(), (expected * patterns.sum()).numpy()).pvalue > 1e-4


@pytest.mark.parametrize("p", [0.1, 0.5, 2**-16, 1 - 1e-9])
def test_of_all_lanes_there_are_the_rounded_share_falls_out(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.int64)
    monkeypatch.setattr(Tensor, "random_", lambda self, *_: self.copy_(every))
    dropped = dropout(torch.ones(2**16), p)
    assert int((dropped == 0).sum()) == min(round(p * 2**16), 2**16 - 1)
    assert dropped.double().mean() == pytest.approx(1)


def test_no_dropout_draws_nothing() -> None:
    state = torch.get_rng_state()
    x = torch.ones(5)
    assert dropout(x, 0.0) is x
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_scales_half_precision_without_rounding_the_scale(dtype: torch.dtype) -> None:
    dropped = dropout(torch.ones(1000, dtype=dtype), 0.1)
    assert dropped.dtype == torch.float32
    assert dropped.max().item() == pytest.approx(1 / 0.9, abs=2e-5)


def test_attention_is_softmax_of_scaled_products_over_what_the_mask_shows() -> None:
    generator = torch.Generator().manual_seed(2)
    heads, c, (_, mask) = 2, 3, batch((2, 4))
    query, key, value = (torch.randn(4, 4, c, generator=generator, dtype=torch.double) for _ in range(3))
    found = attend(query, key, value, mask, 0.0)
    for row in range(2):
        for head in range(heads):
            part = row * heads + head
            for i in range(4):
                seen = [j for j in range(4) if mask[row, j]]
                raw = torch.stack([query[part, i] @ key[part, j] / c**0.5 for j in seen])
                expected = sum(w * value[part, j] for w, j in zip(raw.softmax(0), seen, strict=True))
                assert torch.allclose(found[part, i], torch.as_tensor(expected), atol=1e-12)
