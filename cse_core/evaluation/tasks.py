"""The kinds of evaluation: each says which sets it reads, and makes numbers of their pair scores or vectors."""

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
from cse_core.evaluation.subsets import SUBSETS
from cse_core.evaluation.task import BaseTask, Inputs, Outcome, PairList, check_finite, check_nonzero
from cse_core.functional.contrastive import cosine_matrix, pair_cosines
from cse_core.metrics import correlation, geometry, neighbours, ranking

MOST_RANKS = 30_000_000  # numbers of rank vectors held at once: with the copies that geometry makes, 2 GiB


@dataclass(frozen=True)
class STSTask(BaseTask):
    """Correlations of a set's pair scores with gold (sts.py), of all its pairs or of a subset."""

    version: ClassVar[int] = correlation.VERSION
    metrics: ClassVar[tuple[str, ...]] = correlation.METRICS
    subset: str = ""

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the pair scores are kept for the set itself."""
        found = inputs.pairs(self.pair_sets)
        rows = np.arange(len(found.gold))
        if self.subset:
            rows = SUBSETS[self.subset].rows(inputs.sets[self.pair_sets[0]], inputs.sets)
        scores, parts = found.scores[rows], [found.parts[row] for row in rows]
        metrics = correlation.correlations(scores, found.gold[rows], parts)
        arrays = {} if self.subset else {"pair_scores": scores}
        return Outcome(metrics, len(rows), arrays, _told(self.pair_sets[0], found))


@dataclass(frozen=True)
class RankingTask(BaseTask):
    """The ranking task on one set, or on its splits merged (ranking.py)."""

    version: ClassVar[int] = ranking.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("kendall", *(f"ndcg.{gain}" for gain in ranking.GAINS))

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are all groups, those without a defined measure included."""
        found = inputs.pairs(self.pair_sets)
        metrics = ranking.summary(found.scores, found.gold, list(zip(found.first, found.second, strict=True)))
        groups = int(metrics.pop("groups"))
        return Outcome(metrics, groups, warnings=_told(name, found))


@dataclass(frozen=True)
class TransferTask(BaseTask):
    """A transfer task under one of SentEval's settings (transfer.py)."""

    version: ClassVar[int] = transfer.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("acc", "devacc")
    setting: str = "test"

    def check(self, name: str, scorer: Scorer) -> None:
        """Plain vectors, which only Cosine has: rank vectors are as long as the corpus."""
        if not isinstance(scorer, Cosine):
            raise ValueError(f"{name}: a classifier wants an encoder's own vectors, got the scorer {scorer}")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are labelled sentences."""
        (task,) = self.labelled_sets
        vectors, labels = features(inputs.sets[task], lambda side: check_finite(name, inputs.vectors(side), side))
        if all(bool((x == next(iter(vectors.values()))[0]).all()) for x in vectors.values()):
            raise ValueError(
                f"{name}: all {sum(map(len, vectors.values())):,} vectors are equal, nothing to learn from"
            )
        tell = partial(inputs.progress, name) if inputs.progress else None
        found = transfer.accuracy(task, vectors, labels, self.setting, progress=tell)
        metrics = {metric: value for metric, value in found._asdict().items() if value is not None}
        return Outcome(metrics, sum(map(len, labels.values())))


@dataclass(frozen=True)
class GeometryTask(BaseTask):
    """Alignment, uniformity, cosines by gold and the pull of length on scored pairs (geometry.py).

    The cosine of each pair and its gold score are kept beside them (RankCSE, Fig. 5).
    """

    version: ClassVar[int] = geometry.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("alignment", "uniformity", "uniformity.unique", "length_shortcut")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are pairs."""
        found = inputs.pairs(self.pair_sets)
        distinct, vectors = _distinct(name, inputs, found)
        rows = {sentence: i for i, sentence in enumerate(distinct)}
        x, y = (vectors[[rows[s] for s in side]] for side in (found.first, found.second))
        metrics = geometry.summary(x, y, found.gold, found.first, found.second)
        arrays = {"cosines": pair_cosines(x, y)[0].astype(np.float32), "gold": found.gold.astype(np.float32)}
        return Outcome(metrics, len(found.gold), arrays)


