"""A Hugging Face BERT or RoBERTa, its tokenizer and a pooling: sentences in, vectors out."""

import copy
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cse_core.data.atomic_write import full_disk_named
from cse_core.data.batches import pad, stack
from cse_core.method import Tokens
from cse_core.models import packed_forward
from cse_core.models.loading import OFFSET_POSITIONS, load
from cse_core.models.pooling import NgramPooling, pool
from cse_core.models.pretrained import resolve
from cse_core.models.scaled_states import Scaling, scaled_by
from cse_core.models.sentence_transformers_format import read_ngrams, read_pooling, write_pooling
from cse_core.run import NGRAM_POOLINGS, check_pooling
from cse_core.text.prompts import check_template, closed_prompt_ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

TOKENISE_CHUNK = 8192  # sentences tokenised at once: a tokenizer's output takes kilobytes a sentence
AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


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
        ngrams: NgramPooling | None = None,
    ) -> None:
        super().__init__()
        check_pooling(pooling, template)
        if (ngrams is None) == (pooling in NGRAM_POOLINGS):
            raise ValueError(f"{name}: weights go with the poolings {', '.join(NGRAM_POOLINGS)} only, got {pooling}")
        if template:
            check_template(template)
            if tokenizer.mask_token_id is None:
                raise ValueError(f"{name}: the template {template!r} needs a mask token, the tokenizer has none")
        self.backbone = backbone
        self.tokenizer, self.pooling, self.name = tokenizer, pooling, name
        self.template, self.longest, self.ngrams = template, longest, ngrams
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
        generator: torch.Generator | None = None,
    ) -> "Encoder":
        """Load a backbone, or a folder that `save_pretrained` wrote, with its pooling and template unless overridden.

        The backbone is built without a pooling layer, and every weight comes from the folder's file (see `load`), but
        for those of an n-gram pooling that the folder lacks: the generator draws them, and without one it is refused.
        """
        if template and pooling is None:
            raise ValueError(f"a template requires pooling 'mask', got no pooling for {template!r}")
        folder = resolve(str(name_or_path))
        model, tokenizer = load(folder, dropout)
        if pooling is None:
            pooling, template = read_pooling(folder)
        ngrams = None
        if pooling in NGRAM_POOLINGS:
            ngrams = read_ngrams(folder, pooling, model.config.hidden_size, generator)
        return cls(model, tokenizer, pooling=pooling, template=template, name=str(name_or_path), ngrams=ngrams)

    def with_pooling(self, pooling: str, template: str = "", longest: int | None = None) -> "Encoder":
        """Return the same weights with another pooling and template, and texts cut to `longest` tokens."""
        settings: dict[str, Any] = {"pooling": pooling, "template": template, "longest": longest}
        settings["ngrams"] = self.ngrams if pooling == self.pooling else None
        return Encoder(self.backbone, self.tokenizer, name=self.name, **settings)

    @property
    def width(self) -> int:
        """The number of dimensions of a vector."""
        return self.ngrams.width if self.ngrams else int(self.backbone.config.hidden_size)

    @property
    def device(self) -> torch.device:
        return next(self.backbone.parameters()).device

    @property
    def max_length(self) -> int:
        """The smallest limit of tokenizer, position table and `longest`, in tokens."""
        held = self.backbone.config.max_position_embeddings - self._first_position
        return min(self.tokenizer.model_max_length, held, self.longest or held)

    @property
    def _first_position(self) -> int:
        embeddings: Any = self.backbone.embeddings
        return embeddings.padding_idx + 1 if self.backbone.config.model_type in OFFSET_POSITIONS else 0

    def compile_training(self) -> None:
        """Compile training passes with torch.compile; refuse on a CPU, whose passes are not the backbone's own."""
        if self._runs_packed:
            raise ValueError(
                f"compiled passes require a GPU; on a {self.device.type} they are written out without padding"
            )
        self.backbone.compile(dynamic=False)

    def forward(self, *tokens: Tokens) -> tuple[Float[Tensor, "_ d"], ...]:
        """Encode all Tokens in one pass of the backbone; return the pooled vectors of each, in fp32."""
        return self._pooled_pass(stack(tokens, self.pad_id)).split([len(part.ids) for part in tokens])

    def states(self, tokens: Tokens) -> Float[Tensor, "n t d"]:
        """Return every real token's last state of a training pass, in fp32."""
        return self._states(tokens)[-1]

    def still(self, *tokens: Tokens) -> tuple[Float[Tensor, "_ d"], ...]:
        """Make a training pass without dropout. Its activations are kept even under activation checkpointing."""
        was_training = self.backbone.training
        self.backbone.eval()  # only this part: precision and compilation follow the encoder's own mode
        try:
            return self(*tokens)
        finally:
            self.backbone.train(was_training)

    def clone(self) -> "Encoder":
        """Return an encoder of the same settings with weights of its own, equal to these."""
        settings: dict[str, Any] = {"pooling": self.pooling, "template": self.template, "longest": self.longest}
        settings["ngrams"] = copy.deepcopy(self.ngrams)
        copied = type(self)(copy.deepcopy(self.backbone), self.tokenizer, name=self.name, **settings)
        copied.precision = self.precision
        return copied

    @property
    def pad_id(self) -> int:
        return int(self.tokenizer.pad_token_id or 0)

    def _pooled_pass(self, tokens: Tokens) -> Float[Tensor, "n d"]:
        if self.ngrams:
            return self.ngrams(self.states(tokens), tokens.mask)
        if self.pooling not in ("cls", "mask"):
            return pool(self._states(tokens), tokens.mask, self.pooling)
        column = self._mask_columns(tokens.ids) if self.template else torch.zeros_like(tokens.ids[:, 0])
        if self._runs_packed:
            return self._packed_states(tokens, column)[0][-1].float()
        return self._states(tokens)[-1][torch.arange(len(column), device=column.device), column]

    def _mask_columns(self, ids: Int[Tensor, "n t"]) -> Int[Tensor, " n"]:
        """Return the column of each row's last mask: the template's, which comes after any that the sentence holds."""
        places = (ids == self.tokenizer.mask_token_id) * torch.arange(1, ids.shape[1] + 1, device=ids.device)
        last = places.amax(1) - 1
        if last.device.type == "cpu" and len(last) and last.min() < 0:  # skipped on a GPU, to avoid a sync
            raise ValueError(
                f"{self.name}: pooling 'mask' requires a mask in every text, row {int(last.argmin())} has none"
            )
        return last

    @property
    def _can_pack(self) -> bool:
        config = self.backbone.config
        return config.model_type in packed_forward.MODEL_TYPES and not config.is_decoder

    @property
    def _runs_packed(self) -> bool:
        return self._can_pack and self.device.type == "cpu"

    def _autocast(self) -> torch.autocast:
        dtype = AUTOCAST[self.precision] if self.training else None
        return torch.autocast(self.device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)

    def _states(self, tokens: Tokens) -> list[Float[Tensor, "n t d"]]:
        if self._runs_packed:
            states, layout = self._packed_states(tokens)
            return [layout.pad(state.float()) for state in (states if self._needs_all_layers else states[-1:])]
        positions = {}
        if self._can_pack or tokens.positions is not None:
            positions = {"position_ids": tokens.position_ids + self._first_position}
        # Given the mask in this shape, transformers does not check in every step if it hides anything: a sync on a GPU.
        plain = not self._can_pack or self.backbone.config._attn_implementation != "sdpa"
        mask = tokens.mask.long() if plain else tokens.mask[:, None, None]
        scaling = self._scaling(tokens)
        # Only training passes are compiled, and a compiled pass does not see hooks that come and go.
        forward = self.backbone if self.training and scaling is None else self.backbone.forward
        with self._autocast(), scaled_by(self.backbone, scaling):
            output = forward(
                input_ids=tokens.ids,
                attention_mask=mask,
                **positions,
                output_hidden_states=self._needs_all_layers,
            )
        return [state.float() for state in output.hidden_states or (output.last_hidden_state,)]

    def _scaling(self, tokens: Tokens) -> Scaling | None:
        """Return what scales the lowest states of a pass, if anything does."""
        scaling = Scaling.of(tokens)
        if scaling is not None and not self._can_pack:
            kind = self.backbone.config.model_type
            raise ValueError(
                f"kept and factors need a model of type {', '.join(packed_forward.MODEL_TYPES)}, got {kind}"
            )
        if scaling is not None:
            scaling.check(self.backbone.config.num_hidden_layers)
        return scaling

    @property
    def _needs_all_layers(self) -> bool:
        return self.pooling not in ("cls", "mean", "mask", *NGRAM_POOLINGS)

    def _packed_states(
        self, tokens: Tokens, column: Int[Tensor, " n"] | None = None
    ) -> tuple[list[Float[Tensor, "_ d"]], packed_forward.Layout]:
        """Return the states of real tokens and their layout; with `column`, the last layer's of one token a row."""
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
        """Return ids with special tokens, cut only at the encoder's own limit."""
        if not sentences:  # the tokenizer fails on an empty list
            return []
        if self.template:
            return closed_prompt_ids(sentences, self.template, self.tokenizer, self.max_length)
        return self.tokenizer(list(sentences), truncation=True, max_length=self.max_length)["input_ids"]

    def encode(
        self, sentences: Sequence[str], batch_size: int = 64, *, progress: Callable[[int], object] | None = None
    ) -> Float[Tensor, "n d"]:
        """Return vectors of sentences, in eval mode, in fp32 on the CPU. Each distinct sentence is encoded once."""
        distinct, rows = np.unique(np.asarray(sentences, dtype=object), return_inverse=True)
        chunks = (distinct[i : i + TOKENISE_CHUNK].tolist() for i in range(0, len(distinct), TOKENISE_CHUNK))
        ids = [np.asarray(row, dtype=np.int32) for chunk in chunks for row in self.tokenise(chunk)]
        return self.embed(ids, batch_size, progress=progress)[torch.from_numpy(rows)]

    @torch.no_grad()
    def embed(
        self,
        ids: Sequence[Sequence[int] | Int[np.ndarray, " _"]],
        batch_size: int = 64,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Float[Tensor, "n d"]:
        """Return vectors of token ids, batched by length so that little is padding; `progress` gets batch sizes."""
        was_training = self.training
        try:
            return self.eval()._embed_batches(ids, batch_size, progress)
        finally:
            self.train(was_training)

    def _embed_batches(
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
            vectors[rows] = self._pooled_pass(tokens).cpu()
            if progress:
                progress(len(rows))
        return vectors

    def save_pretrained(self, path: str | Path) -> None:
        """Write a folder that `from_pretrained` reads.

        With the poolings "cls" and "mean" AutoModel and sentence-transformers open it too, and score the same; so does
        sentence-transformers with an n-gram pooling, but that it lets padding into the windows at a sentence's end.
        """
        folder = Path(path)
        shutil.rmtree(folder, ignore_errors=True)
        self.tokenizer.backend_tokenizer.no_truncation()  # the last call's limits don't belong to the encoder
        self.tokenizer.backend_tokenizer.no_padding()
        about: dict[str, Any] = {"width": self.width, "max_length": self.max_length, "ngrams": self.ngrams}
        with full_disk_named(folder):
            self.backbone.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            write_pooling(folder, self.pooling, self.template, **about)
