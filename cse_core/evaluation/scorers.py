"""Scorers, which turn an encoder's vectors into pair scores. `str(scorer)` is a scorer's name in the record."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Float
from torch import Tensor

from cse_core.data.corpora import sample, sentences
from cse_core.data.senteval import pairs
from cse_core.evaluation.bert_flow import fit_flow
from cse_core.functional.contrastive import pair_cosines
from cse_core.functional.rank_vectors import interpolate, pair_rank_similarity, rank_vectors
from cse_core.functional.whitening import whitening
from cse_core.lookup import check_choices
from cse_core.method import check
from cse_core.models.embedding_cache import CachedEncoder, SentenceEncoder, distinct_rows
from cse_core.run import Corpus, Pretrained, check_pooling

Pairs = tuple[Sequence[str], Sequence[str]]
Tasks = Mapping[str, Pairs]  # the pairs of each task, by its name
SPLITS = {"stsb": ("stsb_train", "stsb_dev", "stsb"), "sickr": ("sickr_train", "sickr_dev", "sickr")}


@dataclass(frozen=True)
class PairScores:
    """One score per pair, and the number of pairs without a defined score, which count as 0."""

    scores: Float[np.ndarray, " n"]
    undefined: int = 0


class Scorer(ABC):
    """A frozen value that scores sentence pairs."""

    def view(self, encoder: SentenceEncoder) -> CachedEncoder:
        """Return the encoder with this scorer's pooling, with a cache so that each text is embedded once."""
        return CachedEncoder.wrap(encoder)

    def texts(self, data: Path | None = None) -> Sequence[str]:
        """Return the sentences that the scorer embeds besides the pairs: its corpus, if it has one."""
        return ()

    @abstractmethod
    def pair_scores(self, encoder: SentenceEncoder, tasks: Tasks, *, data: Path | None = None) -> dict[str, PairScores]:
        """Return scores of every task's pairs; `data` is the folder of a corpus or of a task's other splits."""

    @abstractmethod
    def vectors(
        self, encoder: SentenceEncoder, sentences: Sequence[str], *, data: Path | None = None
    ) -> Float[Tensor, "n d"]:
        """Return vectors whose cosines are this scorer's scores, for measures of a space rather than of pairs."""


@dataclass(frozen=True)
class Cosine(Scorer):
    """Plain cosine of two vectors, with the encoder's own pooling and template or with others."""

    pooling: str | None = None
    template: str = ""

    def __post_init__(self) -> None:
        if self.pooling is not None or self.template:
            check_pooling(self.pooling or "", self.template)

    def __str__(self) -> str:
        return " ".join(filter(None, ("cosine", self.pooling, self.template)))

    def pair_scores(self, encoder: SentenceEncoder, tasks: Tasks, *, data: Path | None = None) -> dict[str, PairScores]:
        """See Scorer."""
        view = _fill(self.view(encoder), tasks)
        return {
            task: PairScores(*pair_cosines(*map(view.encode, sides), exact=view.by_ids))
            for task, sides in tasks.items()
        }

    def view(self, encoder: SentenceEncoder) -> CachedEncoder:
        """See Scorer."""
        cached = CachedEncoder.wrap(encoder)
        return cached.with_pooling(self.pooling, self.template) if self.pooling else cached

    def vectors(
        self, encoder: SentenceEncoder, sentences: Sequence[str], *, data: Path | None = None
    ) -> Float[Tensor, "n d"]:
        """See Scorer."""
        return self.view(encoder).encode(sentences)


