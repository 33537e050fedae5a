"""A forward pass of BERT and its relatives without padding, for the CPU.

It applies the model's own functions and weights to another layout: the real tokens of a batch one after another,
[tokens, d]. Only attention needs one row per sentence. A pooling may read one token per sentence ([CLS] or a mask). The
last layer then computes queries, feed-forward and norms only for that token, and keys and values for all. On a GPU,
whose kernels prefer one fixed shape, the model's own forward is faster.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cse_core.models.scaled_states import Scaling

MODEL_TYPES = ("bert", "roberta", "xlm-roberta", "camembert", "electra")  # families whose modules have the same names


@dataclass(frozen=True)
class Layout:
    """Indices of the real tokens of n rows of t places, each row padded on the right."""

    mask: Bool[Tensor, "n t"]
    heads: int
    places: Int[Tensor, " tokens"]  # of each real token among the n * t
    head_places: Int[Tensor, " parts"]  # of each head of each real token among the n * heads * t

    @classmethod
    def of(cls, mask: Bool[Tensor, "n t"], heads: int) -> "Layout":
        """Return the layout of a mask for attention with this number of heads."""
        places, t = mask.flatten().nonzero().squeeze(1), mask.shape[1]
        rows = (places // t)[:, None] * heads + torch.arange(heads, device=mask.device)
        return cls(mask, heads, places, (rows * t + (places % t)[:, None]).flatten())

    def pad(self, packed: Float[Tensor, "tokens d"]) -> Float[Tensor, "n t d"]:
        """Return real tokens at their places, zeros elsewhere."""
        padded = packed.new_zeros(self.mask.numel(), packed.shape[1]).index_copy(0, self.places, packed)
        return padded.view(*self.mask.shape, -1)

    def split_heads(self, packed: Float[Tensor, "tokens d"]) -> Float[Tensor, "nh t c"]:
        """Return one row per sentence and head, with zeros in the padding."""
        (n, t), c = self.mask.shape, packed.shape[1] // self.heads
        parts = packed.new_zeros(n * self.heads * t, c).index_copy(0, self.head_places, packed.view(-1, c))
        return parts.view(-1, t, c)

    def merge_heads(self, heads: Float[Tensor, "nh t c"]) -> Float[Tensor, "tokens d"]:
        """Invert `split_heads`."""
        c = heads.shape[-1]
        return heads.reshape(-1, c).index_select(0, self.head_places).view(-1, self.heads * c)


def dropout(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Apply inverted dropout with 16 random bits per number; torch's own draws one number at a time on a CPU.

    `p` is rounded to a multiple of 2^-16 below 1. Kept numbers are scaled by exactly the inverse of their probability.
    """
    cut = min(round(p * 2**16), 2**16 - 1)
    if not cut:
        return x
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    lanes = words.view(torch.int16)[: x.numel()].view(x.shape)
    kept = (lanes >= cut - 2**15).to(torch.promote_types(x.dtype, torch.float32))
    return x * kept.mul_(2**16 / (2**16 - cut))


def attend(
    query: Float[Tensor, "nh q c"],
    key: Float[Tensor, "nh t c"],
    value: Float[Tensor, "nh t c"],
    mask: Bool[Tensor, "n t"],
    p: float,
) -> Float[Tensor, "nh q c"]:
    """Attend within each sentence and head to unmasked tokens, with `p` of the weights dropped."""
    bias = torch.zeros(mask.shape, dtype=query.dtype).masked_fill_(~mask, -torch.inf)
    bias = bias.repeat_interleave(len(query) // len(mask), 0).unsqueeze(1)
    scores = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=query.shape[-1] ** -0.5)
    weights = dropout(scores.softmax(-1), p)
    return torch.bmm(weights.to(value.dtype), value)


def states(
    model: Any,
    ids: Int[Tensor, " tokens"],
    positions: Int[Tensor, " tokens"],
    layout: Layout,
    only: Int[Tensor, " n"] | None = None,
    scaling: Scaling | None = None,
) -> list[Float[Tensor, "_ d"]]:
    """Return the embedding output and each layer's states of real tokens; the last layer's only of tokens `only`.

    In training mode, dropout has the probabilities of the model's configuration.
    """
    config = model.config
    p, p_weights = (config.hidden_dropout_prob, config.attention_probs_dropout_prob) if model.training else (0.0, 0.0)
    table = model.embeddings
    embedded = table.word_embeddings(ids) + table.token_type_embeddings.weight[0] + table.position_embeddings(positions)
    outputs = [dropout(table.LayerNorm(embedded), p)]
    if hasattr(model, "embeddings_project"):  # ELECTRA's embeddings may be narrower than its layers
        outputs[0] = model.embeddings_project(outputs[0])
    if scaling is not None:
        scaling = scaling.pack(layout.places, layout.mask.shape[1])
        outputs[0] = scaling(outputs[0], 0)
    forward = partial(checkpoint, _layer, use_reentrant=False) if model.is_activation_checkpointing else _layer
    for level, layer in enumerate(model.encoder.layer, 1):
        rows = only if layer is model.encoder.layer[-1] else None
        state = forward(layer, outputs[-1], layout, rows, p, p_weights)
        outputs.append(state if scaling is None else scaling(state, level, rows))
    return outputs


def _layer(
    layer: Any, x: Float[Tensor, "tokens d"], layout: Layout, only: Tensor | None, p: float, p_weights: float
) -> Float[Tensor, "_ d"]:
    project = layer.attention.self
    queried = x if only is None else x.index_select(0, only)
    query = project.query(queried)
    query = layout.split_heads(query) if only is None else query.view(len(only) * layout.heads, 1, -1)
    context = attend(
        query, layout.split_heads(project.key(x)), layout.split_heads(project.value(x)), layout.mask, p_weights
    )
    attended = layout.merge_heads(context) if only is None else context.view(len(only), -1)
    h = _add_and_norm(layer.attention.output, attended, queried, p)
    return _add_and_norm(layer.output, layer.intermediate(h), h, p)


def _add_and_norm(part: Any, x: Float[Tensor, "n c"], residual: Float[Tensor, "n d"], p: float) -> Float[Tensor, "n d"]:
    return part.LayerNorm(dropout(part.dense(x), p) + residual)
