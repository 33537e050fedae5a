"""A dev set that is scored repeatedly during training: Spearman of cosines, alignment and uniformity."""

from typing import NamedTuple

import numpy as np
import torch

from cse_core.data.senteval import STS_DEV, EvalDataset
from cse_core.functional.contrastive import pair_cosines
from cse_core.metrics import geometry
from cse_core.metrics.correlation import correlations
from cse_core.models.encoder import Encoder


class DevScore(NamedTuple):
    """Spearman over all pairs, alignment of those with gold above 4, uniformity of all sentences; nan if undefined."""

    score: float
    alignment: float
    uniformity: float


class DevSet:
    """A dev set that is tokenised once; each call embeds each distinct text once."""

    def __init__(self, encoder: Encoder, evaluation: EvalDataset) -> None:
        table = evaluation.table
        first, second = table["sentence1"][:], table["sentence2"][:]
        sentences = list(dict.fromkeys(first + second))
        ids = [tuple(row) for row in encoder.tokenise(sentences)]
        self.exact = evaluation.task not in STS_DEV  # the recorded dev scores of these are not exact
        distinct = ids if self.exact else sentences  # what is embedded once
        place = {key: i for i, key in enumerate(dict.fromkeys(distinct))}
        index = {s: place[key] for s, key in zip(sentences, distinct, strict=True)}
        self.ids = list(dict(zip(distinct, ids, strict=True)).values())
        self.first, self.second = [index[s] for s in first], [index[s] for s in second]
        self.counts = torch.bincount(torch.tensor(self.first + self.second))
        self.gold, self.parts = np.asarray(table["score"][:]), table["part"][:]
        self.positives = geometry.positives(self.gold)

    def measure(self, encoder: Encoder) -> DevScore:
        """Score by cosine; nan if all pairs have the same. With a zero vector the other two measures are nan."""
        vectors = encoder.embed(self.ids)
        x, y = vectors[self.first], vectors[self.second]
        score = correlations(pair_cosines(x, y, exact=self.exact)[0], self.gold, self.parts)["spearman.all"]
        norms = vectors.norm(dim=1)
        if not len(self.positives) or not bool((norms.isfinite() & (norms > 0)).all()):
            return DevScore(score, float("nan"), float("nan"))
        alignment = geometry.alignment(x[self.positives], y[self.positives])
        return DevScore(score, alignment, geometry.uniformity(vectors, self.counts))
