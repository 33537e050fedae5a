"""What a step of a method costs: counted in one step of it on wiki-tiny, so that no list of methods is kept by hand.

The unit is a row: `LENGTH` tokens that pass an encoder, padding included. Heads, whitening and sorting are left out,
and an encoder that a method brings is taken to be as large as the run's own.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cse_core.data.batches import pad
from cse_core.method import Batch, EncoderRef, Method, Targets, Tokens, VectorScorer
from cse_core.models.encoder import Encoder
from cse_core.run import Run
from experiments.schema.scales import SCALES, WIKI_TINY

LENGTH = 32  # tokens that examples are cut to
BACKWARD = 2  # rows' work of a backward pass for each row of its forward pass
# All beyond LENGTH and one beyond twice as much, as the longest of a batch are; as many clauses as Wikipedia's have.
SENTENCES = (
    "The old stone bridge over the river was closed to all traffic in 1987, because two of its pillars had been "
    "badly damaged by a flood, and a tunnel was built in its place by the province.",
    "She studied law and the history of art at the University of Vienna, where her father taught pure and applied "
    "mathematics at the technical faculty for more than thirty years.",
    "There are eleven public primary schools, four secondary schools, two colleges of music and a large technical "
    "university in the eastern part of the district around the old harbour of the city, and seven museums, three "
    "theatres, an opera house, a botanical garden, two hospitals and a railway station on the western side of the "
    "river.",
    "The first edition of the large dictionary of the language sold poorly in the north of the country, but a "
    "second one was ordered by the publisher and translated into nine European languages.",
    "The national youth orchestra toured South America in the spring of 1962 and recorded two symphonies of the "
    "nineteenth century under its new principal conductor in a theatre in Buenos Aires.",
    "Its leaves are eaten by the larvae of several moths and butterflies of the region, while the seeds are "
    "spread by birds in autumn and germinate on wet ground in the following spring.",
    "He played for three clubs of the second division of his country before he became a coach of young players "
    "and a commentator for the local radio station of his home town.",
    "The company of two brothers that had built the engines of these ships for the navy was sold to a large "
    "foreign bank for almost nothing at the end of the year 2004.",
)


@dataclass(frozen=True)
class StepCost:
    """Rows for each sentence of the corpus, and what a run holds in memory beside its own encoder.

    `kept` are the rows with a gradient whose activations are held at once: an attack frees those of its earlier passes.
    `embedded` are the rows that finished encoders (teachers, bases) embed once before training, for each sentence;
    `sampled`, the corpus sentences that they embed besides; `shared`, the vectors that every step reads whole.
    """

    examples: float
    forward: float
    with_gradient: float
    kept: float
    embedded: tuple[tuple[EncoderRef, float], ...] = ()
    sampled: tuple[tuple[EncoderRef, int], ...] = ()
    shared: int = 0
    trained_encoders: int = 0
    frozen_encoders: int = 0

    @property
    def work(self) -> float:
        """The work of a step for each sentence, in rows of a forward pass."""
        return self.forward + BACKWARD * self.with_gradient


class CountingEncoder(Encoder):
    """An encoder that keeps count of its training passes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.passes: list[tuple[float, bool]] = []  # rows, and whether they keep a gradient

    def forward(self, *tokens: Tokens) -> tuple[Float[Tensor, "_ d"], ...]:
        vectors = super().forward(*tokens)
        longest = max(part.ids.shape[1] for part in tokens)
        self.passes.append((sum(len(part.ids) for part in tokens) * longest / LENGTH, vectors[0].requires_grad))
        return vectors

    def states(self, tokens: Tokens) -> Float[Tensor, "n t d"]:
        states = super().states(tokens)
        self.passes.append((tokens.ids.numel() / LENGTH, states.requires_grad))
        return states


@dataclass
class SavedTensors:
    """Counts the bytes that graphs hold for their backward passes: in all, now, and at most at once."""

    all: int = 0
    now: int = 0
    most: int = 0

    def save(self, tensor: Tensor) -> "SavedTensor":
        """Return what a graph holds in a tensor's place."""
        self.all, self.now = self.all + tensor.nbytes, self.now + tensor.nbytes
        self.most = max(self.most, self.now)
        return SavedTensor(tensor, self)

    @property
    def share(self) -> float:
        """The largest share of all these bytes that was held at once."""
        return self.most / self.all if self.all else 1.0


class SavedTensor:
    """A tensor that a graph holds; its end is counted."""

    def __init__(self, value: Tensor, count: SavedTensors) -> None:
        self.value, self.count = value, count

    def __del__(self) -> None:
        self.count.now -= self.value.nbytes


