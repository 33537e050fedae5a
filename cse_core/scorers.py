"""How an encoder becomes pair scores. A scorer's text form names it in every score's record."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cse_core.data import sentences
from cse_core.encoder import Encoder
from cse_core.flow import fit_flow
from cse_core.method import check
from cse_core.methods.rankencoder import interpolate, pair_rank_similarity
from cse_core.run import Corpus, check_pooling
from cse_core.senteval import pairs
from cse_core.vectors import sample

Pairs = tuple[Sequence[str], Sequence[str]]
SPLITS = {"stsb": ("stsb_train", "stsb_dev", "stsb"), "sickr": ("sickr_train", "sickr_dev", "sickr")}


@runtime_checkable
class Embeds(Protocol):
    """What has vectors for sentences: an Encoder, or WordVectors."""

    name: str

    def encode(self, sentences: Sequence[str]) -> Float[Tensor, "n d"]:
        """A vector a sentence, on the CPU."""
        ...


class Scorer(Protocol):
    """A frozen value that turns sentence pairs into scores."""

    def pair_scores(
        self, encoder: Embeds, tasks: Mapping[str, Pairs], *, data: Path | None = None
    ) -> dict[str, "PairScores"]:
        """Scores of every task's pairs; `data` is where a corpus or a task's other splits are looked for."""
        ...


@dataclass(frozen=True)
class PairScores:
    """A score a pair, and how many pairs had no defined score and count as 0."""

    scores: Float[np.ndarray, " n"]
    undefined: int = 0


def pair_cosines(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"]) -> tuple[Float[np.ndarray, " n"], int]:
    """Cosine of a[i] with b[i] in double precision; an undefined one is 0 and counted."""
    x, y = a.double(), b.double()
    cosine = (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))
    undefined = ~torch.isfinite(cosine)
    return torch.where(undefined, 0.0, cosine).numpy(), int(undefined.sum())


def _under(encoder: Embeds, pooling: str, template: str = "", longest: int | None = None) -> Embeds:
    if not isinstance(encoder, Encoder):
        raise ValueError(f"{encoder.name}: word vectors have no pooling, got {pooling!r}")
    return encoder.under(pooling, template, longest)


class _Sides:
    """The vectors of both sides of every task's pairs; each distinct sentence is embedded once."""

    def __init__(self, encoder: Embeds, tasks: Mapping[str, Pairs], more: Sequence[str] = ()) -> None:
        every = (s for first, second in tasks.values() for s in (*first, *second))
        distinct = list(dict.fromkeys((*every, *more)))
        self.rows = {sentence: i for i, sentence in enumerate(distinct)}
        self.tasks, self.vectors = tasks, encoder.encode(distinct)

    def of(self, sentences: Sequence[str]) -> Float[Tensor, "n d"]:
        return self.vectors[[self.rows[s] for s in sentences]]

    def pair(self, task: str) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
        first, second = (self.of(side) for side in self.tasks[task])
        return first, second


