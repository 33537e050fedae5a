"""How methods hand their pieces on: gradients into both sides, the step's own generator, ranks as training has them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor, nn

from cse_core.method import Batch, Method, Tokens
from cse_core.methods.rankcse import RankCSE, Teacher, consistency
from cse_core.methods.rankencoder import RankEncoder
from cse_core.run import Pretrained

TEACHER = Teacher(Pretrained("wiki-tiny"))
HEAD = nn.ModuleDict({"head": nn.Identity()})


def vectors(n: int, d: int, seed: int) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Views:
    """An encoder whose two views are given."""

    def __init__(self, *views: Tensor) -> None:
        self.views = views

    def __call__(self, *tokens: Tokens) -> tuple[Tensor, ...]:
        assert len(tokens) == len(self.views)
        return self.views

    still = __call__

    def states(self, tokens: Tokens) -> Tensor:
        raise AssertionError("not asked for")


def batch(n: int, seed: int = 0) -> Batch:
    tokens = Tokens(torch.zeros(n, 3, dtype=torch.long), torch.ones(n, 3, dtype=torch.bool))
    return Batch(torch.arange(n), {"text": tokens}, torch.Generator().manual_seed(seed))


def loss(method: Method, views: tuple[Tensor, Tensor], targets: Mapping[str, Tensor], seed: int = 0) -> Any:
    return method.loss(Views(*views), batch(len(views[0]), seed), HEAD, targets)


def test_the_consistency_terms_gradient_is_its_closed_form() -> None:
    """dJS/dlogits of P is P (log P/M - KL(P|M)) / 2n, of Q the same, and Q's logits are the transpose's."""
    similarity = (0.3 * vectors(5, 5, 1)).requires_grad_()
    temperature, n = 0.2, 5
    consistency(similarity, temperature).backward()
    s = similarity.detach().numpy()
    p, q = (np.exp(x / temperature) / np.exp(x / temperature).sum(1, keepdims=True) for x in (s, s.T))
    m = (p + q) / 2

    def side(x: np.ndarray) -> np.ndarray:
        ratio = np.log(x / m)
        return x * (ratio - (x * ratio).sum(1, keepdims=True)) / (2 * n * temperature)

    assert similarity.grad is not None
    assert similarity.grad.numpy() == pytest.approx(side(p) + side(q).T, abs=1e-12)
    assert np.abs(side(p)).max() > 1e-3
    assert np.abs(side(q)).max() > 1e-3


TERMS = {
    "contrastive": RankCSE(consistency_weight=0.0, distillation_weight=0.0),
    "consistency": RankCSE(contrastive_weight=0.0, distillation_weight=0.0),
    "consistency, released": RankCSE(contrastive_weight=0.0, distillation_weight=0.0, variant="released_code"),
    **{
        rank: RankCSE(
            teachers=(TEACHER,), rank=rank, contrastive_weight=0.0, consistency_weight=0.0, student_temperature=0.3
        )
        for rank in ("list_net", "list_mle", "mse")
    },
    "shuffled": RankCSE(teachers=(TEACHER,), rank="mse", teacher_order="shuffled"),
    "all": RankCSE(teachers=(TEACHER,), student_temperature=0.2, teacher_temperature=0.1),
    "rankencoder, maximum": RankEncoder(base=TEACHER.encoder, rank_weight=50.0, lower=-1.0, upper=0.99),
    "rankencoder, sum": RankEncoder(
        base=TEACHER.encoder, rank_weight=3.0, lower=-1.0, upper=0.99, combination="sum", corpus_size=8
    ),
}


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.slow
def test_every_terms_gradient_reaches_both_views(name: str) -> None:
    """By finite differences: a side that is cut off would differ from them."""
    targets = {
        "teacher_0": vectors(4, 3, 3).float(),
        "base_first": vectors(4, 3, 4).float(),
        "corpus": F.normalize(vectors(8, 3, 5).float(), dim=-1),
    }
    if name.startswith("rankencoder"):  # ranks are floats of the precision of what is ranked
        targets = {key: value.double() for key, value in targets.items()}
    views = tuple(vectors(4, 3, seed).requires_grad_() for seed in (1, 2))
    assert torch.autograd.gradcheck(lambda *both: loss(TERMS[name], both, targets).total, views, atol=1e-6)
    grads = torch.autograd.grad(loss(TERMS[name], views, targets).total, views)  # ty: ignore[invalid-argument-type]
    assert min(grad.abs().max().item() for grad in grads) > 1e-4


TIED = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])  # two groups of equal sentences


def plackett_luce(student: np.ndarray, teacher: np.ndarray, seed: int) -> float:
    """One order of columns a batch, drawn from the step's generator; then a stable sort by the teacher, high to low."""
    n, total = len(student), 0.0
    shuffle = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()
    for i in range(n):
        order = sorted(shuffle, key=lambda j: -teacher[i, j])
        scores = [student[i, j] for j in order]
        total += sum(np.log(np.exp(scores[k:]).sum()) - scores[k] for k in range(n))
    return total / n


