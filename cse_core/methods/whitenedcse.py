"""WhitenedCSE (Zhuo et al., ACL 2023): SimCSE on whitened features, with several positives.

The pooled features X (n, d) of one view are whitened by the batch's own statistics before the head:
- shuffled group whitening (Section 3.2): the channels are permuted at random and cut into k groups of d/k. In each,
  Y = (X - mean) U Lambda^-1/2 U^T, with U Lambda U^T = (X - mean)^T (X - mean) / n. Then the permutation is undone;
- z = tanh(W Y + b). The m views of a sentence differ by their permutations, so one pass of the encoder gives them all;
- L = sum_{p=1}^{m-1} lambda_p InfoNCE(z_0, z_p) (Eq. 7), or the sum inside the logarithm (Eq. 8).

Relations: without whitening, with views by dropout and m = 2, it is SimCSE. One group is ZCA whitening; d groups of one
channel are batch normalisation without an affine map. Without a permutation the whitening is the same in all views.
Shared features then make z_0 = z_p, and only negatives count (over all channels, running statistics differ by view).
Two controls ask whether whitening is what helps: `whitening="rotation"` multiplies each view by its own random
orthogonal matrix, so that views differ without whitening; `feature_dropout` makes them differ by dropped channels.
Paper against the released code, SupstarZh/WhitenedCSE, which `variant="released_code"` follows:
- Eq. 2 and 4 write Z^T W for features in rows and a covariance of Z Z^T; Eq. 5's Z W and Z^T Z / n are meant;
- k is called both the number of groups and their size. It must be the number, as 384 channels have no invertible
  covariance over 64 sentences. 384 doesn't divide BERT-large's 1024 channels;
- Eq. 8 as printed has the positive's cosine with a minus, so that minimising it pushes positives apart;
- the code encodes a sentence m times with dropout, the paper's text once (`views`);
- the code cuts the sentence-major batch into m blocks of rows and whitens each as if it were a view. A block holds all
  views of n/m sentences, which share permutation and statistics. Duplicates enter the covariance. It has no eps;
- the code makes the whitening matrix outside the graph, so it has no gradient. The paper doesn't say; see `detach`;
- the head's output is called the representation, but that is [CLS]: the head is dropped at test;
- the paper gives no value for the momentum of statistics over all channels (Eq. 13); it has no effect at test;
- its script has 128 groups, a learning rate of 1e-5 and a batch of 128 on each of two devices, whose negatives and
  statistics stay apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cse_core.functional.contrastive import cosine_matrix, info_nce, without
from cse_core.functional.whitening import (
    ALL_CHANNEL_KINDS,
    RunningWhitening,
    check_groups,
    group_whiten,
    random_rotation,
)
from cse_core.graph import randperm
from cse_core.lookup import check_choices
from cse_core.method import Batch, Encode, Loss, Recipe, check, no_targets, single_column, tanh_head
from cse_core.space import OfWidth, Space

BY_GROUP = ("shuffled_group", "group")


def multi_positive(
    anchor: Float[Tensor, "n d"],
    positives: Sequence[Float[Tensor, "n d"]],
    temperature: float,
    weights: Sequence[float] | None = None,
    *,
    left_out: Bool[Tensor, "n n"] | None = None,
) -> Float[Tensor, ""]:
    """Return sum_p w_p InfoNCE(anchor, positive_p), in nats (Eq. 7); negatives are of p's view. By default, w_p = 1."""
    shares = zip(_check_weights(weights, len(positives)), positives, strict=True)
    return torch.stack([w * info_nce(anchor, p, temperature, left_out=left_out) for w, p in shares]).sum()


def multi_positive_inside(
    anchor: Float[Tensor, "n d"],
    positives: Sequence[Float[Tensor, "n d"]],
    temperature: float,
    weights: Sequence[float] | None = None,
    *,
    printed: bool = False,
    left_out: Bool[Tensor, "n n"] | None = None,
) -> Float[Tensor, ""]:
    """Return the loss with its sum inside the logarithm, in nats (Eq. 8): the hardest positive counts most.

    As intended: 1/n sum_i log sum_p w_p exp(CE_ip), CE_ip the i-th term of InfoNCE(anchor, positive_p). As printed:
    1/n sum_i -log sum_p w_p exp(-s_p,ii) / sum_j exp(s_p,ij), s = cos/t, least where positives are opposite. By
    default, w_p = 1.
    """
    if len(anchor) < 2:
        raise ValueError(f"multi_positive_inside needs at least two pairs, got {len(anchor)}")
    log_weights = anchor.new_tensor(_check_weights(weights, len(positives))).log().unsqueeze(1)
    logits = torch.stack([without(cosine_matrix(anchor, p) / temperature, left_out) for p in positives])
    positive, all_of_view = logits.diagonal(dim1=1, dim2=2), logits.logsumexp(2)
    if printed:
        return -(log_weights - positive - all_of_view).logsumexp(0).mean()
    return (log_weights + all_of_view - positive).logsumexp(0).mean()


def _check_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    checked = list(weights or ()) or [1.0] * count
    if len(checked) != count or not count:
        raise ValueError(f"weights must be one a positive, got {len(checked)} for {count} positives")
    if min(checked) < 0 or not sum(checked) > 0:
        raise ValueError(f"weights must not be negative nor all 0, got {checked}")
    return checked


