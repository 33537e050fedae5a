"""A Hugging Face BERT or RoBERTa, its tokenizer and a pooling: sentences in, vectors out."""

import copy
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cse_core.data.batches import pad, stack
from cse_core.method import Tokens
from cse_core.models import packed_forward
from cse_core.models.loading import OFFSET_POSITIONS, load
from cse_core.models.pretrained import resolve
from cse_core.models.scaled_states import Scaling, scaled_by
from cse_core.models.sentence_transformers_format import describe, kept_pooling
from cse_core.run import check_pooling
from cse_core.text.prompts import check_template, closed_and_prompted

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

PART = 8192  # sentences tokenised at once: what a tokenizer returns takes kilobytes a sentence
AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def pool(states: Sequence[Float[Tensor, "n t d"]], mask: Bool[Tensor, "n t"], pooling: str) -> Float[Tensor, "n d"]:
    """One vector a text from all layers' states (embedding output first), by name.

    cls: last layer's first token. mean: masked mean of the last layer; of the mean of the last two (top2_mean), of the
    embedding output and the last (first_last_mean: the published 56.70), of layer 1 and the last (layer1_last_mean).
    """
    if pooling == "cls":
        return states[-1][:, 0]
    layers = {"mean": (-1,), "top2_mean": (-1, -2), "first_last_mean": (0, -1), "layer1_last_mean": (1, -1)}[pooling]
    average = torch.stack([states[i] for i in layers]).mean(0)
    weights = mask.unsqueeze(-1).to(average.dtype)
    return (average * weights).sum(1) / weights.sum(1)


