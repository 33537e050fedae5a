"""RankEncoder (Seonwoo et al., ACL 2023): a sentence is how it ranks a corpus; a new encoder learns those rankings.

A trained base encoder E1 ranks a fixed corpus for each sentence. The ranking, centred and scaled to unit norm, makes
the inner product of two sentences Spearman's rho of their rankings (Eq. 2, 3). A new encoder E2 starts from the plain
backbone, is trained as the base was, and is pulled towards those similarities for the pairs that E1 finds neither
unlike nor the same (Eq. 6): L = max(lambda L_rank, L_contrastive) (Eq. 5). At inference rho under E2 is mixed with E2's
cosine (Eq. 7; scorers.Ranked).

Relations: with weight 0 it is `inner` (SimCSE, PromptBERT, SNCSE), bit for bit. L_rank is distillation of similarities
by squared error, where RankCSE distils lists.
Paper against the released code, yeonsw/RankEncoder:
- its scripts for SimCSE and SNCSE add the weighted rank loss (`combination="sum"`) for pairs up to 0.9999, where the
  paper has the maximum and 0.8; its script for PromptBERT is the paper's. PUBLISHED has both;
- it draws 10,000 corpus sentences, the paper 100,000;
- its inference ranks by inner product with corpus vectors that are not normalised (`normalise=False`);
- the paper writes the contrastive loss as a sum; the code takes the mean, as here: over a batch a sum would nearly
  always be the larger term and the rank loss never count.
"""

import math
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Float, Int
from torch import Tensor, nn

from cse_core.contrastive import cosine_matrix
from cse_core.method import Batch, Encode, Loss, Method, Recipe, Source, Targets, check, with_fields
from cse_core.methods import promptbert, simcse, sncse
from cse_core.methods.simcse import SimCSE
from cse_core.run import Pretrained, Run

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SIMCSE = SimCSE()
LARGE = 2**22  # numbers from which threads pay: for a while after its own work torch's threads keep the cores busy
BLOCK = 512  # rankings held at once on either side
# Between which of a method's columns the base ranks: both views of SimCSE are the same text.
RANKED = {"simcse": ("text", "text"), "promptbert": ("first", "second"), "sncse": ("anchor", "positive")}


def rank_vectors(
    vectors: Float[Tensor, "n d"], corpus: Float[Tensor, "N d"], ties: str = "order", *, normalise: bool = True
) -> Float[Tensor, "n N"]:
    """Each row's ranking of the corpus by cosine, centred, of unit norm: u @ v is Spearman's rho (Eq. 2, 3).

    `ties="order"` gives equal cosines different ranks, as sorting leaves them (training); "average" their mean rank
    (inference; exactly Spearman's rho). A ranking without any order is the zero vector. `normalise=False` ranks by the
    inner product with the corpus vectors as they are (released inference).
    """
    if ties not in ("order", "average"):
        raise ValueError(f"ties must be order or average, got {ties!r}")
    size = len(corpus)
    if size < 2:
        raise ValueError(f"a ranking needs at least two corpus sentences, got {size}")
    scores = cosine_matrix(vectors, corpus) if normalise else F.normalize(vectors, dim=-1) @ corpus.T
    scores.nan_to_num_(0.0)  # an undefined vector ranks nothing
    ranks = torch.arange(size, dtype=scores.dtype, device=scores.device) - (size - 1) / 2
    ranks /= math.sqrt(size * (size**2 - 1) / 12)
    if ties == "order":
        return _ranked(scores, ranks)
    return F.normalize(_ranked(scores, ranks, average=True), dim=-1)


def _ranked(scores: Float[Tensor, "n N"], ranks: Float[Tensor, " N"], *, average: bool = False) -> Float[Tensor, "n N"]:
    """Each score's entry of the ascending `ranks`; equals by their places in the row, or all with their mean."""
    if scores.device.type != "cpu":
        return _ranked_on_gpu(scores, ranks, average=average)
    rows, ascending = scores.detach().numpy(), ranks.numpy()
    found = np.empty_like(rows)

    def fill(row: Float[np.ndarray, " N"], into: Float[np.ndarray, " N"]) -> None:
        order = _ascending(row)
        into[order] = _shared(row[order], ascending) if average else ascending

    if rows.size < LARGE:
        deque(map(fill, rows, found), maxlen=0)
    else:  # numpy sorts without Python's lock
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            deque(threads.map(fill, rows, found), maxlen=0)
    return torch.from_numpy(found)


