"""ESimCSE (Wu et al., COLING 2022): SimCSE with a lengthened second view, and negatives from earlier batches.

Both views of SimCSE have the same length, which is a shortcut. Here a few word pieces of one view are repeated. Further
negatives, which need no pass with gradient, are a queue of vectors of earlier batches by a slow copy of the encoder.

With z = tanh(W h + b) and the queue's vectors q,
L = -1/n sum_i log( e^{cos(z1_i, z2_i)/t} / (sum_j e^{cos(z1_i, z2_j)/t} + sum_k e^{cos(z1_i, q_k)/t}) ).
Then slow <- lambda slow + (1 - lambda) online. The slow encoder reads the plain sentences without dropout, the head
projects its vectors, and these enter the queue, whose oldest vectors leave.

Relations: SimCSE with `repetition=0` and `queue_size=0`, bit for bit; with a queue the first step is SimCSE's.
Paper against the released code, caskcsg/sentemb:
- D1: the slow encoder of the published runs started from random weights. The code copies the online weights before it
  loads the checkpoint; all four released logs list the copy's tensors as newly initialised. Half of that start remains
  after 138 steps, 6e-7 at the selected step. `slow_start="random"` follows it;
- D2: the paper repeats 0 to max(2, rate N) of N word pieces; the code 0 to min(10, rate (N + 2)) - 1, so none of four
  word pieces or fewer at rate 0.32: `limit="released_code"`;
- D3: the paper does not say what enters the queue; the plain sentence under the trained head is the code's choice;
- D4: in the code, a batch larger than the queue makes it too long after the first step; here it never is;
- D5: the code's checkpoints hold neither queue nor slow encoder, so resuming loses them; here it does not.
Repetitions are drawn with the examples, as in the code; with one epoch that is the same as drawing them in each step. A
sentence's draw depends only on its ids, which seed it.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from cse_core.functional.contrastive import info_nce
from cse_core.lookup import check_choices
from cse_core.method import Batch, Encode, Loss, Recipe, check, check_surrounded, no_targets, single_column, tanh_head
from cse_core.models.momentum import Queue, Slow
from cse_core.seeding import seed_for
from cse_core.space import Space

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def repetition_limit(pieces: int, rate: float, limit: str = "paper") -> int:
    """Return the largest number of a sentence's word pieces that may be repeated, special tokens not counted.

    The paper's is max(2, int(rate N)), and no more than N; the released code's min(10, int(rate (N + 2))) - 1, not
    below 0.
    """
    if limit == "released_code":
        return max(min(10, int(rate * (pieces + 2))) - 1, 0)
    return min(max(2, int(rate * pieces)), pieces)


def repeat(ids: Sequence[int], places: Sequence[int]) -> list[int]:
    """Return the ids with each one at the given places repeated right after itself."""
    twice = set(places)
    return [copy for place, token in enumerate(ids) for copy in [token] * (1 + (place in twice))]


def drawn_places(ids: Sequence[int], rate: float, limit: str = "paper") -> list[int]:
    """Draw the places to repeat between a sentence's two special tokens, seeded by its ids.

    Their number is uniform from 0 to the limit; they are drawn without replacement.
    """
    draw = random.Random(seed_for(0, f"repetition/{list(ids)}"))
    inner = range(1, len(ids) - 1)
    return draw.sample(inner, draw.randint(0, repetition_limit(len(inner), rate, limit)))


def set_random(backbone: Any, generator: torch.Generator) -> None:
    """Reset a backbone to random weights, as BERT has them before pre-training.

    They are normal with the deviation of its configuration, zero for biases and padding, one for LayerNorm's scales.
    """
    deviation = backbone.config.initializer_range
    for part in backbone.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=deviation, generator=generator)
            if isinstance(part, nn.Embedding) and part.padding_idx is not None:
                nn.init.zeros_(part.weight[part.padding_idx])
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)


@dataclass(frozen=True, kw_only=True)
class ESimCSE:
    """`repetition` is the paper's rate, 0 for none; `queue_size` may be 0, then there is no slow encoder either."""

    name: ClassVar[str] = "esimcse"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"repetition": (0.1, 0.2, 0.32, 0.4), "queue_size": (64, 160, 256)}
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.05
    repetition: float = 0.32
    queue_size: int = 160
    momentum: float = 0.995  # the paper's lambda: the share of the slow weights that stays
    slow_start: Literal["online", "random"] = "online"  # or "random" weights, as in the published runs
    limit: Literal["paper", "released_code"] = "paper"  # of repetitions

    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")
        check("repetition", self.repetition, lambda r: 0 <= r <= 1, "in [0, 1]")
        check("queue_size", self.queue_size, lambda m: m >= 0, "zero or positive")
        check("momentum", self.momentum, lambda m: 0 <= m <= 1, "in [0, 1]")
        check_choices(self)

    def examples(
        self, texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int
    ) -> dict[str, list[list[int]]]:
        """Return `text`, cut to max_length, and `repeated`: its ids with repetitions, maybe longer than max_length."""
        columns = single_column(self, texts, tokenizer, max_length)
        if not self.repetition:
            return columns
        check_surrounded(self, tokenizer)
        columns["repeated"] = [repeat(ids, drawn_places(ids, self.repetition, self.limit)) for ids in columns["text"]]
        longest = max(map(len, columns["repeated"]), default=0)
        if longest > tokenizer.model_max_length:
            raise ValueError(
                f"max_length {max_length}: with repetitions a view has {longest} tokens, the backbone takes at most "
                f"{tokenizer.model_max_length}"
            )
        return columns

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the tanh head; with a queue also the slow encoder and the queue of its vectors, empty at first."""
        modules = tanh_head(self, encoder, generator)
        if self.queue_size:
            slow = Slow(encoder)
            if self.slow_start == "random":
                set_random(slow.encoder.backbone, generator)
            modules["slow"], modules["queue"] = slow, Queue(self.queue_size, encoder.width)
        return modules

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return InfoNCE of both views, in nats, with the queue as further negatives; then add this batch to it."""
        text, head = batch["text"], modules["head"]
        z1, z2 = (head(h) for h in encode(text, batch["repeated"] if self.repetition else text))
        queue: Any = dict(modules.items()).get("queue")
        negatives = queue.newest if queue is not None and len(queue.newest) else None
        contrastive = info_nce(z1, z2, self.temperature, negatives, left_out=batch.duplicates)
        if queue is not None:
            slow: Any = modules["slow"]
            slow.update(self.momentum)
            with torch.no_grad():
                queue.push(head(*slow(text)))
        return Loss(contrastive, {"contrastive": contrastive}, (z1, z2))


def _recipe(learning_rate: float, repetition: float, queue_size: int, dropout: float = 0.1) -> Recipe:
    return Recipe(
        ESimCSE(repetition=repetition, queue_size=queue_size),
        batch_size=64,
        learning_rate=learning_rate,
        dropout=dropout,
        source="released scripts and logs; the slow encoder starts from the online weights, as in the paper",
    )


PUBLISHED = {
    "bert-base-uncased": _recipe(3e-5, 0.32, 160),
    "bert-large-uncased": _recipe(1e-5, 0.32, 160),
    "roberta-base": _recipe(1e-5, 0.30, 160),
    "roberta-large": _recipe(1e-5, 0.28, 128, dropout=0.15),
}
