"""`Tokens.kept`, `Tokens.factors` and `Encode.without_dropout` in a pass, packed and padded, against states by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel

from cse_core.data.batches import pad, stack
from cse_core.method import Factors, Tokens
from cse_core.models.encoder import Encoder
from tests.support.method_steps import gradient_of
from tests.support.one_by_one import states_of

TEXTS = ["a cat sat on a mat", "the river rose", "no", "two old men argued about the price of fish"]
WIDTH = 128


@pytest.fixture(params=["packed", "padded"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The pass without padding that a CPU takes, or the model's own that a GPU takes."""
    if request.param == "padded":
        monkeypatch.setattr(Encoder, "runs_packed", False)
    return request.param


def encoder_of(name: str | Path = "wiki-tiny", dropout: float = 0.0, pooling: str = "mean") -> Encoder:
    return Encoder.from_pretrained(name, pooling=pooling, dropout=dropout).train()


def tokens_of(encoder: Encoder, texts: list[str] = TEXTS) -> Tokens:
    return pad(encoder.tokenise(texts), encoder.pad_id)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def ones(tokens: Tokens, k: int = 2) -> Factors:
    n, t = tokens.ids.shape
    return Factors(torch.ones(n, k, t), torch.ones(k, WIDTH))


def factors_of(tokens: Tokens, k: int = 2) -> Factors:
    n, t = tokens.ids.shape
    return Factors(drawn(n, k, t, seed=1) + 0.5, drawn(k, WIDTH, seed=2) + 0.5)


def outcome(encoder: Encoder, tokens: Tokens, call: Callable[..., tuple[Tensor, ...]] | None = None) -> list[Tensor]:
    """The vectors of a pass under fixed dropout, and the gradient of all weights."""
    encoder.zero_grad()
    torch.manual_seed(3)
    (vectors,) = (call or encoder)(tokens)
    (vectors * drawn(*vectors.shape, seed=9)).sum().backward()
    return [vectors.detach(), *(p.grad.clone() for p in encoder.parameters() if p.grad is not None)]


def by_hand(encoder: Encoder, tokens: Tokens, row: int, kept: Tensor | None, factors: Factors | None) -> list[Tensor]:
    """The states of one row by itself, each multiplied as the equation says."""
    length, ids = int(tokens.mask[row].sum()), tokens.ids[row][tokens.mask[row]].tolist()
    own = None if kept is None else kept.expand(-1, tokens.ids.shape[1], WIDTH)[row, :length]
    pair = None if factors is None else (factors.tokens[row, :, :length], factors.features)
    return states_of(encoder.backbone, ids, kept=own, factors=pair)


@pytest.mark.parametrize("pooling", ["cls", "mean", "top2_mean", "first_last_mean"])
@pytest.mark.parametrize("what", ["tokens", "features", "entries", "factors", "kept and factors"])
@pytest.mark.slow
def test_the_lowest_states_are_multiplied(path: str, pooling: str, what: str) -> None:
    encoder = encoder_of(pooling=pooling)
    tokens = tokens_of(encoder)
    n, t = tokens.ids.shape
    shapes = {"tokens": (n, t, 1), "features": (n, 1, WIDTH), "entries": (n, t, WIDTH), "kept and factors": (n, t, 1)}
    kept = drawn(*shapes[what], seed=4) > 0.4 if what in shapes else None
    factors = factors_of(tokens) if "factors" in what else None
    found = outcome(encoder, replace(tokens, kept=kept, factors=factors))[0]
    layers = {"cls": (-1,), "mean": (-1,), "top2_mean": (-1, -2), "first_last_mean": (0, -1)}[pooling]
    for row in range(n):
        states = by_hand(encoder, tokens, row, kept, factors)
        average = sum((states[layer] for layer in layers), torch.zeros_like(states[0])) / len(layers)
        expected = average[0] if pooling == "cls" else average.mean(0)
        assert torch.allclose(found[row], expected, atol=1e-5)
    assert not torch.allclose(found, outcome(encoder, tokens)[0], atol=1e-2)