def _ascending(row: Float[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """What sorts a row, equals in their order (-0 before 0): two radix sorts of 16 bits, faster than a comparing one.

    A float's bits, all flipped if it is negative and the sign alone if not, count up as the numbers do.
    """
    if row.dtype != np.float32:
        return np.argsort(row, kind="stable")
    bits = row.view(np.int32)
    halves = (bits ^ (bits >> 31 & 0x7FFFFFFF) ^ np.int32(-(2**31))).view(np.uint16).reshape(-1, 2)
    low, high = (0, 1) if sys.byteorder == "little" else (1, 0)
    order = np.argsort(halves[:, low], kind="stable")
    return order[np.argsort(halves[order, high], kind="stable")]


def _shared(scores: Float[np.ndarray, " N"], ranks: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Evenly spaced ranks, those of equal scores replaced by their mean; both ascending."""
    starts = np.flatnonzero(np.append(True, scores[1:] != scores[:-1]))
    ends = np.append(starts[1:], len(scores)) - 1
    return ranks if len(starts) == len(ranks) else np.repeat((ranks[starts] + ranks[ends]) / 2, ends - starts + 1)


def _ranked_on_gpu(scores: Float[Tensor, "n N"], ranks: Float[Tensor, " N"], *, average: bool) -> Float[Tensor, "n N"]:
    if not average:
        return ranks[scores.argsort(dim=1, stable=True).argsort(dim=1)]
    ascending = scores.sort(dim=1).values
    first, last = (torch.searchsorted(ascending, scores, right=right) for right in (False, True))
    return (ranks[first] + ranks[last - 1]) / 2


def rank_similarity(
    a: Float[Tensor, "n d"],
    b: Float[Tensor, "m d"],
    corpus: Float[Tensor, "N d"],
    ties: str = "average",
    block: int = BLOCK,
    *,
    normalise: bool = True,
) -> Float[Tensor, "n m"]:
    """Spearman's rho of every row of `a` with every row of `b` over the corpus, holding at most 2 * block rankings."""
    rank = partial(rank_vectors, corpus=corpus, ties=ties, normalise=normalise)
    found = a.new_empty(len(a), len(b))
    for i in range(0, len(a), block):
        left = rank(a[i : i + block])
        for j in range(i if a is b else 0, len(b), block):
            # Without a name the right block is gone before the next one is made.
            part = left @ (left if a is b and i == j else rank(b[j : j + block])).T
            found[i : i + block, j : j + block] = part
            if a is b and i != j:
                found[j : j + block, i : i + block] = part.T
    return found.clamp_(-1, 1)  # rounding must not put a sentence with itself above an `upper` of 1


def pair_rank_similarity(
    a: Float[Tensor, "n d"],
    b: Float[Tensor, "n d"],
    corpus: Float[Tensor, "N d"],
    ties: str = "average",
    block: int = BLOCK,
    *,
    normalise: bool = True,
) -> Float[Tensor, " n"]:
    """Spearman's rho of a[i] with b[i] over the corpus, holding at most 2 * block rankings."""
    rank = partial(rank_vectors, corpus=corpus, ties=ties, normalise=normalise)
    parts = [(rank(left) * rank(right)).sum(-1) for left, right in zip(a.split(block), b.split(block), strict=True)]
    return torch.cat(parts).clamp_(-1, 1)


def rank_loss(
    rank_similarity: Float[Tensor, "n n"], student_similarity: Float[Tensor, "n n"], lower: float, upper: float
) -> Float[Tensor, ""]:
    """Mean squared difference over the pairs with lower <= R <= upper; 0 if there is none (Eq. 6)."""
    chosen = _chosen(rank_similarity, lower, upper).to(student_similarity.dtype)
    return ((rank_similarity - student_similarity).square() * chosen).sum() / (chosen.sum() + 1e-8)


def _chosen(similarity: Float[Tensor, "n n"], lower: float, upper: float) -> Tensor:
    return (similarity >= lower) & (similarity <= upper)


def combine(contrastive: Float[Tensor, ""], rank: Float[Tensor, ""], weight: float) -> Float[Tensor, ""]:
    """max(weight * rank, contrastive): only the larger term gets a gradient (Eq. 5)."""
    weighted = weight * rank
    return torch.where(weighted > contrastive, weighted, contrastive)


def interpolate(
    rank_similarity: Float[Tensor, "*n"], cosine: Float[Tensor, "*n"], weight: float
) -> Float[Tensor, "*n"]:
    """weight * rho + (1 - weight) * cosine (Eq. 7)."""
    return weight * rank_similarity + (1 - weight) * cosine


@dataclass(frozen=True, kw_only=True)
class RankEncoder:
    """`rank_weight` is the paper's lambda_train, `lower` and `upper` are tau_l and tau_u.

    `lower=-1`, `upper=1` leave the filter out (Eq. 4); it costs 0.17 points by a footnote of the paper.
    """

    name: ClassVar[str] = "rankencoder"
    version: ClassVar[int] = 1

    base: Run | Pretrained | None = None  # E1
    select: str = "stsb_dev"  # which of the base's checkpoints
    inner: Method = SIMCSE  # how E2 is trained besides: as the base was
    corpus_size: int = 100_000
    corpus_seed: int = 42
    rank_weight: float = 0.05
    lower: float = 0.5
    upper: float = 0.8
    combination: str = "maximum"

    def __post_init__(self) -> None:
        check("rank_weight", self.rank_weight, lambda w: w >= 0, "zero or positive")
        if self.corpus_size < 2:
            raise ValueError(f"corpus_size must be at least 2, got {self.corpus_size}")
        if not -1 <= self.lower < self.upper <= 1:
            raise ValueError(f"lower and upper want -1 <= lower < upper <= 1, got {self.lower} and {self.upper}")
        if self.combination not in ("maximum", "sum"):
            raise ValueError(f"combination must be one of maximum, sum, got {self.combination!r}")
        if self.inner.name not in RANKED:
            raise ValueError(f"inner must be one of {', '.join(RANKED)}, got {self.inner.name!r}")
        if self.rank_weight and self.base is None:
            raise ValueError("a rank_weight above 0 needs a base encoder, got none")

    def examples(
        self, texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int
    ) -> dict[str, list[list[int]]]:
        """The inner method's."""
        return self.inner.examples(texts, tokenizer, max_length)

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """The inner method's."""
        return self.inner.modules(encoder, generator)

    def targets(self, source: Source) -> Targets:
        """The base's vectors of both views of each example, and those of the corpus."""
        if not self.rank_weight or self.base is None:
            return Targets()
        first, second = RANKED[self.inner.name]
        rows = {"base_first": source.vectors(self.base, select=self.select, column=first)}
        if second != first:
            rows["base_second"] = source.vectors(self.base, select=self.select, column=second)
        corpus = source.sample(self.base, select=self.select, size=self.corpus_size, seed=self.corpus_seed)
        return Targets(rows, {"corpus": F.normalize(corpus, dim=-1)})  # once, not in every step

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """The larger of contrast and weighted rank loss (Eq. 5), or their sum."""
        inner = self.inner.loss(encode, batch, modules, targets)
        if not self.rank_weight or inner.views is None:
            return inner
        first = targets["base_first"]
        ranks = rank_similarity(first, targets.get("base_second", first), targets["corpus"], "order", normalise=False)
        rank = rank_loss(ranks, cosine_matrix(*inner.views), self.lower, self.upper)
        contrastive = inner.total
        if self.combination == "sum":
            total = contrastive + self.rank_weight * rank
        else:
            total = combine(contrastive, rank, self.rank_weight)
        chosen = _chosen(ranks, self.lower, self.upper).float().mean()
        won = (self.rank_weight * rank > contrastive).float()
        terms = {**inner.terms, "rank": rank, "share_chosen": chosen, "share_rank_larger": won}
        return Loss(total, terms, inner.views)


def based(recipe: Recipe, base: Run | Pretrained, select: str) -> Recipe:
    """A published recipe with its base, which is a run of the study at hand, and the paper's weight."""
    method = with_fields(recipe.method, base=base, select=select, rank_weight=0.05)
    return replace(recipe, method=method)


def _recipes(source: str, **fields: Any) -> dict[str, Recipe]:
    # Bases are the study's own runs, so a recipe leaves them out and carries the weight 0 until `based`.
    made = {}
    for name, module in (("simcse", simcse), ("promptbert", promptbert), ("sncse", sncse)):
        base: Recipe = module.PUBLISHED["bert-base-uncased"]
        made[name] = replace(base, method=RankEncoder(inner=base.method, rank_weight=0.0, **fields), source=source)
    return made


_PAPER = _recipes("paper, Section 4.1; batch, rate and epochs as the base's; dev of STS-B and SICK-R")
_SUM = _recipes("released script", corpus_size=10_000, combination="sum", upper=0.9999)
_MAXIMUM = _recipes("released script; dev of STS-B and SICK-R", corpus_size=10_000)
PUBLISHED = {
    **{("paper", base, "bert-base-uncased"): recipe for base, recipe in _PAPER.items()},
    ("released_code", "simcse", "bert-base-uncased"): replace(
        _SUM["simcse"], source="released script; dev of STS-B and SICK-R"
    ),
    ("released_code", "promptbert", "bert-base-uncased"): _MAXIMUM["promptbert"],
    ("released_code", "sncse", "bert-base-uncased"): replace(
        _SUM["sncse"], batch_size=128, source="released script: 128 a device, the loss over the gathered batch"
    ),
}
# Of the 16,384 sentences that there are.
SMALL: dict[str, dict[str, Any]] = {"bert-base-uncased": {"corpus_size": 10_000}}
