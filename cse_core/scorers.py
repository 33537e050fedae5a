"""How an encoder becomes pair scores. A scorer's text form names it in every score's record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cse_core.encoder import Encoder
from cse_core.run import POOLINGS

Pairs = tuple[Sequence[str], Sequence[str]]


class Scorer(Protocol):
    """A frozen value that turns sentence pairs into scores."""

    def pair_scores(self, encoder: Encoder, tasks: Mapping[str, Pairs]) -> dict[str, "PairScores"]:
        """Scores of every task's pairs; each distinct sentence of all tasks is embedded once."""
        ...


@dataclass(frozen=True)
class PairScores:
    """A score a pair, and how many pairs had no defined score and count as 0."""

    scores: Float[np.ndarray, " n"]
    undefined: int = 0


def pair_cosines(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"]) -> tuple[Float[np.ndarray, " n"], int]:
    """Cosine of a[i] with b[i] in double precision; an undefined one is 0 and counted."""
    x, y = a.double(), b.double()
    cosine = (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))
    undefined = ~torch.isfinite(cosine)
    return torch.where(undefined, 0.0, cosine).numpy(), int(undefined.sum())


@dataclass(frozen=True)
class Cosine:
    """Plain cosine of two vectors, under the encoder's own pooling or another one."""

    pooling: str | None = None

    def __post_init__(self) -> None:
        if self.pooling is not None and self.pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, got {self.pooling!r}")

    def __str__(self) -> str:
        return "cosine" if self.pooling is None else f"cosine {self.pooling}"

    def pair_scores(self, encoder: Encoder, tasks: Mapping[str, Pairs]) -> dict[str, PairScores]:
        """See Scorer."""
        view = Encoder(encoder.backbone, encoder.tokenizer, pooling=self.pooling or encoder.pooling, name=encoder.name)
        distinct = list(dict.fromkeys(s for first, second in tasks.values() for s in (*first, *second)))
        index = {sentence: i for i, sentence in enumerate(distinct)}
        vectors = view.encode(distinct)
        scores = {}
        for task, (first, second) in tasks.items():
            a, b = ([index[s] for s in side] for side in (first, second))
            scores[task] = PairScores(*pair_cosines(vectors[a], vectors[b]))
        return scores
