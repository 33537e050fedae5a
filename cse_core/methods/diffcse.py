"""DiffCSE (Chuang et al., NAACL 2022): SimCSE whose vector must also help to detect how a sentence was edited.

x'' is the sentence x with some words masked and filled by a frozen masked-language model. A discriminator reads x''
and, in the place of its first token, the vector h of x; it predicts for every token whether it was replaced:
L = L_contrastive + lambda L_detection (Section 3). Edits change the meaning, so h has to reflect them, where
the contrast only requires vectors that dropout doesn't change. Discriminator and head are dropped after training.

Relations: SimCSE with weight 0 and the tanh head, bit for bit. With weight 0 and the published head, Linear-BatchNorm-
ReLU-Linear-BatchNorm over both views at once, it is SimCSE with another head.
Paper against the released code, voidism/DiffCSE, whose script gave the published numbers:
- it takes the generator's word at every position, not only at masked ones, the final special token included;
- it masks as BERT's training does: of the chosen words 10 % turn into random ones and 10 % stay;
- its generator is left in training mode, so its dropout is on;
- its cross-entropy counts padding and the first position, which holds h and is always labelled as kept;
- the paper's abstract samples the fill, the code takes the likeliest word, as here; the paper sums over a sentence's
  tokens, the code takes the mean, as here.
According to its authors, the results don't reproduce on another machine: users report 77.0 to 77.4 against the paper's
78.49 (DiffCSE, issue 8). `Run.precision` applies to the encoder's passes; generator and discriminator stay in fp32.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cse_core.functional.contrastive import info_nce
from cse_core.lookup import check_choices
from cse_core.method import Batch, Encode, Loss, Recipe, Tokens, check, no_targets, single_column, tanh_head
from cse_core.methods.mlm import Masking, language_model
from cse_core.models.pretrained import resolve_pinned
from cse_core.run import Pretrained
from cse_core.space import LogUniform, Space


class Generator(nn.Module):
    """A frozen masked-language model that edits sentences. It stays in eval mode, so its dropout is off."""

    def __init__(self, pretrained: Pretrained, encoder: Any) -> None:
        super().__init__()
        from transformers import AutoTokenizer  # lazy: slow import

        folder = resolve_pinned(pretrained)
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        vocabulary, expected = tokenizer.get_vocab(), encoder.tokenizer.get_vocab()
        if vocabulary != expected:
            raise ValueError(
                f"generator {pretrained.name}: needs the vocabulary of {encoder.name} with its {len(expected)} words, "
                f"got another one with {len(vocabulary)}"
            )
        self.model = language_model(folder, pretrained.name).requires_grad_(False)
        self.masking = Masking(encoder.tokenizer, encoder.name)
        self.eval()

    def train(self, mode: bool = True) -> "Generator":
        """Stay in eval mode, whatever the mode of the surrounding module."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, tokens: Tokens, share: float, generator: torch.Generator) -> Int[Tensor, "n t"]:
        """Return x'': the ids with a share of the words masked and each of these filled by the likeliest word."""
        masked, chosen = self.masking.mask(tokens, share, generator, keep=0.0, random=0.0)

        def only_chosen(_module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            return (inputs[0][chosen],)  # the other tokens' scores, a row of the vocabulary each, are unused

        hook = self.model.get_output_embeddings().register_forward_pre_hook(only_chosen)
        try:
            scores = self.model(input_ids=masked.ids, attention_mask=tokens.mask.long()).logits
        finally:
            hook.remove()
        return tokens.ids.masked_scatter(chosen, scores.argmax(-1))


class Discriminator(nn.Module):
    """A second copy of the backbone that predicts whether each token was replaced, given a sentence vector."""

    def __init__(self, encoder: Any, generator: torch.Generator) -> None:
        super().__init__()
        if encoder.backbone.get_input_embeddings().embedding_dim != encoder.width or not hasattr(
            encoder.backbone, "embeddings"
        ):
            kind = encoder.backbone.config.model_type
            raise ValueError(f"method diffcse: a vector must fit in a token's embedding, which a {kind} does not allow")
        self.backbone = copy.deepcopy(encoder.backbone).train()
        self.classifier = nn.Linear(encoder.width, 2)
        bound = 1 / math.sqrt(encoder.width)  # torch's default, as in the released code, drawn from the run's generator
        for parameter in self.classifier.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, tokens: Tokens, condition: Float[Tensor, "n d"]) -> Float[Tensor, "n t 2"]:
        """Return scores of kept and replaced; the condition replaces the first token's embedding."""

        def replace_first(_module: nn.Module, _inputs: object, embedded: Tensor) -> Tensor:
            return torch.cat([condition.unsqueeze(1), embedded[:, 1:]], dim=1)

        hook = self.backbone.embeddings.register_forward_hook(replace_first)
        try:
            states = self.backbone(input_ids=tokens.ids, attention_mask=tokens.mask.long()).last_hidden_state
        finally:
            hook.remove()
        return self.classifier(states)


