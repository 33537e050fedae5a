"""IS-BERT (Zhang et al., EMNLP 2020): a sentence's vector is near its own n-grams, far from other sentences'.

Convolutions of 1, 3 and 5 tokens over BERT's last states give a local vector c of each token; their mean over a
sentence's tokens is its vector g, at test too: the convolutions are part of the encoder (the poolings "ngrams"). With
T = c . g for each of a batch's N tokens and n sentences, sp(x) = log(1 + e^x):
L = mean over a token's own sentence of sp(-T) + mean over all N (n - 1) other pairs of sp(T). This is the
Jensen-Shannon estimate of mutual information.

Relations: no setting is SimCSE, which has one pass of a sentence for each of two views; here there is one pass.
Paper against the released code, yanzhangnlp/IS-BERT:
- D1: the paper's convolutions have ReLU, the default; the code's have none: `Run.pooling="ngrams_linear"`;
- D2: the code's convolutions run over the padded batch. States of padding enter the windows at a sentence's end, so a
  vector depends on its batch. Here places outside a sentence are zeros;
- D3: the code's loss is smaller by a constant, 2 log 2;
- D4: the code selects by the best of four measures on dev (cosine, Manhattan, Euclidean, dot); here cosine;
- D5: the code's means over tokens give long sentences more weight, the default; `weighting="sentences"` gives all
  sentences the same, as the paper's formula may be read;
- its AdamW has eps 1e-7 and no bias correction; here PyTorch's.
Its texts, the sentences of SNLI and MultiNLI, are not among this project's data: it trains on the scale's corpus.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Float, Int
from torch import Tensor, nn

from cse_core.functional.contrastive import column_mask
from cse_core.lookup import check_choices
from cse_core.method import Batch, Encode, Loss, Recipe, no_targets, single_column
from cse_core.models.pooling import pool
from cse_core.space import Space


def jsd_losses(
    tokens: Float[Tensor, "N d"], owners: Int[Tensor, " N"], sentences: Float[Tensor, "n d"], weighting: str = "tokens"
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the mean of sp(-T) over each token and its own sentence, and of sp(T) over each and the others, in nats.

    T is the dot product, `owners` the row of each token's sentence. A token's weight is 1 / N. With the weighting
    "sentences", all sentences have the same total weight.
    """
    if len(sentences) < 2:
        raise ValueError(f"the loss of IS-BERT needs at least two sentences, got {len(sentences)}")
    products, same = tokens @ sentences.T, column_mask(owners, len(sentences))
    shares = tokens.new_full((len(tokens),), 1 / len(tokens))
    if weighting == "sentences":
        shares = 1 / (len(sentences) * same.sum(0)[owners].to(tokens.dtype))
    others = F.softplus(products).masked_fill(same, 0).sum(1) / (len(sentences) - 1)
    return (shares * F.softplus(-products.gather(1, owners.unsqueeze(1)).squeeze(1))).sum(), (shares * others).sum()


@dataclass(frozen=True, kw_only=True)
class ISBERT:
    """`weighting` gives the same weight to all tokens or to all sentences.

    ReLU or none is the encoder's pooling, "ngrams" or "ngrams_linear".
    """

    name: ClassVar[str] = "isbert"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"weighting": ("tokens", "sentences")}
    trains_ngrams: ClassVar[bool] = True
    substituted: ClassVar[str] = "the scale's corpus for the sentences of SNLI and MultiNLI"

    weighting: Literal["tokens", "sentences"] = "tokens"

    examples = single_column
    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check_choices(self)

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the encoder's own convolutions, whose states the loss reads."""
        if encoder.ngrams is None:
            raise ValueError(f"IS-BERT trains the pooling ngrams or ngrams_linear, got {encoder.pooling}")
        return nn.ModuleDict({"ngrams": encoder.ngrams})

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return the loss that draws each token to its own sentence and away from the others, in nats, in one pass."""
        text = batch["text"]
        ngrams: Any = modules["ngrams"]
        local = ngrams.ngrams(encode.states(text), text.mask)
        owners = torch.arange(len(text.ids), device=text.mask.device).repeat_interleave(text.mask.sum(1))
        attract, repel = jsd_losses(local[text.mask], owners, pool((local,), text.mask, "mean"), self.weighting)
        return Loss(attract + repel, {"own": attract, "others": repel})


PUBLISHED = {
    "bert-base-uncased": Recipe(
        ISBERT(),
        batch_size=32,
        learning_rate=2e-6,
        warmup=0.1,
        max_length=128,
        eval_steps=1000,
        weight_decay=0.01,
        pooling="ngrams",
        source="released code's defaults, with the paper's ReLU",
    )
}
