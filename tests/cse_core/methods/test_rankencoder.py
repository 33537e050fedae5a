"""RankEncoder's loss against loops from the equations, its limits, and what it asks of its base."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from cse_core.data.batches import pad
from cse_core.functional.rank_vectors import interpolate, pair_rank_similarity, rank_similarity
from cse_core.method import Batch, EncoderRef, Loss, Method, Targets, VectorScorer
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.rankcse import RankCSE
from cse_core.methods.rankencoder import PUBLISHED, RankEncoder, combine, rank_loss, with_base
from cse_core.methods.simcse import SimCSE
from cse_core.methods.sncse import SNCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from cse_core.seeding import generator_for
from tests.support.encoders import wiki_tiny

seeds = st.integers(0, 10_000)
TEXTS = ["a cat sat on a mat", "the river rose", "snow fell", "two old men argued about fish", "no", "x y"]
INNER: dict[str, Method] = {"simcse": SimCSE(), "promptbert": PromptBERT(), "sncse": SNCSE()}
COLUMNS = {"simcse": ["text"], "promptbert": ["first", "second"], "sncse": ["anchor", "positive"]}
BASE = Pretrained("base")
BOUNDED = RankEncoder(base=BASE, corpus_size=40, lower=-0.3, upper=0.4)
torch.set_num_threads(1)


def draw(n: int, d: int, seed: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.integers(2, 6), seeds, st.sampled_from([(0.5, 0.8), (-0.2, 0.3), (-1.0, 1.0)]))
def test_the_rank_loss_is_the_equation(n: int, seed: int, bounds: tuple[float, float]) -> None:
    ranks, student = draw(n, n, seed).tanh(), draw(n, n, seed + 1).tanh()
    r, s = ranks.tolist(), student.tolist()
    squares = [(r[i][j] - s[i][j]) ** 2 for i in range(n) for j in range(n) if bounds[0] <= r[i][j] <= bounds[1]]
    expected = sum(squares) / len(squares) if squares else 0
    assert rank_loss(ranks, student, *bounds).item() == pytest.approx(expected, rel=1e-7)


def test_the_bounds_of_the_rank_loss_belong_to_it() -> None:
    ranks = torch.tensor([[0.5, 0.75], [0.4999, 0.7501]], dtype=torch.float64)
    student = torch.tensor([[0.0, 1.75], [9.0, 9.0]], dtype=torch.float64)
    assert rank_loss(ranks, student, 0.5, 0.75).item() == pytest.approx((0.25 + 1) / 2)


def test_no_pair_between_the_bounds_is_no_loss_and_no_gradient() -> None:
    student = draw(4, 4, 0).requires_grad_()
    loss = rank_loss(torch.full((4, 4), 0.9, dtype=torch.float64), student, 0.5, 0.8)
    loss.backward()
    assert loss.item() == 0
    assert student.grad is not None
    assert student.grad.tolist() == [[0.0] * 4] * 4


@pytest.mark.parametrize("size", [2, 10, 100, 1000])
def test_without_the_filter_it_is_the_mean_over_all_pairs_the_diagonal_included(size: int) -> None:
    """Eq. 4: in single precision too, where a ranking's product with itself may come out above 1."""
    a, corpus = draw(20, 8, 0).float(), draw(size, 8, 1).float()
    for ties in ("order", "average"):
        ranks, student = rank_similarity(torch.cat([a, -a]), torch.cat([a, a]), corpus, ties), draw(40, 40, 2).float()
        assert rank_loss(ranks, student, -1.0, 1.0).item() == pytest.approx((ranks - student).square().mean().item())
        assert pair_rank_similarity(a, a, corpus, ties).max() <= 1
        assert ranks.diagonal()[:20].tolist() == pytest.approx([1] * 20, abs=1e-5)


def test_only_the_student_has_a_gradient() -> None:
    a, b, corpus = (draw(n, 3, n).requires_grad_() for n in (4, 4, 9))
    for ties in ("order", "average"):
        ranks = rank_similarity(a, b, corpus, ties)
        assert not ranks.requires_grad
        student = draw(4, 4, 7).requires_grad_()
        rank_loss(ranks, student, -1.0, 1.0).backward()
        assert student.grad is not None
        assert torch.allclose(student.grad, 2 * (student.detach() - ranks) / 16)


@given(st.floats(0, 9), st.floats(0, 9), st.floats(0, 2))
def test_only_the_larger_term_gets_a_gradient(first: float, second: float, weight: float) -> None:
    contrastive, rank = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (first, second))
    total = combine(contrastive, rank, weight)
    total.backward()
    assert total.item() == max(weight * second, first)
    won = weight * second > first  # equal terms: the contrast's
    assert contrastive.grad is not None
    assert rank.grad is not None
    assert (contrastive.grad.item(), rank.grad.item()) == ((0, weight) if won else (1, 0))


