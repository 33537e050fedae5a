"""The parts of the contrastive loss that all methods share.

Every function takes plain tensors, computes in the precision it is given and returns a differentiable value.
"""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Float
from torch import Tensor


def cosine_matrix(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Return the cosine of every row of `a` with every row of `b`; a zero row has cosine 0 with everything."""
    return F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T


def info_nce(
    queries: Float[Tensor, "n d"],
    keys: Float[Tensor, "n d"],
    temperature: float,
    hard_negatives: Float[Tensor, "m d"] | None = None,
    dims: int | None = None,
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of finding keys[i] for queries[i] by cosine / temperature (SimCSE, Eq. 1).

    L = -1/n sum_i log( exp(cos(q_i, k_i)/t) / sum_j exp(cos(q_i, k_j)/t) ). One direction only, as in SimCSE's code.
    `hard_negatives` are further columns for every query; `dims` keeps the first coordinates (CompCSE's d0).
    """
    if len(queries) < 2 and hard_negatives is None:
        raise ValueError(f"info_nce needs at least two pairs, got {len(queries)}: one pair has no negatives")
    candidates = keys if hard_negatives is None else torch.cat([keys, hard_negatives])
    logits = cosine_matrix(queries[:, :dims], candidates[:, :dims]) / temperature
    return F.cross_entropy(logits, torch.arange(len(queries), device=queries.device))


def pair_cosines(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"]) -> tuple[Float[np.ndarray, " n"], int]:
    """Return cosines of a[i] with b[i] in double precision, undefined ones as 0, and how many are undefined."""
    x, y = a.double(), b.double()
    cosine = (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))
    undefined = ~torch.isfinite(cosine)
    return torch.where(undefined, 0.0, cosine).numpy(), int(undefined.sum())