@dataclass(frozen=True, kw_only=True)
class Ranked(Scorer):
    """Spearman's rho of two sentences' rankings of a corpus, mixed with their cosine (RankEncoder, Eq. 7).

    The weight of rho is 0.1 in Eq. 7; with 1 the score is rho alone (Eq. 2). Corpus sentences are drawn and cut as in
    training. The similarity "centred" replaces rho by Pearson's r of the two sentences' cosines to the corpus.
    """

    corpus: Corpus
    size: int = 100_000
    seed: int = 42
    weight: float = 0.1
    normalise: bool = True
    similarity: Literal["rank", "centred"] = "rank"

    def __post_init__(self) -> None:
        check_choices(self)
        check("weight", self.weight, lambda w: 0 < w <= 1, "in (0, 1]")
        if not 2 <= self.size <= self.corpus.lines:
            raise ValueError(f"size must be from 2 to {self.corpus.lines:,}, got {self.size:,}")

    def __str__(self) -> str:
        lengths = "" if self.normalise else " by inner product"
        return f"{self.similarity} {self.weight:g} of {self.size} from {_brief(self.corpus)} seed {self.seed}{lengths}"

    def pair_scores(self, encoder: SentenceEncoder, tasks: Tasks, *, data: Path | None = None) -> dict[str, PairScores]:
        """See Scorer."""
        corpus, scores = self.corpus_vectors(encoder, data=data), {}
        view = _fill(self.view(encoder), tasks)
        for task, sides in tasks.items():
            a, b = map(view.encode, sides)
            cosines, undefined = pair_cosines(a, b, exact=view.by_ids)
            if view.by_ids:
                rho = self._exact_rho(view, sides, data)
            else:
                rho = pair_rank_similarity(a, b, corpus, normalise=self.normalise, similarity=self.similarity)
            mixed = interpolate(rho.double(), torch.from_numpy(cosines), self.weight)
            scores[task] = PairScores(mixed.numpy(), undefined)
        return scores

    def texts(self, data: Path | None = None) -> Sequence[str]:
        """See Scorer."""
        return sample(self.corpus, self.size, self.seed, data)

    def _exact_rho(self, view: CachedEncoder, sides: Pairs, data: Path | None) -> Float[Tensor, " n"]:
        """Return the similarity of each pair, computed once per distinct pair; equal ids also tie in the corpus."""
        vectors, rows = distinct_rows(view, sides)
        corpus, (places,) = distinct_rows(view, [self.texts(data)])
        pairs, place = torch.stack(rows, 1).sort(1).values.unique(dim=0, return_inverse=True)
        first, second = pairs.unbind(1)
        rho = pair_rank_similarity(
            vectors[first], vectors[second], corpus, normalise=self.normalise, similarity=self.similarity, places=places
        )
        defined = vectors[first].isfinite().all(1) & (vectors[first] != 0).any(1)
        return torch.where((first == second) & defined, 1.0, rho)[place]

    def corpus_vectors(self, encoder: SentenceEncoder, *, data: Path | None = None) -> Float[Tensor, "size d"]:
        """Return embeddings of the corpus's sentences."""
        return self.view(encoder).encode(self.texts(data))

    def vectors(
        self, encoder: SentenceEncoder, sentences: Sequence[str], *, data: Path | None = None
    ) -> Float[Tensor, "n d"]:
        """See Scorer: rank vectors and unit vectors; with weight 1 only ranks count (RankEncoder's Table 2)."""
        x = self.view(encoder).encode(sentences)
        corpus = self.corpus_vectors(encoder, data=data)
        ranks = rank_vectors(x, corpus, "average", normalise=self.normalise, similarity=self.similarity)
        return torch.cat([self.weight**0.5 * ranks, (1 - self.weight) ** 0.5 * F.normalize(x, dim=1)], dim=1)


@dataclass(frozen=True, kw_only=True)
class FittedScorer(Scorer):
    """Cosine after a map that is fitted to a corpus or, without one, to the sentences in all splits of the task."""

    corpus: Corpus | None = None

    @abstractmethod
    def fit(self, texts: Float[Tensor, "n d"]) -> Callable[[Tensor], Tensor]:
        """Return a map fitted to these vectors."""

    def pair_scores(self, encoder: SentenceEncoder, tasks: Tasks, *, data: Path | None = None) -> dict[str, PairScores]:
        """See Scorer."""
        view, sources = self.view(encoder), {task: self.corpus or _all_splits(task) for task in tasks}
        texts = {source: _fitting_texts(source, data) for source in dict.fromkeys(sources.values())}
        _fill(view, tasks, [s for source in texts.values() for s in source])
        maps = {source: self.fit(view.encode(sentences)) for source, sentences in texts.items()}
        return {
            task: PairScores(*pair_cosines(*_map_sides(view, sides, maps[sources[task]]), exact=view.by_ids))
            for task, sides in tasks.items()
        }

    def texts(self, data: Path | None = None) -> Sequence[str]:
        """See Scorer."""
        return _fitting_texts(self.corpus, data) if self.corpus else ()

    def vectors(
        self, encoder: SentenceEncoder, sentences: Sequence[str], *, data: Path | None = None
    ) -> Float[Tensor, "n d"]:
        """See Scorer; without a corpus, the map is fitted to the sentences themselves."""
        view = self.view(encoder)
        vectors = view.encode(sentences)
        return self.fit(view.encode(self.texts(data)) if self.corpus else vectors)(vectors)


