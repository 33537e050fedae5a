"""How far training moved an encoder from where it began, and how it scores half-way back.

Averaging the weights of a fine-tuned model with those that it began from is WiSE-FT (Wortsman et al., CVPR 2022).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Float
from torch import Tensor

from cse_core.evaluation.scorers import Cosine, PairScores, Scorer, Tasks, brief_encoder
from cse_core.evaluation.space_tasks import SentenceSample
from cse_core.evaluation.task import Inputs, Outcome
from cse_core.method import check
from cse_core.models.embedding_cache import CachedEncoder, SentenceEncoder
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import encoder_hash, resolve_pinned
from cse_core.run import Pretrained


@dataclass(frozen=True, kw_only=True)
class AveragedWithStart(Scorer):
    """Cosine of vectors by the mean of an encoder's weights and those of `start`, which get the weight `share`."""

    start: Pretrained
    share: float = 0.5

    def __post_init__(self) -> None:
        check("share", self.share, lambda w: 0 < w < 1, "between 0 and 1")

    def __str__(self) -> str:
        return f"cosine of weights averaged with {self.share!r} of {brief_encoder(self.start)}"

    def view(self, encoder: SentenceEncoder) -> CachedEncoder:
        """See Scorer."""
        content = self.start.sha256 or encoder_hash(resolve_pinned(self.start))
        key = f"weights averaged with {self.share!r} of {content}"
        return CachedEncoder.wrap(encoder).derived(key, self._average, "no weights to average")

    def _average(self, own: Encoder) -> Encoder:
        """Return a copy of the encoder with the averaged weights; refuse a start of another architecture."""
        averaged, start = own.clone(), dict(self.load_start(own).named_parameters())
        with torch.no_grad():
            for name, weight in averaged.named_parameters():
                weight.lerp_(start[name].to(weight.device), self.share)
        return averaged

    def load_start(self, own: Encoder) -> Encoder:
        """Return the start with the encoder's pooling; refuse one whose weights have other names or shapes."""
        start = _load(self.start, own.pooling, own.template)
        shapes = [{name: weight.shape for name, weight in each.named_parameters()} for each in (own, start)]
        if shapes[0] != shapes[1]:
            name = next(iter({*shapes[0].items()} ^ {*shapes[1].items()}))[0]
            found = [str(tuple(each[name])) if name in each else "none" for each in shapes]
            raise ValueError(
                f"{own.name} did not begin from {self.start.name}: expected weights of equal shapes, got "
                f"{found[0]} and {found[1]} for {name}"
            )
        return start

    def pair_scores(self, encoder: SentenceEncoder, tasks: Tasks, *, data: Path | None = None) -> dict[str, PairScores]:
        """See Scorer."""
        return Cosine().pair_scores(self.view(encoder), tasks)

    def vectors(
        self, encoder: SentenceEncoder, sentences: Sequence[str], *, data: Path | None = None
    ) -> Float[Tensor, "n d"]:
        """See Scorer."""
        return self.view(encoder).encode(sentences)


@lru_cache(maxsize=1)
def _load(start: Pretrained, pooling: str, template: str) -> Encoder:
    return Encoder.from_pretrained(resolve_pinned(start), pooling=pooling, template=template)


@lru_cache(maxsize=1)
def _cached(start: Encoder) -> CachedEncoder:
    return CachedEncoder(start)


@dataclass(frozen=True)
class DistanceFromStart(SentenceSample):
    """How far an encoder is from its scorer's `start`, in weights and in vectors.

    The distances are those of the encoder itself, not of the average that the scorer makes. `weights` is
    |w - w0| / |w0| over all weights. `vectors` is the mean over sentences of 1 - cos(v, v0), where v and v0 are the
    vectors of one sentence by the encoder and by the start.
    """

    version: ClassVar[int] = 1
    metrics: ClassVar[tuple[str, ...]] = ("weights", "vectors")

    def check(self, name: str, scorer: Scorer) -> None:
        """Refuse a scorer without a start."""
        if not isinstance(scorer, AveragedWithStart):
            raise ValueError(f"{name}: expected a scorer that names the start, AveragedWithStart, got {scorer}")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are distinct sentences."""
        scorer, own = inputs.scorer, inputs.encoder.encoder
        assert isinstance(scorer, AveragedWithStart)
        assert isinstance(own, Encoder)  # else there were no pair scores
        start = scorer.load_start(own)
        texts, _ = self.sample(name, inputs)
        cosines = F.cosine_similarity(inputs.encoder.encode(texts).double(), _cached(start).encode(texts).double())
        metrics = {"weights": _distance(own, start), "vectors": 1 - cosines.mean().item()}
        return Outcome(metrics, len(texts))


@torch.no_grad()
def _distance(own: Encoder, start: Encoder) -> float:
    flat = [torch.nn.utils.parameters_to_vector(each.parameters()).cpu().double() for each in (own, start)]
    return float((flat[0] - flat[1]).norm() / flat[1].norm())