def test_of_equal_terms_the_contrast_gets_the_gradient() -> None:
    contrastive, rank = (torch.tensor(value, requires_grad=True) for value in (1.0, 4.0))
    found = torch.autograd.grad(combine(contrastive, rank, 0.25), (contrastive, rank))
    assert [grad.item() for grad in found] == [1, 0]


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 1))
def test_interpolation_is_a_weighted_mean(rank: float, cosine: float, weight: float) -> None:
    r, c = (torch.tensor([value, 0.0], dtype=torch.float64) for value in (rank, cosine))
    assert interpolate(r, c, weight).tolist() == pytest.approx([weight * rank + (1 - weight) * cosine, 0], abs=1e-12)
    assert torch.equal(interpolate(r, c, 1.0), r)
    assert torch.equal(interpolate(r, c, 0.0), c)


class Known:
    """A base whose vectors follow from what is asked, and a record of what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple] = []
        self.given: list[torch.Tensor] = []

    def vectors(
        self, encoder: EncoderRef, *, select: str, column: str | None = None, scorer: VectorScorer | None = None
    ) -> torch.Tensor:
        self.asked.append((encoder, select, column))
        return self._draw(len(TEXTS), 0, f"{select}/{column}")

    def sample(self, encoder: EncoderRef, *, select: str, size: int, seed: int) -> torch.Tensor:
        self.asked.append((encoder, select, size, seed))
        return self._draw(size, seed, select)

    def _draw(self, n: int, seed: int, stream: str) -> torch.Tensor:
        self.given.append(torch.randn(n, 16, generator=generator_for(seed, stream)).requires_grad_())
        return self.given[-1]


@pytest.fixture(scope="module")
def encoders() -> dict[str, Encoder]:
    encoder = wiki_tiny(dropout=0.3)
    templates = {name: getattr(inner, "first", "") for name, inner in INNER.items()}
    return {name: encoder.with_pooling("mask" if template else "cls", template) for name, template in templates.items()}


def trained(method: Method, encoder: Encoder, source: Known | None = None) -> tuple[Loss, Targets]:
    """The loss of one batch of all texts in an order of its own, with a dropout that is always the same."""
    rows = torch.tensor([3, 0, 5, 1, 4, 2])
    columns = method.examples(TEXTS, encoder.tokenizer, 32)
    tokens = {name: pad([ids[row] for row in rows], encoder.pad_id) for name, ids in columns.items()}
    targets, modules = method.targets(source or Known()), method.modules(encoder, torch.Generator().manual_seed(2))
    encoder.train()
    torch.manual_seed(3)
    batch = Batch(rows, tokens, torch.Generator().manual_seed(1))
    at = targets.at(rows, encoder.device)
    return method.loss(encoder, batch, modules, at), Targets(at)


def cosines(a: torch.Tensor, b: torch.Tensor) -> list[list[float]]:
    def cosine(x: Sequence[float], y: Sequence[float]) -> float:
        return math.fsum(p * q for p, q in zip(x, y, strict=True)) / math.hypot(*x) / math.hypot(*y)

    return [[cosine(x, y) for y in b.detach().double().tolist()] for x in a.detach().double().tolist()]


def terms_by_loops(inner: Loss, targets: Targets) -> tuple[float, float, float]:
    """InfoNCE of the views, the rank loss (Eq. 6), and the share of pairs that count."""
    assert inner.views is not None
    student, n = cosines(*inner.views), len(TEXTS)
    chances = [[math.exp(c / 0.05) for c in row] for row in student]
    contrast = -sum(math.log(chances[i][i] / sum(chances[i])) for i in range(n)) / n
    first = targets.rows["base_first"]
    lists = [cosines(side, targets.rows["corpus"]) for side in (first, targets.rows.get("base_second", first))]
    squares = []
    for i in range(n):
        for j in range(n):
            rho = float(spearmanr(lists[0][i], lists[1][j]).statistic)
            if BOUNDED.lower <= rho <= BOUNDED.upper:
                squares.append((rho - student[i][j]) ** 2)
    return contrast, sum(squares) / len(squares), len(squares) / n**2


@pytest.mark.parametrize("combination", ["maximum", "sum"])
@pytest.mark.parametrize("weight", [0.05, 500.0])
@pytest.mark.parametrize("name", INNER)
def test_the_loss_is_the_equation(name: str, weight: float, combination: str, encoders: dict[str, Encoder]) -> None:
    method = replace(BOUNDED, inner=INNER[name], rank_weight=weight, combination=combination)
    loss, targets = trained(method, encoders[name])
    inner, _ = trained(INNER[name], encoders[name])
    contrast, rank, share = terms_by_loops(inner, targets)
    assert inner.terms["contrastive"].item() == pytest.approx(contrast, rel=1e-5)
    alone = contrast + (1e-3 * inner.terms["margin"].item() if name == "sncse" else 0)
    total = max(weight * rank, alone) if combination == "maximum" else alone + weight * rank
    assert loss.total.item() == pytest.approx(total, rel=1e-5)
    assert 0.2 < share < 0.8
    assert {name: loss.terms[name].item() for name in loss.terms.keys() - inner.terms.keys()} == {
        "rank": pytest.approx(rank, rel=1e-5),
        "share_chosen": pytest.approx(share),
        "share_rank_larger": float(weight > 1),
    }
    assert all(torch.equal(loss.terms[term], inner.terms[term]) for term in inner.terms)
    assert loss.views is not None
    assert inner.views is not None
    assert all(torch.equal(*sides) for sides in zip(loss.views, inner.views, strict=True))


@pytest.mark.parametrize("name", INNER)
def test_without_weight_it_is_the_inner_method_bit_for_bit(name: str, encoders: dict[str, Encoder]) -> None:
    encoder, inner = encoders[name], INNER[name]
    for null in (RankEncoder(inner=inner, rank_weight=0.0), RankEncoder(base=BASE, inner=inner, rank_weight=0.0)):
        (found, targets), (expected, _) = trained(null, encoder), trained(inner, encoder)
        assert torch.equal(found.total, expected.total)
        assert found.terms == expected.terms
        assert not targets.rows
        assert null.examples(TEXTS, encoder.tokenizer, 32) == inner.examples(TEXTS, encoder.tokenizer, 32)


@pytest.mark.parametrize("name", INNER)
def test_the_base_ranks_the_two_sides_of_the_contrast(name: str) -> None:
    source, columns = Known(), COLUMNS[name]
    method = RankEncoder(base=BASE, select="last", inner=INNER[name], corpus_size=30, corpus_seed=7)
    targets = method.targets(source)
    assert source.asked == [*((BASE, "last", column) for column in columns), (BASE, "last", 30, 7)]
    assert list(targets.rows) == ["base_first", "base_second"][: len(columns)]
    assert all(value is given for value, given in zip(targets.rows.values(), source.given[:-1], strict=True))
    assert torch.equal(targets.shared["corpus"], F.normalize(source.given[-1], dim=-1))
    assert list(targets.shared) == ["corpus"]


@pytest.mark.parametrize("combination", ["maximum", "sum"])
def test_the_gradient_is_that_of_the_terms_and_no_base_gets_one(combination: str, encoders: dict[str, Encoder]) -> None:
    source = Known()
    method = replace(BOUNDED, inner=PromptBERT(), rank_weight=500.0, combination=combination)
    loss, _ = trained(method, encoders["promptbert"], source)
    assert loss.views is not None
    rank, contrast, found = (
        torch.stack(torch.autograd.grad(term, loss.views, retain_graph=True))
        for term in (500 * loss.terms["rank"], loss.terms["contrastive"], loss.total)
    )
    expected = rank if combination == "maximum" else rank + contrast
    assert (found - expected).norm() < 1e-5 * expected.norm() < 1e-2 * contrast.norm()
    loss.total.backward()
    assert [given.grad for given in source.given] == [None] * 3


def test_a_base_that_is_a_run_is_trained_first() -> None:
    base = Run(method=SimCSE(), backbone=Pretrained("wiki-tiny"), corpus=Corpus("synthetic", 9))
    run = replace(base, method=RankEncoder(base=base, select="avg"))
    assert run.nested_checkpoints() == ((base, "avg"),)


def test_published_settings_are_the_papers_and_the_scripts() -> None:
    for base, batch_size, learning_rate in (("simcse", 64, 3e-5), ("promptbert", 256, 1e-5), ("sncse", 256, 1e-5)):
        paper, released = (PUBLISHED[source, base, "bert-base-uncased"] for source in ("paper", "released_code"))
        summed = base != "promptbert"
        for recipe, size, upper, combination in (
            (paper, 100_000, 0.8, "maximum"),
            (released, 10_000, 0.9999 if summed else 0.8, "sum" if summed else "maximum"),
        ):
            batch = 128 if (recipe, base) == (released, "sncse") else batch_size
            assert (recipe.batch_size, recipe.learning_rate, recipe.epochs) == (batch, learning_rate, 1)
            method = with_base(recipe, BASE, "stsb_dev").method
            assert isinstance(method, RankEncoder)
            assert method.inner.name == base
            assert method == RankEncoder(
                base=BASE, inner=method.inner, corpus_size=size, rank_weight=0.05, lower=0.5, upper=upper,
                combination=combination,
            )  # fmt: skip
            assert (recipe.pooling, recipe.template) == (
                ("cls", "") if base == "simcse" else ("mask", getattr(method.inner, "first", None))
            )
    assert len(PUBLISHED) == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank_weight": -0.1}, "rank_weight must be zero or positive, got -0.1"),
        ({"rank_weight": math.nan}, "rank_weight must be zero or positive, got nan"),
        ({"base": None}, "a rank_weight above 0 needs a base encoder, got none"),
        ({"corpus_size": 1}, "corpus_size must be at least 2, got 1"),
        ({"lower": 0.8}, "-1 <= lower < upper <= 1, got 0.8 and 0.8"),
        ({"lower": -1.1}, "-1 <= lower < upper <= 1, got -1.1 and 0.8"),
        ({"upper": 1.1}, "-1 <= lower < upper <= 1, got 0.5 and 1.1"),
        ({"combination": "mean"}, "combination must be one of maximum, sum, got 'mean'"),
        ({"inner": RankCSE(distillation_weight=0.0)}, "inner must be one of simcse, promptbert, sncse, got 'rankcse'"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(RankEncoder(base=BASE), **changes)