def detection_loss(
    scores: Float[Tensor, "n t 2"], replaced: Bool[Tensor, "n t"], mask: Bool[Tensor, "n t"]
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of kept (0) and replaced (1) over real tokens but the first, in nats (Sec. 3)."""
    scored = _without_first(mask)
    return F.cross_entropy(scores[scored], replaced[scored].long())


def _without_first(mask: Bool[Tensor, "n t"]) -> Bool[Tensor, "n t"]:
    """Return the mask of real tokens without the first, which the condition replaces."""
    return mask & (torch.arange(mask.shape[1], device=mask.device) > 0)


def batch_norm_head(encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
    """Return the train-only head of the released code: a hidden layer of twice the width, BatchNorm, no bias.

    Weights are normal with deviation 0.02, as BERT draws them; the last normalisation has no scale and shift.
    """
    width = encoder.width
    inside, outside = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)
    for linear in (inside, outside):
        nn.init.normal_(linear.weight, std=0.02, generator=generator)
    norm, last = nn.BatchNorm1d(2 * width), nn.BatchNorm1d(width, affine=False)
    return nn.ModuleDict({"head": nn.Sequential(inside, norm, nn.ReLU(), outside, last)})


DISTILBERT, DISTILROBERTA = Pretrained("distilbert-base-uncased"), Pretrained("distilroberta-base")


@dataclass(frozen=True, kw_only=True)
class DiffCSE:
    """`detection_weight` is the paper's lambda, `mask_share` its masking ratio."""

    name: ClassVar[str] = "diffcse"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"detection_weight": LogUniform(0.0005, 0.05), "mask_share": (0.15, 0.3, 0.45)}
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.05
    head: Literal["batch_norm", "tanh"] = "batch_norm"
    generator: Pretrained = DISTILBERT
    mask_share: float = 0.3
    detection_weight: float = 0.005

    examples = single_column
    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)  # under ("transfer", backbone) those for transfer tasks

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")
        check("detection_weight", self.detection_weight, lambda w: w >= 0, "zero or positive")
        check("mask_share", self.mask_share, lambda s: 0 < s <= 1, "in (0, 1]")
        check_choices(self)

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the head and, with a detection weight, the frozen generator and the trained discriminator."""
        modules = tanh_head(self, encoder, generator) if self.head == "tanh" else batch_norm_head(encoder, generator)
        if self.detection_weight:
            modules["generator"] = Generator(self.generator, encoder)
            modules["discriminator"] = Discriminator(encoder, generator)
        return modules

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return InfoNCE of the views plus the weighted loss of detecting replaced words, given each view, in nats."""
        text = batch["text"]
        z1, z2 = self._project(modules["head"], *encode(text, text))
        contrastive = info_nce(z1, z2, self.temperature, left_out=batch.duplicates)
        if not self.detection_weight:
            return Loss(contrastive, {"contrastive": contrastive}, (z1, z2))
        both = Tokens(text.ids.repeat(2, 1), text.mask.repeat(2, 1))
        edited = modules["generator"](both, self.mask_share, batch.generator)
        replaced = edited != both.ids
        scores = modules["discriminator"](Tokens(edited, both.mask), torch.cat([z1, z2]))
        detection = detection_loss(scores, replaced, both.mask)
        share = replaced.sum() / _without_first(both.mask).sum()
        terms = {"contrastive": contrastive, "detection": detection, "share_replaced": share}
        return Loss(contrastive + self.detection_weight * detection, terms, (z1, z2))

    def _project(self, head: nn.Module, *views: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], ...]:
        if self.head == "tanh":  # one by one, as SimCSE does, for the same bits
            return tuple(head(view) for view in views)
        return head(torch.cat(views)).chunk(len(views))


def _recipe(source: str, *, learning_rate: float = 7e-6, **fields: Any) -> Recipe:
    return Recipe(DiffCSE(**fields), batch_size=64, epochs=2, learning_rate=learning_rate, source=source)


PUBLISHED = {
    "bert-base-uncased": _recipe("released script"),
    "roberta-base": _recipe(
        "generator: authors, DiffCSE issue 1; the rest as for BERT: inferred", generator=DISTILROBERTA
    ),
    ("transfer", "bert-base-uncased"): _recipe(
        "paper, appendix: chosen on the transfer tasks' dev sets; batch and epochs as for STS: inferred",
        learning_rate=2e-6,
        mask_share=0.15,
        detection_weight=0.05,
    ),
}
