"""The kinds of tasks: each names the sets it reads, and computes metrics from their pair scores or vectors."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cse_core.data.senteval import EvalDataset
from cse_core.evaluation import transfer
from cse_core.evaluation.scorers import Cosine, Ranked, Scorer
from cse_core.evaluation.sts_subsets import SUBSETS
from cse_core.evaluation.task import BaseTask, Inputs, Outcome, PairList, check_finite, check_nonzero
from cse_core.functional.contrastive import cosine_matrix, pair_cosines
from cse_core.metrics import correlation, geometry, neighbours, ranking

MAX_RANKS = 30_000_000  # numbers of rank vectors in memory: with the copies that geometry makes, 2 GiB


@dataclass(frozen=True)
class STSTask(BaseTask):
    """Correlations of a set's pair scores with gold (correlation.py), of all its pairs or of a subset."""

    version: ClassVar[int] = correlation.VERSION
    metrics: ClassVar[tuple[str, ...]] = correlation.METRICS
    subset: str = ""

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the pair scores are stored, but not those of a subset."""
        pairs = inputs.pairs(self.pair_sets)
        rows = np.arange(len(pairs.gold))
        if self.subset:
            rows = SUBSETS[self.subset].rows(inputs.sets[self.pair_sets[0]], inputs.sets)
        scores, parts = pairs.scores[rows], [pairs.parts[row] for row in rows]
        metrics = correlation.correlations(scores, pairs.gold[rows], parts)
        arrays = {} if self.subset else {"pair_scores": scores}
        return Outcome(metrics, len(rows), arrays, _undefined_warning(self.pair_sets[0], pairs))


@dataclass(frozen=True)
class RankingTask(BaseTask):
    """The ranking task on one set, or on its splits merged (ranking.py)."""

    version: ClassVar[int] = ranking.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("kendall", *(f"ndcg.{gain}" for gain in ranking.GAINS))

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are all groups, including those without a defined measure."""
        pairs = inputs.pairs(self.pair_sets)
        metrics = ranking.summary(pairs.scores, pairs.gold, list(zip(pairs.first, pairs.second, strict=True)))
        groups = int(metrics.pop("groups"))
        return Outcome(metrics, groups, warnings=_undefined_warning(name, pairs))


@dataclass(frozen=True)
class TransferTask(BaseTask):
    """A transfer task under one of SentEval's settings (transfer.py)."""

    version: ClassVar[int] = transfer.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("acc", "devacc")
    setting: str = "test"

    def check(self, name: str, scorer: Scorer) -> None:
        """Refuse all but Cosine: a classifier needs plain vectors, and rank vectors are as long as the corpus."""
        if not isinstance(scorer, Cosine):
            raise ValueError(f"{name}: a classifier requires an encoder's own vectors, got the scorer {scorer}")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are labelled sentences."""
        (task,) = self.labelled_sets
        vectors, labels = features(inputs.sets[task], lambda side: check_finite(name, inputs.vectors(side), side))
        if all(bool((x == next(iter(vectors.values()))[0]).all()) for x in vectors.values()):
            raise ValueError(
                f"{name}: all {sum(map(len, vectors.values())):,} vectors are equal: they contain nothing to learn"
            )
        progress = partial(inputs.progress, name) if inputs.progress else None
        accuracy = transfer.accuracy(task, vectors, labels, self.setting, progress=progress)
        metrics = {metric: value for metric, value in accuracy._asdict().items() if value is not None}
        return Outcome(metrics, sum(map(len, labels.values())))


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
        arrays = {"cosines": pair_cosines(x, y)[0].astype(np.float32), "gold": pairs.gold.astype(np.float32)}
        return Outcome(metrics, len(pairs.gold), arrays)


@dataclass(frozen=True)
class Projection(BaseTask):
    """Two coordinates a sentence (UMAP), its number of words (CompCSE, Fig. 5), and the projection's trustworthiness.

    All distinct sentences of the pairs or, drawn with a seed, `size` of them (RankEncoder, Fig. 7, has 1,000). `first`,
    `second` and `gold` describe the pairs with both sentences drawn: rows of the coordinates, and the gold score.
    """

    version: ClassVar[int] = geometry.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("trustworthiness",)
    size: int | None = None
    seed: int = 42

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are distinct sentences."""
        from sklearn.manifold import trustworthiness  # lazy: slow import

        pairs = inputs.pairs(self.pair_sets)
        drawn, vectors = _distinct_vectors(name, inputs, pairs, self._draw)
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

    def _draw(self, name: str, distinct: list[str]) -> list[str]:
        """Draw sentences, in the order of the pairs."""
        if self.size is None:
            return distinct
        if self.size > len(distinct):
            raise ValueError(f"{name}: expected at least {self.size:,} distinct sentences, got {len(distinct):,}")
        return [distinct[i] for i in sorted(random.Random(self.seed).sample(range(len(distinct)), self.size))]


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