@dataclass(frozen=True, kw_only=True)
class WhitenedCSE:
    """`groups` is the paper's k, `positives` its m (with the anchor), `weights` its lambda, all ones if empty."""

    name: ClassVar[str] = "whitenedcse"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"groups": OfWidth((1 / 8, 1 / 4, 1 / 2)), "positives": (2, 3, 4), "views": ("dropout",)}
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.05
    groups: int = 384  # their number, for both group whitenings
    whitening: Literal["shuffled_group", "group", "pca", "zca", "channel", "rotation", "none"] = "shuffled_group"
    views: Literal["shared", "dropout"] = "shared"  # one pass for all views, or one with its own "dropout" for each
    positives: int = 3
    objective: Literal["outside", "inside", "inside_printed"] = "outside"  # Eq. 7; Eq. 8 as intended and as printed
    weights: tuple[float, ...] = ()
    normalise: bool = False  # features to length 1 before whitening, which brings channels' variances closer to eps
    momentum: float = 0.99  # Eq. 13, "pca" and "zca" only
    detach: bool = True
    eps: float = 1e-5
    variant: Literal["paper", "released_code"] = "paper"
    feature_dropout: float = 0.0  # of each view's pooled features, before normalising and whitening

    examples = single_column
    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")
        check("momentum", self.momentum, lambda b: 0 <= b < 1, "in [0, 1)")
        check("feature_dropout", self.feature_dropout, lambda p: 0 <= p < 1, "in [0, 1)")
        check("eps", self.eps, lambda e: e >= 0, "zero or positive")
        check("groups", self.groups, lambda k: k >= 1, "at least 1")
        check("positives", self.positives, lambda m: m >= 2, "at least 2")
        check_choices(self)
        _check_weights(self.weights, self.positives - 1)
        if self.whitening == "none" and self.views == "shared" and not self.feature_dropout:
            raise ValueError("whitening 'none' with views 'shared' makes identical views, which teach nothing")
        if self.whitening == "pca" and not self.detach:
            raise ValueError("whitening 'pca' has no gradient through its eigenvectors: leave detach=True")
        if self.variant == "released_code" and (self.views != "dropout" or self.whitening not in BY_GROUP):
            raise ValueError(
                "variant 'released_code' needs views 'dropout' and whitening by groups, "
                f"got views {self.views!r} and whitening {self.whitening!r}"
            )

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the tanh head and, for "pca" and "zca", the whitening with its running statistics."""
        modules = tanh_head(self, encoder, generator)
        if self.whitening in BY_GROUP:
            check_groups(self.groups, encoder.width)
        if self.whitening in ALL_CHANNEL_KINDS:
            modules["whitening"] = RunningWhitening(encoder.width, self.whitening, self.momentum, self.eps, self.detach)
        return modules

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return the loss of the first view against the others, whitened and projected (Eq. 7 or 8), in nats."""
        text, m, left_out = batch["text"], self.positives, batch.duplicates
        features = encode(text) * m if self.views == "shared" else encode(*[text] * m)
        if self.feature_dropout:  # drawn from the step's dropout stream, after the encoder's
            features = [F.dropout(h, self.feature_dropout) for h in features]
        features = [F.normalize(h, dim=-1) for h in features] if self.normalise else features
        anchor, *others = (modules["head"](h) for h in self._whiten_views(features, modules, batch.generator))
        if self.objective == "outside":
            total = multi_positive(anchor, others, self.temperature, self.weights, left_out=left_out)
        else:
            printed = self.objective == "inside_printed"
            total = multi_positive_inside(
                anchor, others, self.temperature, self.weights, printed=printed, left_out=left_out
            )
        with torch.no_grad():
            each = {
                f"positive_{p}": info_nce(anchor, z, self.temperature, left_out=left_out)
                for p, z in enumerate(others, 1)
            }
        return Loss(total, {"contrastive": total} | each, (anchor, others[0]))

    def _whiten_views(
        self, features: Sequence[Float[Tensor, "n d"]], modules: nn.ModuleDict, generator: torch.Generator
    ) -> Sequence[Float[Tensor, "n d"]]:
        if self.whitening == "none":
            return features
        if self.whitening in ALL_CHANNEL_KINDS:
            return [modules["whitening"](h) for h in features]
        if self.whitening == "channel":
            return [group_whiten(h, h.shape[1], eps=self.eps, detach=self.detach) for h in features]
        if self.whitening == "rotation":
            return [h @ random_rotation(h.shape[1], generator, h.dtype) for h in features]
        if self.variant == "paper":
            return [self._whiten_groups(h, self.eps, generator) for h in features]
        rows = torch.stack(list(features), 1).flatten(0, 1)  # sentence by sentence, a sentence's views together
        blocks = [self._whiten_groups(block, 0.0, generator) for block in rows.chunk(self.positives)]
        return torch.cat(blocks).unflatten(0, (-1, self.positives)).unbind(1)

    def _whiten_groups(self, h: Float[Tensor, "n d"], eps: float, generator: torch.Generator) -> Float[Tensor, "n d"]:
        if self.whitening == "group":
            return group_whiten(h, self.groups, eps=eps, detach=self.detach)
        permutation = randperm(h.shape[1], generator=generator, device=generator.device)
        return group_whiten(h, self.groups, permutation, eps, detach=self.detach)


def _recipe(groups: int, source: str = "paper, Section 4.1") -> Recipe:
    return Recipe(WhitenedCSE(groups=groups), batch_size=64, learning_rate=3e-5, source=source)


PUBLISHED = {
    "bert-base-uncased": _recipe(384),
    "bert-large-uncased": _recipe(256, "paper, Section 4.1; groups inferred, as its 384 doesn't divide 1024"),
    "roberta-base": _recipe(256),
    "roberta-large": _recipe(256),
}
