"""A forward pass over padded texts, for the GPU, without control flow that depends on values of tensors.

It calls transformers' layers one after another, so that states can be scaled between them and torch.compile sees one
graph.
"""

from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from cse_core.models.scaled_states import Scaling


def states(
    model: Any,
    ids: Int[Tensor, "n t"],
    positions: Int[Tensor, "n t"],
    mask: Bool[Tensor, "n t"],
    scaling: Scaling | None = None,
) -> list[Float[Tensor, "n t d"]]:
    """Return the embedding output and each layer's states of all tokens, padding included."""
    embedded = model.embeddings(input_ids=ids, position_ids=positions)
    if hasattr(model, "embeddings_project"):  # ELECTRA's embeddings may be narrower than its layers
        embedded = model.embeddings_project(embedded)
    outputs = [embedded if scaling is None else scaling(embedded, 0)]
    seen = _attention_mask(model, embedded, mask)
    for level, layer in enumerate(model.encoder.layer, 1):
        state = layer(outputs[-1], seen)
        outputs.append(state if scaling is None else scaling(state, level))
    return outputs


def _attention_mask(model: Any, embedded: Float[Tensor, "n t d"], mask: Bool[Tensor, "n t"]) -> Any:
    if model.config._attn_implementation == "sdpa":
        return mask[:, None, None]  # transformers would check in every step if it hides anything, which waits for a GPU
    from transformers.masking_utils import create_bidirectional_mask  # lazy: slow import

    return create_bidirectional_mask(config=model.config, inputs_embeds=embedded, attention_mask=mask.long())
