"""Tasks about the space that an encoder embeds in: its geometry, projections, densities, positives."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cse_core.data.batches import pad
from cse_core.evaluation.scorers import Cosine, Ranked, Scorer
from cse_core.evaluation.task import BaseTask, Inputs, Outcome, PairList, check_nonzero
from cse_core.functional.contrastive import cosine_matrix, pair_cosines
from cse_core.functional.whitening import check_groups, group_whiten
from cse_core.method import Tokens
from cse_core.metrics import geometry, sphere
from cse_core.models.encoder import Encoder

MAX_RANKS = 30_000_000  # numbers of rank vectors in memory: with the copies that geometry makes, 2 GiB


@dataclass(frozen=True)
class GeometryTask(BaseTask):
    """Alignment, uniformity, cosines by gold and the effect of length on scores (geometry.py).

    The cosine and the gold score of each pair are stored too (RankCSE, Fig. 5).
    """

    version: ClassVar[int] = geometry.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("alignment", "uniformity", "uniformity.unique", "length_shortcut")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are pairs."""
        pairs = inputs.pairs(self.pair_sets)
        distinct, vectors = _distinct_vectors(name, inputs, pairs)
        rows = {sentence: i for i, sentence in enumerate(distinct)}
        x, y = (vectors[[rows[s] for s in side]] for side in (pairs.first, pairs.second))
        metrics = geometry.summary(x, y, pairs.gold, pairs.first, pairs.second)
        exact = inputs.encoder.by_ids
        arrays = {
            "cosines": pair_cosines(x, y, exact=exact)[0].astype(np.float32),
            "gold": pairs.gold.astype(np.float32),
        }
        return Outcome(metrics, len(pairs.gold), arrays)


@dataclass(frozen=True)
class SentenceSample(BaseTask):
    """All distinct sentences of the pairs or, drawn with a seed, `size` of them."""

    size: int | None = None
    seed: int = 42

    def sample(self, name: str, inputs: Inputs) -> tuple[list[str], Float[Tensor, "n d"]]:
        """Return the sentences, in the order of the pairs, and their vectors."""
        return _distinct_vectors(name, inputs, inputs.pairs(self.pair_sets), self._draw)

    def _draw(self, name: str, distinct: list[str]) -> list[str]:
        """Draw sentences, in the order of the pairs."""
        if self.size is None:
            return distinct
        if self.size > len(distinct):
            raise ValueError(f"{name}: expected at least {self.size:,} distinct sentences, got {len(distinct):,}")
        return [distinct[i] for i in sorted(random.Random(self.seed).sample(range(len(distinct)), self.size))]


@dataclass(frozen=True)
class Projection(SentenceSample):
    """Two coordinates a sentence (UMAP), its number of words (CompCSE, Fig. 5), and the projection's trustworthiness.

    RankEncoder's Fig. 7 has a sample of 1,000. `first`, `second` and `gold` describe the pairs with both sentences
    drawn: rows of the coordinates, and the gold score. UMAP keeps neighbours, not densities: see Density.
    """

    version: ClassVar[int] = geometry.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("trustworthiness",)

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are distinct sentences."""
        from sklearn.manifold import trustworthiness  # lazy: slow import

        pairs = inputs.pairs(self.pair_sets)
        drawn, vectors = self.sample(name, inputs)
        coordinates = geometry.project(vectors)
        trust = float(trustworthiness(vectors.numpy(), coordinates, metric="cosine"))
        row = {sentence: i for i, sentence in enumerate(drawn)}
        both = [p for p, sides in enumerate(zip(pairs.first, pairs.second, strict=True)) if row.keys() >= {*sides}]
        arrays = {
            "coordinates": coordinates,
            "words": np.array([len(s.split()) for s in drawn]),
            "first": np.array([row[pairs.first[p]] for p in both], np.int64),
            "second": np.array([row[pairs.second[p]] for p in both], np.int64),
            "gold": pairs.gold[both].astype(np.float32),
        }
        return Outcome({"trustworthiness": trust}, len(drawn), arrays)


@dataclass(frozen=True)
class Density(SentenceSample):
    """How densely sentences lie on the sphere, where a figure is about uniformity (sphere.py).

    Stored are the log density at each sentence, in the order of a Projection of the same sample, and the number of
    pairs in each bin of cosines: uniformity is a mean over either of them.
    """

    version: ClassVar[int] = sphere.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("uniformity", "cosine.mean", "cosine.sd")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are distinct sentences."""
        drawn, vectors = self.sample(name, inputs)
        cosines = sphere.cosines_of_pairs(vectors)
        metrics = {
            "uniformity": geometry.uniformity(vectors),
            "cosine.mean": float(cosines.mean()),
            "cosine.sd": float(cosines.std()),
        }
        arrays = {
            "log_density": sphere.log_densities(vectors).astype(np.float32),
            "pairs": np.histogram(cosines, sphere.EDGES)[0],
            "dimensions": np.array(vectors.shape[1]),
        }
        return Outcome(metrics, len(drawn), arrays)