def test_equal_teacher_scores_are_ordered_by_the_steps_own_generator() -> None:
    method = RankCSE(
        teachers=(TEACHER,), rank="list_mle", contrastive_weight=0.0, consistency_weight=0.0, student_temperature=0.5
    )
    views = (vectors(5, 3, 1), vectors(5, 3, 2))
    student = (F.normalize(views[0], dim=-1) @ F.normalize(views[1], dim=-1).T).numpy() / 0.5
    found = {}
    for seed in (0, 1):
        torch.manual_seed(10 + seed)  # of no weight
        found[seed] = loss(method, views, {"teacher_0": TIED}, seed).total.item()
        torch.manual_seed(20 + seed)
        assert loss(method, views, {"teacher_0": TIED}, seed).total.item() == found[seed]
        assert found[seed] == pytest.approx(plackett_luce(student, (TIED @ TIED.T).numpy(), seed), rel=1e-6)
    assert found[0] != pytest.approx(found[1], rel=1e-3)


def test_shuffled_teachers_are_shuffled_by_the_steps_own_generator() -> None:
    method = RankCSE(teachers=(TEACHER,), rank="mse", teacher_order="shuffled")
    views, targets = (vectors(5, 3, 1), vectors(5, 3, 2)), {"teacher_0": vectors(5, 3, 3).float()}
    found = {}
    for seed in (0, 1):
        torch.manual_seed(10 + seed)
        found[seed] = loss(method, views, targets, seed).terms["rank"].item()
        torch.manual_seed(20 + seed)
        assert loss(method, views, targets, seed).terms["rank"].item() == found[seed]
    assert found[0] != pytest.approx(found[1], rel=1e-3)


def spearman_in_order(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rho of two lists whose equal entries have different ranks, by their places."""
    a, b = (np.argsort(np.argsort(x, kind="stable"), kind="stable").astype(float) for x in (first, second))
    return float(np.corrcoef(a, b)[0, 1])


def test_training_ranks_equal_corpus_sentences_by_their_places() -> None:
    """Argsort of argsort in training, average ranks at inference. The corpus has two sentences twice.

    Signs over whole numbers: products are exact, so that equal sentences are so to the bit on any machine.
    """
    base = torch.tensor([[1, 1, 1, 1], [1, -1, 1, 1], [1, 1, -1, 1], [1, -1, -1, 1]], dtype=torch.float64)
    distinct = torch.randint(-20, 20, (6, 4), generator=torch.Generator().manual_seed(5)).double()
    corpus = torch.cat([distinct, distinct[[0, 3]]])
    method = RankEncoder(base=TEACHER.encoder, corpus_size=8, lower=-1.0, upper=0.999, combination="sum")
    views = (vectors(4, 3, 1), vectors(4, 3, 2))
    found = loss(method, views, {"base_first": base, "corpus": corpus}).terms["rank"].item()
    cosines = (base / 2 @ corpus.T).numpy()
    student = (F.normalize(views[0], dim=-1) @ F.normalize(views[1], dim=-1).T).numpy()
    rho = np.array([[spearman_in_order(a, b) for b in cosines] for a in cosines])
    chosen = rho <= 0.999
    assert chosen.sum() == 12
    expected = (rho - student)[chosen] ** 2
    assert found == pytest.approx(expected.mean(), rel=1e-6)


def test_both_ends_of_the_filter_are_rankencoders_own() -> None:
    """Only pairs with tau_l <= R <= tau_u count, and their share is logged."""
    targets = {"base_first": vectors(6, 3, 4), "corpus": F.normalize(vectors(9, 3, 5), dim=-1)}
    views = (vectors(6, 3, 1), vectors(6, 3, 2))
    cosines = (F.normalize(targets["base_first"], dim=-1) @ targets["corpus"].T).numpy()
    rho = np.array([[spearman_in_order(a, b) for b in cosines] for a in cosines])
    student = (F.normalize(views[0], dim=-1) @ F.normalize(views[1], dim=-1).T).numpy()
    low, high = np.quantile(rho[~np.eye(6, dtype=bool)], [0.3, 0.7]).tolist()
    shares = set()
    for lower, upper in ((-1.0, high), (low, high), (low, 0.999)):
        chosen = (rho >= lower) & (rho <= upper)
        method = RankEncoder(base=TEACHER.encoder, corpus_size=9, lower=lower, upper=upper)
        terms = loss(method, views, targets).terms
        assert terms["rank"].item() == pytest.approx(((rho - student)[chosen] ** 2).mean(), rel=1e-6)
        assert terms["share_chosen"].item() == pytest.approx(chosen.mean())
        shares.add(float(chosen.mean()))
    assert len(shares) == 3
    assert 0 < min(shares) < max(shares) < 1
