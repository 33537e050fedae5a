"""RankCSE (Liu et al., ACL 2023): SimCSE that also learns to rank the batch as its teachers do.

L = L_contrastive + beta L_consistency + gamma L_rank (Eq. 6), with the student's S[i, j] = cos(z1_i, z2_j):
- contrastive: InfoNCE at tau1 (Eq. 1);
- consistency: Jensen-Shannon divergence between the rankings of the two views, S and its transpose (Eq. 2);
- rank: ListNet (Eq. 4) or ListMLE (Eq. 5) against the teachers' mixed cosines T.

Relations: SimCSE with both weights 0. ListNet is distillation of the in-batch softmax without the positive; ListMLE is
the Plackett-Luce likelihood of the teacher's order, so it uses no teacher temperature.
Two controls ask whether ranking is what helps: `rank="mse"` distils the cosines themselves, and
`teacher_order="shuffled"` keeps each teacher's cosines but permutes which sentences they refer to.
Paper against the community code, perceptiveshawty/RankCSE, which `variant="released_code"` follows:
- its Jensen-Shannon term clamps the log of the mixture at +1e-7, which a log-probability never reaches. So the term is
  minus the mean entropy of the two rankings;
- beta is never read; tau2 and tau3 do not reach the student, which stays at tau1 (ListNet's teacher gets tau2);
- ListMLE adds 1e-7 inside the logarithm after the row's maximum is taken out; teachers' cosines are half precision.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Float
from torch import Tensor, nn

from cse_core.functional.contrastive import cosine_matrix, info_nce, without_diagonal
from cse_core.graph import rand, randperm
from cse_core.lookup import check_choices
from cse_core.method import Batch, Encode, Loss, Recipe, Source, Targets, VectorScorer, check, single_column, tanh_head
from cse_core.run import Pretrained, Run
from cse_core.space import Space

Rank = Literal["list_net", "list_mle", "mse"]


def consistency(similarity: Float[Tensor, "n n"], temperature: float) -> Float[Tensor, ""]:
    """Return the mean Jensen-Shannon divergence between the rows of softmax(S/t) and softmax(S.T/t), in nats (Eq. 2).

    JS(P, Q) = 1/2 sum P (log P - log M) + 1/2 sum Q (log Q - log M), M = (P + Q)/2; the positive is on both lists.
    Gradient flows into both sides. Lies in [0, log 2].

    >>> consistency(torch.tensor([[1.0, 0.9], [0.1, 1.0]]), temperature=0.5)
    tensor(0.0592)
    """
    log_p, log_q = (s.log_softmax(-1) for s in (similarity / temperature, similarity.T / temperature))
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    divergence = log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)
    return divergence.sum(-1).mean() / 2


def consistency_released(similarity: Float[Tensor, "n n"], temperature: float) -> Float[Tensor, ""]:
    """Return the community code's term: minus the mean entropy of the two rankings, in nats."""
    log_p, log_q = (s.log_softmax(-1) for s in (similarity / temperature, similarity.T / temperature))
    return ((log_p.exp() * log_p).sum(-1) + (log_q.exp() * log_q).sum(-1)).mean() / 2


def list_net(
    student: Float[Tensor, "n n"], teacher: Float[Tensor, "n n"], student_temperature: float, teacher_temperature: float
) -> Float[Tensor, ""]:
    """Return the cross-entropy of in-batch softmaxes without the positive, in nats (Eq. 4, footnote 1).

    L = -1/n sum_i sum_{j != i} softmax(T_i/t3)_j log softmax(S_i/t2)_j, both over the n - 1 other sentences.

    >>> undecided, teacher = torch.zeros(3, 3), torch.tensor([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]])
    >>> list_net(undecided, teacher, 0.05, 0.05)  # log 2: two others, equally likely
    tensor(0.6931)
    """
    if len(teacher) < 3:
        raise ValueError(f"a list without the positive needs at least three sentences, got {len(teacher)}")
    target = (_off_diagonal(teacher) / teacher_temperature).softmax(-1)
    return -(target * (_off_diagonal(student) / student_temperature).log_softmax(-1)).sum(-1).mean()


def list_mle(
    student: Float[Tensor, "n k"],
    teacher: Float[Tensor, "n k"],
    temperature: float,
    generator: torch.Generator | None = None,
    *,
    reduction: str = "sum",
    epsilon: float = 0.0,
) -> Float[Tensor, ""]:
    """Return -log likelihood of the teacher's order under the student's scores, Plackett-Luce, in nats (Eq. 5).

    L = 1/n sum_i sum_k ( logsumexp_{l >= k} S_i,pi(l)/t - S_i,pi(k)/t ), pi sorting T_i from high to low, the positive
    included. Equal teacher scores are ordered at random in every batch. `reduction="mean"` divides by the list's
    length; `epsilon` is the community code's 1e-7 inside the logarithm.

    >>> list_mle(torch.zeros(1, 3), torch.tensor([[1.0, 0.9, 0.1]]), 0.05)  # log 3!: all orders are equally likely
    tensor(1.7918)
    """
    shuffle = randperm(student.shape[1], generator=generator, device=student.device)
    order = teacher[:, shuffle].argsort(dim=1, descending=True, stable=True)
    scores = (student / temperature)[:, shuffle].gather(1, order)
    scores = scores - scores.max(dim=1, keepdim=True).values
    if epsilon:
        tail = torch.log(scores.exp().flip(1).cumsum(1).flip(1) + epsilon)
    else:
        tail = scores.flip(1).logcumsumexp(1).flip(1)
    per_item = (tail - scores).mean(0)
    return per_item.sum() if reduction == "sum" else per_item.mean()


