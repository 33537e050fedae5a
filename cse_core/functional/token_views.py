"""Cheap changes that turn a batch of sentences into new views (ConSERT, Yan et al., ACL 2021, Section 3.2).

Each function takes an order, a permutation of the places that may change, and changes the first ones in it.
`random_order` draws such an order. Counts are exact, and nothing is rescaled.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from cse_core.graph import rand


def random_order(eligible: Bool[Tensor, "n m"], generator: torch.Generator) -> Int[Tensor, "n m"]:
    """Return for each row its eligible places in a random order, followed by the others in their order."""
    lots = rand(*eligible.shape, generator=generator, device=generator.device)
    return lots.masked_fill(~eligible, torch.inf).argsort(dim=1, stable=True)


def cut_count(size: int, rate: float) -> int:
    """Return how many of `size` are cut: int(size * rate) in double precision, so 28 of 100 at 0.29."""
    return int(size * rate)


def shuffled_positions(mask: Bool[Tensor, "n t"], order: Int[Tensor, "n t"]) -> Int[Tensor, "n t"]:
    """Return position ids: those of each row's order for real tokens, the usual ones for padding."""
    return torch.where(mask, order, torch.arange(mask.shape[1], device=mask.device))


def token_cutoff(mask: Bool[Tensor, "n t"], order: Int[Tensor, "n t"], rate: float) -> Bool[Tensor, "n t 1"]:
    """Return which tokens are kept if the first int(length * rate) of each row's order are cut."""
    return _all_but_first(order, _counts(mask.sum(1), rate)).unsqueeze(2)


def feature_cutoff(order: Int[Tensor, "n d"], rate: float) -> Bool[Tensor, "n 1 d"]:
    """Return which features are kept, in all tokens of a row, if the first int(d * rate) of its order are cut."""
    counts = torch.full_like(order[:, 0], cut_count(order.shape[1], rate))
    return _all_but_first(order, counts).unsqueeze(1)


def entry_cutoff(mask: Bool[Tensor, "n t"], order: Int[Tensor, "n td"], rate: float) -> Bool[Tensor, "n t d"]:
    """Return which entries are kept if the first int(length * d * rate) of each row's order are cut.

    Entries are numbered token by token; the order has those of real tokens first.
    """
    width = order.shape[1] // mask.shape[1]
    return _all_but_first(order, _counts(mask.sum(1) * width, rate)).unflatten(1, (mask.shape[1], width))


def _counts(sizes: Int[Tensor, " n"], rate: float) -> Int[Tensor, " n"]:
    return (sizes.double() * rate).long()


def _all_but_first(order: Int[Tensor, "n m"], counts: Int[Tensor, " n"]) -> Bool[Tensor, "n m"]:
    """Return which places are not among the first `counts` of each row's order."""
    ranks = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return torch.ones_like(order, dtype=torch.bool).scatter(1, order, ranks >= counts[:, None])
