"""MixCSE (Zhang et al., AAAI 2022): a negative mixed from the positive and another sentence stays hard.

Random negatives soon give no gradient. For each sentence i with a partner r(i) = i + 1 of its batch,
u_i = normalised( lambda z2_i + (1 - lambda) z2_r(i) ), lambda = 0.2, is a further negative; no gradient reaches u:
L = mean_i -log( e^{s_ii} / ( sum_j e^{s_ij} + e^{cos(z1_i, u_i)/tau} ) ), s_ij = cos(z1_i, z2_j)/tau.

Relations: SimCSE without mixed negatives (`negatives="none"`), bit for bit. With lambda = 1 the negative is the
positive itself, so the loss is at least log 2; with lambda = 0 it is the partner, once more and without gradient.
Paper against the released code, BDBC-KG-NLP/MixCSE_AAAI2022:
- E1: a column that is left out has logit 0 in the code, `excluded="zero"`; negligible at the usual temperature;
- E2: the code shares all mixed vectors over the batch, and mixes the first views as well, `negatives="both"`; the paper
  has one per sentence, `"own"`. `"batch"` shares only those of the second views. For i, u_k with r(k) = i is left out,
  which is mostly i's positive; for w_i, which is mixed from first views, the column of its own partner is left out;
- the paper mixes unit vectors, the code the head's outputs: `normalise_first=False`. So the code is MixCSE(
  negatives="both", excluded="zero", normalise_first=False);
- E3, not followed: it reads the head's output in dev scores and [CLS] in the last test; here both are [CLS].
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cse_core.functional.contrastive import column_mask, cosine_matrix, info_nce, without
from cse_core.lookup import check_choices
from cse_core.method import Batch, Encode, Loss, Recipe, check, no_targets, single_column, tanh_head
from cse_core.space import Space


def mixed_negatives(
    z: Float[Tensor, "n d"], partner: Int[Tensor, " n"], share: float, *, normalise_first: bool = True
) -> Float[Tensor, "n d"]:
    """Return unit rows in the direction of share z_i + (1 - share) z_partner(i), of unit vectors or of z as given."""
    z = F.normalize(z, dim=-1) if normalise_first else z
    return F.normalize(share * z + (1 - share) * z[partner], dim=-1)


def mixed_loss(
    z1: Float[Tensor, "n d"],
    z2: Float[Tensor, "n d"],
    partner: Int[Tensor, " n"],
    *,
    temperature: float,
    share: float,
    negatives: str = "own",
    excluded: str = "drop",
    normalise_first: bool = True,
    stop_gradient: bool = True,
    duplicates: Bool[Tensor, "n n"] | None = None,
) -> Float[Tensor, ""]:
    """Return InfoNCE of z1 against z2, in nats, with mixed negatives as further columns.

    "own": cos(z1_i, u_i), one per row. "batch": cos(z1_i, u_k) for every k but partner(k) = i. "both": these, and
    cos(w_i, z2_j) for every j but partner(i), where w is mixed from z1 as u is from z2. An excluded column is dropped
    from the sum ("drop") or has logit 0 ("zero"). With `stop_gradient` u and w are constants. With `duplicates`, which
    marks copies of sentence i, three more are dropped: z2 of a copy, u_k if partner(k) is a copy, and in the third part
    z2_j if j is a copy of partner(i).
    """
    if len(z1) < 2:
        raise ValueError(f"mixed_loss needs at least two sentences, got {len(z1)}: none to mix with")
    views = (z1.detach(), z2.detach()) if stop_gradient else (z1, z2)
    w, u = (mixed_negatives(view, partner, share, normalise_first=normalise_first) for view in views)
    columns = [cosine_matrix(z1, z2)]
    if negatives == "own":
        columns.append((F.normalize(z1, dim=-1) * u).sum(1, keepdim=True))
        left_out = None
        copies = None if duplicates is None else [duplicates, duplicates.gather(1, partner.unsqueeze(1))]
    else:
        is_partner = column_mask(partner, len(z1))  # [i, j]: j is the partner of i
        columns.append(cosine_matrix(z1, u))
        left_out = [torch.zeros_like(is_partner), is_partner.T]
        copies = None if duplicates is None else [duplicates, duplicates[:, partner], duplicates[partner]]
        if negatives == "both":
            columns.append(cosine_matrix(w, z2))
            left_out.append(is_partner)
    logits = torch.cat(columns, dim=1) / temperature
    if left_out:
        logits = logits.masked_fill(torch.cat(left_out, dim=1), -torch.inf if excluded == "drop" else 0.0)
    logits = without(logits, None if copies is None else torch.cat(copies[: len(columns)], dim=1))
    return F.cross_entropy(logits, torch.arange(len(z1), device=z1.device))


@dataclass(frozen=True, kw_only=True)
class MixCSE:
    """`share` is the paper's lambda, the positive's part of a mixed negative."""

    name: ClassVar[str] = "mixcse"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"share": (0.1, 0.2, 0.3, 0.4)}
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.05
    share: float = 0.2
    negatives: Literal["none", "own", "batch", "both"] = "own"
    excluded: Literal["drop", "zero"] = "drop"  # of shared negatives only
    normalise_first: bool = True
    stop_gradient: bool = True

    examples = single_column
    modules = tanh_head
    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")
        check("share", self.share, lambda s: 0 <= s <= 1, "between 0 and 1")
        check_choices(self)

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return InfoNCE of two dropout views, in nats, with negatives mixed from each sentence and the next one."""
        z1, z2 = (modules["head"](h) for h in encode(batch["text"], batch["text"]))
        if self.negatives == "none":
            contrastive = info_nce(z1, z2, self.temperature, left_out=batch.duplicates)
        else:
            contrastive = mixed_loss(
                z1,
                z2,
                torch.arange(1, len(z1) + 1, device=z1.device) % len(z1),
                temperature=self.temperature,
                share=self.share,
                negatives=self.negatives,
                excluded=self.excluded,
                normalise_first=self.normalise_first,
                stop_gradient=self.stop_gradient,
                duplicates=batch.duplicates,
            )
        return Loss(contrastive, {"contrastive": contrastive}, (z1, z2))


PUBLISHED = {"bert-base-uncased": Recipe(MixCSE(), batch_size=64, learning_rate=3e-5, source="released script")}