@dataclass(frozen=True, kw_only=True)
class Whitened(FittedScorer):
    """Cosine after BERT-whitening (Su et al., 2021): x -> (x - mean) U Lambda^-1/2, its first `dims` columns.

    Texts are cut to `longest` tokens.
    """

    pooling: str = "layer1_last_mean"
    dims: int | None = None
    longest: int = 64

    def __post_init__(self) -> None:
        check_pooling(self.pooling)

    def __str__(self) -> str:
        dims = f" to {self.dims}" if self.dims else ""
        return f"whitened {self.pooling}{dims} on {_brief(self.corpus)}, {self.longest} tokens"

    def view(self, encoder: SentenceEncoder) -> CachedEncoder:
        """See Scorer."""
        return CachedEncoder.wrap(encoder).with_pooling(self.pooling, longest=self.longest)

    def fit(self, texts: Float[Tensor, "n d"]) -> Callable[[Tensor], Tensor]:
        """See FittedScorer."""
        return whitening(texts, self.dims)


@dataclass(frozen=True, kw_only=True)
class Flowed(FittedScorer):
    """Cosine after BERT-flow (Li et al., EMNLP 2020)."""

    pooling: str = "top2_mean"
    seed: int = 42

    def __post_init__(self) -> None:
        check_pooling(self.pooling)

    def __str__(self) -> str:
        return f"flow {self.pooling} on {_brief(self.corpus)} seed {self.seed}"

    def view(self, encoder: SentenceEncoder) -> CachedEncoder:
        """See Scorer."""
        return CachedEncoder.wrap(encoder).with_pooling(self.pooling)

    def fit(self, texts: Float[Tensor, "n d"]) -> Callable[[Tensor], Tensor]:
        """See FittedScorer."""
        flow = fit_flow(texts, seed=self.seed).eval()
        return torch.no_grad()(lambda x: flow(x)[0])


def _fill(view: CachedEncoder, tasks: Tasks, more: Sequence[str] = ()) -> CachedEncoder:
    view.fill([*(s for sides in tasks.values() for side in sides for s in side), *more])
    return view


def _map_sides(view: CachedEncoder, sides: Pairs, mapping: Callable[[Tensor], Tensor]) -> list[Float[Tensor, "n d"]]:
    if not view.by_ids:
        return [mapping(view.encode(side)) for side in sides]
    vectors, rows = distinct_rows(view, sides)
    mapped = mapping(vectors)  # once, as the rounding of a matrix product can depend on the row
    return [mapped[of_side] for of_side in rows]


def _all_splits(task: str) -> tuple[str, ...]:
    return next((names for names in SPLITS.values() if task in names), (task,))


def _fitting_texts(source: Corpus | tuple[str, ...], data: Path | None) -> list[str]:
    if isinstance(source, Corpus):
        return sentences(source, data)["text"][:]
    tables = [pairs(split, data).table for split in source]
    return [s for table in tables for side in ("sentence1", "sentence2") for s in table[side][:]]


def brief_encoder(encoder: Pretrained) -> str:
    """Return an encoder's name and, if it is pinned, how its content's hash begins."""
    return encoder.name + (f":{encoder.sha256[:8]}" if encoder.sha256 else "")


def _brief(corpus: Corpus | None) -> str:
    if corpus is None:
        return "the task"
    return f"{corpus.name}:{corpus.lines}" + (f":{corpus.sha256[:8]}" if corpus.sha256 else "")
