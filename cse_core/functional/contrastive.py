"""The parts of the contrastive loss that all methods share.

Every function takes plain tensors, computes in the precision it is given and returns a differentiable value.
"""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor


def cosine_matrix(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Return the cosine of every row of `a` with every row of `b`; a zero row has cosine 0 with everything.

    >>> cosine_matrix(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0], [3.0, 4.0]]))
    tensor([[1.0000, 0.6000]])
    """
    return F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T


def info_nce(
    queries: Float[Tensor, "n d"],
    keys: Float[Tensor, "n d"],
    temperature: float,
    hard_negatives: Float[Tensor, "m d"] | None = None,
    dims: int | None = None,
    *,
    own_weight: float = 0.0,
    left_out: Bool[Tensor, "n _"] | None = None,
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of finding keys[i] for queries[i] by cosine / temperature, in nats (SimCSE, Eq. 1).

    L = -1/n sum_i log( exp(cos(q_i, k_i)/t) / sum_j exp(cos(q_i, k_j)/t) ). One direction only, as in SimCSE's code.
    `hard_negatives` are further candidates for every query; `dims` keeps the first coordinates (CompCSE's d0).
    `own_weight` is added to the logit of hard_negatives[i] for queries[i]. Candidates where `left_out` is True do not
    count in the sum. It may have fewer columns than there are candidates, and is False at keys[i] for queries[i].

    >>> views = torch.eye(3)  # each is at right angles to the two others: log(1 + 2/e)
    >>> info_nce(views, views, temperature=1.0)
    tensor(0.5514)
    """
    if len(queries) < 2 and hard_negatives is None:
        raise ValueError(f"info_nce needs at least two pairs, got {len(queries)}: one pair has no negatives")
    candidates = keys if hard_negatives is None else torch.cat([keys, hard_negatives])
    logits = cosine_matrix(queries[:, :dims], candidates[:, :dims]) / temperature
    if own_weight:
        if hard_negatives is None or len(hard_negatives) != len(queries):
            raise ValueError(f"own_weight {own_weight} needs a hard negative for each query")
        own = torch.eye(*logits.shape, dtype=logits.dtype, device=logits.device).roll(len(keys), 1)
        logits = logits + own_weight * own
    logits = without(logits, left_out)
    return F.cross_entropy(logits, torch.arange(len(queries), device=queries.device))


def without(logits: Float[Tensor, "n m"], left_out: Bool[Tensor, "n _"] | None) -> Float[Tensor, "n m"]:
    """Return the logits with -inf where `left_out` is True; columns beyond its width stay unchanged."""
    if left_out is None:
        return logits
    return logits.masked_fill(F.pad(left_out, (0, logits.shape[1] - left_out.shape[1])), -torch.inf)


def nt_xent(
    view1: Float[Tensor, "n d"],
    view2: Float[Tensor, "n d"],
    temperature: float,
    *,
    left_out: Bool[Tensor, "n n"] | None = None,
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of finding each vector's other view, in nats (SimCLR; ConSERT, Section 3.1).

    L = -1/2n sum_i log( exp(cos(r_i, r_p(i))/t) / sum_{k != i} exp(cos(r_i, r_k)/t) ) over the 2n vectors r of both
    views, r_p(i) the other view of r_i: 2n - 1 candidates each, in both directions. A single sentence has loss 0.
    Where `left_out` is True, both views of a sentence are left out of the other sentence's candidates.
    """
    n, both = len(view1), torch.cat([view1, view2])
    itself = torch.eye(2 * n, dtype=torch.bool, device=both.device)
    logits = (cosine_matrix(both, both) / temperature).masked_fill(itself, -torch.inf)
    logits = without(logits, None if left_out is None else left_out.repeat(2, 2))
    return F.cross_entropy(logits, torch.arange(2 * n, device=both.device).roll(n))


def without_diagonal(matrix: Shaped[Tensor, "n n"]) -> Shaped[Tensor, "n n-1"]:
    """Return each row without its entry on the diagonal."""
    n = len(matrix)
    return matrix.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)


def column_mask(columns: Int[Tensor, " n"], width: int) -> Bool[Tensor, "n {width}"]:
    """Return a mask that is True at each row's column: F.one_hot without reading any value."""
    return columns.unsqueeze(1) == torch.arange(width, device=columns.device)


def log_one_minus_softmax(logits: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    """Return log(1 - p), where p is the softmax of each row, without losing digits where p is close to 1.

    It is the logsumexp of all other entries minus the logsumexp of all. Only a row's largest entry can have p > 1/2, so
    only that entry is computed this way; the others use log1p(-p). If a row's other entries are all -inf, or there are
    none, its largest has a finite, hugely negative value without gradient. log(0) would make gradients NaN.
    """
    largest = column_mask(logits.argmax(1), logits.shape[1])
    others = logits.masked_fill(largest, torch.finfo(logits.dtype).min).logsumexp(1, keepdim=True)
    chances = logits.softmax(1).masked_fill(largest, 0)
    return torch.where(largest, others - logits.logsumexp(1, keepdim=True), torch.log1p(-chances))


def pair_cosines(
    a: Float[Tensor, "n d"], b: Float[Tensor, "n d"], *, exact: bool = False
) -> tuple[Float[np.ndarray, " n"], int]:
    """Return cosines of a[i] with b[i] in double precision, undefined ones as 0, and how many are undefined.

    If `exact`, equal vectors have a cosine of 1 and all cosines lie in [-1, 1]. Otherwise x.x / |x|^2 may round to a
    number close to 1, as in SentEval, so that pairs of equal vectors do not tie.
    """
    x, y = a.double(), b.double()
    if exact:
        x, y = (side / side.norm(dim=-1, keepdim=True) for side in (x, y))
        cosine = (x * y).sum(-1).clamp(-1, 1)
        cosine = torch.where((x == y).all(-1), 1.0, cosine)
    else:
        cosine = (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))
    undefined = ~torch.isfinite(cosine)
    return torch.where(undefined, 0.0, cosine).numpy(), int(undefined.sum())
