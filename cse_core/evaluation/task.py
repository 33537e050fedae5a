"""Contracts of an evaluation: a Task, its Inputs and its Outcome."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cse_core.data.senteval import EvalDataset
from cse_core.evaluation.scorers import PairScores, Scorer
from cse_core.models.embedding_cache import CachedEncoder, Progress


@dataclass(frozen=True)
class Outcome:
    """The result of an evaluation: metrics by name, their number of rows, arrays for figures, warnings."""

    metrics: Mapping[str, float]
    rows: int
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inputs:
    """What a task computes from: sets by name, their pair scores, the scorer and its encoder."""

    sets: Mapping[str, EvalDataset]
    scores: Mapping[str, PairScores]
    scorer: Scorer
    encoder: CachedEncoder
    data: Path | None
    progress: Progress | None

    def pairs(self, names: Sequence[str]) -> "PairList":
        """Concatenate the pairs of several sets."""
        tables = [self.sets[name].table for name in names]
        first, second = ([s for table in tables for s in table[side][:]] for side in ("sentence1", "sentence2"))
        return PairList(
            first=first,
            second=second,
            gold=np.concatenate([np.asarray(table["score"][:]) for table in tables]),
            parts=[part for table in tables for part in table["part"][:]],
            scores=np.concatenate([self.scores[name].scores for name in names]),
            undefined=sum(self.scores[name].undefined for name in names),
        )

    def vectors(self, sentences: Sequence[str]) -> Float[Tensor, "n d"]:
        """Return vectors whose cosines are the scorer's scores."""
        return self.scorer.vectors(self.encoder, sentences, data=self.data)


@dataclass(frozen=True)
class PairList:
    """Sentence pairs with gold scores, parts, the scorer's scores and the number of undefined ones."""

    first: list[str]
    second: list[str]
    gold: Float[np.ndarray, " n"]
    parts: list[str]
    scores: Float[np.ndarray, " n"]
    undefined: int


@dataclass(frozen=True)
class Task(ABC):
    """An evaluation: its version, the names of its metrics, the pair sets to be scored, and what else it reads."""

    version: ClassVar[int]
    pair_sets: tuple[str, ...] = ()  # sets whose pairs the scorer scores
    labelled_sets: tuple[str, ...] = ()  # sets of labelled sentences
    read_sets: tuple[str, ...] = ()  # sets of either kind that are only read, neither scored nor embedded
    sentences: tuple[str, ...] = ()  # further sentences to be embedded

    @property
    @abstractmethod
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics in every outcome, which may have more."""

    def check(self, name: str, scorer: Scorer) -> None:  # noqa: B027 - most tasks take any scorer
        """Refuse a scorer that the task can't use; errors begin with the task's `name`."""

    @abstractmethod
    def outcome(self, name: str, inputs: Inputs) -> Outcome:
        """Return the metrics, and the arrays that are stored with them."""


def check_finite(name: str, vectors: Float[Tensor, "n d"], sentences: Sequence[str]) -> Float[Tensor, "n d"]:
    """Return the vectors of sentences; raise ValueError, with the task's name, if one is not finite."""
    bad = (~torch.isfinite(vectors)).any(1).nonzero()
    if len(bad):
        raise ValueError(f"{name}: the vector of {sentences[int(bad[0])]!r} is not finite")
    return vectors


def check_nonzero(name: str, vectors: Float[Tensor, "n d"], sentences: Sequence[str]) -> Float[Tensor, "n d"]:
    """Return the vectors of sentences; raise ValueError, with the task's name, if one is zero or not finite."""
    zero = (check_finite(name, vectors, sentences) == 0).all(1).nonzero()
    if len(zero):
        raise ValueError(f"{name}: the vector of {sentences[int(zero[0])]!r} is zero and has no direction")
    return vectors
