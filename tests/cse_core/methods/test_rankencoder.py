"""RankEncoder's loss against loops from the equations, its limits, and what it asks of its base."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from cse_core.functional.rank_vectors import interpolate, pair_rank_similarity, rank_similarity
from cse_core.method import Loss, Method, Targets
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.rankcse import RankCSE
from cse_core.methods.rankencoder import PUBLISHED, RankEncoder, combine, rank_loss
from cse_core.methods.simcse import SimCSE
from cse_core.methods.sncse import SNCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from tests.support.encoders import wiki_tiny
from tests.support.method_oracles import cosine, drawn
from tests.support.method_steps import (
    HEADLESS,
    TEXTS,
    Known,
    Views,
    batch_of,
    blank_batch,
    check_against_loop,
    gradient_of,
    loss_under,
    refuses,
    seeded,
    views_of,
)

seeds = st.integers(0, 10_000)
INNER: dict[str, Method] = {"simcse": SimCSE(), "promptbert": PromptBERT(), "sncse": SNCSE()}
COLUMNS = {"simcse": ["text"], "promptbert": ["first", "second"], "sncse": ["anchor", "positive"]}
BASE = Pretrained("base")
BOUNDED = RankEncoder(base=BASE, corpus_size=40, lower=-0.2, upper=0.3)


@given(st.integers(2, 6), seeds, st.sampled_from([(0.5, 0.8), (-0.2, 0.3), (-1.0, 1.0)]))
def test_the_rank_loss_is_the_equation(n: int, seed: int, bounds: tuple[float, float]) -> None:
    ranks, student = drawn(n, n, seed=seed).tanh(), drawn(n, n, seed=seed + 1).tanh()
    r, s = ranks.tolist(), student.tolist()
    squares = [(r[i][j] - s[i][j]) ** 2 for i in range(n) for j in range(n) if bounds[0] <= r[i][j] <= bounds[1]]
    expected = sum(squares) / len(squares) if squares else 0
    assert rank_loss(ranks, student, *bounds).item() == pytest.approx(expected, rel=1e-7)


def test_the_bounds_of_the_rank_loss_belong_to_it() -> None:
    ranks = torch.tensor([[0.5, 0.75], [0.4999, 0.7501]], dtype=torch.float64)
    student = torch.tensor([[0.0, 1.75], [9.0, 9.0]], dtype=torch.float64)
    assert rank_loss(ranks, student, 0.5, 0.75).item() == pytest.approx((0.25 + 1) / 2)


def test_no_pair_between_the_bounds_is_no_loss_and_no_gradient() -> None:
    student = drawn(4, 4, seed=0).requires_grad_()
    loss = rank_loss(torch.full((4, 4), 0.9, dtype=torch.float64), student, 0.5, 0.8)
    loss.backward()
    assert loss.item() == 0
    assert gradient_of(student).tolist() == [[0.0] * 4] * 4


@pytest.mark.parametrize("size", [2, 10, 100, 1000])
def test_without_the_filter_it_is_the_mean_over_all_pairs_the_diagonal_included(size: int) -> None:
    """Eq. 4: in single precision too, where a ranking's product with itself may come out above 1."""
    a, corpus = drawn(20, 8, seed=0).float(), drawn(size, 8, seed=1).float()
    for ties in ("order", "average"):
        ranks = rank_similarity(torch.cat([a, -a]), torch.cat([a, a]), corpus, ties)
        student = drawn(40, 40, seed=2).float()
        assert rank_loss(ranks, student, -1.0, 1.0).item() == pytest.approx((ranks - student).square().mean().item())
        assert pair_rank_similarity(a, a, corpus, ties).max() <= 1
        assert ranks.diagonal()[:20].tolist() == pytest.approx([1] * 20, abs=1e-5)


def test_only_the_student_has_a_gradient() -> None:
    a, b, corpus = (drawn(n, 3, seed=n).requires_grad_() for n in (4, 4, 9))
    for ties in ("order", "average"):
        ranks = rank_similarity(a, b, corpus, ties)
        assert not ranks.requires_grad
        student = drawn(4, 4, seed=7).requires_grad_()
        rank_loss(ranks, student, -1.0, 1.0).backward()
        assert torch.allclose(gradient_of(student), 2 * (student.detach() - ranks) / 16)