@pytest.mark.parametrize("kind", ["roberta", "electra"])
def test_packed_and_padded_passes_agree_with_gradient(
    kind: str, roberta: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other kinds of models: positions that start at 2, embeddings that are projected. Shuffled positions too."""
    encoder = encoder_of(roberta if kind == "roberta" else "wiki-tiny")
    if kind == "electra":
        torch.manual_seed(1)
        size: dict[str, Any] = {"hidden_size": WIDTH, "embedding_size": 16, "num_hidden_layers": 2}
        size |= {"num_attention_heads": 2, "intermediate_size": 64, "vocab_size": len(encoder.tokenizer)}
        size |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        encoder.backbone = AutoModel.from_config(AutoConfig.for_model("electra", **size)).train()
    tokens, width = tokens_of(encoder), encoder.width
    n, t = tokens.ids.shape
    order = drawn(n, t, seed=7).masked_fill(~tokens.mask, torch.inf).argsort(dim=1, stable=True)
    factors = Factors(drawn(n, 2, t, seed=1).requires_grad_(), drawn(2, width, seed=2).requires_grad_())
    kept = drawn(n, t, width, seed=4) > 0.3
    altered = Tokens(tokens.ids, tokens.mask, order, kept, factors)
    results = []
    for packs in (True, False):
        monkeypatch.setattr(Encoder, "runs_packed", packs)
        factors.tokens.grad = factors.features.grad = None
        results.append(
            [*outcome(encoder, altered), *(gradient_of(part) for part in (factors.tokens, factors.features))]
        )
    assert len(results[0]) == len(results[1]) > 30
    assert all(torch.allclose(a, b, atol=1e-4, rtol=1e-4) for a, b in zip(*results, strict=True))
    assert (results[0][-1] != 0).all()
    assert (results[0][-2][tokens.mask[:, None].expand(n, 2, t)] != 0).all()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("pooling", ["cls", "top2_mean"])
def test_what_is_neutral_changes_no_bit(path: str, pooling: str, precision: str) -> None:
    encoder = encoder_of(dropout=0.3, pooling=pooling)
    encoder.precision = precision
    tokens = tokens_of(encoder)
    n, t = tokens.ids.shape
    expected = outcome(encoder, tokens)
    neutral = [Tokens(tokens.ids, tokens.mask, tokens.position_ids)]
    neutral += [replace(tokens, kept=torch.ones(*shape, dtype=torch.bool)) for shape in ((n, t, 1), (n, 1, WIDTH))]
    neutral += [replace(tokens, factors=ones(tokens, k)) for k in (1, 3)]
    for one in neutral:
        found = outcome(encoder, one)
        assert len(found) == len(expected) > 30
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert not any(part._forward_hooks for part in encoder.backbone.modules()) or pooling == "top2_mean"


def test_views_of_one_pass_keep_what_is_theirs(path: str) -> None:
    """Different widths, by token, by feature and not at all: as in passes of their own."""
    encoder = encoder_of()
    long, short = tokens_of(encoder), tokens_of(encoder, TEXTS[1:3])
    views = [
        replace(long, kept=drawn(4, long.ids.shape[1], 1) > 0.4),
        short,
        replace(short, kept=drawn(2, 1, WIDTH) > 0.4),
        replace(long, kept=drawn(*long.ids.shape, WIDTH) > 0.4),
    ]
    for chosen in (views, views[1:3], views[:2]):
        for found, view in zip(encoder(*chosen), chosen, strict=True):
            assert torch.allclose(found, encoder(view)[0], atol=1e-6)
    both = stack(views[1:3], encoder.pad_id)
    assert both.kept is not None
    assert both.kept.shape == (4, 1, WIDTH)
    assert stack([long, short], encoder.pad_id).kept is None


def test_views_of_one_pass_share_the_features_of_their_factors(path: str) -> None:
    encoder = encoder_of()
    long, short = tokens_of(encoder), tokens_of(encoder, TEXTS[1:3])
    factors = factors_of(long)
    views = [replace(long, factors=factors), replace(short, factors=Factors(ones(short).tokens, factors.features))]
    for found, view in zip(encoder(*views), views, strict=True):
        assert torch.allclose(found, encoder(view)[0], atol=1e-6)
    for other in (short, replace(short, factors=ones(short))):
        with pytest.raises(ValueError, match="need the very same features in their factors, or no factors at all"):
            encoder(views[0], other)


def test_more_factors_than_states_are_refused(path: str) -> None:
    encoder = encoder_of()
    tokens = tokens_of(encoder)
    with pytest.raises(ValueError, match="factors must be for at most 3 states of 2 layers, got 4"):
        encoder(replace(tokens, factors=ones(tokens, 4)))


@pytest.mark.slow
def test_a_still_pass_is_a_call_without_dropout(path: str) -> None:
    encoder, without = encoder_of(dropout=0.3), encoder_of(dropout=0.0)
    tokens = tokens_of(encoder)
    state = torch.get_rng_state()
    found = encoder.without_dropout(tokens, tokens)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training for part in encoder.modules())
    assert all(torch.equal(a, b) for a, b in zip(found, without(tokens, tokens), strict=True))
    for precision in ("fp32", "bf16"):
        encoder.precision = without.precision = precision
        results = zip(outcome(encoder, tokens, encoder.without_dropout), outcome(without, tokens), strict=True)
        assert all(torch.equal(a, b) for a, b in results)
    encoder.eval()
    encoder.without_dropout(tokens)
    assert not any(part.training for part in encoder.modules())


@pytest.mark.slow
def test_activations_that_are_computed_twice_are_scaled_twice(path: str) -> None:
    encoder = encoder_of(dropout=0.3)
    tokens = tokens_of(encoder)
    altered = replace(tokens, kept=drawn(*tokens.ids.shape, 1) > 0.4, factors=factors_of(tokens, 3))
    calls = (encoder, encoder.without_dropout)
    once = [outcome(encoder, altered, call) for call in calls]
    encoder.backbone.activation_checkpointing_enable()
    for expected, call in zip(once, calls, strict=True):
        found = outcome(encoder, altered, call)
        assert all(torch.allclose(a, b, atol=1e-5, rtol=1e-4) for a, b in zip(found, expected, strict=True))
