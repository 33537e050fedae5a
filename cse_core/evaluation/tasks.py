"""The kinds of tasks: each names the sets it reads, and computes metrics from their pair scores or vectors."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cse_core.data.senteval import EvalDataset
from cse_core.evaluation import transfer
from cse_core.evaluation.scorers import Cosine, Ranked, Scorer
from cse_core.evaluation.sts_subsets import SUBSETS
from cse_core.evaluation.task import Inputs, Outcome, PairList, Task, check_finite, check_nonzero
from cse_core.functional.contrastive import pair_cosines
from cse_core.metrics import correlation, neighbours, ranking


@dataclass(frozen=True)
class STSTask(Task):
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
class RankingTask(Task):
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
class TransferTask(Task):
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
class Neighbours(Task):
    """How many of the 100 nearest sentences in the scorer's corpus a pair's two sentences share (neighbours.py)."""

    version: ClassVar[int] = neighbours.VERSION
    metrics: ClassVar[tuple[str, ...]] = ("shared", "gain_trend")

    def check(self, name: str, scorer: Scorer) -> None:
        """Refuse all but Ranked, which has a corpus."""
        if not isinstance(scorer, Ranked):
            raise ValueError(f"{name}: neighbours require a corpus, which the scorer {scorer} lacks")

    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """See Task; cosines and the scorer's scores are stored too, for comparison by bins."""
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


def features(
    evaluation: EvalDataset, encode: Callable[[list[str]], Float[Tensor, "n d"]]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the arguments of transfer.accuracy, by split: classifier features in SentEval's order, and labels."""
    table = evaluation.table
    first, second, labels = (table[name][:] for name in ("sentence1", "sentence2", "label"))
    rows: dict[str, list[int]] = {}
    for row, split in enumerate(table["split"][:]):
        rows.setdefault(split, []).append(row)
    vectors, classes = {}, {}
    for split, members in rows.items():
        a, b, y = ([column[row] for row in members] for column in (first, second, labels))
        order = transfer.order(a, b, y)
        x = [encode([side[i] for i in order]) for side in ([a, b] if any(b) else [a])]  # MRPC has two sides
        vectors[split] = transfer.pair_features(*x) if len(x) == 2 else x[0]
        classes[split] = torch.tensor([y[i] for i in order])
    return vectors, classes
