"""Measure what a step of a method costs: torch counts its operations, so that no list of methods is kept by hand.

The step is a real one, on wiki-tiny, because what a method does depends on the content of its tensors: on lengths and
chosen tokens. It pads as a GPU does. A count takes a tenth of a second, and the papers' tables have some hundred
methods. So `analysis/measured/step_costs.csv` stores their counts, and make_tables.py adds missing ones.
"""

import csv
import io
import json
import re
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cse_core.data.atomic_write import atomic_write
from cse_core.data.batches import pad
from cse_core.method import Batch, EncoderRef, Method, Tokens, VectorScorer
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import ASSETS
from cse_core.run import Run, canonical, key_of
from experiments.schema.scales import SCALES, WIKI_TINY
from experiments.schema.study import with_seed

REMEMBERED = Path(__file__).parents[2] / "analysis/measured/step_costs.csv"
LENGTH = 32  # tokens that SimCSE's examples are cut to
LONGEST = 68  # tokens of the longest of SENTENCES
ROWS = 6  # passes of a sentence that SimCSE's step takes: two forward, and two backward that take twice as much each
LAYER = re.compile(r"\.encoder\.layer\.\d+$")  # in the names of modules
PUBLISHED = {  # layers and width
    "bert-base-uncased": (12, 768),
    "bert-large-uncased": (24, 1024),
    "roberta-base": (12, 768),
    "roberta-large": (24, 1024),
}
# All are longer than LENGTH, one more than twice, like the longest of a batch; with as many clauses as Wikipedia's.
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
class Size:
    """A BERT's layers and their width."""

    layers: int
    width: int

    @property
    def parameters(self) -> int:
        """The parameters of all layers: four projections, and two in the feed-forward part, four times as wide."""
        return self.layers * 12 * self.width**2


@cache
def size_of(backbone: str) -> Size | None:
    """Return the size of an embedded or published backbone; None for others, which would have to be fetched."""
    path = ASSETS / backbone / "config.json"
    if path.is_file():
        config = json.loads(path.read_text())
        return Size(config["num_hidden_layers"], config["hidden_size"])
    return Size(*PUBLISHED[backbone]) if backbone in PUBLISHED else None


@dataclass(frozen=True)
class StepCost:
    """What a method's step takes for each sentence of the corpus, on wiki-tiny.

    `layers` are operations in transformer layers, `others` all other ones, and `examples` the number of examples.
    `embedded` has the finished encoders (teachers, bases) that embed examples once before training, with the number of
    examples for each sentence; `sampled`, those that embed further corpus sentences, with their number.
    """

    method: str
    layers: float
    others: float
    examples: float = 1.0
    embedded: tuple[tuple[EncoderRef, float], ...] = ()
    sampled: tuple[tuple[EncoderRef, int], ...] = ()

    def at(self, size: Size | None) -> float:
        """Return the operations on a backbone of a size: layers grow with their parameters, heads with their width."""
        own = size_of(WIKI_TINY.name)
        if own is None or size is None:
            return self.layers + self.others
        return self.layers * size.parameters / own.parameters + self.others * size.width / own.width


class PaddedEncoder(Encoder):
    """An encoder that pads on a CPU too."""

    @property
    def runs_packed(self) -> bool:
        return False

    def states(self, tokens: Tokens) -> Float[Tensor, "n t d"]:
        """Return the states from a module's call: torch's counter learns the layers' names from it."""
        return _States(self)(tokens)


class _States(nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.inner = encoder

    def forward(self, tokens: Tokens) -> Float[Tensor, "n t d"]:
        return Encoder.states(self.inner, tokens)


@dataclass
class Requests:
    """A source of random vectors that notes each request."""

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
        return torch.randn(min(size, LENGTH), 8)


def step_cost(run: Run) -> StepCost:
    """Return the cost of a run's method; raise a ValueError if its step can't be made on wiki-tiny."""
    method = with_seed(run, 0, nested=True).method  # the seeds of teachers change no cost
    try:
        counted = _count_of(method, run.pooling, run.template)  # ty: ignore[invalid-argument-type] - a frozen dataclass
        source = Requests(len(SENTENCES))
        run.method.targets(source)
    except Exception as error:  # whatever a method raises on a backbone that it was not made for
        raise ValueError(f"method {run.method.name}: its step can't be made on {WIKI_TINY.name}: {error}") from error
    embedded = tuple((ref, counted.examples) for ref in source.embedded)
    return replace(counted, embedded=embedded, sampled=tuple(source.sampled))


@cache
def _count_of(method: Method, pooling: str, template: str) -> StepCost:
    name = key_of({"step": canonical(method), "pooling": pooling, "template": template})
    counts = all_counts()
    if name not in counts:
        counts[name] = count(method, pooling, template)
    return counts[name]


@cache
def all_counts() -> dict[str, StepCost]:
    """Return all counts by the step's name: those in REMEMBERED, and those of this process."""
    if not REMEMBERED.is_file():
        return {}
    with REMEMBERED.open(newline="", encoding="utf-8") as file:
        return {
            line["step"]: StepCost(
                line["method"], float(line["layers"]), float(line["others"]), float(line["examples"])
            )
            for line in csv.DictReader(file)
        }


def remember() -> None:
    """Add the counts of this process to REMEMBERED."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("step", "method", "layers", "others", "examples"))
    lines = sorted(all_counts().items(), key=lambda named: (named[1].method, named[0]))
    writer.writerows((name, each.method, each.layers, each.others, each.examples) for name, each in lines)
    atomic_write(REMEMBERED, text.getvalue())


def padded_rows(longest: int) -> float:
    """Return how many times LENGTH tokens an example takes in a padded batch that is cut to `longest` tokens.

    Few Wikipedia sentences are longer than the longest of SENTENCES, so without a limit, batches are about that long.
    """
    return min(longest, LONGEST) / LENGTH


def count(method: Method, pooling: str, template: str) -> StepCost:
    """Count the operations of a method's step."""
    from torch.utils.flop_counter import FlopCounterMode  # lazy: slow import

    small = SCALES["small"].rescale(method, "bert-base-uncased")  # fields that wiki-tiny allows
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = _encoder(pooling, template)
        modules = small.modules(encoder, torch.Generator().manual_seed(0)).train()
        columns = small.examples(SENTENCES, encoder.tokenizer, LENGTH)
        tokens = {name: pad(ids, encoder.pad_id) for name, ids in columns.items()}
        examples = len(next(iter(tokens.values())).ids)
        batch = Batch(torch.arange(examples), tokens, torch.Generator().manual_seed(0))
        targets = small.targets(Requests(examples)).at(batch.rows, encoder.device)
        with FlopCounterMode(display=False) as counter:
            small.loss(encoder, batch, modules, targets).total.backward()
        encoder.zero_grad()
    layers = sum(sum(ops.values()) for name, ops in counter.flop_counts.items() if LAYER.search(name))
    total, sentences = counter.get_total_flops(), len(SENTENCES)
    return StepCost(method.name, layers / sentences, (total - layers) / sentences, examples / sentences)


@cache
def _encoder(pooling: str, template: str) -> Any:
    generator = torch.Generator().manual_seed(0)
    return PaddedEncoder.from_pretrained(
        WIKI_TINY.name, pooling=pooling, template=template, generator=generator
    ).train()
