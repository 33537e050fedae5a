"""One sentence at a time, without padding, from the formulas: BERT's states, a head, cosines, InfoNCE."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def states_of(
    backbone: Any,
    ids: Sequence[int],
    places: Sequence[int] | None = None,
    kept: Tensor | None = None,
    factors: tuple[Tensor, Tensor] | None = None,
) -> list[Tensor]:
    """The states of one sentence, layer by layer, without gradient, each multiplied by factors if given.

    `kept` is (t, d); `factors` are the tokens' (k, t) and the features' (k, d).
    """
    where = None if places is None else torch.tensor([list(places)])
    with torch.no_grad():
        state = backbone.embeddings(input_ids=torch.tensor([list(ids)]), position_ids=where)[0]
        found = []
        for level in range(len(backbone.encoder.layer) + 1):
            if level:
                state = backbone.encoder.layer[level - 1](state.unsqueeze(0), None)[0]
            elif kept is not None:
                state = torch.where(kept, state, 0.0)
            if factors is not None and level < len(factors[1]):
                state = state * (factors[0][level, :, None] + factors[1][level]) / 2
            found.append(state)
    return found


def vector_of(backbone: Any, ids: Sequence[int], pooling: str = "cls", **changes: Any) -> Tensor:
    """The last state of one sentence's first token, or the mean over its tokens, in double precision."""
    last = states_of(backbone, ids, **changes)[-1].double()
    return last[0] if pooling == "cls" else last.mean(0)


def tanh_of(head: Any, vector: Tensor) -> Tensor:
    """tanh(W h + b) of the tanh head, in double precision."""
    weight, bias = (parameter.detach().double() for parameter in head.parameters())
    return torch.tanh(weight @ vector + bias)


def cosine(a: Tensor, b: Tensor) -> float:
    """a . b / |a| |b|, by sums."""
    dot, aa, bb = (sum(x * y for x, y in zip(p.tolist(), q.tolist(), strict=True)) for p, q in ((a, b), (a, a), (b, b)))
    return dot / math.sqrt(aa) / math.sqrt(bb)


def nce(queries: Sequence[Tensor], keys: Sequence[Tensor], more: Sequence[Tensor], temperature: float) -> float:
    """The mean negative log-probability of each query's own key among all keys and some more vectors."""
    total = 0.0
    for i, query in enumerate(queries):
        chances = [math.exp(cosine(query, key) / temperature) for key in (*keys, *more)]
        total -= math.log(chances[i] / sum(chances)) / len(queries)
    return total


def perturb(module: torch.nn.Module, seed: int, size: float = 0.02) -> None:
    """Move all weights a little, as training would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
