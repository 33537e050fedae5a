"""CT, Contrastive Tension (Carlsson et al., ICLR 2021): two encoders agree on one sentence and not on different ones.

Two copies of the backbone, f1 and f2, are trained without dropout. A batch consists of groups of K + 1 sentences: f1
reads the first of a group, f2 all of it. For a pair, x = f1(a) . f2(b) is the dot product of means over the last layer.
L = mean over pairs of log(1 + e^-x) if both are the same sentence, otherwise of log(1 + e^x). f2 is kept.

Relations: no setting is SimCSE. `negatives=0` leaves only pairs of the same sentence, on which the two encoders can
agree at no cost: a check that the other pairs matter.
Paper against the authors' code, FreddeFrallan/Contrastive-Tension, and sentence-transformers':
- D1: in the paper's figure the anchor is in all pairs of a group, (A, A), (A, B), ..., (A, H), the default. In the code
  each other pair is of two further sentences: `pairs="independent"`, groups of 1 + 2K;
- D2: mean over pairs (authors) or sum (sentence-transformers): the same to RMSprop, but not to clipping. Here mean;
- D3: the authors clip no gradient; this project's training clips its norm at 1;
- D4: their code scores, at each evaluation, whichever copy is better on dev; here always f2;
- D5: their code has dropout off; the paper has no statement on it that we found;
- D6: they draw pairs with replacement, so a pair of "different" sentences may be one; here only duplicates may.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cse_core.lookup import check_choices
from cse_core.method import Batch, Encode, Loss, Recipe, Tokens, check, no_targets, single_column, to_device
from cse_core.space import Space

Pairs = Literal["anchored", "independent"]


def pair_losses(
    first: Float[Tensor, "p d"], second: Float[Tensor, "p d"], same: Bool[Tensor, " p"]
) -> Float[Tensor, " p"]:
    """Return log(1 + e^-x) of pairs of the same sentence and log(1 + e^x) of others, x the dot product; in nats."""
    products = (first * second).sum(1)
    return F.softplus(torch.where(same, -products, products))


def group_pairs(sentences: int, negatives: int, pairs: str = "anchored") -> tuple[list[int], list[int]]:
    """Return the rows of the batch that f1 reads and those that f2 reads, one of each per pair.

    Anchored: the first of each K + 1 with each of them. Independent: the first of each 1 + 2K with itself, and K pairs
    of the others. An incomplete last group makes as many pairs as it can.
    """
    left: list[int] = []
    right: list[int] = []
    size = 1 + negatives * (1 if pairs == "anchored" else 2)
    for start in range(0, sentences, size):
        others = min(size, sentences - start) - 1
        if pairs == "anchored":
            left += [start] * (1 + others)
            right += range(start, start + 1 + others)
        else:
            half = others // 2
            left += range(start, start + 1 + half)
            right += [start, *range(start + 1 + half, start + 1 + 2 * half)]
    return left, right


@dataclass(frozen=True, kw_only=True)
class CT:
    """`negatives` is the paper's K. There is no temperature."""

    name: ClassVar[str] = "ct"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"negatives": (3, 7, 15), "dropout": ()}

    negatives: int = 7
    pairs: Pairs = "anchored"

    examples = single_column
    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check("negatives", self.negatives, lambda k: k >= 0, "zero or positive")
        check_choices(self)

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return f1, a second encoder that is trained with the run's own, f2."""
        return nn.ModuleDict({"first": encoder.clone()})

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return the mean logistic loss over the batch's pairs, in nats; each sentence passes an encoder once."""
        text = batch["text"]
        left, right = group_pairs(len(text.ids), self.negatives, self.pairs)
        (first,), (second,) = modules["first"](_rows(text, left)), encode(_rows(text, right))
        pairs = [a == b for a, b in zip(left, right, strict=True)]
        device = text.ids.device
        same, a, b = (to_device(torch.tensor(values), device) for values in (pairs, _places(left), _places(right)))
        losses = pair_losses(first[a], second[b], same)
        counts = {"same": sum(pairs), "different": len(pairs) - sum(pairs)}
        chosen = {"same": same, "different": ~same}
        terms = {name: (losses * chosen[name]).sum() / count for name, count in counts.items() if count}
        return Loss(losses.mean(), terms)


def _rows(tokens: Tokens, rows: list[int]) -> Tokens:
    """Return the distinct ones of these rows, in ascending order."""
    distinct = to_device(torch.tensor(sorted(set(rows))), tokens.ids.device)
    return Tokens(tokens.ids[distinct], tokens.mask[distinct])


def _places(rows: list[int]) -> list[int]:
    """Return the place of each row among the distinct ones."""
    place = {row: i for i, row in enumerate(sorted(set(rows)))}
    return [place[row] for row in rows]


def _recipe(pairs: Pairs, batch_size: int) -> Recipe:
    return Recipe(
        CT(pairs=pairs),
        batch_size=batch_size,
        learning_rate=1e-5,
        dropout=0.0,
        max_length=75,
        eval_steps=500,
        optimizer="rmsprop",
        schedule="staircase",
        pooling="mean",
        fixed=("dropout", "optimizer", "schedule"),
        source="released code, hyperparameters from the original paper: 16 pairs, 5,000 steps",
    )


PUBLISHED = {
    "bert-base-uncased": _recipe("anchored", 16),
    ("independent", "bert-base-uncased"): _recipe("independent", 30),
}
