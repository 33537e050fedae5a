"""SimCSE (Gao, Yao and Chen, EMNLP 2021), unsupervised and supervised: the baseline and the teacher of other methods.

On a corpus of one column, each sentence is encoded twice in one batch, with different dropout masks. The two views are
a positive pair, and the other sentences' second views are the negatives. The tanh head is trained and then dropped.

A second column holds each sentence's positive, which replaces its second view. A third holds its hard negative, which
is a negative for the whole batch (Eq. 5). With h+ and h- as the vectors of both,
L = mean_i -log( e^{cos(h_i, h+_i)/t} / sum_j (e^{cos(h_i, h+_j)/t} + a_ij e^{cos(h_i, h-_j)/t}) ), where a_ij is
e^hard_negative_weight for i = j and otherwise 1. The released code, too, calls the logarithm the weight. The alpha of
the paper's appendix is a_ii itself, and best at 1.

Relations: every other method here adds something to SimCSE, and most have a setting that equals it bit for bit.
Departures: none known between paper and released code. The published supervised encoders keep the head at test. Here
that needs the pooling `pooler_output`, whose layer is then the head. It starts at the backbone's weights, where the
released code draws new ones. With [CLS], as in the recipe, the head is dropped as in the unsupervised encoders.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from cse_core.functional.contrastive import info_nce
from cse_core.method import (
    COLUMNS,
    Batch,
    Encode,
    Loss,
    Recipe,
    Tokens,
    check,
    equal_texts,
    no_targets,
    tanh_head,
    text_columns,
)


@dataclass(frozen=True, kw_only=True)
class SimCSE:
    """`temperature` is the paper's tau; `hard_negative_weight` is added to the logit of a sentence's own hard negative.

    The weight has a meaning only for a corpus of three columns.
    """

    name: ClassVar[str] = "simcse"
    version: ClassVar[int] = 1
    columns: ClassVar[int] = 3  # at most: sentence, positive, hard negative
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.05
    hard_negative_weight: float = 0.0

    examples = text_columns
    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)  # under ("supervised", backbone) those for columns

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the tanh head, or no head if the encoder's pooling already contains and keeps it."""
        kept = encoder.pooling == "pooler_output"
        return nn.ModuleDict({"head": nn.Identity()}) if kept else tanh_head(self, encoder, generator)

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return InfoNCE between the heads of sentences and positives, by default a second dropout view, in nats."""
        texts = [batch[name] for name in COLUMNS if name in batch.columns]
        if self.hard_negative_weight and len(texts) < 3:
            raise ValueError(
                f"hard_negative_weight {self.hard_negative_weight} needs a corpus of three columns, got {len(texts)}"
            )
        z1, z2, *hard = (modules["head"](h) for h in encode(*(texts if len(texts) > 1 else texts * 2)))
        contrastive = info_nce(
            z1,
            z2,
            self.temperature,
            *hard,
            own_weight=self.hard_negative_weight,
            left_out=_copies(batch.duplicates, texts),
        )
        return Loss(contrastive, {"contrastive": contrastive}, (z1, z2))


def _copies(duplicates: Bool[Tensor, "n n"] | None, texts: list[Tokens]) -> Bool[Tensor, "n candidates"] | None:
    """Return which candidates are copies of a sentence or of its positive, or belong to a copy of the sentence.

    A copy's hard negative stays a negative. The sentence's own positive is never left out.
    """
    if duplicates is None or len(texts) == 1:
        return duplicates
    sentence, positive, *hard = texts
    copies = [equal_texts(sentence, other) | equal_texts(positive, other) for other in (positive, *hard)]
    copies[0] = (copies[0] | duplicates).fill_diagonal_(False)
    return torch.cat(copies, dim=1)


def _supervised_recipe(learning_rate: float) -> Recipe:
    """Return the published settings on NLI's triples, with a batch of 128 on each of four devices."""
    source = "released README and supervised script"
    return Recipe(SimCSE(), batch_size=512, learning_rate=learning_rate, epochs=3, source=source)


PUBLISHED = {
    "bert-base-uncased": Recipe(SimCSE(), batch_size=64, learning_rate=3e-5, source="released README, Training"),
    "bert-large-uncased": Recipe(SimCSE(), batch_size=64, learning_rate=1e-5, source="released README, Training"),
    "roberta-base": Recipe(SimCSE(), batch_size=512, learning_rate=1e-5, source="released README, Training"),
    "roberta-large": Recipe(SimCSE(), batch_size=512, learning_rate=3e-5, source="released README, Training"),
    ("supervised", "bert-base-uncased"): _supervised_recipe(5e-5),
    ("supervised", "bert-large-uncased"): _supervised_recipe(1e-5),
    ("supervised", "roberta-base"): _supervised_recipe(5e-5),
    ("supervised", "roberta-large"): _supervised_recipe(1e-5),
}
