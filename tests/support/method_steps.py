"""Shared by tests of methods: one training step of a method, and checks of its loss and of refused settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cse_core.data.batches import pad
from cse_core.method import Batch, EncoderRef, Loss, Method, Tokens, VectorScorer, innermost
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.sncse import SNCSE
from cse_core.models.encoder import Encoder
from cse_core.seeding import generator_for
from tests.support.encoders import wiki_tiny
from tests.support.method_oracles import slopes

TEXTS = ["a cat sat on a mat", "the river rose", "snow fell", "two old men argued about fish", "no", "x y"]
HEADLESS = nn.ModuleDict({"head": nn.Identity()})


class Encoded:
    """An Encode made from a function from Tokens to vectors; it records the tokens of each pass."""

    def __init__(self, embed: Callable[..., tuple[Tensor, ...]]) -> None:
        self.embed, self.asked = embed, list[tuple[Tokens, ...]]()

    def __call__(self, *tokens: Tokens) -> tuple[Tensor, ...]:
        self.asked.append(tokens)
        return self.embed(*tokens)

    without_dropout = __call__

    def states(self, tokens: Tokens) -> Tensor:
        raise NotImplementedError


class Views(Encoded):
    """An Encode that returns the same vectors for any tokens."""

    def __init__(self, *views: Tensor) -> None:
        super().__init__(lambda *tokens: views)


class NoSource:
    """A Source that must not be used."""

    def vectors(
        self, encoder: EncoderRef, *, select: str, column: str | None = None, scorer: VectorScorer | None = None
    ) -> Tensor:
        raise AssertionError(f"asked for vectors of {encoder}")

    def sample(self, encoder: EncoderRef, *, select: str, size: int, seed: int) -> Tensor:
        raise AssertionError(f"asked for a sample under {encoder}")


class Known:
    """A Source whose vectors depend only on the arguments; it records its calls and their results."""

    def __init__(self, examples: int = len(TEXTS)) -> None:
        self.examples, self.asked, self.given = examples, list[tuple](), list[Tensor]()

    def vectors(
        self, encoder: EncoderRef, *, select: str, column: str | None = None, scorer: VectorScorer | None = None
    ) -> Tensor:
        return self._draw(self.examples, 0, encoder, select, column, *([scorer] if scorer else []))

    def sample(self, encoder: EncoderRef, *, select: str, size: int, seed: int) -> Tensor:
        return self._draw(size, seed, encoder, select, size, seed)

    def _draw(self, n: int, seed: int, *asked: Any) -> Tensor:
        self.asked.append(asked)
        self.given.append(torch.randn(n, 16, generator=generator_for(seed, "/".join(map(str, asked)))))
        return self.given[-1]


def seeded(seed: int = 2) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def template_of(method: Method) -> str:
    """The template of the first view; empty if the method has none."""
    inner = innermost(method)
    return inner.first if isinstance(inner, PromptBERT | SNCSE) else ""


def pooling_of(method: Method) -> Any:
    """The pooling of a method's runs."""
    return "ngrams" if innermost(method).name == "isbert" else "mask" if template_of(method) else "cls"


def encoder_for(method: Method, dropout: float = 0.3) -> Encoder:
    """wiki-tiny, with the method's first template if it has any. It is shared: a test must reset what it changes."""
    return _encoder(pooling_of(method), template_of(method), dropout)


@cache
def _encoder(pooling: str, template: str, dropout: float) -> Encoder:
    about: Any = {"pooling": pooling, "template": template, "generator": seeded(0)}
    return Encoder.from_pretrained("wiki-tiny", dropout=dropout, **about)


def encoder_of(dropout: float = 0.0, pooling: str = "cls") -> Encoder:
    """A copy of wiki-tiny to train."""
    return wiki_tiny(pooling=pooling, dropout=dropout).train()


def length_for(method: Method) -> int:
    """The length of examples: short, so that truncation shows, but with room for SNCSE's templates."""
    return 24 if innermost(method).name == "sncse" else 8


def batch_of(
    method: Any, encoder: Encoder, texts: Sequence[Any] = TEXTS, *, seed: int = 1, length: int = 12, **changes: Any
) -> Batch:
    """One batch of all texts."""
    columns = method.examples(texts, encoder.tokenizer, length)
    tokens = {name: pad(ids, encoder.pad_id) for name, ids in columns.items()}
    return Batch(torch.arange(len(next(iter(columns.values())))), tokens, seeded(seed), **changes)


def blank_batch(n: int, seed: int = 1) -> Batch:
    """A batch of n meaningless texts, for encoders that don't read them."""
    return Batch(torch.arange(n), {"text": Tokens(torch.ones(n, 2).long(), torch.ones(n, 2).bool())}, seeded(seed))


def rows_of(tokens: Tokens) -> list[list[int]]:
    """The ids of each text without padding."""
    return [ids[mask].tolist() for ids, mask in zip(tokens.ids, tokens.mask, strict=True)]


def loss_under(
    method: Any, encode: Any, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor] | None = None
) -> Loss:
    """A method's loss in a training pass with fixed dropout."""
    if isinstance(encode, Encoder):
        encode.train()
    modules.train()
    torch.manual_seed(3)
    return method.loss(encode, batch, modules, targets or {})


def views_of(loss: Loss) -> tuple[Tensor, Tensor]:
    assert loss.views is not None
    return loss.views


def gradient_of(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad


@dataclass(frozen=True)
class Step:
    """A training step: loss, batch, modules, all tensors that a second step must repeat, and generators' states."""

    loss: Loss
    batch: Batch
    modules: Any
    bits: list[Tensor]
    generators: list[Tensor]


def step_of(method: Any, encoder: Encoder | None = None, *, seed: int = 1, **about: Any) -> Step:
    """A step with new modules: its loss, views and gradients, and the numbers that dropout would draw next."""
    encoder, generator = encoder or encoder_for(method), seeded()
    modules = method.modules(encoder, generator)
    batch = batch_of(method, encoder, seed=seed, length=length_for(method))
    loss = loss_under(method, encoder, batch, modules, **about)
    after = torch.rand(2)
    encoder.zero_grad()
    loss.total.backward()
    parameters = nn.ModuleList([encoder, modules]).parameters()
    gradients = [p.grad.clone() for p in parameters if p.grad is not None]
    encoder.zero_grad()
    states = [batch.generator.get_state(), generator.get_state()]
    return Step(loss, batch, modules, [loss.total, *(loss.views or ()), after, *gradients], states)


def check_against_loop(
    loss: Tensor,
    loop: Callable[..., float],
    *inputs: Tensor,
    least: float = 0.0,
    rel: float = 1e-9,
    atol: float = 1e-7,
) -> None:
    """Assert that a loss and its gradients equal a loop's over numbers, and that each input's reach `least`."""
    assert loss.item() == pytest.approx(loop(*inputs), rel=rel, abs=1e-12)
    gradients = torch.autograd.grad(loss, inputs)
    for gradient, expected in zip(gradients, slopes(loop, *inputs), strict=True):
        assert torch.allclose(gradient, expected, atol=atol)
        assert expected.abs().max() >= least


def on_lists(loop: Callable[..., float]) -> Callable[..., float]:
    """Turn a loop over lists into one over tensors."""
    return lambda *tensors: loop(*(x.tolist() for x in tensors))


def refuses(make: Callable[..., Any], *wrong: tuple[Mapping[str, Any], str]) -> Any:
    """A test that settings are refused with an error that says what was expected and what was given."""

    @pytest.mark.parametrize(("changes", "message"), wrong)
    def test(changes: Mapping[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make(**changes)

    return test