@example(1.0, 4.0, 0.25)  # equal terms
@given(st.floats(0, 9), st.floats(0, 9), st.floats(0, 2))
def test_only_the_larger_term_gets_a_gradient(first: float, second: float, weight: float) -> None:
    contrastive, rank = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (first, second))
    total = combine(contrastive, rank, weight)
    total.backward()
    assert total.item() == max(weight * second, first)
    won = weight * second > first  # of equal terms the contrast has the gradient
    assert (gradient_of(contrastive).item(), gradient_of(rank).item()) == ((0, weight) if won else (1, 0))


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 1))
def test_interpolation_is_a_weighted_mean(rank: float, cosine: float, weight: float) -> None:
    r, c = (torch.tensor([value, 0.0], dtype=torch.float64) for value in (rank, cosine))
    assert interpolate(r, c, weight).tolist() == pytest.approx([weight * rank + (1 - weight) * cosine, 0], abs=1e-12)
    assert torch.equal(interpolate(r, c, 1.0), r)
    assert torch.equal(interpolate(r, c, 0.0), c)


@pytest.fixture(scope="module")
def encoders() -> dict[str, Encoder]:
    encoder = wiki_tiny(dropout=0.3)
    templates = {name: getattr(inner, "first", "") for name, inner in INNER.items()}
    return {name: encoder.with_pooling("mask" if template else "cls", template) for name, template in templates.items()}


def trained(method: Method, encoder: Encoder) -> tuple[Loss, Targets]:
    """The loss of one batch of all texts in an order of its own, with a dropout that is always the same."""
    rows = torch.tensor([3, 0, 5, 1, 4, 2])
    batch = batch_of(method, encoder, [TEXTS[row] for row in rows], length=32)
    at = method.targets(Known()).at(rows, encoder.device)
    loss = loss_under(method, encoder, replace(batch, rows=rows), method.modules(encoder, seeded()), at)
    return loss, Targets(at)


def cosines(a: torch.Tensor, b: torch.Tensor) -> list[list[float]]:
    return [[cosine(x, y) for y in b.detach().double().tolist()] for x in a.detach().double().tolist()]


def terms_by_loops(inner: Loss, targets: Targets) -> tuple[float, float, float]:
    """InfoNCE of the views, the rank loss (Eq. 6), and the share of pairs that count."""
    student, n = cosines(*views_of(inner)), len(TEXTS)
    chances = [[math.exp(c / 0.05) for c in row] for row in student]
    contrast = -sum(math.log(chances[i][i] / sum(chances[i])) for i in range(n)) / n
    first = targets.rows["base_first"]
    lists = [cosines(side, targets.rows["corpus"]) for side in (first, targets.rows.get("base_second", first))]
    rho = [[float(spearmanr(a, b).statistic) for b in lists[1]] for a in lists[0]]
    assert min(map(min, rho)) < BOUNDED.lower < BOUNDED.upper < max(map(max, rho)), "both ends are at work"
    chosen = [(i, j) for i in range(n) for j in range(n) if BOUNDED.lower <= rho[i][j] <= BOUNDED.upper]
    squares = [(rho[i][j] - student[i][j]) ** 2 for i, j in chosen]
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
    assert all(torch.equal(*sides) for sides in zip(views_of(loss), views_of(inner), strict=True))


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
def test_only_the_chosen_terms_have_a_gradient_and_no_base_gets_one(
    combination: str, encoders: dict[str, Encoder]
) -> None:
    method = replace(BOUNDED, inner=PromptBERT(), rank_weight=500.0, combination=combination)
    encoder, fixed = encoders["promptbert"], method.targets(Known()).at(torch.arange(6), torch.device("cpu"))
    targets = {name: value.requires_grad_() for name, value in fixed.items()}
    loss = loss_under(method, encoder, batch_of(method, encoder), method.modules(encoder, seeded()), targets)
    rank, contrast, found = (
        torch.stack(torch.autograd.grad(term, views_of(loss), retain_graph=True))
        for term in (500 * loss.terms["rank"], loss.terms["contrastive"], loss.total)
    )
    expected = rank if combination == "maximum" else rank + contrast
    assert (found - expected).norm() < 1e-5 * expected.norm() < 1e-2 * contrast.norm()
    loss.total.backward()
    assert [value.grad for value in targets.values()] == [None] * 3


