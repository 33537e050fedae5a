"""Tasks about an encoder's embedding space: geometry, projections, densities, positives."""

import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cse_core.data.batches import pad
from cse_core.evaluation.scorers import Cosine, Ranked, Scorer
from cse_core.evaluation.task import Inputs, Outcome, PairList, Task, check_nonzero
from cse_core.functional.contrastive import cosine_matrix, pair_cosines
from cse_core.functional.whitening import check_groups, group_whiten
from cse_core.method import Tokens
from cse_core.metrics import geometry, sphere
from cse_core.models.encoder import Encoder

MAX_RANKS = 30_000_000  # numbers in all rank vectors: 2 GiB with the copies that geometry makes


@dataclass(frozen=True)
class GeometryTask(Task):
    """Alignment, uniformity, cosines by gold and the effect of length on scores (geometry.py).

    The cosine and the gold score of each pair are stored too (RankCSE, Fig. 5).
    """

    version: ClassVar[int] = geometry.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("alignment", "uniformity", "uniformity.unique", "length_shortcut")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are pairs."""
        pairs = inputs.pairs(self.pair_sets)
        distinct = _distinct(pairs)
        vectors = _vectors(name, inputs, distinct)
        rows = {sentence: i for i, sentence in enumerate(distinct)}
        x, y = (vectors[[rows[s] for s in side]] for side in (pairs.first, pairs.second))
        metrics = geometry.summary(x, y, pairs.gold, pairs.first, pairs.second)
        arrays = {
            "cosines": pair_cosines(x, y, exact=inputs.encoder.by_ids)[0].astype(np.float32),
            "gold": pairs.gold.astype(np.float32),
        }
        return Outcome(metrics, len(pairs.gold), arrays)


@dataclass(frozen=True)
class SentenceSample(Task):
    """Base of tasks on the distinct sentences of pairs: on all of them, or on `size` of them drawn with a seed."""

    size: int | None = None
    seed: int = 42

    def sample(self, name: str, inputs: Inputs) -> tuple[list[str], Float[Tensor, "n d"]]:
        """Return the sentences, in the order of the pairs, and their vectors."""
        texts = _distinct(inputs.pairs(self.pair_sets))
        if self.size is not None:
            if self.size > len(texts):
                raise ValueError(f"{name}: expected at least {self.size:,} distinct sentences, got {len(texts):,}")
            texts = [texts[i] for i in sorted(random.Random(self.seed).sample(range(len(texts)), self.size))]
        return texts, _vectors(name, inputs, texts)


@dataclass(frozen=True)
class Projection(SentenceSample):
    """Each sentence's UMAP coordinates and number of words (CompCSE, Fig. 5), and the projection's trustworthiness.

    RankEncoder's Fig. 7 has a sample of 1,000. For each pair with both sentences drawn, `first` and `second` are their
    rows in the coordinates, and `gold` is the gold score. UMAP keeps neighbours, not densities: see Density.
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
    """How densely sentences lie on the sphere, for figures about uniformity (sphere.py).

    It stores the log density at each sentence, in the order of a Projection of the same sample, and the number of pairs
    in each bin of cosines. Uniformity is the log of a mean over either of them.
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

    Each sentence of a batch gets `copies` vectors: of separate training passes ("dropout"); of one training pass,
    whitened with separate permutations in groups of `channels` channels ("whitened"); of separate passes, whitened so
    ("both"). No head is applied, as no checkpoint has one. Stored are coordinates in the plane of largest variance.
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
class SimilarityMatrixTask(Task):
    """Cosines of a few sentences with each other, for a heat map."""

    version: ClassVar[int] = geometry.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("cosine.mean",)

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task."""
        vectors = check_nonzero(name, inputs.vectors(self.sentences), self.sentences)
        matrix = cosine_matrix(vectors, vectors)
        others = matrix[~torch.eye(len(matrix), dtype=torch.bool)]
        return Outcome({"cosine.mean": float(others.mean())}, len(matrix), {"cosines": matrix.numpy()})


def _distinct(pairs: PairList) -> list[str]:
    return list(dict.fromkeys([*pairs.first, *pairs.second]))


def _vectors(name: str, inputs: Inputs, sentences: list[str]) -> Float[Tensor, "n d"]:
    """Return the sentences' vectors; refuse zero ones, and rank vectors that do not fit into memory."""
    if isinstance(inputs.scorer, Ranked) and len(sentences) * inputs.scorer.size > MAX_RANKS:
        raise ValueError(
            f"{name}: {len(sentences):,} rank vectors of {inputs.scorer.size:,} numbers do not fit, at most "
            f"{MAX_RANKS:,} numbers do; use a smaller corpus"
        )
    return check_nonzero(name, inputs.vectors(sentences), sentences)
