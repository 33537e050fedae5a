"""An encoder of transformers, its tokenizer and a pooling: sentences in, vectors out."""

import copy
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Float, Int
from torch import Tensor, nn

from cse_core.data.batches import by_size, pad, stack
from cse_core.method import Tokens
from cse_core.models import packed_forward, padded_forward
from cse_core.models.loading import UNLIMITED, first_position, load, positions_of, with_pooling_layer
from cse_core.models.pooling import NgramPooling, mask_columns, pool
from cse_core.models.pretrained import is_read_by_loaders, resolve
from cse_core.models.scaled_states import Scaling
from cse_core.models.sentence_transformers_format import describe_trainable, read_ngrams, read_pooling, write_pooling
from cse_core.run import NGRAM_POOLINGS, check_pooling
from cse_core.text.prompts import check_template, closed_prompt_ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TOKENISE_CHUNK = 8192  # sentences tokenised at once: a tokenizer's output takes kilobytes per sentence
OF_ONE_TOKEN = ("cls", "mask", "pooler_output")  # poolings that read one state of the last layer
AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class Encoder(nn.Module):
    """Backbone, tokenizer and pooling. Calling it is a training pass; `encode` is evaluation.

    With `normalises`, `encode` returns vectors of length 1, like sentence-transformers' Normalize module.
    """

    def __init__(
        self,
        backbone: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        pooling: str,
        name: str,
        template: str = "",
        longest: int | None = None,
        ngrams: NgramPooling | None = None,
        normalises: bool = False,
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
        self.template, self.longest, self.ngrams, self.normalises = template, longest, ngrams, normalises
        # Read once: a compiled pass can't ask a tokenizer.
        self.pad_id, self.mask_id = int(tokenizer.pad_token_id or 0), tokenizer.mask_token_id
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

        Every weight comes from the folder's file (see `load`). If the weights of an n-gram pooling are missing, they
        are drawn from the generator; without a generator that is an error.
        """
        if template and pooling is None:
            raise ValueError(f"a template requires pooling 'mask', got no pooling for {template!r}")
        folder = resolve(str(name_or_path))
        about = describe_trainable(folder)
        if pooling is None:
            pooling, template = read_pooling(folder)
        pooler, path = pooling == "pooler_output", folder / about.transformer
        model, tokenizer = load(path, dropout, pooler=pooler, limit=about.limit, lower_cases=about.lower_cases)
        width = model.config.hidden_size
        ngrams = read_ngrams(folder, pooling, width, generator) if pooling in NGRAM_POOLINGS else None
        described: dict[str, Any] = {"ngrams": ngrams, "normalises": about.normalises and pooling == about.pooling}
        return cls(model, tokenizer, pooling=pooling, template=template, name=str(name_or_path), **described)

    def with_pooling(self, pooling: str, template: str = "", longest: int | None = None) -> "Encoder":
        """Return the same weights with another pooling and template, and texts cut to `longest` tokens."""
        backbone: Any = self.backbone
        if pooling == "pooler_output" and getattr(backbone, "pooler", None) is None:
            folder = resolve(self.name)
            backbone = with_pooling_layer(backbone, folder / describe_trainable(folder).transformer).to(self.device)
        kept = {"ngrams": self.ngrams, "normalises": self.normalises} if pooling == self.pooling else {}
        settings: dict[str, Any] = {"pooling": pooling, "template": template, "longest": longest} | kept
        return Encoder(backbone, self.tokenizer, name=self.name, **settings)

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
        return min(self.tokenizer.model_max_length, positions_of(self.backbone), self.longest or UNLIMITED)

    def forward(self, *tokens: Tokens) -> tuple[Float[Tensor, "_ d"], ...]:
        """Encode all Tokens in one pass of the backbone; return the pooled vectors of each, in fp32."""
        return self._pooled_pass(stack(tokens, self.pad_id)).split([len(part.ids) for part in tokens])

    def states(self, tokens: Tokens) -> Float[Tensor, "n t d"]:
        """Return every real token's last hidden state from a training pass, in fp32."""
        return self._states(tokens)[-1]

    def without_dropout(self, *tokens: Tokens) -> tuple[Float[Tensor, "_ d"], ...]:
        """Make a training pass without dropout. Its activations are kept even under activation checkpointing."""
        was_training = self.backbone.training
        self.backbone.eval()  # only this part: precision and compilation follow the encoder's own mode
        try:
            return self(*tokens)
        finally:
            self.backbone.train(was_training)

    def clone(self) -> "Encoder":
        """Return an encoder with the same settings and its own copy of the weights."""
        names = ("pooling", "template", "name", "longest", "normalises")
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        settings["ngrams"] = copy.deepcopy(self.ngrams)
        copied = type(self)(copy.deepcopy(self.backbone), self.tokenizer, **settings)
        copied.precision = self.precision
        return copied

    def _pooled_pass(self, tokens: Tokens) -> Float[Tensor, "n d"]:
        if self.ngrams:
            return self.ngrams(self.states(tokens), tokens.mask)
        if self.pooling not in OF_ONE_TOKEN:
            return pool(self._states(tokens), tokens.mask, self.pooling)
        column = torch.zeros_like(tokens.ids[:, 0])
        if self.template:
            column = mask_columns(tokens.ids, self.mask_id, self.name)
        if self.runs_packed:
            picked = self._packed_states(tokens, column)[0][-1].float()
        else:
            picked = self._states(tokens)[-1][torch.arange(len(column), device=column.device), column]
        backbone: Any = self.backbone
        return backbone.pooler(picked[:, None]) if self.pooling == "pooler_output" else picked

    @property
    def _can_pack(self) -> bool:
        config = self.backbone.config
        return config.model_type in packed_forward.MODEL_TYPES and not config.is_decoder

    @property
    def runs_packed(self) -> bool:
        """Whether passes skip padding, as they do on a CPU for the model families of `packed_forward`."""
        return self._can_pack and self.device.type == "cpu"

    def _autocast(self) -> torch.autocast:
        dtype = AUTOCAST[self.precision] if self.training else None
        return torch.autocast(self.device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)

    def _states(self, tokens: Tokens) -> list[Float[Tensor, "n t d"]]:
        if self.runs_packed:
            states, layout = self._packed_states(tokens)
            return [layout.pad(state.float()) for state in (states if self._needs_all_layers else states[-1:])]
        if self._can_pack:
            with self._autocast():
                states = padded_forward.states(
                    self.backbone, tokens.ids, self._positions(tokens), tokens.mask, self._scaling(tokens)
                )
            return [state.float() for state in (states if self._needs_all_layers else states[-1:])]
        if tokens.positions is not None or Scaling.of(tokens):
            self.check_can_scale()
        with self._autocast():
            output = self.backbone(
                input_ids=tokens.ids,
                attention_mask=tokens.mask.long(),
                output_hidden_states=self._needs_all_layers,
                return_dict=True,
            )
        below = output.hidden_states[:-1] if self._needs_all_layers else ()  # a last norm may follow the last of these
        return [state.float() for state in (*below, output.last_hidden_state)]

    def _positions(self, tokens: Tokens) -> Int[Tensor, "n t"]:
        """Return positions as the model's own forward counts them: RoBERTa skips padding tokens inside a text."""
        first = first_position(self.backbone)
        if not first or tokens.positions is not None:
            return tokens.position_ids + first
        real = tokens.ids != first - 1
        return real.cumsum(1) * real + first - 1

    def _scaling(self, tokens: Tokens) -> Scaling | None:
        """Return the scaling of a pass's lowest states, if there is any."""
        scaling = Scaling.of(tokens)
        if scaling is not None:
            scaling.check(self.backbone.config.num_hidden_layers)
        return scaling

    def check_can_scale(self) -> None:
        """Refuse a backbone whose states can't be scaled (`Tokens.kept`, `Tokens.factors`) or positions moved."""
        if not self._can_pack:
            kind, kinds = self.backbone.config.model_type, ", ".join(packed_forward.MODEL_TYPES)
            raise ValueError(f"{self.name}: kept, factors and positions need a model of type {kinds}, got {kind}")

    @property
    def _needs_all_layers(self) -> bool:
        return self.pooling not in (*OF_ONE_TOKEN, "mean", *NGRAM_POOLINGS)

    def _packed_states(
        self, tokens: Tokens, column: Int[Tensor, " n"] | None = None
    ) -> tuple[list[Float[Tensor, "_ d"]], packed_forward.Layout]:
        """Return the states of real tokens and their layout; with `column`, the last layer has one token per row."""
        layout = packed_forward.Layout.of(tokens.mask, self.backbone.config.num_attention_heads)
        positions = self._positions(tokens).flatten()[layout.places]
        lengths = tokens.mask.sum(1)
        only = None if column is None else lengths.cumsum(0) - lengths + column
        ids = tokens.ids.flatten()[layout.places]
        with self._autocast():
            states = packed_forward.states(self.backbone, ids, positions, layout, only, self._scaling(tokens))
        return states, layout

    def tokenise(self, sentences: Sequence[str], limit: int | None = None) -> list[list[int]]:
        """Return ids with special tokens, cut to `limit` tokens, by default to the encoder's own limit."""
        limit = limit or self.max_length
        if self.template:
            parts = (closed_prompt_ids(part, self.template, self.tokenizer, limit) for part in by_size(sentences))
        else:
            parts = (
                self.tokenizer(part, truncation=True, max_length=limit)["input_ids"] for part in by_size(sentences)
            )
        return [ids for part in parts for ids in part]

    def encode(
        self, sentences: Sequence[str], batch_size: int = 64, *, progress: Callable[[int], object] | None = None
    ) -> Float[Tensor, "n d"]:
        """Return vectors of sentences, in eval mode, in fp32 on the CPU. Each distinct sentence is encoded once."""
        distinct, rows = np.unique(np.asarray(sentences, dtype=object), return_inverse=True)
        chunks = (distinct[i : i + TOKENISE_CHUNK].tolist() for i in range(0, len(distinct), TOKENISE_CHUNK))
        ids = [np.asarray(row, dtype=np.int32) for chunk in chunks for row in self.tokenise(chunk)]
        vectors = self.embed(ids, batch_size, progress=progress)
        return (F.normalize(vectors) if self.normalises else vectors)[torch.from_numpy(rows)]

    @torch.no_grad()
    def embed(
        self,
        ids: Sequence[Sequence[int] | Int[np.ndarray, " _"]],
        batch_size: int = 64,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Float[Tensor, "n d"]:
        """Return vectors of token ids, batched by length to save padding; `progress` gets batch sizes."""
        was_training = self.training
        self.eval()
        vectors = torch.empty(len(ids), self.width)
        order = np.argsort([-len(row) for row in ids], kind="stable")
        try:
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                tokens = pad([ids[row] for row in rows], self.pad_id)
                tokens = Tokens(tokens.ids.to(self.device), tokens.mask.to(self.device))
                vectors[rows] = self._pooled_pass(tokens).cpu()
                if progress:
                    progress(len(rows))
        finally:
            self.train(was_training)
        return vectors

    def save_pretrained(self, path: str | Path) -> None:
        """Write a folder that `from_pretrained` reads, in place of an encoder that is there. Other files stay.

        With the poolings "cls" and "mean", AutoModel and sentence-transformers open it too, and score the same. So does
        sentence-transformers with an n-gram pooling, except that padding enters the windows at a sentence's end.
        """
        folder = Path(path)
        for path in filter(is_read_by_loaders, folder.iterdir() if folder.is_dir() else ()):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if backend := getattr(self.tokenizer, "backend_tokenizer", None):
            backend.no_truncation()  # the last call's limits don't belong to the encoder
            backend.no_padding()
        self.backbone.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        about: dict[str, Any] = {"width": self.width, "max_length": self.max_length, "ngrams": self.ngrams}
        write_pooling(folder, self.pooling, self.template, normalises=self.normalises, **about)