def test_a_base_that_is_a_run_is_trained_first() -> None:
    base = Run(method=SimCSE(), backbone=Pretrained("wiki-tiny"), corpus=Corpus("synthetic", 9))
    run = replace(base, method=RankEncoder(base=base, select="avg"))
    assert run.nested_checkpoints == ((base, "avg"),)


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
            method = recipe.with_method(base=BASE, rank_weight=0.05).method
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


def loss_of(method: RankEncoder, views: Any, targets: dict[str, torch.Tensor]) -> Loss:
    return loss_under(method, Views(*views), blank_batch(len(views[0])), HEADLESS, targets)


@pytest.mark.parametrize(("combination", "weight"), [("maximum", 50.0), ("sum", 3.0)])
def test_the_gradient_reaches_both_views(combination: str, weight: float) -> None:
    """By finite differences: a side that is cut off would differ from them."""
    method = replace(BOUNDED, rank_weight=weight, lower=-1.0, upper=0.99, combination=combination)
    targets = {"base_first": drawn(4, 3, seed=4), "corpus": F.normalize(drawn(8, 3, seed=5), dim=-1)}
    views = [drawn(4, 3, seed=seed, gradient=True) for seed in (1, 2)]
    total = loss_of(method, views, targets).total
    check_against_loop(total, lambda *views: loss_of(method, views, targets).total.item(), *views, least=1e-4)


def rhos_in_order(lists: np.ndarray) -> np.ndarray:
    """Spearman's rho of any two lists; equal entries of a list have different ranks, by their places."""
    ranks = np.argsort(np.argsort(lists, kind="stable"), kind="stable").astype(float)
    return np.array([[np.corrcoef(a, b)[0, 1] for b in ranks] for a in ranks])


def test_training_ranks_equal_corpus_sentences_by_their_places() -> None:
    """Argsort of argsort in training, average ranks at inference. The corpus has two sentences twice.

    Signs over whole numbers: products are exact, so that equal sentences are so to the bit on any machine.
    """
    base = torch.tensor([[1, 1, 1, 1], [1, -1, 1, 1], [1, 1, -1, 1], [1, -1, -1, 1]], dtype=torch.float64)
    distinct = torch.randint(-20, 20, (6, 4), generator=seeded(5)).double()
    corpus = torch.cat([distinct, distinct[[0, 3]]])
    method = RankEncoder(base=BASE, corpus_size=8, lower=-1.0, upper=0.999, combination="sum")
    views = (drawn(4, 3, seed=1), drawn(4, 3, seed=2))
    found = loss_of(method, views, {"base_first": base, "corpus": corpus}).terms["rank"].item()
    rho = rhos_in_order((base / 2 @ corpus.T).numpy())
    chosen = rho <= 0.999
    assert chosen.sum() == 12
    expected = (rho - np.array(cosines(*views)))[chosen] ** 2
    assert found == pytest.approx(expected.mean(), rel=1e-6)


test_impossible_settings_are_refused = refuses(
    partial(replace, RankEncoder(base=BASE)),
    ({"rank_weight": -0.1}, "rank_weight must be zero or positive, got -0.1"),
    ({"rank_weight": math.nan}, "rank_weight must be zero or positive, got nan"),
    ({"base": None}, "a rank_weight above 0 needs a base encoder, got none"),
    ({"corpus_size": 1}, "corpus_size must be at least 2, got 1"),
    ({"lower": 0.8}, "-1 <= lower < upper <= 1, got 0.8 and 0.8"),
    ({"lower": -1.1}, "-1 <= lower < upper <= 1, got -1.1 and 0.8"),
    ({"upper": 1.1}, "-1 <= lower < upper <= 1, got 0.5 and 1.1"),
    ({"inner": RankCSE(distillation_weight=0.0)}, "inner must be one of simcse, promptbert, sncse, got 'rankcse'"),
)
