"""L2P-CSR (Zhou et al., TASLP 2023): weaken the tokens and features whose weakening makes the contrast hardest.

The k lowest states (embedding output, then layers' outputs) are multiplied by (M + N)/2. M is 0 or 1 for each token of
each view; N is 0 or 1 for each feature, shared by the batch. They come from scores u and v, drawn anew for each batch:
M = 1[u > rho], N = 1[v > rho]. In four steps the scores climb the contrast U = InfoNCE(z1, z2) of a pass with the
current masks: u <- clip(u + 0.1 g/|g|, 0, 1), g = dU/dM taken at the 0/1 masks; v likewise. A last pass with the final
masks gives the loss. At test there are no factors.

Relations: SimCSE from the same start with rho below 0 and no steps, bit for bit. With only `steps=0` it is a
random perturbation, the control. Training starts from a finished SimCSE encoder (`initial`).
Facts of the released code, RUCAIBox/L2P-CSR:
- its script names no starting checkpoint. At a rate of 1e-6 a plain backbone would hardly move, so here training starts
  from the study's SimCSE run;
- E1: |g| is over the last axis. For tokens that has length 1, so a step is the sign of each entry times 0.1;
  `token_norm="row"` takes it over a text's places. A score without gradient becomes 1: its token is kept;
- E2: only the encoder is learnt; no score outlives its batch. Only scores below 0.45 can cross the threshold at all;
- E3, not followed: its perturbed passes have no attention mask;
- E4: special tokens are perturbed as well; `spare_specials` keeps them;
- E5: dropout differs in each pass, so each ascent step sees a different network;
- E6: its feature scores have the width 768, so it can't train the large models that the paper reports;
- E7: the code perturbs both views, the paper speaks of the positive: `views="second"`;
- RoBERTa has two places there, BERT three: `layers`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cse_core.functional.contrastive import info_nce
from cse_core.graph import rand
from cse_core.lookup import check_choices
from cse_core.method import Batch, Encode, Factors, Loss, Recipe, Tokens, check, no_targets, single_column, tanh_head
from cse_core.methods.baselines.augmentation import wordpieces
from cse_core.run import Pretrained, Run
from cse_core.space import LogUniform, Space

UPSCALED = 2.0**16  # factor of U, whose gradient half precision would round to 0; a step does not depend on its size
Scores = Float[Tensor, "*shape"]


def binarize(scores: Scores, threshold: float) -> Scores:
    """Return 1 where a score is above the threshold, otherwise 0."""
    return (scores > threshold).to(scores.dtype)


def ascend(scores: Scores, gradient: Scores, step_size: float, norm: str) -> Scores:
    """Return clip(scores + step_size g/|g|, 0, 1), |g| of each entry or over the last axis; 1 where g/|g| is 0/0."""
    length = gradient.abs() if norm == "entry" else gradient.norm(dim=-1, keepdim=True)
    return (scores + step_size * gradient / length).nan_to_num(nan=1.0).clamp(0, 1)


def attack(
    objective: Callable[[Tensor, Tensor], Float[Tensor, ""]],
    token_scores: Float[Tensor, "*places t"],
    feature_scores: Float[Tensor, "k d"],
    *,
    threshold: float,
    steps: int,
    step_size: float,
    token_norm: str = "entry",
) -> tuple[Float[Tensor, "*places t"], Float[Tensor, "k d"]]:
    """Return the scores after `steps` of ascent on the objective, a function of the masks of tokens and of features.

    Its gradient is taken only with respect to the masks: no parameter's `grad` is touched.
    """
    for _ in range(steps):
        masks = [binarize(scores, threshold).requires_grad_() for scores in (token_scores, feature_scores)]
        of_tokens, of_features = torch.autograd.grad(UPSCALED * objective(*masks), masks)
        token_scores = ascend(token_scores, of_tokens, step_size, token_norm)
        feature_scores = ascend(feature_scores, of_features, step_size, "row")
    return token_scores, feature_scores


@dataclass(frozen=True, kw_only=True)
class L2PCSR:
    """`threshold` is the paper's rho, `layers` how many of the lowest states are perturbed."""

    name: ClassVar[str] = "l2pcsr"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"threshold": LogUniform(0.01, 0.2), "step_size": LogUniform(0.02, 0.5)}
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.05
    initial: Run | Pretrained | None = None  # whose weights training starts from; None: the backbone's
    select: str = "stsb_dev"  # which of its checkpoints
    threshold: float = 0.05
    steps: int = 4
    step_size: float = 0.1
    layers: int = 3
    token_norm: Literal["entry", "row"] = "entry"
    views: Literal["both", "second"] = "both"
    spare_specials: bool = False

    examples = single_column
    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")
        check("threshold", self.threshold, lambda r: r < 1, "below 1")
        check("step_size", self.step_size, lambda s: s > 0, "positive")
        check("steps", self.steps, lambda s: s >= 0, "zero or positive")
        check("layers", self.layers, lambda k: k >= 1, "at least 1")
        check_choices(self)

    @property
    def starts_from(self) -> tuple[Run | Pretrained, str] | None:
        """The encoder whose weights training starts from, and its selection rule (see method.starting_encoder)."""
        return None if self.initial is None else (self.initial, self.select)

    @property
    def substituted(self) -> str:
        """The substitute for a part of the paper that is not available; "" if there is none."""
        return "" if self.initial is None else "a SimCSE run for the checkpoint that its script starts from"

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the tanh head; refuse an encoder whose states can't be weakened."""
        encoder.check_can_scale()
        return tanh_head(self, encoder, generator)

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return InfoNCE of two dropout views, in nats, with lower states weakened where that makes it hardest."""
        text, head, left_out = batch["text"], modules["head"], batch.duplicates
        n, t = text.ids.shape
        rows = 2 * n if self.views == "both" else n
        width: int = head[0].in_features  # ty: ignore[not-subscriptable]
        shapes = (rows, self.layers, t), (self.layers, width)
        drawn = (rand(*shape, generator=batch.generator, device=text.ids.device) for shape in shapes)
        specials = (text.mask & ~wordpieces(text)).repeat(rows // n, 1).unsqueeze(1)

        def views(tokens: Float[Tensor, "rows k t"], features: Float[Tensor, "k d"]) -> tuple[Tensor, Tensor]:
            if self.spare_specials:
                tokens = tokens.masked_fill(specials, 1.0)
            weakened = [replace(text, factors=Factors(part, features)) for part in tokens.split(n)]
            states = encode(*weakened) if self.views == "both" else (*encode(text), *encode(*weakened))
            z1, z2 = (head(h) for h in states)
            return z1, z2

        scores = attack(
            lambda tokens, features: info_nce(*views(tokens, features), self.temperature, left_out=left_out),
            *drawn,
            threshold=self.threshold,
            steps=self.steps,
            step_size=self.step_size,
            token_norm=self.token_norm,
        )
        tokens, features = (binarize(part, self.threshold) for part in scores)
        z1, z2 = views(tokens, features)
        contrastive = info_nce(z1, z2, self.temperature, left_out=left_out)
        terms = {"contrastive": contrastive} | self._shares_dropped(text, tokens, features, specials)
        return Loss(contrastive, terms, (z1, z2))

    def _shares_dropped(self, text: Tokens, tokens: Tensor, features: Tensor, specials: Tensor) -> dict[str, Tensor]:
        """Return the shares of real tokens and of features whose mask is 0."""
        real = text.mask.repeat(len(tokens) // len(text.mask), 1).unsqueeze(1).expand_as(tokens)
        zero = (tokens == 0) & real
        if self.spare_specials:
            zero = zero & ~specials
        return {
            "share_tokens_dropped": zero.sum() / real.sum(),
            "share_features_dropped": (features == 0).float().mean(),
        }


PUBLISHED = {
    "bert-base-uncased": Recipe(L2PCSR(), batch_size=256, learning_rate=1e-6, eval_steps=50, source="released script")
}
