"""Edits of token ids: shuffled, inverted, shortened and lengthened sentences (PCL, Wu et al., EMNLP 2022).

They change the wordpieces between a sentence's first and last token, which stay. Each edit is a pure function of the
Tokens and of random choices, which `augment` draws. Padding is never read. Nothing waits for a GPU: choices are
tensors, and shapes follow only from the arguments.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cse_core.graph import rand
from cse_core.method import Tokens

EDITS = ("shuffle", "inverse", "deletion", "repetition")
FEWEST = 3  # wordpieces that a sentence must have to be shortened or lengthened


def wordpieces(tokens: Tokens) -> Bool[Tensor, "n t"]:
    """Return which places hold wordpieces: the real tokens but the first and the last."""
    places = torch.arange(tokens.mask.shape[1], device=tokens.mask.device)
    return (places > 0) & (places < tokens.mask.sum(1, keepdim=True) - 1)


def edit_count(words: Int[Tensor, " n"], kind: str, share: float, max_length: int) -> Int[Tensor, " n"]:
    """Return how many wordpieces a deletion or repetition changes in sentences of w = `words` wordpieces.

    round(share w), halves to even; none in a sentence of fewer than three. A sentence with repetitions has at most
    `max_length` tokens, its two special ones included.
    """
    count = (share * words.double()).round().long()
    if kind == "repetition":
        count = count.minimum((max_length - 2 - words).clamp(min=0))
    return count.where(words >= FEWEST, 0)


def shuffle(tokens: Tokens, keys: Float[Tensor, "n t"]) -> Tokens:
    """Return the sentences with their wordpieces in the order of their keys, smallest first."""
    keys = keys.masked_fill(~wordpieces(tokens), torch.inf)
    keys[:, 0] = -torch.inf
    order = keys.argsort(dim=1, stable=True)
    return Tokens(tokens.ids.gather(1, order), tokens.mask)


def invert(tokens: Tokens) -> Tokens:
    """Return the sentences with their wordpieces from last to first."""
    places = torch.arange(tokens.ids.shape[1], device=tokens.ids.device).expand_as(tokens.ids)
    mirrored = tokens.mask.sum(1, keepdim=True) - 1 - places
    return Tokens(tokens.ids.gather(1, mirrored.where(wordpieces(tokens), places)), tokens.mask)


def delete(tokens: Tokens, chosen: Bool[Tensor, "n t"]) -> Tokens:
    """Return the sentences without the chosen wordpieces."""
    kept = tokens.mask & ~chosen
    order = (~kept).long().argsort(dim=1, stable=True)
    return Tokens(tokens.ids.gather(1, order), kept.gather(1, order))


def first_occurrences(tokens: Tokens, chosen: Bool[Tensor, "n t"]) -> Bool[Tensor, "n t"]:
    """Return, for each chosen wordpiece, the first place of its value instead of its own (PCL's code).

    A value that is chosen k times has its first k places returned.
    """
    inside = wordpieces(tokens)
    same = (tokens.ids.unsqueeze(2) == tokens.ids.unsqueeze(1)) & inside.unsqueeze(1) & inside.unsqueeze(2)
    earlier = same.tril(-1).sum(2)
    return inside & (earlier < (same & chosen.unsqueeze(1)).sum(2))


def insert_copies(
    tokens: Tokens,
    sources: Int[Tensor, "n r"],
    places: Int[Tensor, "n r"],
    counts: Int[Tensor, " n"],
    width: int | None = None,
) -> Tokens:
    """Return the sentences after inserting copies of their own wordpieces, one after the other.

    The k-th insertion of a row, of `counts` in all, puts a copy of wordpiece `sources[k]` of the current list before
    its wordpiece `places[k]`; the list's length means its end. `width` is the result's width, by default the
    input's plus r.
    """
    lengths = tokens.mask.sum(1) + counts
    widest = tokens.ids.shape[1] + sources.shape[1]
    at = torch.arange(widest, device=tokens.ids.device).expand(len(counts), -1)
    index = at.clamp(max=tokens.ids.shape[1] - 1)
    for k in range(sources.shape[1]):
        source, place = sources[:, k : k + 1] + 1, places[:, k : k + 1] + 1  # after the first special token
        moved = torch.where(at == place, source, at - (at > place).long())
        index = index.gather(1, moved.where((k < counts).unsqueeze(1), at))
    mask = at < lengths.unsqueeze(1)
    return Tokens(tokens.ids.gather(1, index)[:, :width], mask[:, :width])


def augment(
    tokens: Tokens,
    kind: str,
    generator: torch.Generator,
    *,
    share: float = 0.2,
    max_length: int = 32,
    deletion: str = "place",
) -> Tokens:
    """Return the sentences after one of EDITS, each with its own random choices.

    shuffle: a uniform permutation. inverse: the order reversed. deletion: a share of the wordpieces removed; with
    `deletion="value"`, the first ones with the same values. repetition: for a share, a copy of a uniformly drawn
    wordpiece is inserted at a uniformly drawn place, up to `max_length` tokens (see `edit_count`).
    """
    if kind == "inverse":
        return invert(tokens)
    device, (n, t) = tokens.ids.device, tokens.ids.shape
    if kind == "shuffle":
        return shuffle(tokens, rand(n, t, generator=generator, device=device))
    inside = wordpieces(tokens)
    words = inside.sum(1)
    counts = edit_count(words, kind, share, max_length)
    if kind == "deletion":
        keys = rand(n, t, generator=generator, device=device).where(inside, 2.0)
        chosen = keys.argsort(1).argsort(1) < counts.unsqueeze(1)
        return delete(tokens, first_occurrences(tokens, chosen) if deletion == "value" else chosen)
    most = round(share * (t - 2)) if t - 2 >= FEWEST else 0  # `edit_count` without a wait for a GPU's counts
    width = max(t, min(max_length, t + most))
    length = words.unsqueeze(1) + torch.arange(most, device=device)
    draws = rand(2, n, most, generator=generator, device=device)
    sources, places = (draws[0] * length).long(), (draws[1] * (length + 1)).long()
    return insert_copies(tokens, sources, places, counts, width)
