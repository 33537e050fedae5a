"""DCLR (Zhou et al., ACL 2022): debiased contrast with noise vectors as further negatives.

In-batch negatives are biased in two ways: some mean nearly the same as the sentence, and all lie in a narrow cone. A
finished SimCSE encoder, the complement, excludes negatives j with cos(c_i, c_j) >= phi. Gaussian vectors, moved a
little uphill on the loss, are further negatives for all sentences of the batch:
L = mean_i -log( e^{s_ii} / ( sum_j A_ij e^{s_ij} + sum_k e^{cos(z1_i, v_k)/tau} ) ), s_ij = cos(z1_i, z2_j)/tau.
Large models start from SimCSE's large checkpoint (`initial`); their complement, too, has the base size.

Relations: SimCSE with no noise and a threshold above 1, bit for bit. The complement resembles RankCSE's teacher: a
vector per example in eval mode, computed once, without gradient.
Paper against the released code, RUCAIBox/DCLR:
- E1: its weights multiply the logit, so an excluded negative still counts as e^0 = 1: `exclusion="logit"`;
- E2: its loss is the mean binary cross-entropy over all n (n + m) entries of the softmax: `objective="binary"`. As
  written there, it is NaN in fp32 as soon as a probability rounds to 1;
- E3: four steps of 1e-3 turn a vector of length sqrt(768) by at most 1.5e-4 rad, so the negatives are random noise;
  `steps=0` is the control, `step_size=1.0` tests the idea. `ascent="noise_only"` climbs the paper's non-uniformity
  loss, which leaves out the other sentences' views; the code climbs the whole contrast;
- E5 to E7, not followed: it trains without attention mask, on the pre-trained pooler below the head, and its complement
  has dropout. Here the complement's vectors are [CLS] in eval mode, so phi applies to another quantity than the one it
  was tuned for: see the term `share_excluded`;
- E8: its comparison with phi is strict, the paper's isn't, as here;
- E9: where the gradient of a noise vector is 0, the code's division makes it a zero vector; here it stays as drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cse_core.functional.contrastive import cosine_matrix, log_one_minus_softmax, without, without_diagonal
from cse_core.graph import randn
from cse_core.lookup import check_choices
from cse_core.method import Batch, Encode, Loss, Recipe, Source, Targets, check, single_column, tanh_head
from cse_core.run import Pretrained, Run
from cse_core.space import Space

SAMPLE = 1000  # examples from which the share of negatives that the threshold excludes is estimated


def instance_weights(
    first: Float[Tensor, "n d"], second: Float[Tensor, "n d"], threshold: float
) -> Float[Tensor, "n n"]:
    """Return A: 0 where the complement's cosine of two different sentences reaches the threshold, otherwise 1.

    `first` and `second` are the complement's vectors of the two views, here the same. A threshold of -1 excludes all
    negatives, one above 1 none.
    """
    cosines = cosine_matrix(first, second).clamp(-1, 1)  # rounding would put an opposite pair below -1
    weights = (cosines < threshold).to(cosines.dtype)
    return weights.fill_diagonal_(1)


def noise_negatives(
    z1: Float[Tensor, "n d"],
    z2: Float[Tensor, "n d"],
    noise: Float[Tensor, "m d"],
    *,
    temperature: float,
    steps: int,
    step_size: float,
    objective: str = "batch",
) -> Float[Tensor, "m d"]:
    """Return the noise after `steps` of gradient ascent, each of length `step_size` for every vector; no gradient.

    v_k <- v_k + step_size g_k/|g_k|, g = dU/dv; a vector without gradient stays. U is, for objective "batch", the mean
    cross-entropy of column i among [s_i., cos(z1_i, v)/tau], and for "noise_only" the mean of
    logsumexp_k cos(z1_i, v_k)/tau - s_ii.
    """
    if not noise.numel():
        return noise
    z1, z2, noise = z1.detach(), z2.detach(), noise.detach()
    with torch.enable_grad():
        for _ in range(steps):
            noise.requires_grad_()
            uniformity = cosine_matrix(z1, noise) / temperature
            if objective == "batch":
                logits = torch.cat([cosine_matrix(z1, z2) / temperature, uniformity], dim=1)
                climbed = F.cross_entropy(logits, torch.arange(len(z1), device=z1.device))
            else:  # s_ii is a constant here
                climbed = uniformity.logsumexp(1).mean()
            (gradient,) = torch.autograd.grad(climbed, noise)
            length = gradient.norm(dim=1, keepdim=True)
            noise = noise.detach() + step_size * torch.where(length > 0, gradient / length, 0)
    return noise


def debiased_loss(
    z1: Float[Tensor, "n d"],
    z2: Float[Tensor, "n d"],
    weights: Float[Tensor, "n n"],
    noise: Float[Tensor, "m d"],
    temperature: float,
    *,
    exclusion: str = "zero",
    objective: str = "cross_entropy",
    left_out: Bool[Tensor, "n n"] | None = None,
) -> Float[Tensor, ""]:
    """Return the mean loss of picking z2[i] for z1[i] among batch and noise, in nats, where `weights` are 0 or 1.

    An excluded negative adds nothing to the sum for exclusion "zero", and e^0 = 1 for "logit" (E1). Objective "binary"
    is -(y log p + (1 - y) log(1 - p)), p the softmax, averaged over all n (n + m) entries (E2). Noise is a constant.
    Negatives that are `left_out` count neither in the sum nor as entries.
    """
    n = len(z1)
    if n + len(noise) < 2:
        raise ValueError("debiased_loss needs a second sentence or a noise vector, got neither: there are no negatives")
    logits = cosine_matrix(z1, z2) / temperature
    logits = logits.masked_fill(weights == 0, -torch.inf if exclusion == "zero" else 0.0)
    if len(noise):
        logits = torch.cat([logits, cosine_matrix(z1, noise.detach()) / temperature], dim=1)
    logits = without(logits, left_out)
    if objective == "cross_entropy":
        return F.cross_entropy(logits, torch.arange(n, device=z1.device))
    positive = logits.log_softmax(1).diagonal()
    others = ~torch.eye(*logits.shape, dtype=torch.bool, device=z1.device)
    negative = torch.where(others, log_one_minus_softmax(logits), 0)
    entries = logits.numel() if left_out is None else logits.numel() - left_out.sum()
    return -(positive.sum() + negative.sum()) / entries


@dataclass(frozen=True, kw_only=True)
class DCLR:
    """`threshold` is the paper's phi; there are int(batch size x `noise_times`) noise vectors."""

    name: ClassVar[str] = "dclr"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"threshold": (0.8, 0.85, 0.9, 0.95), "noise_times": (0.5, 1.0, 2.5)}
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.05
    complement: Run | Pretrained | None = None
    initial: Run | Pretrained | None = None  # whose weights training starts from; None: the backbone's
    select: str = "stsb_dev"  # which checkpoint of either
    threshold: float = 0.9
    noise_times: float = 1.0
    steps: int = 4
    step_size: float = 1e-3
    ascent: Literal["batch", "noise_only"] = "batch"
    exclusion: Literal["zero", "logit"] = "zero"
    objective: Literal["cross_entropy", "binary"] = "cross_entropy"

    examples = single_column
    modules = tanh_head
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")
        check("threshold", self.threshold, lambda t: -1 < t <= 2, "in (-1, 2]")
        check("noise_times", self.noise_times, lambda m: m >= 0, "zero or positive")
        check("steps", self.steps, lambda s: s >= 0, "zero or positive")
        check("step_size", self.step_size, lambda s: s > 0, "positive")
        check_choices(self)

    @property
    def starts_from(self) -> tuple[Run | Pretrained, str] | None:
        """The encoder whose weights training starts from, and its selection rule (see method.starting_encoder)."""
        return None if self.initial is None else (self.initial, self.select)

    def targets(self, source: Source) -> Targets:
        """Return the complement's vector of each example; none where the threshold excludes no pair."""
        if self.threshold > 1:
            return Targets()
        if self.complement is None:
            raise ValueError(f"a threshold of {self.threshold} needs a complement, got none; 2 excludes no pair")
        vectors = source.vectors(self.complement, select=self.select)
        return Targets({"complement": vectors}, warnings=self._warnings(vectors))

    def _warnings(self, vectors: Float[Tensor, "n d"]) -> tuple[str, ...]:
        """Warn where most negatives are excluded, by the cosines of up to SAMPLE examples."""
        drawn = vectors[:: -(-len(vectors) // SAMPLE)]
        cosines = without_diagonal(cosine_matrix(drawn, drawn)).flatten()
        share = float((cosines >= self.threshold).float().mean())
        if not share > 0.5:
            return ()
        tenth = float(cosines.sort().values[int(0.9 * len(cosines))])
        text = (
            f"dclr leaves out {share:.0%} of all negatives: the complement's cosines reach the threshold "
            f"{self.threshold:g}; one of {tenth:.4g} leaves out a tenth of them"
        )
        return (text,)

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return the contrast of two dropout views without likely false negatives but with noise negatives, in nats."""
        z1, z2 = (modules["head"](h) for h in encode(batch["text"], batch["text"]))
        n = len(z1)
        weights = torch.ones(n, n, device=z1.device)
        if self.threshold <= 1:
            weights = instance_weights(targets["complement"], targets["complement"], self.threshold)
        noise = noise_negatives(
            z1,
            z2,
            self._draw(z1, batch.generator),
            temperature=self.temperature,
            steps=self.steps,
            step_size=self.step_size,
            objective=self.ascent,
        )
        contrastive = debiased_loss(
            z1,
            z2,
            weights,
            noise,
            self.temperature,
            exclusion=self.exclusion,
            objective=self.objective,
            left_out=batch.duplicates,
        )
        share = (weights == 0).sum() / (n * (n - 1))
        return Loss(contrastive, {"contrastive": contrastive, "share_excluded": share}, (z1, z2))

    def _draw(self, z: Float[Tensor, "n d"], generator: torch.Generator) -> Float[Tensor, "m d"]:
        size = int(len(z) * self.noise_times)
        if self.noise_times and not size:
            raise ValueError(f"noise_times {self.noise_times} makes no noise vector of a batch of {len(z)}")
        return randn(size, z.shape[1], generator=generator, device=z.device).to(z.dtype)


def _recipe(batch_size: int, learning_rate: float, epochs: int, threshold: float, noise_times: float) -> Recipe:
    # Complement and start are a study's own runs, so the recipe leaves them out.
    method = DCLR(threshold=threshold, noise_times=noise_times)
    return Recipe(method, batch_size=batch_size, learning_rate=learning_rate, epochs=epochs, source="released scripts")


PUBLISHED = {
    "bert-base-uncased": _recipe(128, 3e-5, 3, 0.9, 1.0),
    "roberta-base": _recipe(128, 3e-5, 3, 0.85, 2.5),
    "bert-large-uncased": _recipe(256, 3e-5, 1, 0.9, 3.0),
    "roberta-large": _recipe(256, 1e-5, 1, 0.85, 5.0),
}
