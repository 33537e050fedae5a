"""SimCSE (Gao, Yao and Chen, EMNLP 2021), unsupervised: the baseline and the teacher of the other methods.

A sentence passes the encoder twice in one batch, with different dropout masks; the two views are a positive pair and
the other sentences' second views are the negatives. The tanh head is trained and then dropped.

Relations: every other method here adds something to this one, and most have a setting that equals it bit for bit.
Departures: none known between paper and released code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from cse_core.functional.contrastive import info_nce
from cse_core.method import Batch, Encode, Loss, Recipe, check, no_targets, single_column, tanh_head


@dataclass(frozen=True, kw_only=True)
class SimCSE:
    """`temperature` is the paper's tau."""

    name: ClassVar[str] = "simcse"
    version: ClassVar[int] = 1

    temperature: float = 0.05

    examples = single_column
    modules = tanh_head
    targets = no_targets

    @staticmethod
    def recipes() -> Mapping[str, Recipe]:
        """Return the published settings by backbone."""
        return PUBLISHED

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return InfoNCE between the heads of two dropout views."""
        z1, z2 = (modules["head"](h) for h in encode(batch["text"], batch["text"]))
        contrastive = info_nce(z1, z2, self.temperature)
        return Loss(contrastive, {"contrastive": contrastive}, (z1, z2))


PUBLISHED = {
    "bert-base-uncased": Recipe(SimCSE(), batch_size=64, learning_rate=3e-5, source="released README, Training"),
    "bert-large-uncased": Recipe(SimCSE(), batch_size=64, learning_rate=1e-5, source="released README, Training"),
    "roberta-base": Recipe(SimCSE(), batch_size=512, learning_rate=1e-5, source="released README, Training"),
    "roberta-large": Recipe(SimCSE(), batch_size=512, learning_rate=3e-5, source="released README, Training"),
}