def squared_error(student: Float[Tensor, "n n"], teacher: Float[Tensor, "n n"]) -> Float[Tensor, ""]:
    """Return the mean squared difference of the cosines, 1/(n(n-1)) sum_{i != j} (S_ij - T_ij)^2: plain distillation.

    It ranks no list, so it has no temperature and no order. Not in the paper: a control.
    """
    return (_off_diagonal(student) - _off_diagonal(teacher)).square().mean()


def shuffle_others(teacher: Float[Tensor, "n n"], generator: torch.Generator) -> Float[Tensor, "n n"]:
    """Permute each row's entries off the diagonal at random; the positive stays.

    A row's softmax keeps its values, and so its entropy, and loses its ranking. Not in the paper: a control.
    """
    n, others = len(teacher), _off_diagonal(teacher)
    order = rand(n, n - 1, generator=generator, device=generator.device).argsort(1)
    off_diagonal = ~torch.eye(n, dtype=torch.bool, device=teacher.device)
    return teacher.masked_scatter(off_diagonal, others.gather(1, order))


def mix_teachers(similarities: Sequence[Float[Tensor, "n n"]], weights: Sequence[float]) -> Float[Tensor, "n n"]:
    """Return the weighted mean of the teachers' cosines, before any temperature; weights are shares and add up to 1."""
    if len(similarities) != len(weights) or not weights:
        raise ValueError(f"mix_teachers needs one weight a teacher, got {len(weights)} for {len(similarities)}")
    if min(weights) < 0 or not abs(sum(weights) - 1) <= 1e-6:
        raise ValueError(f"teachers' weights must not be negative and add up to 1, got {list(weights)}")
    return torch.stack([w * s for w, s in zip(weights, similarities, strict=True)]).sum(0)


def _off_diagonal(similarity: Float[Tensor, "n n"]) -> Float[Tensor, "n n-1"]:
    n = len(similarity)
    if n < 2:
        raise ValueError(f"cosines with other sentences need at least two sentences, got {n}")
    return without_diagonal(similarity)


@dataclass(frozen=True)
class Teacher:
    """A fixed encoder whose in-batch cosines are the target, its weight in the mix, and its checkpoint's rule.

    With a scorer, the target is that scorer's similarity, for example of whitened vectors or of ranks in a corpus.
    """

    encoder: Run | Pretrained
    weight: float = 1.0
    select: str = "stsb_dev"
    scorer: VectorScorer | None = None