@dataclass
class CountingSource:
    """A source of random vectors that keeps count of what it is asked for."""

    examples: int
    embedded: list[EncoderRef] = field(default_factory=list)
    sampled: list[tuple[EncoderRef, int]] = field(default_factory=list)

    def vectors(
        self, encoder: EncoderRef, *, select: str, column: str | None = None, scorer: VectorScorer | None = None
    ) -> Float[Tensor, "examples d"]:
        """Return random vectors."""
        self.embedded.append(encoder)
        return torch.randn(self.examples, 8)

    def sample(self, encoder: EncoderRef, *, select: str, size: int, seed: int) -> Float[Tensor, "size d"]:
        """Return random vectors."""
        self.sampled.append((encoder, size))
        return torch.randn(size, 8)


def step_cost(run: Run) -> StepCost:
    """Count the cost of a run's method; raise a ValueError if its step can't be made on wiki-tiny."""
    try:
        return _count(run.method, run.pooling, run.template)  # ty: ignore[invalid-argument-type] - a frozen dataclass
    except Exception as error:  # whatever a method raises on a backbone that it was not made for
        raise ValueError(f"method {run.method.name}: its step can't be made on {WIKI_TINY.name}: {error}") from error


@cache
def padded_rows(longest: int) -> float:
    """Return the rows to which a GPU pads an example of a batch cut to `longest` tokens: 1 for SimCSE's LENGTH.

    Few sentences of Wikipedia are longer than the longest of SENTENCES: without a limit, batches are about as long.
    """
    tokens: Any = _encoder("cls", "").tokenizer(list(SENTENCES))
    return min(longest, max(map(len, tokens["input_ids"]))) / LENGTH


@cache
def _count(method: Method, pooling: str, template: str) -> StepCost:
    small = SCALES["small"].rescale(method, "bert-base-uncased")  # fields that wiki-tiny allows
    with torch.random.fork_rng(devices=[]), _one_thread():
        torch.manual_seed(0)
        encoder = _encoder(pooling, template)
        encoder.passes.clear()
        modules = small.modules(encoder, torch.Generator().manual_seed(0)).train()
        columns = small.examples(SENTENCES, encoder.tokenizer, LENGTH)
        tokens = {name: pad(ids, encoder.pad_id) for name, ids in columns.items()}
        count = len(next(iter(tokens.values())).ids)
        batch = Batch(torch.arange(count), tokens, torch.Generator().manual_seed(0))
        targets = small.targets(CountingSource(count))
        others = _count_transformer_passes(modules)
        saved = SavedTensors()
        with torch.autograd.graph.saved_tensors_hooks(saved.save, lambda tensor: tensor.value):
            loss = small.loss(encoder, batch, modules, targets.at(batch.rows, encoder.device))
        del loss  # its graph has been held until here, as until a backward pass
        source = CountingSource(count)
        shared = _shared_rows(method.targets(source))
    passes = [*others, *(made for each in (encoder, *modules.modules()) for made in getattr(each, "passes", ()))]
    trained = [any(p.requires_grad for p in transformer.parameters()) for transformer in _transformers(modules)]
    sentences = len(SENTENCES)
    with_gradient = sum(rows for rows, gradient in passes if gradient) / sentences
    return StepCost(
        examples=count / sentences,
        forward=sum(rows for rows, _ in passes) / sentences,
        with_gradient=with_gradient,
        kept=with_gradient * saved.share,
        embedded=tuple((ref, count / sentences) for ref in source.embedded),
        sampled=tuple(source.sampled),
        shared=shared,
        trained_encoders=sum(trained),
        frozen_encoders=len(trained) - sum(trained),
    )


@contextmanager
def _one_thread() -> Generator[None]:
    """Use one thread: a step of eight sentences is too small for more, and on busy cores they wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@cache
def _encoder(pooling: str, template: str) -> Any:
    generator = torch.Generator().manual_seed(0)
    return CountingEncoder.from_pretrained(
        WIKI_TINY.name, pooling=pooling, template=template, generator=generator
    ).train()


def _transformers(modules: nn.ModuleDict) -> list[nn.Module]:
    """Return the transformers that a method brings."""
    from transformers import PreTrainedModel  # lazy: slow import

    return [each for each in modules.modules() if isinstance(each, PreTrainedModel) and each.base_model is each]


def _count_transformer_passes(modules: nn.ModuleDict) -> list[tuple[float, bool]]:
    """Return the passes of the transformers that a method brings, filled as they are made."""
    passes: list[tuple[float, bool]] = []

    def note(_module: nn.Module, _inputs: object, output: Any) -> None:
        n, t, _ = output[0].shape
        passes.append((n * t / LENGTH, output[0].requires_grad))

    for held in _transformers(modules):
        held.register_forward_hook(note)
    return passes


def _shared_rows(targets: Targets) -> int:
    return sum(len(values) for values in targets.shared.values())