@dataclass(frozen=True)
class Neighbours(BaseTask):
    """The number of a pair's 100 nearest corpus sentences that are shared (neighbours.py), in the scorer's corpus."""

    version: ClassVar[int] = neighbours.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("shared", "gain_trend")

    def check(self, name: str, scorer: Scorer) -> None:
        """Refuse all but Ranked, which has a corpus."""
        if not isinstance(scorer, Ranked):
            raise ValueError(f"{name}: neighbours require a corpus, which the scorer {scorer} lacks")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; cosines and the scorer's scores are stored with the shared numbers, for comparison by bins."""
        pairs, scorer = inputs.pairs(self.pair_sets), cast(Ranked, inputs.scorer)
        corpus = scorer.corpus_vectors(inputs.encoder, data=inputs.data)
        x, y = (check_nonzero(name, inputs.encoder.encode(side), side) for side in (pairs.first, pairs.second))
        shared = neighbours.overlap(x, y, corpus)
        cosines = pair_cosines(x, y)[0]
        trend = neighbours.gain_trend(neighbours.gains(cosines, pairs.scores, pairs.gold, shared))
        figures = {"cosines": cosines, "pair_scores": pairs.scores, "gold": pairs.gold}
        arrays = {"shared": shared, **{name: values.astype(np.float32) for name, values in figures.items()}}
        return Outcome({"shared": float(shared.mean()), "gain_trend": trend}, len(shared), arrays)


def _undefined_warning(name: str, pairs: PairList) -> tuple[str, ...]:
    return (f"{name}: {pairs.undefined} pairs without a defined cosine count as 0",) if pairs.undefined else ()


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


class Split(NamedTuple):
    """Sentences (of one or two sides) and labels of one split."""

    sides: list[list[str]]
    labels: list[int]


def splits(evaluation: EvalDataset) -> dict[str, Split]:
    """Return sentences and labels of each split in SentEval's order; MRPC has two sides."""
    table = evaluation.table
    first, second, labels = (table[name][:] for name in ("sentence1", "sentence2", "label"))
    rows: dict[str, list[int]] = {}
    for row, split in enumerate(table["split"][:]):
        rows.setdefault(split, []).append(row)
    result = {}
    for split, members in rows.items():
        a, b, y = ([column[row] for row in members] for column in (first, second, labels))
        order = transfer.order(a, b, y)
        sides = [a, b] if any(b) else [a]
        result[split] = Split([[side[i] for i in order] for side in sides], [y[i] for i in order])
    return result


def features(
    evaluation: EvalDataset, encode: Callable[[list[str]], Float[Tensor, "n d"]]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the arguments of transfer.accuracy, by split: classifier features of the sentences, and labels."""
    vectors, labels = {}, {}
    for split, rows in splits(evaluation).items():
        x = [encode(side) for side in rows.sides]
        vectors[split] = transfer.pair_features(*x) if len(x) == 2 else x[0]
        labels[split] = torch.tensor(rows.labels)
    return vectors, labels
