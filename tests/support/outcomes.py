"""Scores of evaluations, computed in other ways than the suite does."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from cse_core.data.senteval import EvalDataset, pairs
from cse_core.evaluation.scorers import Cosine, PairScores, Ranked
from cse_core.evaluation.suite import evaluate, expand_names
from cse_core.evaluation.task import Inputs
from cse_core.models.embedding_cache import CachedEncoder
from cse_core.run import Corpus
from tests.support.encoders import Recording

CORPUS = Corpus("synthetic", 512)
RANKED = Ranked(corpus=CORPUS, size=400)


def scored(names: Sequence[str], data: Path | None = None, encoder: Any = None, scorer: Any = None) -> dict[str, Any]:
    """The outcomes of groups and tasks; the first failure is raised."""
    found = evaluate(encoder or Recording(), scorer or Cosine(), expand_names(names), data=data)
    return {name: found[name] for name in expand_names(names)}


def columns(*names: str, data: Path) -> tuple[list[str], list[str], np.ndarray]:
    tables = [pairs(name, data).table for name in names]
    first, second, gold = ([v for table in tables for v in table[c][:]] for c in ("sentence1", "sentence2", "score"))
    return first, second, np.array(gold)


def cosines(first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """Cosines summed here. Those of equal sentences may differ from 1 in the last bit, so ranks use the scorer's."""
    a, b = (np.array([Recording().vector(s) for s in side], np.float32).astype(np.float64) for side in (first, second))
    return np.array([x @ y / math.sqrt((x @ x) * (y @ y)) for x, y in zip(a, b, strict=True)])


def exact(first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    return Cosine().pair_scores(Recording(), {"all": (first, second)})["all"].scores


Pair = tuple[str, str]


def words_of(sentence: str) -> str:
    """The lower-cased words of letters and digits; everything else separates words."""
    return " ".join("".join(c if c.isalnum() else " " for c in sentence.lower()).split())


def evaluation_of(rows: Sequence[Pair], gold: Sequence[float] = ()) -> EvalDataset:
    first, second = ([pair[side] for pair in rows] for side in (0, 1))
    scores = [float(score) for score in gold] or [1.0] * len(rows)
    table = {"part": ["all"] * len(rows), "sentence1": first, "sentence2": second, "score": scores}
    return EvalDataset("mine", Dataset.from_dict(table), {})


def inputs_of(sets: Mapping[str, EvalDataset], encoder: Any = None) -> Inputs:
    """Make sets whose pairs all score 0."""
    scores = {name: PairScores(np.zeros(len(evaluation.table))) for name, evaluation in sets.items()}
    return Inputs(sets, scores, Cosine(), CachedEncoder(encoder or Recording()), None, None)