@dataclass(frozen=True)
class Projection(BaseTask):
    """Two coordinates a sentence (UMAP), with its number of words (CompCSE, Fig. 5), and how much of it is kept.

    Of all distinct sentences of the pairs or, drawn with a seed, of `size` of them (RankEncoder, Fig. 7, has 1,000).
    `first`, `second` and `gold` are of the pairs with both sentences shown: rows of the coordinates, and the score.
    """

    version: ClassVar[int] = geometry.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("trustworthiness",)
    size: int | None = None
    seed: int = 42

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; the rows are distinct sentences."""
        from sklearn.manifold import trustworthiness  # lazy: slow import

        found = inputs.pairs(self.pair_sets)
        shown, vectors = _distinct(name, inputs, found, self._drawn)
        places = geometry.project(vectors)
        kept = float(trustworthiness(vectors.numpy(), places, metric="cosine"))
        row = {sentence: i for i, sentence in enumerate(shown)}
        pairs = [p for p, sides in enumerate(zip(found.first, found.second, strict=True)) if row.keys() >= {*sides}]
        arrays = {
            "coordinates": places,
            "words": np.array([len(s.split()) for s in shown]),
            "first": np.array([row[found.first[p]] for p in pairs], np.int64),
            "second": np.array([row[found.second[p]] for p in pairs], np.int64),
            "gold": found.gold[pairs].astype(np.float32),
        }
        return Outcome({"trustworthiness": kept}, len(shown), arrays)

    def _drawn(self, name: str, distinct: list[str]) -> list[str]:
        """In the order of the pairs."""
        if self.size is None:
            return distinct
        if self.size > len(distinct):
            raise ValueError(f"{name}: {self.size:,} distinct sentences wanted, got {len(distinct):,}")
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
    """How many of their 100 nearest corpus sentences a pair shares (neighbours.py); the corpus is the scorer's."""

    version: ClassVar[int] = neighbours.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("shared", "gain_trend")

    def check(self, name: str, scorer: Scorer) -> None:
        """Only Ranked has a corpus."""
        if not isinstance(scorer, Ranked):
            raise ValueError(f"{name}: neighbours are looked for in a corpus, which the scorer {scorer} lacks")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; cosines and the scorer's scores are kept beside what is shared, to be compared bin by bin."""
        found, scorer = inputs.pairs(self.pair_sets), cast(Ranked, inputs.scorer)
        corpus = scorer.corpus_vectors(inputs.encoder, data=inputs.data)
        x, y = (check_nonzero(name, inputs.encoder.encode(side), side) for side in (found.first, found.second))
        shared = neighbours.overlap(x, y, corpus)
        cosines = pair_cosines(x, y)[0]
        trend = neighbours.gain_trend(neighbours.gains(cosines, found.scores, found.gold, shared))
        figures = {"cosines": cosines, "pair_scores": found.scores, "gold": found.gold}
        arrays = {"shared": shared, **{name: values.astype(np.float32) for name, values in figures.items()}}
        return Outcome({"shared": float(shared.mean()), "gain_trend": trend}, len(shared), arrays)


def _told(name: str, found: PairList) -> tuple[str, ...]:
    return (f"{name}: {found.undefined} pairs without a defined cosine count as 0",) if found.undefined else ()


def _distinct(
    name: str,
    inputs: Inputs,
    found: PairList,
    drawn: Callable[[str, list[str]], list[str]] = lambda name, all_of_them: all_of_them,
) -> tuple[list[str], Float[Tensor, "n d"]]:
    """The distinct sentences of pairs, or those drawn from them, and their vectors."""
    distinct = drawn(name, list(dict.fromkeys([*found.first, *found.second])))
    if isinstance(inputs.scorer, Ranked) and len(distinct) * inputs.scorer.size > MOST_RANKS:
        raise ValueError(
            f"{name}: {len(distinct):,} rank vectors of {inputs.scorer.size:,} numbers do not fit, at most "
            f"{MOST_RANKS:,} numbers do; wants a smaller corpus"
        )
    return distinct, check_nonzero(name, inputs.vectors(distinct), distinct)


class Split(NamedTuple):
    """Sentences (of both sides, where there are two) and labels of one split."""

    sides: list[list[str]]
    labels: list[int]


def splits(evaluation: EvalDataset) -> dict[str, Split]:
    """Sentences and labels of each split in SentEval's order; MRPC has two sides."""
    table = evaluation.table
    first, second, labels = (table[name][:] for name in ("sentence1", "sentence2", "label"))
    rows: dict[str, list[int]] = {}
    for row, split in enumerate(table["split"][:]):
        rows.setdefault(split, []).append(row)
    found = {}
    for split, members in rows.items():
        a, b, y = ([column[row] for row in members] for column in (first, second, labels))
        order = transfer.order(a, b, y)
        sides = [a, b] if any(b) else [a]
        found[split] = Split([[side[i] for i in order] for side in sides], [y[i] for i in order])
    return found


def features(
    evaluation: EvalDataset, encode: Callable[[list[str]], Float[Tensor, "n d"]]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What transfer.accuracy takes, by split: classifier features of the sentences, and their labels."""
    found, labels = {}, {}
    for split, rows in splits(evaluation).items():
        x = [encode(side) for side in rows.sides]
        found[split] = transfer.pair_features(*x) if len(x) == 2 else x[0]
        labels[split] = torch.tensor(rows.labels)
    return found, labels
