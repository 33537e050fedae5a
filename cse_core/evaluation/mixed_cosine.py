"""A scorer that mixes the cosines of two encoders as RankCSE mixes its teachers, to measure the mix itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Float
from torch import Tensor

from cse_core.evaluation.scorers import Cosine, PairScores, Scorer, Tasks, brief_encoder
from cse_core.method import check
from cse_core.models.embedding_cache import CachedEncoder, EncoderOfDistinctIds, SentenceEncoder
from cse_core.models.foreign import open_encoder
from cse_core.models.pretrained import resolve_pinned
from cse_core.models.word_vectors import WordVectors, is_word_vectors, verify_word_vectors
from cse_core.run import Pretrained


@dataclass(frozen=True, kw_only=True)
class MixedCosine(Scorer):
    """The weighted mean of the encoder's cosine and that of `other`, with weight `share`; each has its own pooling."""

    other: Pretrained
    share: float = 0.5

    def __post_init__(self) -> None:
        check("share", self.share, lambda w: 0 < w < 1, "between 0 and 1")

    def __str__(self) -> str:
        return f"cosine mixed with {self.share!r} of {brief_encoder(self.other)}"

    def pair_scores(self, encoder: SentenceEncoder, tasks: Tasks, *, data: Path | None = None) -> dict[str, PairScores]:
        """See Scorer; a pair counts as undefined once for each of the two encoders that gives it no cosine."""
        first, second = (Cosine().pair_scores(each, tasks) for each in (encoder, self._other(encoder)))
        return {
            task: PairScores(
                (1 - self.share) * first[task].scores + self.share * second[task].scores,
                first[task].undefined + second[task].undefined,
            )
            for task in tasks
        }

    def _other(self, encoder: SentenceEncoder) -> CachedEncoder:
        other = _load(self.other)
        return EncoderOfDistinctIds(other) if CachedEncoder.wrap(encoder).by_ids else other

    def vectors(
        self, encoder: SentenceEncoder, sentences: Sequence[str], *, data: Path | None = None
    ) -> Float[Tensor, "n d"]:
        """See Scorer: the unit vectors of both encoders, weighted and concatenated."""
        both = self.view(encoder).encode(sentences), self._other(encoder).encode(sentences)
        weights = 1 - self.share, self.share
        return torch.cat([weight**0.5 * F.normalize(x, dim=1) for x, weight in zip(both, weights, strict=True)], dim=1)


@lru_cache(maxsize=1)
def _load(other: Pretrained) -> CachedEncoder:
    if is_word_vectors(other.name):
        verify_word_vectors(other)
        return CachedEncoder(WordVectors.load(other.name))
    return CachedEncoder(open_encoder(resolve_pinned(other)))
