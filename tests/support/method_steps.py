"""What tests of methods share: one step of a method, and the checks that every loss, null and refusal must pass."""

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
    """An Encode made of a function from Tokens to vectors; keeps the tokens of each pass."""

    def __init__(self, embed: Callable[..., tuple[Tensor, ...]]) -> None:
        self.embed, self.asked = embed, list[tuple[Tokens, ...]]()

    def __call__(self, *tokens: Tokens) -> tuple[Tensor, ...]:
        self.asked.append(tokens)
        return self.embed(*tokens)

    still = __call__

    def states(self, tokens: Tokens) -> Tensor:
        raise NotImplementedError


class Views(Encoded):
    """An Encode that gives the same vectors whatever it reads."""

    def __init__(self, *views: Tensor) -> None:
        super().__init__(lambda *tokens: views)


class NoSource:
    """A Source of which nothing may be asked."""

    def vectors(
        self, encoder: EncoderRef, *, select: str, column: str | None = None, scorer: VectorScorer | None = None
    ) -> Tensor:
        raise AssertionError(f"asked for vectors of {encoder}")

    def sample(self, encoder: EncoderRef, *, select: str, size: int, seed: int) -> Tensor:
        raise AssertionError(f"asked for a sample under {encoder}")


class Known:
    """A Source whose vectors follow from what is asked for; keeps what it was asked and gave."""

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
    """The template of the first view, where the method has templates."""
    inner = innermost(method)
    return inner.first if isinstance(inner, PromptBERT | SNCSE) else ""


def pooling_of(method: Method) -> Any:
    """The pooling that a method's runs have."""
    return "ngrams" if innermost(method).name == "isbert" else "mask" if template_of(method) else "cls"


def encoder_for(method: Method, dropout: float = 0.3) -> Encoder:
    """wiki-tiny, with the method's first template where it has templates. Shared: reset what a test changes."""
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
    """A batch of n texts that say nothing, for encoders that don't read."""
    return Batch(torch.arange(n), {"text": Tokens(torch.ones(n, 2).long(), torch.ones(n, 2).bool())}, seeded(seed))


def rows_of(tokens: Tokens) -> list[list[int]]:
    """The ids of each text without padding."""
    return [ids[mask].tolist() for ids, mask in zip(tokens.ids, tokens.mask, strict=True)]


def loss_under(
    method: Any, encode: Any, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor] | None = None
) -> Loss:
    """A method's loss in a training pass whose dropout is always the same."""
    if isinstance(encode, Encoder):
        encode.train()
    modules.train()
    torch.manual_seed(3)
    return method.loss(encode, batch, modules, targets or {})


@dataclass(frozen=True)
class Step:
    """A step: its loss, batch and modules, all bits that a second one would repeat, and its generators' states."""

    loss: Loss
    batch: Batch
    modules: Any
    bits: list[Tensor]
    generators: list[Tensor]


def step_of(method: Any, encoder: Encoder | None = None, *, seed: int = 1, **about: Any) -> Step:
    """A step from new modules: loss, views, gradients, and what dropout would draw next."""
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
    """Assert that a loss has the value of a loop over numbers and the slopes of it, each input's at least `least`."""
    assert loss.item() == pytest.approx(loop(*inputs), rel=rel, abs=1e-12)
    gradients = torch.autograd.grad(loss, inputs)
    for gradient, expected in zip(gradients, slopes(loop, *inputs), strict=True):
        assert torch.allclose(gradient, expected, atol=atol)
        assert expected.abs().max() >= least


def on_lists(loop: Callable[..., float]) -> Callable[..., float]:
    """A loop over lists as one over tensors."""
    return lambda *tensors: loop(*(x.tolist() for x in tensors))


def refuses(make: Callable[..., Any], *wrong: tuple[Mapping[str, Any], str]) -> Any:
    """A test that settings are refused with an error that says what was expected and what was given."""

    @pytest.mark.parametrize(("changes", "message"), wrong)
    def test(changes: Mapping[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make(**changes)

    return test