@dataclass(frozen=True)
class Cosine:
    """Plain cosine of two vectors, under the encoder's own pooling and template or under others."""

    pooling: str | None = None
    template: str = ""

    def __post_init__(self) -> None:
        if self.pooling is not None or self.template:
            check_pooling(self.pooling or "", self.template)

    def __str__(self) -> str:
        return " ".join(filter(None, ("cosine", self.pooling, self.template)))

    def pair_scores(
        self, encoder: Embeds, tasks: Mapping[str, Pairs], *, data: Path | None = None
    ) -> dict[str, PairScores]:
        """See Scorer."""
        view = _under(encoder, self.pooling, self.template) if self.pooling else encoder
        sides = _Sides(view, tasks)
        return {task: PairScores(*pair_cosines(*sides.pair(task))) for task in tasks}


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Spearman's rho of two sentences' rankings of a corpus, mixed with their cosine (RankEncoder, Eq. 7).

    Eq. 7 has the weight 0.1; 1 is rho alone (Eq. 2). Corpus sentences are drawn and cut as in training.
    """

    corpus: Corpus
    size: int = 100_000
    seed: int = 42
    weight: float = 0.1
    normalise: bool = True

    def __post_init__(self) -> None:
        check("weight", self.weight, lambda w: 0 < w <= 1, "in (0, 1]")
        if not 2 <= self.size <= self.corpus.lines:
            raise ValueError(f"size must be from 2 to {self.corpus.lines:,}, got {self.size:,}")

    def __str__(self) -> str:
        lengths = "" if self.normalise else " by inner product"
        return f"rank {self.weight:g} of {self.size} from {_brief(self.corpus)} seed {self.seed}{lengths}"

    def pair_scores(
        self, encoder: Embeds, tasks: Mapping[str, Pairs], *, data: Path | None = None
    ) -> dict[str, PairScores]:
        """See Scorer."""
        corpus = encoder.encode(sample(self.corpus, self.size, self.seed, data))
        sides, scores = _Sides(encoder, tasks), {}
        for task in tasks:
            a, b = sides.pair(task)
            cosines, undefined = pair_cosines(a, b)
            rho = pair_rank_similarity(a, b, corpus, normalise=self.normalise).double()
            mixed = interpolate(rho, torch.from_numpy(cosines), self.weight)
            scores[task] = PairScores(mixed.numpy(), undefined)
        return scores


@dataclass(frozen=True, kw_only=True)
class Whitened:
    """Cosine after BERT-whitening (Su et al., 2021): x -> (x - mean) U Lambda^-1/2, the leading `dims` directions.

    Fitted on all sentences of the task, other splits included, or on a corpus. Texts are cut to `longest` tokens.
    """

    pooling: str = "layer1_last_mean"
    dims: int | None = None
    corpus: Corpus | None = None
    longest: int = 64

    def __post_init__(self) -> None:
        check_pooling(self.pooling)

    def __str__(self) -> str:
        dims = f" to {self.dims}" if self.dims else ""
        return f"whitened {self.pooling}{dims} on {_brief(self.corpus)}, {self.longest} tokens"

    def pair_scores(
        self, encoder: Embeds, tasks: Mapping[str, Pairs], *, data: Path | None = None
    ) -> dict[str, PairScores]:
        """See Scorer."""
        view = _under(encoder, self.pooling, longest=self.longest)
        return _fitted(view, tasks, self.corpus, data, lambda texts: whitening(texts, self.dims))


@dataclass(frozen=True, kw_only=True)
class Flowed:
    """Cosine after BERT-flow (Li et al., EMNLP 2020), fitted on all sentences of the task or on a corpus."""

    pooling: str = "top2_mean"
    corpus: Corpus | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        check_pooling(self.pooling)

    def __str__(self) -> str:
        return f"flow {self.pooling} on {_brief(self.corpus)} seed {self.seed}"

    def pair_scores(
        self, encoder: Embeds, tasks: Mapping[str, Pairs], *, data: Path | None = None
    ) -> dict[str, PairScores]:
        """See Scorer."""

        def fit(texts: Float[Tensor, "n d"]) -> Callable[[Tensor], Tensor]:
            flow = fit_flow(texts, mixing="permutation", seed=self.seed).eval()
            return torch.no_grad()(lambda x: flow(x)[0])

        return _fitted(_under(encoder, self.pooling), tasks, self.corpus, data, fit)


def whitening(fitted_on: Float[Tensor, "n d"], dims: int | None = None) -> Callable[[Tensor], Tensor]:
    """The map x -> (x - mean) U Lambda^-1/2, from n vectors, in float64, the largest variances first."""
    n, d = fitted_on.shape
    if not 1 <= (d if dims is None else dims) <= d:
        raise ValueError(f"whitening to {dims} of {d} dimensions: expected 1 to {d}")
    x = fitted_on.double()
    mean = x.mean(0)
    variances, directions = torch.linalg.eigh((x - mean).T @ (x - mean) / n)
    variances, directions = variances.flip(0)[:dims], directions.flip(1)[:, :dims]
    if variances[-1] <= variances[0] * (d * torch.finfo(torch.float32).eps) ** 2:  # no more than rounding
        raise ValueError(f"whitening {len(variances)} dimensions from {n} vectors that span fewer; ask for fewer dims")
    return lambda vectors: (vectors.double() - mean) @ (directions / variances.sqrt())


def _fitted(
    encoder: Embeds,
    tasks: Mapping[str, Pairs],
    corpus: Corpus | None,
    data: Path | None,
    fit: Callable[[Float[Tensor, "n d"]], Callable[[Tensor], Tensor]],
) -> dict[str, PairScores]:
    sources = {task: corpus or _splits(task) for task in tasks}
    texts = {source: _texts(source, data) for source in dict.fromkeys(sources.values())}
    sides = _Sides(encoder, tasks, [s for some in texts.values() for s in some])
    maps = {source: fit(sides.of(some)) for source, some in texts.items()}
    return {
        task: PairScores(*pair_cosines(*(maps[sources[task]](side) for side in sides.pair(task)))) for task in tasks
    }


def _splits(task: str) -> tuple[str, ...]:
    return next((names for names in SPLITS.values() if task in names), (task,))


def _texts(source: Corpus | tuple[str, ...], data: Path | None) -> list[str]:
    if isinstance(source, Corpus):
        return list(sentences(source, data)["text"])
    tables = [pairs(split, data).table for split in source]
    return [s for table in tables for side in ("sentence1", "sentence2") for s in table[side]]


def _brief(corpus: Corpus | None) -> str:
    if corpus is None:
        return "the task"
    return f"{corpus.name}:{corpus.lines}" + (f":{corpus.sha256[:8]}" if corpus.sha256 else "")
