"""SNCSE (Wang and Dou, 2022): a sentence's negation is a soft negative, less similar than its positive by a margin.

Each sentence makes three texts: itself in one template (anchor), itself in a second (positive), and its negation in the
second. The vector is the state at the template's mask, then the tanh head. L = InfoNCE(anchor, positive) + lambda mean(
relu(D + a) + relu(-D - b)), D = cos(anchor, negation) - cos(anchor, positive): D is kept between -b and -a (Eq. 6).

Relations: PromptBERT's templates without its denoising; a base of RankEncoder.
Paper against the released code, Sense-GVT/SNCSE: the code adds " ." to a sentence before it looks up its negation, so
a sentence without final punctuation falls back to "Not" before it. Not followed here. The paper negates with a spaCy
parse; `negation="words"` is a rule set without a parser (negation.py states how often the two agree).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Float
from torch import Tensor, nn

from cse_core.functional.contrastive import info_nce
from cse_core.lookup import check_choices
from cse_core.method import Batch, Encode, Loss, Recipe, check, no_targets
from cse_core.methods.promptbert import prompt_head
from cse_core.space import LogUniform, Space
from cse_core.text.negation import negations
from cse_core.text.prompts import check_template, closed_prompt_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEMPLATES = ('This sentence : " {} " means [MASK] .', 'This sentence of " {} " means [MASK] .')


def soft_negative(
    anchor: Float[Tensor, "n d"],
    positive: Float[Tensor, "n d"],
    negation: Float[Tensor, "n d"],
    nearest: float,
    farthest: float,
) -> Float[Tensor, ""]:
    """Return mean(relu(D + nearest) + relu(-D - farthest)), D = cos(anchor, negation) - cos(anchor, positive) (Eq. 6).

    It is zero if the negation's cosine is lower than the positive's by at least `nearest` and at most `farthest`.
    D and both margins are differences of cosines.
    """
    difference = F.cosine_similarity(anchor, negation) - F.cosine_similarity(anchor, positive)
    return (F.relu(difference + nearest) + F.relu(-difference - farthest)).mean()


@dataclass(frozen=True, kw_only=True)
class SNCSE:
    """`nearest` and `farthest` are the paper's a and b, `margin_weight` its lambda."""

    name: ClassVar[str] = "sncse"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"margin_weight": LogUniform(1e-4, 1e-2), "nearest": (0.05, 0.1, 0.2)}
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.05
    first: str = TEMPLATES[0]  # of anchors, and at test
    second: str = TEMPLATES[1]
    margin_weight: float = 1e-3
    nearest: float = 0.1
    farthest: float = 0.3
    negation: Literal["words", "spacy"] = "words"

    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")
        check("margin_weight", self.margin_weight, lambda w: w >= 0, "zero or positive")
        if not 0 <= self.nearest <= self.farthest:
            raise ValueError(f"margins must satisfy 0 <= nearest <= farthest, got {self.nearest} and {self.farthest}")
        check_choices(self)
        for template in (self.first, self.second):
            check_template(template)

    @property
    def substituted(self) -> str:
        """The substitute for a part of the paper that is not available; "" if there is none."""
        return "word lists for the paper's parser in negations" if self.negation == "words" else ""

    def examples(
        self, texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int
    ) -> dict[str, list[list[int]]]:
        """Return sentence, sentence and negation inside their templates; max_length counts the template."""
        columns = {
            "anchor": (texts, self.first),
            "positive": (texts, self.second),
            "negation": (negations(texts, self.negation), self.second),
        }
        return {
            name: closed_prompt_ids(sentences, template, tokenizer, max_length)
            for name, (sentences, template) in columns.items()
        }

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the tanh head."""
        return prompt_head((), encoder, generator)

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return InfoNCE of anchors and positives, in nats, plus the weighted margin loss of negations' cosines."""
        states = encode(batch["anchor"], batch["positive"], batch["negation"])
        anchor, positive, negation = (modules["head"](h) for h in states)
        contrastive = info_nce(anchor, positive, self.temperature, left_out=batch.duplicates)
        margin = soft_negative(anchor, positive, negation, self.nearest, self.farthest)
        terms = {"contrastive": contrastive, "margin": margin}
        return Loss(contrastive + self.margin_weight * margin, terms, (anchor, positive))


def _recipe(batch_size: int, learning_rate: float, weight: float, source: str) -> Recipe:
    return Recipe(
        SNCSE(margin_weight=weight, negation="spacy"),
        batch_size=batch_size,
        learning_rate=learning_rate,
        pooling="mask",
        template=TEMPLATES[0],
        source=source,
    )


PUBLISHED = {
    "bert-base-uncased": _recipe(256, 1e-5, 1e-3, "paper and released script"),
    "bert-large-uncased": _recipe(128, 5e-6, 1e-3, "paper and released script"),
    "roberta-base": _recipe(256, 1e-5, 5e-4, "paper and released script"),
    "roberta-large": _recipe(128, 5e-6, 5e-4, "paper and released script"),
}
