"""PromptBERT (Jiang et al., EMNLP 2022): the vector is the state at a template's mask; two templates make the views.

h = state at [MASK] of the sentence inside a template. In training each view has its own template and is denoised to
h - h_hat, where h_hat is the mask's state in the bare template. The bare template's tokens after the gap keep the
positions that they have with the sentence. Then come the tanh head and InfoNCE. At test, there is only the first
template, without denoising or head.

Relations: SimCSE's contrast on other vectors; a base of RankEncoder.
Paper against the released code, kongds/Prompt-BERT: once per batch it computes a table of h_hat for every length, with
gradient, so that sentences of one length share a dropout mask. Here only the batch's lengths have a row, which is the
same. Its evaluation ends sentences with a full stop (prompts.with_final_period), its training doesn't.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cse_core.functional.contrastive import info_nce
from cse_core.method import Batch, Encode, Loss, Recipe, Tokens, check, no_targets, tanh_head
from cse_core.space import Space
from cse_core.text.prompts import check_template, prompt_ids, sides

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEMPLATES = {
    "bert": ('This sentence of "{}" means [MASK].', 'This sentence : "{}" means [MASK].'),
    "roberta": ("This sentence : ' {} ' means [MASK].", "The sentence : ' {} ' means [MASK]."),
}


class BareTemplate(nn.Module):
    """A template without a sentence: its ids, and how many of them come before the gap."""

    ids: Tensor

    def __init__(self, template: str, tokenizer: "PreTrainedTokenizerBase") -> None:
        super().__init__()
        left, right = sides(template, tokenizer)
        self.before, self.outside = len(left), len(left) + len(right)
        self.register_buffer("ids", torch.tensor(left + right), persistent=False)

    def tokens_around(self, words: Int[Tensor, " n"]) -> Tokens:
        """Return the template once per number of words, with its second side at the positions after that many words."""
        ids = self.ids.expand(len(words), -1)
        places = torch.arange(self.outside, device=self.ids.device)
        positions = places + (places >= self.before) * words.unsqueeze(1)
        return Tokens(ids, torch.ones_like(ids, dtype=torch.bool), positions)


def prompt_head(templates: Sequence[str], encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
    """Return the tanh head and each bare template; refuse an encoder that doesn't pool at the mask."""
    if encoder.pooling != "mask":
        raise ValueError(f"templates need an encoder with pooling 'mask' and a template, got {encoder.pooling!r}")
    modules = tanh_head(None, encoder, generator)
    modules["bare"] = nn.ModuleList([BareTemplate(template, encoder.tokenizer) for template in templates])
    return modules


def denoised_states(
    encode: Encode, tokens: Sequence[Tokens], bare: Sequence[BareTemplate]
) -> list[Float[Tensor, "n d"]]:
    """Return h - h_hat of each Tokens under its template, in one pass: h_hat once per number of words (Eq. 4)."""
    lengths = [part.mask.sum(1) - template.outside for part, template in zip(tokens, bare, strict=True)]
    distinct = [torch.unique(length, return_inverse=True) for length in lengths]
    noise = [template.tokens_around(words) for template, (words, _) in zip(bare, distinct, strict=True)]
    states = encode(*tokens, *noise)
    sentences, bias = states[: len(tokens)], states[len(tokens) :]
    return [h - h_hat[row] for h, h_hat, (_, row) in zip(sentences, bias, distinct, strict=True)]


@dataclass(frozen=True, kw_only=True)
class PromptBERT:
    """`first` and `second` are the templates of the two views; the encoder's own template should be the first."""

    name: ClassVar[str] = "promptbert"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {"denoise": (True, False)}
    leaves_out_duplicates: ClassVar[bool] = True

    temperature: float = 0.05
    first: str = TEMPLATES["bert"][0]
    second: str = TEMPLATES["bert"][1]
    denoise: bool = True

    targets = no_targets
    recipes = staticmethod(lambda: PUBLISHED)

    def __post_init__(self) -> None:
        check("temperature", self.temperature, lambda t: t > 0, "positive")
        for template in (self.first, self.second):
            check_template(template)

    def examples(
        self, texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int
    ) -> dict[str, list[list[int]]]:
        """Return the sentences inside each template, cut to max_length word pieces, not counting the template's."""
        templates = {"first": self.first, "second": self.second}
        return {name: prompt_ids(texts, template, tokenizer, max_length) for name, template in templates.items()}

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the tanh head and the bare templates."""
        return prompt_head((self.first, self.second), encoder, generator)

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return InfoNCE between the heads of the two denoised views, in nats."""
        tokens = (batch["first"], batch["second"])
        states = denoised_states(encode, tokens, list(modules["bare"])) if self.denoise else encode(*tokens)  # ty: ignore[invalid-argument-type]
        z1, z2 = (modules["head"](h) for h in states)
        contrastive = info_nce(z1, z2, self.temperature, left_out=batch.duplicates)
        return Loss(contrastive, {"contrastive": contrastive}, (z1, z2))


def _recipe(family: str, source: str) -> Recipe:
    first, second = TEMPLATES[family]
    method = PromptBERT(first=first, second=second)
    return Recipe(method, batch_size=256, learning_rate=1e-5, pooling="mask", template=first, source=source)


PUBLISHED = {
    "bert-base-uncased": _recipe("bert", "released script"),
    "roberta-base": _recipe("roberta", "released script; learning rate and batch as for BERT: inferred"),
}
