"""Masked-language modelling as an extra loss of any method (SimCSE, Gao, Yao and Chen, EMNLP 2021, its MLM option).

A second pass reads the batch with some words masked, and the backbone's pre-trained head predicts these words:
L = L_inner + lambda L_mlm. It keeps word-level knowledge for transfer tasks (RankEncoder's Table 3).

Relations: with weight 0 it is `inner`, bit for bit. The random draws and the pass of `inner` come first and never
change. Paper against released code: the code's head has its own decoder, not tied to the embeddings; the same here. As
in the code, each view is masked separately: a method's first two columns, or its only column twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cse_core.data.batches import stack
from cse_core.graph import rand, randint
from cse_core.method import Batch, Encode, Loss, Method, Recipe, Source, Targets, Tokens, check
from cse_core.methods.simcse import SimCSE
from cse_core.models.loading import read_config
from cse_core.models.pretrained import resolve
from cse_core.space import LogUniform, Space

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SIMCSE = SimCSE()
HEADS = {"bert": "cls.predictions", "roberta": "lm_head"}  # where a language model of this type has its head


def mask_tokens(
    ids: Int[Tensor, "n t"],
    maskable: Bool[Tensor, "n t"],
    share: float,
    vocabulary: int,
    mask_id: int,
    generator: torch.Generator,
    *,
    keep: float = 0.1,
    random: float = 0.1,
) -> tuple[Int[Tensor, "n t"], Bool[Tensor, "n t"]]:
    """Return the ids with some of them masked, and which were chosen (BERT, Devlin et al., NAACL 2019, Section 3.1).

    Each maskable token is chosen with probability `share`. A chosen one stays with probability `keep`, becomes any of
    the `vocabulary` words with probability `random`, and the mask otherwise.
    """
    replacement_draw, selection_draw = rand(2, *ids.shape, generator=generator, device=ids.device)
    words = randint(0, vocabulary, ids.shape, generator=generator, device=ids.device)
    chosen = maskable & (selection_draw < share)
    replacement = torch.where(replacement_draw < 1 - keep - random, mask_id, words)
    return torch.where(chosen & (replacement_draw < 1 - keep), replacement, ids), chosen


def masked_loss(logits: Float[Tensor, "m v"], ids: Int[Tensor, " m"]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the m chosen tokens' own ids, in nats; 0 if none was chosen."""
    return F.cross_entropy(logits, ids, reduction="sum") / max(len(ids), 1)


def language_model(folder: Path, name: str) -> Any:
    """Load the masked-language model of a folder, in eval mode and fp32; refuse one without a head in the folder."""
    from transformers import AutoModelForMaskedLM  # lazy: slow import

    model, loading = AutoModelForMaskedLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
    )
    if loading["missing_keys"]:
        raise ValueError(
            f"backbone {name}: holds no masked-language-model head, which would start from random weights; missing "
            f"{', '.join(sorted(loading['missing_keys']))}"
        )
    return model


class Masking(nn.Module):
    """Masking by one tokenizer: its mask, vocabulary size, padding and special tokens."""

    special: Tensor

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", name: str) -> None:
        super().__init__()
        if tokenizer.mask_token_id is None:
            raise ValueError(f"backbone {name}: its tokenizer has no mask token")
        self.mask_id, self.pad_id, self.size = tokenizer.mask_token_id, tokenizer.pad_token_id or 0, len(tokenizer)
        self.register_buffer("special", torch.tensor(sorted(set(tokenizer.all_special_ids))), persistent=False)

    def mask(
        self, tokens: Tokens, share: float, generator: torch.Generator, **probabilities: float
    ) -> tuple[Tokens, Bool[Tensor, "n t"]]:
        """Apply `mask_tokens` to all tokens but padding and special ones (a template's mask is special)."""
        maskable = tokens.mask & ~torch.isin(tokens.ids, self.special)
        ids, chosen = mask_tokens(tokens.ids, maskable, share, self.size, self.mask_id, generator, **probabilities)
        return Tokens(ids, tokens.mask, tokens.positions), chosen


class MLMHead(nn.Module):
    """A trainable copy of the pre-trained language-model head of an encoder's backbone, and its tokenizer's masking."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        if (kind := read_config(resolve(encoder.name)).model_type) not in HEADS:
            raise ValueError(f"backbone {encoder.name}: model type must be one of {', '.join(HEADS)}, got {kind}")
        model = language_model(resolve(encoder.name), encoder.name)
        self.head = model.get_submodule(HEADS[kind]).train()
        self.masking = Masking(encoder.tokenizer, encoder.name)

    def forward(self, states: Float[Tensor, "m d"]) -> Float[Tensor, "m v"]:
        """Return a score for every entry of the vocabulary."""
        return self.head(states)


@dataclass(frozen=True, kw_only=True)
class MLM:
    """`mlm_weight` is the paper's lambda, `mlm_share` the share of tokens that are chosen."""

    name: ClassVar[str] = "mlm"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"mlm_weight": LogUniform(0.01, 1.0)}

    inner: Method = SIMCSE
    mlm_weight: float = 0.1
    mlm_share: float = 0.15

    @staticmethod
    def recipes() -> Mapping[Any, Recipe]:
        """Return none: the settings are those of the method inside."""
        return {}

    def __post_init__(self) -> None:
        check("mlm_weight", self.mlm_weight, lambda w: w >= 0, "zero or positive")
        check("mlm_share", self.mlm_share, lambda s: 0 < s <= 1, "in (0, 1]")

    def examples(
        self, texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int
    ) -> dict[str, list[list[int]]]:
        """Return the inner method's examples."""
        return self.inner.examples(texts, tokenizer, max_length)

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the inner method's modules and the head."""
        modules = self.inner.modules(encoder, generator)
        if self.mlm_weight:
            modules["mlm_head"] = MLMHead(encoder)
        return modules

    def targets(self, source: Source) -> Targets:
        """Return the inner method's targets."""
        return self.inner.targets(source)

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return the inner loss plus the weighted loss of the masked tokens, in nats."""
        inner = self.inner.loss(encode, batch, modules, targets)
        if not self.mlm_weight:
            return inner
        head: Any = modules["mlm_head"]
        views = [*batch.columns.values()] * 2
        tokens = stack(views[:2], head.masking.pad_id)
        masked, chosen = head.masking.mask(tokens, self.mlm_share, batch.generator)
        # Scores of all tokens, not only of the chosen ones, would be the largest tensor of the step by far.
        mlm = masked_loss(head(encode.states(masked)[chosen]), tokens.ids[chosen])
        return Loss(inner.total + self.mlm_weight * mlm, {**inner.terms, "mlm": mlm}, inner.views)