@dataclass(frozen=True)
class Positives(SentenceSample):
    """How far apart the positives of one sentence are, by what makes them differ (WhitenedCSE, Fig. 1 d).

    A batch of sentences, each with `copies` vectors: "dropout", of a training pass each; "whitened", of one training
    pass, whitened with permutations of their own in groups of `channels` channels; "both", of a pass each, whitened.
    They are compared before the head, which no checkpoint has. Stored are coordinates in the plane of largest variance.
    """

    version: ClassVar[int] = sphere.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("spread.dropout", "spread.whitened", "spread.both")
    size: int | None = 64
    copies: int = 8
    channels: int = 2

    def check(self, name: str, scorer: Scorer) -> None:
        """Refuse all but Cosine: positives are an encoder's own vectors."""
        if not isinstance(scorer, Cosine):
            raise ValueError(f"{name}: positives require an encoder's own vectors, got the scorer {scorer}")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are distinct sentences."""
        drawn, _ = self.sample(name, inputs)
        encoder = inputs.scorer.view(inputs.encoder).encoder
        if not isinstance(encoder, Encoder):
            raise ValueError(f"{name}: expected an encoder with dropout, got {encoder.name}")
        check_groups(encoder.width // self.channels, encoder.width)
        passes = self._training_passes(encoder, drawn)
        generator = torch.Generator().manual_seed(self.seed)
        kinds = {
            "dropout": torch.stack(passes, 1),
            "whitened": torch.stack([self._whiten(passes[0], generator) for _ in passes], 1),
            "both": torch.stack([self._whiten(h, generator) for h in passes], 1),
        }
        metrics = {f"spread.{kind}": sphere.spread(x) for kind, x in kinds.items()}
        planes = {kind: sphere.principal_plane(x.flatten(0, 1)) for kind, x in kinds.items()}
        return Outcome(metrics, len(drawn), {k: xy.reshape(len(drawn), -1, 2) for k, xy in planes.items()})

    @torch.no_grad()
    def _training_passes(self, encoder: Encoder, sentences: list[str]) -> list[Float[Tensor, "n d"]]:
        tokens = pad(encoder.tokenise(sentences), encoder.pad_id)
        tokens = Tokens(tokens.ids.to(encoder.device), tokens.mask.to(encoder.device))
        was_training = encoder.training
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            try:
                return [encoder.train()(tokens)[0].cpu() for _ in range(self.copies)]
            finally:
                encoder.train(was_training)

    def _whiten(self, h: Float[Tensor, "n d"], generator: torch.Generator) -> Float[Tensor, "n d"]:
        permutation = torch.randperm(h.shape[1], generator=generator)
        return group_whiten(h, h.shape[1] // self.channels, permutation)


@dataclass(frozen=True)
class SimilarityMatrixTask(BaseTask):
    """Cosines of a few sentences with each other, for a heat map."""

    version: ClassVar[int] = geometry.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("cosine.mean",)

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task."""
        matrix = cosine_matrix(*[check_nonzero(name, inputs.vectors(self.sentences), self.sentences)] * 2)
        others = matrix[~torch.eye(len(matrix), dtype=torch.bool)]
        return Outcome({"cosine.mean": float(others.mean())}, len(matrix), {"cosines": matrix.numpy()})


def _distinct_vectors(
    name: str,
    inputs: Inputs,
    pairs: PairList,
    draw: Callable[[str, list[str]], list[str]] = lambda name, distinct: distinct,
) -> tuple[list[str], Float[Tensor, "n d"]]:
    """Return the distinct sentences of pairs, or those drawn from them, and their vectors."""
    distinct = draw(name, list(dict.fromkeys([*pairs.first, *pairs.second])))
    if isinstance(inputs.scorer, Ranked) and len(distinct) * inputs.scorer.size > MAX_RANKS:
        raise ValueError(
            f"{name}: {len(distinct):,} rank vectors of {inputs.scorer.size:,} numbers do not fit, at most "
            f"{MAX_RANKS:,} numbers do; use a smaller corpus"
        )
    return distinct, check_nonzero(name, inputs.vectors(distinct), distinct)
