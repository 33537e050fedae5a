"""PCL (Wu et al., EMNLP 2022): several kinds of positives as a group, and two networks that correct each other.

A sentence's views are the sentence itself, the sentence with other dropout, and edits of its wordpieces: shuffle,
inverse, deletion and repetition, twice each. Encoder f and its peer g, a second copy that is trained with it, read
all of them. Row i of the logits S(Q, K) has cos(Q_i0, K_ia)/tau of the A positives, then cos(Q_i0, K_j0)/tau of the
other sentences. L = sum over both networks' Z of InfoNCE(Z_0, Z_1) + positives(S(Z, Z))
+ KL(softmax S(G, G) || softmax S(F, F)) + KL(softmax S(G, F) || softmax S(F, G)). Only f is kept.

Relations: SimCSE with both weights 0 and no peer, bit for bit. The peer group is in-batch contrast with several
positives; cooperation is mutual distillation of in-batch softmaxes, where RankCSE has fixed teachers.
Paper against the released code, qiyuw/PeerCL:
- E1: it puts softmax probabilities into binary cross-entropy with logits, `positives="released"`, the default, as it
  gave the published numbers. The value lies in [0.31, 1.31] whatever is learnt, and its gradient is much smaller than
  that of "probability" (p as a probability); "logit" takes the logits themselves, "multi" is the mean of -log p over
  the positives;
- E2: its divergences are means over all entries; `cooperation_reduction="row"` sums over a row;
- E3, not followed: its peer gets no attention mask and reads the pre-trained pooler. Here both networks are read alike,
  under one head, or with `peer_head="own"` under one each;
- E4: no gradient is stopped, so f and g are pulled towards each other by different gradients, as here;
- E5: its deletion removes the first wordpiece of a drawn value: `deletion="value"`;
- E6: batch and seed are 64 and 42 in its README, 256 and 1 in its script.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cse_core.functional.contrastive import cosine_matrix, info_nce, log_one_minus_softmax, without_diagonal
from cse_core.lookup import check_choices
from cse_core.method import (
    Batch,
    Encode,
    Loss,
    Recipe,
    Tokens,
    check,
    check_surrounded,
    no_targets,
    single_column,
    tanh_head,
)
from cse_core.methods.baselines.augmentation import EDITS, augment
from cse_core.space import LogUniform, Space


def group_logits(
    queries: Float[Tensor, "n views d"],
    keys: Float[Tensor, "n views d"],
    temperature: float,
    left_out: Bool[Tensor, "n n"] | None = None,
) -> Float[Tensor, "n columns"]:
    """Return S(Q, K): each sentence's first query against its own other keys, then against others' first keys.

    Where sentences are `left_out`, the logit is the lowest number, so that their softmax is 0.
    """
    positives = torch.einsum("nd,nad->na", F.normalize(queries[:, 0], dim=-1), F.normalize(keys[:, 1:], dim=-1))
    others = without_diagonal(cosine_matrix(queries[:, 0], keys[:, 0]))
    logits = torch.cat([positives, others], dim=1) / temperature
    return logits if left_out is None else logits.masked_fill(_entries(left_out, logits), torch.finfo(logits.dtype).min)


def _entries(left_out: Bool[Tensor, "n n"], logits: Float[Tensor, "n columns"]) -> Bool[Tensor, "n columns"]:
    """Return which entries of S are left out."""
    others = without_diagonal(left_out)
    return F.pad(others, (logits.shape[1] - others.shape[1], 0))


def _mean(
    values: Float[Tensor, "n columns"], left_out: Bool[Tensor, "n n"] | None, reduction: str = "entry"
) -> Float[Tensor, ""]:
    """Return the mean over the entries of S that are not left out, or the mean over rows of their sum."""
    if left_out is None:
        return values.mean() if reduction == "entry" else values.sum(1).mean()
    entries = _entries(left_out, values)
    values = values.masked_fill(entries, 0)
    return values.sum() / (~entries).sum() if reduction == "entry" else values.sum(1).mean()


def peer_positive(
    z: Float[Tensor, "n views d"],
    temperature: float,
    form: str = "released",
    left_out: Bool[Tensor, "n n"] | None = None,
) -> Float[Tensor, ""]:
    """Return the loss of finding a sentence's own other views among other sentences, p = softmax S(Z, Z), in nats.

    Mean over all entries, y = 1 for own views: "released" softplus(p) - y p, "logit" softplus(S) - y S, "probability"
    -(y log p + (1 - y) log(1 - p)). "multi": the mean of -log p over own views.
    """
    logits, count = group_logits(z, z, temperature, left_out), z.shape[1] - 1
    if form == "multi":
        return -logits.log_softmax(1)[:, :count].mean()
    if form == "probability":
        certain, other = logits.log_softmax(1)[:, :count], log_one_minus_softmax(logits)[:, count:]
        entries = logits.numel() if left_out is None else logits.numel() - left_out.sum()
        return -(certain.sum() + other.sum()) / entries
    scores = logits.softmax(1) if form == "released" else logits
    target = torch.zeros_like(scores)
    target[:, :count] = 1
    return _mean(F.binary_cross_entropy_with_logits(scores, target, reduction="none"), left_out)


def cooperation(
    f: Float[Tensor, "n views d"],
    g: Float[Tensor, "n views d"],
    temperature: float,
    kind: str = "self",
    reduction: str = "entry",
    left_out: Bool[Tensor, "n n"] | None = None,
) -> Float[Tensor, ""]:
    """Return KL(Q || P), P = softmax S(F, F), Q = softmax S(G, G), or across the networks S(F, G) and S(G, F).

    It is the mean over all entries or, with reduction "row", the mean over rows of their sum; in nats.
    """
    first, second = ((f, f), (g, g)) if kind == "self" else ((f, g), (g, f))
    log_p, log_q = (group_logits(*pair, temperature, left_out).log_softmax(1) for pair in (first, second))
    divergence = log_q.exp() * (log_q - log_p)
    return _mean(divergence, left_out, reduction)


def plain_contrast(
    z: Float[Tensor, "n views d"], temperature: float, left_out: Bool[Tensor, "n n"] | None = None
) -> Float[Tensor, ""]:
    """Return InfoNCE of the first two views, in nats; 0 for a single sentence, which has no negatives."""
    return info_nce(z[:, 0], z[:, 1], temperature, left_out=left_out) if len(z) > 1 else 0 * z.sum()


def peer_loss(
    f: Float[Tensor, "n views d"],
    g: Float[Tensor, "n views d"] | None,
    temperature: float,
    *,
    positives: str = "released",
    reduction: str = "entry",
    positive_weight: float = 1.0,
    cooperation_weight: float = 1.0,
    left_out: Bool[Tensor, "n n"] | None = None,
) -> tuple[Float[Tensor, ""], dict[str, Float[Tensor, ""]]]:
    """Return the weighted sum of both networks' terms, and the terms that have a weight; g is None without a peer.

    With f and g exchanged, both cooperation terms are the divergences the other way round; the rest stays.
    Where sentences are `left_out`, no term takes one as the other's negative.
    """
    terms: dict[str, Tensor] = {}
    for prefix, z in (("", f), ("peer_", g)):
        if z is not None:
            terms[f"{prefix}contrastive"] = plain_contrast(z, temperature, left_out)
            if positive_weight:
                terms[f"{prefix}positives"] = peer_positive(z, temperature, positives, left_out)
    if g is not None and cooperation_weight:
        terms |= {kind: cooperation(f, g, temperature, kind, reduction, left_out) for kind in ("self", "cross")}
    weights = dict.fromkeys(("positives", "peer_positives"), positive_weight)
    weights |= dict.fromkeys(("self", "cross"), cooperation_weight)
    total = sum((weights.get(name, 1.0) * term for name, term in terms.items()), torch.zeros_like(f[0, 0, 0]))
    return total, terms


@dataclass(frozen=True, kw_only=True)
class PCL:
    """`augmentations` are the kinds of edited views; `share` is how much a deletion removes or a repetition adds."""

    name: ClassVar[str] = "pcl"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"share": (0.1, 0.2, 0.3), "positive_weight": LogUniform(0.1, 1.0)}
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.05
    augmentations: tuple[str, ...] = EDITS * 2
    share: float = 0.2
    longest: int = 32  # tokens of a sentence after a repetition: the run's max_length
    deletion: Literal["place", "value"] = "place"
    positives: Literal["released", "probability", "logit", "multi"] = "released"
    positive_weight: float = 1.0
    cooperation_weight: float = 1.0
    cooperation_reduction: Literal["entry", "row"] = "entry"
    peer: bool = True
    peer_head: Literal["shared", "own"] = "shared"

    examples = single_column
    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")
        check("share", self.share, lambda s: 0 < s <= 1, "in (0, 1]")
        check("longest", self.longest, lambda t: t >= 3, "at least 3")
        for name in ("positive_weight", "cooperation_weight"):
            check(name, getattr(self, name), lambda w: w >= 0, "zero or positive")
        unknown = [kind for kind in self.augmentations if kind not in EDITS]
        if unknown:
            raise ValueError(f"augmentations must be of {', '.join(EDITS)}, got {', '.join(unknown)}")
        check_choices(self)
        if self.cooperation_weight and not self.peer:
            raise ValueError(f"cooperation needs a peer, got cooperation_weight {self.cooperation_weight} without one")

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the tanh head, the peer, which starts as a copy of the encoder, and its head if it has its own."""
        check_surrounded(self, encoder.tokenizer)
        modules = tanh_head(self, encoder, generator)
        if self.peer:
            modules["peer"] = encoder.clone()
            if self.peer_head == "own":
                modules["peer_head"] = tanh_head(self, encoder, generator)["head"]
        return modules

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return contrast, group of positives and cooperation over newly drawn views of both networks, in nats."""
        text = batch["text"]
        views = [text, text]
        if self.positive_weight or self.cooperation_weight:
            views += [self._edit(text, kind, batch.generator) for kind in self.augmentations]
        f, g = self._read(encode, modules["head"], views), None
        if self.peer:
            head = modules["peer_head" if self.peer_head == "own" else "head"]
            g = self._read(modules["peer"], head, views)  # ty: ignore[invalid-argument-type]
        total, terms = peer_loss(
            f,
            g,
            self.temperature,
            positives=self.positives,
            reduction=self.cooperation_reduction,
            positive_weight=self.positive_weight,
            cooperation_weight=self.cooperation_weight,
            left_out=batch.duplicates,
        )
        return Loss(total, terms, (f[:, 0], f[:, 1]))

    def _edit(self, text: Tokens, kind: str, generator: torch.Generator) -> Tokens:
        return augment(text, kind, generator, share=self.share, max_length=self.longest, deletion=self.deletion)

    def _read(self, encode: Encode, head: nn.Module, views: Sequence[Tokens]) -> Float[Tensor, "n views d"]:
        return torch.stack([head(h) for h in encode(*views)], dim=1)


PUBLISHED = {
    "bert-base-uncased": Recipe(PCL(), batch_size=64, learning_rate=3e-5, source="released README; script: batch 256")
}