@dataclass(frozen=True, kw_only=True)
class RankCSE:
    """Temperatures are the paper's tau1, tau2, tau3; a weight of 0 leaves its term out (the ablations of Table 4)."""

    name: ClassVar[str] = "rankcse"
    version: ClassVar[int] = 1
    space: ClassVar[Space] = {
        "rank": ("list_net", "list_mle"),
        "student_temperature": (0.00625, 0.0125, 0.025, 0.05),
        "teacher_temperature": (0.0125, 0.025, 0.05, 0.1),
        "distillation_weight": (0.1, 1.0),
        "list_reduction": ("sum", "mean"),
    }
    leaves_out_duplicates: ClassVar[bool] = True

    teachers: tuple[Teacher, ...] = ()
    rank: Rank = "list_net"  # "mse" uses no temperature
    temperature: float = 0.05  # tau1
    student_temperature: float = 0.025  # tau2
    teacher_temperature: float | None = 0.0125  # tau3, ListNet only
    contrastive_weight: float = 1.0
    consistency_weight: float = 1.0  # beta
    distillation_weight: float = 1.0  # gamma
    list_reduction: Literal["sum", "mean"] = "sum"  # ListMLE only: over the list; always a mean over the batch
    variant: Literal["paper", "released_code"] = "paper"
    teacher_order: Literal["given", "shuffled"] = "given"  # "shuffled": a sentence's cosines in a random order

    examples = single_column
    modules = tanh_head
    recipes = staticmethod(lambda: PUBLISHED)  # by rank loss and backbone

    def __post_init__(self) -> None:
        for name in ("temperature", "student_temperature"):
            check(name, getattr(self, name), lambda t: t > 0, "positive")
        for name in ("contrastive_weight", "consistency_weight", "distillation_weight"):
            check(name, getattr(self, name), lambda w: w >= 0, "zero or positive")
        check_choices(self)
        if self.rank == "list_net" and not (self.teacher_temperature and self.teacher_temperature > 0):
            raise ValueError(f"list_net needs a positive teacher_temperature, got {self.teacher_temperature}")
        if self.distillation_weight and not self.teachers:
            raise ValueError("a distillation_weight above 0 needs at least one teacher, got none")
        if not (self.contrastive_weight or self.consistency_weight or self.distillation_weight):
            raise ValueError("all three weights are 0: nothing to train on")
        if self.teachers:
            mix_teachers([torch.eye(1)] * len(self.teachers), [t.weight for t in self.teachers])

    def targets(self, source: Source) -> Targets:
        """Return each teacher's vectors of all examples."""
        used = self.teachers if self.distillation_weight else ()
        vectors = [source.vectors(teacher.encoder, select=teacher.select, scorer=teacher.scorer) for teacher in used]
        return Targets({f"teacher_{i}": of_examples for i, of_examples in enumerate(vectors)})

    def loss(self, encode: Encode, batch: Batch, modules: nn.ModuleDict, targets: Mapping[str, Tensor]) -> Loss:
        """Return the weighted sum of the terms that have a weight (Eq. 6), in nats; `mse` is a squared error."""
        z1, z2 = (modules["head"](h) for h in encode(batch["text"], batch["text"]))
        released = self.variant == "released_code"
        weights = {
            "contrastive": self.contrastive_weight,
            "consistency": 1.0 if released and self.consistency_weight else self.consistency_weight,
            "rank": self.distillation_weight,
        }
        terms: dict[str, Tensor] = {}
        if weights["contrastive"]:
            terms["contrastive"] = info_nce(z1, z2, self.temperature, left_out=batch.duplicates)
        if weights["consistency"] or weights["rank"]:
            similarity = cosine_matrix(z1, z2)
        if weights["consistency"]:
            terms["consistency"] = (consistency_released if released else consistency)(similarity, self.temperature)
        if weights["rank"]:
            terms["rank"] = self._rank_loss(similarity, self._teacher_similarity(targets), batch.generator)
        total = sum((weights[name] * term for name, term in terms.items()), torch.zeros_like(z1[0, 0]))
        return Loss(total, terms, (z1, z2))

    def _teacher_similarity(self, targets: Mapping[str, Tensor]) -> Float[Tensor, "n n"]:
        vectors = [targets[f"teacher_{i}"] for i in range(len(self.teachers))]
        if self.variant == "released_code":
            vectors = [F.normalize(v, dim=-1).half() for v in vectors]
        mixed = mix_teachers([cosine_matrix(v, v) for v in vectors], [t.weight for t in self.teachers])
        return mixed.float()

    def _rank_loss(
        self, student: Float[Tensor, "n n"], teacher: Float[Tensor, "n n"], generator: torch.Generator
    ) -> Float[Tensor, ""]:
        released = self.variant == "released_code"
        if self.teacher_order == "shuffled":
            teacher = shuffle_others(teacher, generator)
        if self.rank == "mse":
            return squared_error(student, teacher)
        student_temperature = self.temperature if released else self.student_temperature
        if self.rank == "list_mle":
            epsilon = 1e-7 if released else 0.0
            return list_mle(
                student, teacher, student_temperature, generator, reduction=self.list_reduction, epsilon=epsilon
            )
        teacher_temperature = self.student_temperature if released else self.teacher_temperature
        return list_net(student, teacher, student_temperature, float(teacher_temperature or 0))


def _recipe(rank: Rank, learning_rate: float, tau2: float, tau3: float | None) -> Recipe:
    # Teachers are a study's own runs, so the recipe leaves them out, with the weight 0.
    method = RankCSE(rank=rank, student_temperature=tau2, teacher_temperature=tau3, distillation_weight=0.0)
    return Recipe(
        method, batch_size=128, epochs=4, warmup=0.05, learning_rate=learning_rate, source="paper, Table 9 and App. B"
    )


PUBLISHED = {
    ("list_net", "bert-base-uncased"): _recipe("list_net", 3e-5, 0.025, 0.0125),
    ("list_mle", "bert-base-uncased"): _recipe("list_mle", 2e-5, 0.05, None),
    ("list_net", "bert-large-uncased"): _recipe("list_net", 3e-5, 0.05, 0.025),
    ("list_mle", "bert-large-uncased"): _recipe("list_mle", 2e-5, 0.05, None),
    ("list_net", "roberta-base"): _recipe("list_net", 2e-5, 0.05, 0.025),
    ("list_mle", "roberta-base"): _recipe("list_mle", 3e-5, 0.05, None),
    ("list_net", "roberta-large"): _recipe("list_net", 3e-5, 0.025, 0.0125),
    ("list_mle", "roberta-large"): _recipe("list_mle", 3e-5, 0.025, None),
}
