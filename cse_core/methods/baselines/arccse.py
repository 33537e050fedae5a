"""ArcCSE (Zhang et al., ACL 2022): a margin on the positive pair's angle, and an order of masked versions.

ArcCon: theta_ij = arccos cos(z1_i, z2_j), and the positive's angle is widened by m = 10 degrees:
L_arc = mean_i -log( e^{cos(theta_ii + m)/tau} / ( e^{cos(theta_ii + m)/tau} + sum_{j != i} e^{cos theta_ij/tau} ) ).
Triplet: x' has 20 % of the wordpieces of x masked, and x'' has 40 %, these included. A sentence is nearer to x' than to
x'': L_tri = mean_i relu( cos(h_i, h''_i) - cos(h_i, h'_i) + m_tri ), m_tri = 0, over passes without dropout.
L = L_arc + lambda L_tri, lambda = 0.1.

Relations: SimCSE with m = 0 and lambda = 0, bit for bit. With m_tri = 0 the triplet's gradient is 0 once the
order is right, which mostly holds for a pre-trained encoder: see the term `share_violated`.
There is no official code. From the paper and one third-party version: temperature, both margins, lambda, both shares,
no dropout in the triplet's passes. Ours (see `substituted`): spans of one to three wordpieces at random places;
triplets of sentences of at least 20 wordpieces, where the paper says only long ones; SimCSE's batch, rate and epochs.
Paper against that version:
- E1: it has the margin only where the cosine is positive, `margin_form="easy"`; "monotone" falls linearly beyond
  theta + m = 180 degrees, where the exact form would rise again;
- E2, not followed: its triplets are all pairs of the batch, so they mix sentences; the paper's are per sentence.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cse_core.functional.contrastive import cosine_matrix, without
from cse_core.graph import rand, randint
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
from cse_core.methods.baselines.augmentation import wordpieces
from cse_core.methods.mlm import Masking
from cse_core.space import LogUniform, Space

LONGEST_SPAN = 3  # wordpieces
STEEPEST = 1e-12  # smallest 1 - cos^2 in the slope of an angle's sine, which is infinite at 0 and 180 degrees


def add_margin(cosine: Float[Tensor, " n"], margin_degrees: float, form: str = "exact") -> Float[Tensor, " n"]:
    """Return cos(theta + m) of the angles with these cosines.

    It is c cos m - sqrt(1 - c^2) sin m. "easy" leaves cosines up to 0 as they are; "monotone" is c - m sin m where
    theta + m is beyond 180 degrees. Without a margin it is the cosine itself.
    """
    if not margin_degrees:
        return cosine
    margin, c = math.radians(margin_degrees), cosine.clamp(-1, 1)
    square = ((1 - c) * (1 + c)).detach()
    slope = -c.detach() / square.clamp(min=STEEPEST).sqrt()
    sine = square.sqrt() + slope * (c - c.detach())
    wide = c * math.cos(margin) - sine * math.sin(margin)
    if form == "easy":
        return torch.where(c > 0, wide, c)
    if form == "monotone":
        return torch.where(c > -math.cos(margin), wide, c - margin * math.sin(margin))
    return wide


def arc_con(
    z1: Float[Tensor, "n d"],
    z2: Float[Tensor, "n d"],
    temperature: float,
    margin_degrees: float,
    form: str = "exact",
    left_out: Bool[Tensor, "n n"] | None = None,
) -> Float[Tensor, ""]:
    """Return L_arc in nats, without the negatives `left_out`; 0 for a single sentence, which has no negatives."""
    cosines = cosine_matrix(z1, z2)
    if margin_degrees:
        cosines = cosines.diagonal_scatter(add_margin(cosines.diagonal(), margin_degrees, form))
    return F.cross_entropy(without(cosines / temperature, left_out), torch.arange(len(z1), device=z1.device))


def disorder(h: Float[Tensor, "n d"], light: Float[Tensor, "n d"], heavy: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """Return cos(h_i, h''_i) - cos(h_i, h'_i): positive where the heavily masked version is the nearer one."""
    return F.cosine_similarity(h, heavy) - F.cosine_similarity(h, light)


def triplet_loss(
    h: Float[Tensor, "n d"],
    light: Float[Tensor, "n d"],
    heavy: Float[Tensor, "n d"],
    margin: float,
    counted: Bool[Tensor, " n"] | None = None,
) -> Float[Tensor, ""]:
    """Return L_tri, a difference of cosines: the mean over the counted sentences; 0 if there is none."""
    losses = F.relu(disorder(h, light, heavy) + margin)
    if counted is None:
        return losses.mean()
    return (losses * counted).sum() / counted.sum().clamp(min=1)


def mask_spans(
    tokens: Tokens, spans: Int[Tensor, "n k 2"], light: float, heavy: float, mask_id: int
) -> tuple[Tokens, Tokens]:
    """Return x' and x'', each with round(share w) wordpieces masked, at least 1; x'' masks those of x' and more.

    `spans` are starts and lengths among a sentence's w wordpieces. They are masked one after another, each from left to
    right, until enough wordpieces are masked. Places of a span outside the sentence are skipped.
    """
    inside = wordpieces(tokens)
    words = inside.sum(1, keepdim=True)
    at = torch.arange(inside.shape[1], device=inside.device)
    start = spans[:, :, :1] + 1  # after the first special token
    covers = (at >= start) & (at < start + spans[:, :, 1:]) & inside.unsqueeze(1)
    number = torch.arange(spans.shape[1], device=inside.device).unsqueeze(1)
    turn = number.where(covers, spans.shape[1]).amin(1) * len(at) + at
    rank = turn.argsort(1).argsort(1)
    versions = []
    for share in (light, heavy):
        count = (share * words.double()).round().clamp(min=1)
        masked = covers.any(1) & (rank < count)
        versions.append(Tokens(tokens.ids.masked_fill(masked, mask_id), tokens.mask))
    return versions[0], versions[1]


def draw_spans(tokens: Tokens, generator: torch.Generator) -> Int[Tensor, "n t 2"]:
    """Return a span from each wordpiece on, one to three long, in random order; together they cover the sentence."""
    inside = wordpieces(tokens)
    keys = rand(*inside.shape, generator=generator, device=inside.device).masked_fill(~inside, 2.0)
    starts = keys.argsort(1) - 1
    lengths = randint(1, LONGEST_SPAN + 1, inside.shape, generator=generator, device=inside.device)
    return torch.stack([starts, lengths], dim=2)


@dataclass(frozen=True, kw_only=True)
class ArcCSE:
    """`light` and `heavy` are the masked shares; sentences of fewer wordpieces than `shortest` make no triplet."""

    name: ClassVar[str] = "arccse"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"margin_degrees": (5.0, 10.0, 15.0, 20.0), "triplet_weight": LogUniform(0.01, 1.0)}
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.05
    margin_degrees: float = 10.0
    margin_form: Literal["exact", "easy", "monotone"] = "exact"
    triplet_weight: float = 0.1
    triplet_margin: float = 0.0
    light: float = 0.2
    heavy: float = 0.4
    shortest: int = 20

    examples = single_column
    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")
        check("margin_degrees", self.margin_degrees, lambda m: 0 <= m < 180, "in [0, 180)")
        check("triplet_weight", self.triplet_weight, lambda w: w >= 0, "zero or positive")
        check("shortest", self.shortest, lambda w: w >= 1, "at least 1")
        check("triplet_margin", self.triplet_margin, lambda m: m >= 0, "zero or positive")
        if not 0 < self.light < self.heavy <= 1:
            raise ValueError(f"masked shares must be 0 < light < heavy <= 1, got {self.light} and {self.heavy}")
        check_choices(self)

    @property
    def substituted(self) -> str:
        """What replaces a piece of the paper that is not available."""
        return "own spans, own choice of long sentences and SimCSE's training settings for unpublished ones"

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the tanh head and, if there are triplets, what masking needs from the tokenizer."""
        modules = tanh_head(self, encoder, generator)
        if self.triplet_weight:
            check_surrounded(self, encoder.tokenizer)
            modules["words"] = Masking(encoder.tokenizer, encoder.name)
        return modules

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Contrast two dropout views under the margin, in nats; order masked versions of long sentences by cosine."""
        text = batch["text"]
        z1, z2 = (modules["head"](h) for h in encode(text, text))
        arc = arc_con(z1, z2, self.temperature, self.margin_degrees, self.margin_form, batch.duplicates)
        if not self.triplet_weight:
            return Loss(arc, {"contrastive": arc}, (z1, z2))
        words: Any = modules["words"]
        spans = draw_spans(text, batch.generator)
        versions = mask_spans(text, spans, self.light, self.heavy, words.mask_id)
        # All sentences pass, whatever their length, so that on a GPU every batch has one shape.
        h, light, heavy = (modules["head"](state) for state in encode.without_dropout(text, *versions))
        counted = wordpieces(text).sum(1) >= self.shortest
        triplet = triplet_loss(h, light, heavy, self.triplet_margin, counted)
        violated = (disorder(h, light, heavy) > -self.triplet_margin) & counted
        share = violated.sum() / counted.sum().clamp(min=1)
        terms = {"contrastive": arc, "triplet": triplet, "share_violated": share}
        return Loss(arc + self.triplet_weight * triplet, terms, (z1, z2))


def _recipe(learning_rate: float) -> Recipe:
    source = "paper: losses and their settings; batch, rate and epochs as SimCSE's: inferred"
    return Recipe(ArcCSE(), batch_size=64, learning_rate=learning_rate, source=source)


PUBLISHED = {"bert-base-uncased": _recipe(3e-5), "bert-large-uncased": _recipe(1e-5)}
