"""MoCoSE (Cao et al., Findings of ACL 2022): momentum contrast for sentences, with a predictor and a long queue.

An online branch p, g, q on the encoder's vector h1 makes the query. A target branch makes the key: moving averages p',
g' on the slow encoder's vector h2, with dropout on. No gradient reaches the target branch:
query = q(g(p(h1))), key = g'(p'(h2)), p: Linear; g: Linear, LayerNorm, dropout; q: Linear, LayerNorm, dropout, Linear,
tanh. L = -1/n sum_i log( e^{cos(query_i, key_i)/t} / sum_k e^{cos(query_i, k)/t} ), k over the n keys and the queue of
earlier keys. Before the keys of update u = 1, 2, ... the target branch moves with decay 1 - (1 - a)(cos(pi u/T) + 1)/2.

Relations: no setting is SimCSE, whose loss has neither predictor nor slow encoder.
Paper (and its authors' slides) against the released code, xbdxwyh/mocose:
- D1: its trainer keeps the checkpoint that is best on the seven STS test sets, and its notebook prints that maximum as
  the result. Here the dev set of STS-B chooses; the published row is marked "selected on test";
- D2: its transfer scores are accuracies on dev sets (`devacc` in `evalTransferModel`);
- D3: its keys are not detached, so gradient reaches the target projection and, through the frozen encoder, the
  embeddings, which both branches share. Here the whole target branch is slow and without gradient, as the paper says;
- D4: T, here `momentum_steps`, is 15,000 whatever a run's length; at batch 64 the decay reaches 1 and falls again. Its
  count of updates is not saved; here it is;
- D5: the queue starts with random unit vectors, `first` of them;
- D6: its p starts from BERT's pre-trained pooling layer, which our backbones and RoBERTa don't have. Here p, like all
  heads, starts with normal weights of deviation 0.02 and zero bias;
- D7: its adversarial step of 5e-9 is one unit in the last place of an embedding, by another batch's gradient: not here;
- D8: its corpus has 995,447 lines, as its reader of CSV joins lines at quotes; here all lines.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cse_core.functional.contrastive import info_nce
from cse_core.method import Batch, Encode, Loss, Recipe, check, no_targets, single_column
from cse_core.models.momentum import Queue, Slow, cosine_decay
from cse_core.space import Space

DROPOUT = 0.1  # of the heads


def pooler(width: int) -> nn.Linear:
    """Return p, a linear map."""
    return nn.Linear(width, width)


def projection(width: int) -> nn.Sequential:
    """Return g: linear map, LayerNorm, dropout."""
    return nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12), nn.Dropout(DROPOUT))


def predictor(width: int) -> nn.Sequential:
    """Return q: as g, then a second linear map and tanh; only the online branch has it."""
    return nn.Sequential(*projection(width), nn.Linear(width, width), nn.Tanh())


@dataclass(frozen=True, kw_only=True)
class MoCoSE:
    """`first` of the queue's vectors are random ones at the start; `momentum` is the decay at the start, the paper's a.

    `momentum_steps` is T: the slow branch moves less and less until update T. A very large T keeps the decay constant.
    """

    name: ClassVar[str] = "mocose"
    version: ClassVar[int] = 1
    # Epochs are fixed, as `momentum_steps` fits one length of training.
    space: ClassVar[Space] = {"queue_size": (256, 512, 1024), "momentum": (0.7, 0.85, 0.95), "epochs": ()}
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.05
    queue_size: int = 512
    first: int = 128
    momentum: float = 0.85
    momentum_steps: int = 15_000

    examples = single_column
    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")
        check("queue_size", self.queue_size, lambda m: m >= 0, "zero or positive")
        check("first", self.first, lambda m: 0 <= m <= self.queue_size, f"in [0, {self.queue_size}], the queue_size")
        check("momentum", self.momentum, lambda m: 0 <= m <= 1, "in [0, 1]")
        check("momentum_steps", self.momentum_steps, lambda s: s >= 1, "at least 1")

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the three heads, the slow encoder with slow copies of the first two, and the queue."""
        width = encoder.width
        heads = {"pooler": pooler(width), "projection": projection(width), "predictor": predictor(width)}
        modules = nn.ModuleDict(heads)
        for part in modules.modules():
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=0.02, generator=generator)
                nn.init.zeros_(part.bias)
        slow = Slow(encoder, dropout=True)
        for name in ("pooler", "projection"):
            slow.follow(modules[name])
        modules["slow"] = slow
        modules["queue"] = Queue(self.queue_size, width, self.first, generator)
        return modules

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return InfoNCE of queries among this batch's keys and the queue's, in nats; the queue then takes the keys."""
        (h1,) = encode(batch["text"])
        slow: Any = modules["slow"]
        queue: Any = modules["queue"]
        slow.update(cosine_decay(self.momentum, slow.updates + 1, self.momentum_steps))
        query = modules["predictor"](modules["projection"](modules["pooler"](h1)))
        with torch.no_grad():
            (key,) = slow(batch["text"])
            for head in slow.copies:
                key = head(key)
        earlier = queue.newest if len(queue.newest) else None
        contrastive = info_nce(query, key, self.temperature, earlier, left_out=batch.duplicates)
        queue.push(key)
        return Loss(contrastive, {"contrastive": contrastive}, (query, key))


def _recipe(batch_size: int, learning_rate: float) -> Recipe:
    source = "authors' slides and released notebook; evaluation every 125 steps and selection on STS-B dev: ours"
    return Recipe(MoCoSE(), batch_size=batch_size, learning_rate=learning_rate, weight_decay=1e-6, source=source)


PUBLISHED = {"bert-base-uncased": _recipe(64, 3e-5), "bert-large-uncased": _recipe(32, 1e-5)}
