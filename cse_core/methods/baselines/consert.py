"""ConSERT (Yan et al., ACL 2021): contrast of two views made by cheap changes of the embedding matrix.

The model's own dropout is off. View 1 sets a share of the embedding output's features to zero; view 2 shuffles the
tokens' positions. Other settings set tokens or single entries to zero. r is the mean of the last layer, without a head.
The loss is NT-Xent over the 2n vectors of both views, with p(i) as the other view of i:
l_i = -log( e^{cos(r_i, r_p(i))/t} / sum_{k != i} e^{cos(r_i, r_k)/t} ), mean over 2n.

Relations: without changes, with dropout, `contrast="one_way"`, `head="tanh"`, temperature 0.05 and [CLS] it is SimCSE,
bit for bit. Under its own loss it never is: 2n - 1 candidates, two directions.
Paper against the released code, yym6472/ConSERT:
- D1: it trains on the sentences of the seven test sets (corpus `sts_texts`), as paper and README state. Rows trained on
  it are marked; the control is the scale's Wikipedia;
- D2: the README's vectors are means of the last two layers. Loss and dev scores of the code read only the last layer,
  as the default here; rows are scored with `top2_mean`, as its final test is;
- D3: its loss is twice the paper's times 0.15, which affects AdamW only through clipping; here the paper's mean;
- D4: its scripts have learning rate 5e-7, the default; its author names 2e-7 and 2e-5 in issue 1;
- D5: dropout is off in the base script, and on, with one view unchanged, in the large one;
- D6: it stops after ten evaluations without improvement; here it never stops early, which keeps the same checkpoint
  unless a later one is better;
- its AdamW has eps 1e-6 and no bias correction; here PyTorch's. With 10 % warm-up that matters for some tens of steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from cse_core.functional.contrastive import info_nce, nt_xent
from cse_core.functional.token_views import entry_cutoff, feature_cutoff, random_order, shuffled_positions, token_cutoff
from cse_core.lookup import check_choices
from cse_core.method import Batch, Encode, Loss, Recipe, Tokens, check, no_targets, single_column, tanh_head
from cse_core.space import Space

CUTOFFS = ("token_cutoff", "feature_cutoff", "dropout")
Kind = Literal["none", "shuffle", "token_cutoff", "feature_cutoff", "dropout"]


def view(tokens: Tokens, kind: str, rate: float, width: int, generator: torch.Generator) -> Tokens:
    """Return tokens changed in one of the five ways; `width` is that of the embedding output."""
    mask = tokens.mask
    if kind == "shuffle":
        return replace(tokens, positions=shuffled_positions(mask, random_order(mask, generator)))
    if kind == "token_cutoff":
        return replace(tokens, kept=token_cutoff(mask, random_order(mask, generator), rate))
    if kind == "feature_cutoff":
        return replace(tokens, kept=feature_cutoff(random_order(mask.new_ones(len(mask), width), generator), rate))
    if kind == "dropout":
        entries = mask.unsqueeze(2).expand(-1, -1, width).flatten(1)
        return replace(tokens, kept=entry_cutoff(mask, random_order(entries, generator), rate))
    return tokens


class EmbeddingWidth(nn.Module):
    """The width of the embedding output, which `view` needs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width


@dataclass(frozen=True, kw_only=True)
class ConSERT:
    """`first` and `second` are the changes that make the two views, with a rate each where the change has one."""

    name: ClassVar[str] = "consert"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {
        "first_rate": (0.1, 0.2, 0.3),
        "first": ("feature_cutoff", "token_cutoff"),
        "dropout": (),  # the views would come from it
    }
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.1
    first: Kind = "feature_cutoff"
    second: Kind = "shuffle"
    first_rate: float = 0.2
    second_rate: float = 0.0
    contrast: Literal["both_views", "one_way"] = "both_views"  # or "one_way", as SimCSE
    head: Literal["none", "tanh"] = "none"

    examples = single_column
    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")
        check_choices(self)
        for name in ("first", "second"):
            kind, rate = getattr(self, name), getattr(self, f"{name}_rate")
            if kind in CUTOFFS:
                check(f"{name}_rate", rate, lambda r: 0 < r < 1, f"in (0, 1) for {kind}")
            else:
                check(f"{name}_rate", rate, lambda r: r == 0, f"0 for {kind}, which has no rate")

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the head, if there is one, and the width of the embedding output."""
        if {self.first, self.second} != {"none"}:
            encoder.check_can_scale()
        modules = tanh_head(self, encoder, generator) if self.head == "tanh" else nn.ModuleDict()
        modules["embeddings"] = EmbeddingWidth(encoder.width)
        return modules

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return NT-Xent between the two views, in nats."""
        width: Any = modules["embeddings"].width
        kinds = ((self.first, self.first_rate), (self.second, self.second_rate))
        views = [view(batch["text"], kind, rate, width, batch.generator) for kind, rate in kinds]
        r1, r2 = encode(*views)
        if self.head == "tanh":
            r1, r2 = modules["head"](r1), modules["head"](r2)
        contrast = nt_xent if self.contrast == "both_views" else info_nce
        contrastive = contrast(r1, r2, self.temperature, left_out=batch.duplicates)
        return Loss(contrastive, {"contrastive": contrastive}, (r1, r2))


def _recipe(method: ConSERT, dropout: float, epochs: int, eval_steps: int, source: str) -> Recipe:
    return Recipe(
        method,
        batch_size=96,
        learning_rate=5e-7,
        epochs=epochs,
        warmup=0.1,
        dropout=dropout,
        max_length=67,  # 65 word pieces and two special tokens
        eval_steps=eval_steps,
        weight_decay=0.01,
        pooling="mean",
        fixed=("dropout",),  # with another one the views would come from dropout
        source=source,
    )


PUBLISHED = {
    "bert-base-uncased": _recipe(ConSERT(), 0.0, 10, 200, "released base script"),
    "bert-large-uncased": _recipe(
        ConSERT(first="none", first_rate=0.0), 0.1, 25, 100, "released large script, with dropout and one plain view"
    ),
}
