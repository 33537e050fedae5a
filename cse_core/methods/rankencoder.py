"""RankEncoder (Seonwoo et al., ACL 2023): represent a sentence by how it ranks a corpus, and train on these rankings.

A trained base encoder E1 ranks a fixed corpus for each sentence. Rankings are centred and scaled to unit norm, so the
inner product of two sentences is Spearman's rho of their rankings (Eq. 2, 3). A new encoder E2 starts from the plain
backbone and is trained like the base. It is also pulled towards those similarities for the pairs that E1 finds neither
dissimilar nor the same (Eq. 6): L = max(lambda L_rank, L_contrastive) (Eq. 5). At inference rho under E2 is mixed with
E2's cosine (Eq. 7; scorers.Ranked).

Relations: with weight 0 it is `inner` (SimCSE, PromptBERT, SNCSE), bit for bit. L_rank distils similarities by squared
error, where RankCSE distils lists. Two controls: `similarity="centred"` replaces ranks with the cosines to the corpus,
and `start="base"` continues training E1 instead of training a new encoder.
Paper against the released code, yeonsw/RankEncoder:
- its scripts for SimCSE and SNCSE add the weighted rank loss (`combination="sum"`) for pairs up to 0.9999, where the
  paper has the maximum and 0.8. Its script for PromptBERT sets the paper's values, but they never reach the training,
  as it assigns `args` twice. PUBLISHED has both;
- it draws 10,000 corpus sentences, the paper 100,000;
- its inference ranks by inner product with corpus vectors that are not normalised (`normalise=False`);
- the paper writes the contrastive loss as a sum; the code takes the mean, as here: over a batch a sum would nearly
  always be the larger term and the rank loss would have no effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Float
from torch import Tensor, nn

from cse_core.functional.contrastive import cosine_matrix
from cse_core.functional.rank_vectors import rank_similarity
from cse_core.lookup import check_choices
from cse_core.method import Batch, Encode, Loss, Method, Recipe, Source, Targets, check
from cse_core.methods import promptbert, simcse, sncse
from cse_core.methods.simcse import SimCSE
from cse_core.run import Pretrained, Run
from cse_core.space import SCORING_WEIGHT, LogUniform, Space

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SIMCSE = SimCSE()
PAPERS_WEIGHT = 0.05  # lambda_train
# The columns of a method whose sentences the base compares: both views of SimCSE are the same text.
VIEW_COLUMNS = {"simcse": ("text", "text"), "promptbert": ("first", "second"), "sncse": ("anchor", "positive")}


def rank_loss(
    rank_similarity: Float[Tensor, "n n"], student_similarity: Float[Tensor, "n n"], lower: float, upper: float
) -> Float[Tensor, ""]:
    """Return the mean squared difference of rho and cosine over the pairs with lower <= R <= upper, or 0 (Eq. 6)."""
    chosen = _in_band(rank_similarity, lower, upper).to(student_similarity.dtype)
    return ((rank_similarity - student_similarity).square() * chosen).sum() / (chosen.sum() + 1e-8)


def _in_band(similarity: Float[Tensor, "n n"], lower: float, upper: float) -> Tensor:
    return (similarity >= lower) & (similarity <= upper)


def combine(contrastive: Float[Tensor, ""], rank: Float[Tensor, ""], weight: float) -> Float[Tensor, ""]:
    """Return max(weight * rank, contrastive), squared error and nats; only the larger term gets a gradient (Eq. 5)."""
    weighted = weight * rank
    return torch.where(weighted > contrastive, weighted, contrastive)


@dataclass(frozen=True, kw_only=True)
class RankEncoder:
    """`rank_weight` is the paper's lambda_train, `lower` and `upper` are tau_l and tau_u.

    `lower=-1`, `upper=1` turn the filter off (Eq. 4), which costs 0.17 points according to a footnote of the paper.
    """

    name: ClassVar[str] = "rankencoder"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {
        "rank_weight": LogUniform(0.05, 25.0),
        "lower": (0.0, 0.5),
        SCORING_WEIGHT: (0.0, 0.1, 0.2),
    }
    published_scoring_weight: ClassVar[float] = 0.1  # lambda_inf

    base: Run | Pretrained | None = None  # E1
    select: str = "stsb_dev"  # which of the base's checkpoints
    inner: Method = SIMCSE  # how E2 is trained otherwise: like the base
    corpus_size: int = 100_000
    corpus_seed: int = 42
    rank_weight: float = PAPERS_WEIGHT
    lower: float = 0.5
    upper: float = 0.8
    combination: Literal["maximum", "sum"] = "maximum"
    similarity: Literal["rank", "centred"] = "rank"  # to the base; "centred": Pearson's r of cosines to the corpus
    start: Literal["backbone", "base"] = "backbone"  # where E2's weights begin; "base": at the base's checkpoint

    recipes = staticmethod(lambda: PUBLISHED)  # by their source, the base method and backbone

    def __post_init__(self) -> None:
        check("rank_weight", self.rank_weight, lambda w: w >= 0, "zero or positive")
        check("corpus_size", self.corpus_size, lambda n: n >= 2, "at least 2")
        if not -1 <= self.lower < self.upper <= 1:
            raise ValueError(
                f"lower and upper must satisfy -1 <= lower < upper <= 1, got {self.lower} and {self.upper}"
            )
        check_choices(self)
        if self.inner.name not in VIEW_COLUMNS:
            raise ValueError(f"inner must be one of {', '.join(VIEW_COLUMNS)}, got {self.inner.name!r}")
        if self.rank_weight and self.base is None:
            raise ValueError("a rank_weight above 0 needs a base encoder, got none")
        if self.start == "base" and self.base is None:
            raise ValueError("start 'base' needs a base encoder, got none")

    @property
    def starts_from(self) -> tuple[Run | Pretrained, str] | None:
        """The base and its selection rule if training starts from it (see method.starting_encoder); otherwise None."""
        return None if self.start == "backbone" or self.base is None else (self.base, self.select)

    def examples(
        self, texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int
    ) -> dict[str, list[list[int]]]:
        """Return the inner method's examples."""
        return self.inner.examples(texts, tokenizer, max_length)

    def modules(self, encoder: Any, generator: torch.Generator) -> nn.ModuleDict:
        """Return the inner method's modules."""
        return self.inner.modules(encoder, generator)

    def targets(self, source: Source) -> Targets:
        """Return the base's vectors of both views of each example, and of the corpus."""
        if not self.rank_weight or self.base is None:
            return Targets()
        first, second = VIEW_COLUMNS[self.inner.name]
        rows = {"base_first": source.vectors(self.base, select=self.select, column=first)}
        if second != first:
            rows["base_second"] = source.vectors(self.base, select=self.select, column=second)
        corpus = source.sample(self.base, select=self.select, size=self.corpus_size, seed=self.corpus_seed)
        return Targets(rows, {"corpus": F.normalize(corpus, dim=-1)})  # once for all steps

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return the larger of contrast (nats) and weighted rank loss (squared error) (Eq. 5), or their sum."""
        inner = self.inner.loss(encode, batch, modules, targets)
        if not self.rank_weight or inner.views is None:
            return inner
        first = targets["base_first"]
        second, corpus = targets.get("base_second", first), targets["corpus"]
        ranks = rank_similarity(first, second, corpus, "order", normalise=False, similarity=self.similarity)
        rank = rank_loss(ranks, cosine_matrix(*inner.views), self.lower, self.upper)
        contrastive = inner.total
        if self.combination == "sum":
            total = contrastive + self.rank_weight * rank
        else:
            total = combine(contrastive, rank, self.rank_weight)
        chosen = _in_band(ranks, self.lower, self.upper).float().mean()
        won = (self.rank_weight * rank > contrastive).float()
        terms = {**inner.terms, "rank": rank, "share_chosen": chosen, "share_rank_larger": won}
        return Loss(total, terms, inner.views)


def _recipes(source: str, **fields: Any) -> dict[str, Recipe]:
    # Bases are a study's own runs, so a recipe leaves them out, with the weight 0.
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