class Encoder(nn.Module):
    """Backbone, tokenizer and pooling. Calling it is a training pass; `encode` is evaluation."""

    def __init__(
        self,
        backbone: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerFast",
        *,
        pooling: str,
        name: str,
        template: str = "",
        longest: int | None = None,
    ) -> None:
        super().__init__()
        check_pooling(pooling, template)
        if template:
            check_template(template)
            if tokenizer.mask_token_id is None:
                raise ValueError(f"{name}: the template {template!r} needs a mask token, the tokenizer has none")
        self.backbone = backbone
        self.tokenizer, self.pooling, self.name = tokenizer, pooling, name
        self.template, self.longest = template, longest
        self.precision = "fp32"  # of training passes; evaluation is always fp32
        self.train(backbone.training)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        pooling: str | None = None,
        template: str = "",
        dropout: float | None = None,
    ) -> "Encoder":
        """Load a backbone, or a folder that `keep` wrote, with its own pooling and template unless told otherwise.

        The backbone is built without a pooling layer, and every weight comes from the folder's file (see `load`).
        """
        if template and pooling is None:
            raise ValueError(f"a template wants the pooling 'mask' beside it, got none for {template!r}")
        folder = resolve(str(name_or_path))
        model, tokenizer = load(folder, dropout)
        if pooling is None:
            pooling, template = kept_pooling(folder)
        return cls(model, tokenizer, pooling=pooling, template=template, name=str(name_or_path))

    def with_pooling(self, pooling: str, template: str = "", longest: int | None = None) -> "Encoder":
        """The same weights under another pooling and template, reading no more than `longest` tokens."""
        return Encoder(
            self.backbone, self.tokenizer, pooling=pooling, template=template, name=self.name, longest=longest
        )

    @property
    def width(self) -> int:
        return int(self.backbone.config.hidden_size)

    @property
    def device(self) -> torch.device:
        return next(self.backbone.parameters()).device

    @property
    def max_length(self) -> int:
        """The tokenizer's length limit; where it states none, what the position table holds."""
        held = self.backbone.config.max_position_embeddings - self._first_position
        return min(self.tokenizer.model_max_length, held, self.longest or held)

    @property
    def _first_position(self) -> int:
        embeddings: Any = self.backbone.embeddings
        return embeddings.padding_idx + 1 if self.backbone.config.model_type in OFFSET_POSITIONS else 0

    def compile_training(self) -> None:
        """Hand training passes to torch.compile, where they are the backbone's own."""
        if self._packs:
            raise ValueError(
                f"compiled passes want a GPU; on a {self.device.type} they are written out without padding"
            )
        self.backbone.compile(dynamic=False)

    def forward(self, *tokens: Tokens) -> tuple[Float[Tensor, "_ d"], ...]:
        """All given Tokens in one pass of the backbone, pooled, each given back by itself, in fp32."""
        return self._pass(stack(tokens, self.pad_id)).split([len(part.ids) for part in tokens])

    def states(self, tokens: Tokens) -> Float[Tensor, "n t d"]:
        """A training pass that gives every real token's last state, in fp32."""
        return self._states(tokens)[-1]

    def still(self, *tokens: Tokens) -> tuple[Float[Tensor, "_ d"], ...]:
        """A training pass without dropout. Its activations are kept, whatever activation checkpointing does."""
        was_training = self.backbone.training
        self.backbone.eval()  # alone: precision and compilation follow the encoder's own mode
        try:
            return self(*tokens)
        finally:
            self.backbone.train(was_training)

    def copied(self) -> "Encoder":
        """Return an encoder of the same settings with weights of its own, equal to these."""
        own = self.with_pooling(self.pooling, self.template, self.longest)
        own.backbone, own.precision = copy.deepcopy(self.backbone), self.precision
        return own

    @property
    def pad_id(self) -> int:
        return int(self.tokenizer.pad_token_id or 0)

    def _pass(self, tokens: Tokens) -> Float[Tensor, "n d"]:
        if self.pooling not in ("cls", "mask"):
            return pool(self._states(tokens), tokens.mask, self.pooling)
        column = self._mask_places(tokens.ids) if self.template else torch.zeros_like(tokens.ids[:, 0])
        if self._packs:
            return self._packed(tokens, column)[0][-1].float()
        return self._states(tokens)[-1][torch.arange(len(column), device=column.device), column]

    def _mask_places(self, ids: Int[Tensor, "n t"]) -> Int[Tensor, " n"]:
        """Where each row's last mask is: the template's, as a sentence may hold one and stands before it."""
        places = (ids == self.tokenizer.mask_token_id) * torch.arange(1, ids.shape[1] + 1, device=ids.device)
        last = places.amax(1) - 1
        if last.device.type == "cpu" and len(last) and last.min() < 0:  # a GPU isn't waited for
            raise ValueError(
                f"{self.name}: the pooling 'mask' wants a mask in every text, row {int(last.argmin())} has none"
            )
        return last

    @property
    def _packable(self) -> bool:
        config = self.backbone.config
        return config.model_type in packed_forward.KINDS and not config.is_decoder

    @property
    def _packs(self) -> bool:
        return self._packable and self.device.type == "cpu"

    def _autocast(self) -> torch.autocast:
        dtype = AUTOCAST[self.precision] if self.training else None
        return torch.autocast(self.device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)

    def _states(self, tokens: Tokens) -> list[Float[Tensor, "n t d"]]:
        if self._packs:
            states, layout = self._packed(tokens)
            return [layout.spread(state.float()) for state in (states if self._reads_layers else states[-1:])]
        positions = {}
        if self._packable or tokens.positions is not None:
            positions = {"position_ids": tokens.position_ids + self._first_position}
        # Of a mask in this form transformers doesn't ask a GPU, in every step, whether it hides anything.
        plain = not self._packable or self.backbone.config._attn_implementation != "sdpa"
        mask = tokens.mask.long() if plain else tokens.mask[:, None, None]
        scaling = self._scaling(tokens)
        # What is compiled is compiled for training, and doesn't see hooks that come and go.
        forward = self.backbone if self.training and scaling is None else self.backbone.forward
        with self._autocast(), scaled_by(self.backbone, scaling):
            output = forward(
                input_ids=tokens.ids,
                attention_mask=mask,
                **positions,
                output_hidden_states=self._reads_layers,
            )
        return [state.float() for state in output.hidden_states or (output.last_hidden_state,)]

    def _scaling(self, tokens: Tokens) -> Scaling | None:
        """What scales the lowest states of a pass, if anything does."""
        scaling = Scaling.of(tokens)
        if scaling is not None and not self._packable:
            kind = self.backbone.config.model_type
            raise ValueError(
                f"kept and factors need a model of the kinds {', '.join(packed_forward.KINDS)}, got {kind}"
            )
        if scaling is not None:
            scaling.check(self.backbone.config.num_hidden_layers)
        return scaling

    @property
    def _reads_layers(self) -> bool:
        return self.pooling not in ("cls", "mean", "mask")

    def _packed(
        self, tokens: Tokens, column: Int[Tensor, " n"] | None = None
    ) -> tuple[list[Float[Tensor, "_ d"]], packed_forward.Layout]:
        """The states of real tokens; with `column`, of the last layer one token a row alone."""
        layout = packed_forward.Layout.of(tokens.mask, self.backbone.config.num_attention_heads)
        positions = tokens.position_ids.flatten()[layout.places]
        lengths = tokens.mask.sum(1)
        only = None if column is None else lengths.cumsum(0) - lengths + column
        ids = tokens.ids.flatten()[layout.places]
        with self._autocast():
            states = packed_forward.states(
                self.backbone, ids, positions + self._first_position, layout, only, self._scaling(tokens)
            )
        return states, layout

    def tokenise(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids with special tokens, cut only at the encoder's own limit."""
        if not sentences:  # the tokenizer has no answer to an empty list
            return []
        if self.template:
            return closed_and_prompted(sentences, self.template, self.tokenizer, self.max_length)
        return self.tokenizer(list(sentences), truncation=True, max_length=self.max_length)["input_ids"]

    def encode(
        self, sentences: Sequence[str], batch_size: int = 64, *, progress: Callable[[int], object] | None = None
    ) -> Float[Tensor, "n d"]:
        """Vectors of sentences, without dropout or gradient, in fp32 on the CPU. Each distinct sentence passes once."""
        distinct, back = np.unique(np.asarray(sentences, dtype=object), return_inverse=True)
        parts = (distinct[i : i + PART].tolist() for i in range(0, len(distinct), PART))
        ids = [np.asarray(row, dtype=np.int32) for part in parts for row in self.tokenise(part)]
        return self.embed(ids, batch_size, progress=progress)[torch.from_numpy(back)]

    @torch.no_grad()
    def embed(
        self,
        ids: Sequence[Sequence[int] | Int[np.ndarray, " _"]],
        batch_size: int = 64,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Float[Tensor, "n d"]:
        """Vectors of token ids, sorted by length into batches so that little is padding; `progress` gets counts."""
        was_training = self.training
        try:
            return self.eval()._embedded(ids, batch_size, progress)
        finally:
            self.train(was_training)

    def _embedded(
        self,
        ids: Sequence[Sequence[int] | Int[np.ndarray, " _"]],
        batch_size: int,
        progress: Callable[[int], object] | None,
    ) -> Float[Tensor, "n d"]:
        vectors = torch.empty(len(ids), self.width)
        order = np.argsort([-len(row) for row in ids], kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            tokens = pad([ids[row] for row in rows], self.pad_id)
            tokens = Tokens(tokens.ids.to(self.device), tokens.mask.to(self.device))
            vectors[rows] = self._pass(tokens).cpu()
            if progress:
                progress(len(rows))
        return vectors

    def save_pretrained(self, path: str | Path) -> None:
        """Write a folder that `from_pretrained` reads.

        With the poolings "cls" and "mean" AutoModel and sentence-transformers open it too, and score the same.
        """
        folder = Path(path)
        shutil.rmtree(folder, ignore_errors=True)
        self.tokenizer.backend_tokenizer.no_truncation()  # the last call's limits are no part of the encoder
        self.tokenizer.backend_tokenizer.no_padding()
        self.backbone.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        describe(folder, self.pooling, self.template, width=self.width, max_length=self.max_length)
