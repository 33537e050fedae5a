"""RankCSE's terms and controls against loops written from the paper's equations, closed forms, limits, gradients."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cse_core.functional.contrastive import cosine_matrix, info_nce
from cse_core.method import Loss
from cse_core.methods.rankcse import (
    PUBLISHED,
    RankCSE,
    Teacher,
    consistency,
    consistency_released,
    list_mle,
    list_net,
    mix_teachers,
    shuffle_others,
    squared_error,
)
from cse_core.run import Pretrained
from tests.support.method_oracles import drawn
from tests.support.method_steps import HEADLESS, Views, blank_batch, check_against_loop, loss_under, refuses, seeded

seeds = st.integers(0, 10_000)
sizes = st.integers(3, 8)
TEACHERS = (Teacher(Pretrained("a"), 0.25), Teacher(Pretrained("b"), 0.75))
METHOD = RankCSE(teachers=TEACHERS)


def cosines(n: int, seed: int) -> torch.Tensor:
    return cosine_matrix(*drawn(2, n, 5, seed=seed))


def squares_loop(student: torch.Tensor, teacher: torch.Tensor) -> float:
    """The mean squared difference off the diagonal."""
    pairs = [(i, j) for i in range(len(student)) for j in range(len(student)) if i != j]
    return sum((student[i, j].item() - teacher[i, j].item()) ** 2 for i, j in pairs) / len(pairs)


def js_loop(similarity: torch.Tensor, temperature: float) -> float:
    """Eq. 2 by sums over i and j."""
    s, n, total = similarity.tolist(), len(similarity), 0.0
    for i in range(n):
        p = [math.exp(s[i][j] / temperature) for j in range(n)]
        q = [math.exp(s[j][i] / temperature) for j in range(n)]
        p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
        m = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
        total += sum(a * math.log(a / c) + b * math.log(b / c) for a, b, c in zip(p, q, m, strict=True)) / 2
    return total / n


def list_net_loop(student: torch.Tensor, teacher: torch.Tensor, t2: float, t3: float) -> float:
    """Eq. 4 by sums over i and j, the positive left out."""
    n, total = len(student), 0.0
    for i in range(n):
        others = [j for j in range(n) if j != i]
        q = [math.exp(teacher[i, j] / t3) for j in others]
        p = [math.exp(student[i, j] / t2) for j in others]
        total -= sum(a / sum(q) * math.log(b / sum(p)) for a, b in zip(q, p, strict=True))
    return total / n


def list_mle_loop(student: torch.Tensor, teacher: torch.Tensor, t: float, epsilon: float = 0.0) -> float:
    """Eq. 5 as the product of choices: the best of what is left, one after the other."""
    total = 0.0
    for scores, order in zip(student.tolist(), teacher.argsort(dim=1, descending=True).tolist(), strict=True):
        left = [math.exp((scores[j] - max(scores)) / t) for j in order]
        total -= sum(math.log(left[k] / (sum(left[k:]) + epsilon)) for k in range(len(left)))
    return total / len(student)


@given(sizes, seeds, st.sampled_from([0.0125, 0.05, 1.0]))
def test_consistency_is_the_equation(n: int, seed: int, temperature: float) -> None:
    s = cosines(n, seed)
    assert consistency(s, temperature).item() == pytest.approx(js_loop(s, temperature), abs=1e-9)


@given(sizes, seeds)
def test_consistency_is_a_divergence(n: int, seed: int) -> None:
    s = cosines(n, seed)
    assert -1e-12 <= consistency(s, 0.05).item() <= math.log(2) + 1e-12
    assert consistency((s + s.T) / 2, 0.05).item() == pytest.approx(0, abs=1e-12)
    assert consistency(s.T, 0.05).item() == pytest.approx(consistency(s, 0.05).item(), abs=1e-12)


def test_consistency_reaches_log_two_for_disjoint_rankings() -> None:
    shift = torch.eye(4, dtype=torch.float64).roll(1, dims=1)  # view 1 is sure of i + 1, view 2 of i - 1
    assert consistency(shift, 0.01).item() == pytest.approx(math.log(2), abs=1e-9)


@given(sizes, seeds)
def test_the_released_consistency_is_minus_the_mean_entropy(n: int, seed: int) -> None:
    s = cosines(n, seed)
    rows = [torch.distributions.Categorical(logits=side / 0.05).entropy().mean() for side in (s, s.T)]
    assert consistency_released(s, 0.05).item() == pytest.approx(-sum(rows).item() / 2, abs=1e-9)


@given(sizes, seeds, st.sampled_from([(0.025, 0.0125), (0.05, 0.05), (1.0, 0.5)]))
def test_list_net_is_the_equation(n: int, seed: int, temperatures: tuple[float, float]) -> None:
    s, t = cosines(n, seed), cosines(n, seed + 1)
    assert list_net(s, t, *temperatures).item() == pytest.approx(list_net_loop(s, t, *temperatures), rel=1e-9)


@given(sizes, seeds)
def test_list_net_ignores_the_positive(n: int, seed: int) -> None:
    s, t = cosines(n, seed), cosines(n, seed + 1)
    other = list_net(s + 9 * torch.eye(n), t - 5 * torch.eye(n), 0.025, 0.0125)
    assert list_net(s, t, 0.025, 0.0125).item() == pytest.approx(other.item(), rel=1e-12)


@given(sizes, seeds)
def test_list_net_is_least_where_student_equals_teacher(n: int, seed: int) -> None:
    t = cosines(n, seed)
    entropy = list_net(t, t, 0.05, 0.05).item()
    assert list_net(cosines(n, seed + 1), t, 0.05, 0.05).item() >= entropy
    flat = list_net(torch.zeros(n, n, dtype=torch.float64), t, 0.05, 0.05)
    assert flat.item() == pytest.approx(math.log(n - 1))


def test_list_net_needs_three_sentences() -> None:
    with pytest.raises(ValueError, match="at least three sentences, got 2"):
        list_net(torch.eye(2), torch.eye(2), 0.05, 0.05)


@given(sizes, seeds, st.sampled_from([0.025, 0.05, 1.0]))
def test_list_mle_is_the_equation(n: int, seed: int, temperature: float) -> None:
    s, t = cosines(n, seed), cosines(n, seed + 1)
    assert list_mle(s, t, temperature).item() == pytest.approx(list_mle_loop(s, t, temperature), rel=1e-9)


@given(st.integers(2, 5), seeds)
def test_list_mle_is_a_distribution_over_orders(k: int, seed: int) -> None:
    scores = cosines(k, seed)[:1]
    orders = itertools.permutations(range(k))
    chances = [math.exp(-list_mle(scores, -torch.tensor([o], dtype=torch.float64), 0.5).item()) for o in orders]
    assert sum(chances) == pytest.approx(1)


def test_list_mle_closed_forms() -> None:
    flat, teacher = torch.zeros(3, 6, dtype=torch.float64), torch.rand(3, 6, dtype=torch.float64)
    assert list_mle(flat, teacher, 0.05).item() == pytest.approx(math.log(math.factorial(6)))
    assert list_mle(flat, teacher, 0.05, reduction="mean").item() == pytest.approx(math.log(math.factorial(6)) / 6)


@given(sizes, seeds)
def test_list_mle_does_not_depend_on_the_order_of_columns(n: int, seed: int) -> None:
    s, t = cosines(n, seed), cosines(n, seed + 1)
    shuffle = torch.randperm(n, generator=seeded(seed))
    assert list_mle(s[:, shuffle], t[:, shuffle], 0.05).item() == pytest.approx(list_mle(s, t, 0.05).item())


def test_list_mle_orders_ties_at_random_and_by_the_generator() -> None:
    student, ties = cosines(6, 0), torch.ones(6, 6, dtype=torch.float64)
    values = {list_mle(student, ties, 0.05, seeded(i)).item() for i in range(8)}
    assert len(values) > 1
    again = [list_mle(student, ties, 0.05, seeded(3)).item() for _ in range(2)]
    assert again[0] == again[1]


@given(sizes, seeds, st.floats(0, 1))
def test_mixing_is_the_weighted_mean_of_cosines(n: int, seed: int, share: float) -> None:
    a, b = cosines(n, seed), cosines(n, seed + 1)
    assert torch.allclose(mix_teachers([a, b], [share, 1 - share]), share * a + (1 - share) * b)


@pytest.mark.parametrize("weights", [[0.5, 0.6], [1.0], [-0.5, 1.5], []])
def test_mixing_refuses_other_weights(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        mix_teachers([torch.eye(3), torch.eye(3)], weights)


@given(st.integers(2, 8), seeds)
def test_the_squared_error_is_the_mean_off_the_diagonal(n: int, seed: int) -> None:
    s, t = drawn(n, n, seed=seed), drawn(n, n, seed=seed + 1)
    assert squared_error(s, t).item() == pytest.approx(squares_loop(s, t))
    assert squared_error(s, s + torch.diag(t[0])).item() == 0  # blind to the positive
    with pytest.raises(ValueError, match="other sentences need at least two sentences, got 1"):
        squared_error(s[:1, :1], t[:1, :1])


@given(st.integers(2, 9), seeds)
def test_a_shuffled_teacher_has_the_values_of_each_row_and_its_positive(n: int, seed: int) -> None:
    teacher = drawn(n, n, seed=seed)
    kept = teacher.clone()
    found = shuffle_others(teacher, seeded(seed))
    assert torch.equal(teacher, kept)
    assert torch.equal(found.diagonal(), teacher.diagonal())
    assert torch.equal(found.sort(1).values, teacher.sort(1).values)
    assert torch.equal(found, shuffle_others(teacher, seeded(seed)))
    others = ~torch.eye(n, dtype=torch.bool)
    off, back = (rows[others].view(n, n - 1).softmax(-1) for rows in (teacher, found))
    assert torch.allclose((off * off.log()).sum(1), (back * back.log()).sum(1))  # as soft as before


@pytest.mark.slow
def test_every_order_of_a_row_is_as_likely_and_rows_have_their_own() -> None:
    """Three others have six orders; 6,000 draws put each within five standard errors of a sixth."""
    teacher, generator = torch.arange(16.0).view(4, 4), seeded(0)
    draws = [shuffle_others(teacher, generator) for _ in range(6_000)]
    for i in range(4):
        rows = [tuple(d[i].tolist()) for d in draws]
        assert len(set(rows)) == 6
        for order in set(rows):
            assert rows.count(order) / 6_000 == pytest.approx(1 / 6, abs=5 * math.sqrt(5 / 36 / 6_000))
    alike = sum(torch.equal(d[0, 1:] - 1, d[3, :3] - 12) for d in draws) / 6_000
    assert alike == pytest.approx(1 / 6, abs=5 * math.sqrt(5 / 36 / 6_000))


VIEWS, TAUGHT = [drawn(6, 4, seed=i, gradient=True) for i in range(2)], [drawn(6, 4, seed=i) for i in (2, 3)]
STUDENT = cosine_matrix(*VIEWS).detach()
MIXED = (0.25 * cosine_matrix(TAUGHT[0], TAUGHT[0]) + 0.75 * cosine_matrix(TAUGHT[1], TAUGHT[1])).float()


def loss_of(method: RankCSE, views: Any = VIEWS, teachers: Any = TAUGHT, seed: int = 1) -> Loss:
    targets = {f"teacher_{i}": vectors for i, vectors in enumerate(teachers)}
    return loss_under(method, Views(*views), blank_batch(len(views[0]), seed), HEADLESS, targets)


def term_loops(rank: str, shuffled: bool = False) -> dict[str, float]:
    """Each term of METHOD on VIEWS by its equation."""
    generator = seeded(1)
    teacher = shuffle_others(MIXED, generator) if shuffled else MIXED
    contrast = info_nce(VIEWS[0], VIEWS[1], 0.05).item()
    ranks = {
        "list_net": lambda: list_net_loop(STUDENT, teacher, 0.025, 0.0125),
        "list_mle": lambda: list_mle_loop(STUDENT, teacher, 0.025),
        "mse": lambda: squares_loop(STUDENT, teacher),
    }
    return {"contrastive": contrast, "consistency": js_loop(STUDENT, 0.05), "rank": ranks[rank]()}


@pytest.mark.parametrize("order", ["given", "shuffled"])
@pytest.mark.parametrize("rank", ["list_net", "list_mle", "mse"])
def test_the_loss_is_the_weighted_sum_of_its_equations(rank: str, order: str) -> None:
    """Teachers are mixed on cosines with their weights; a shuffled one is shuffled by the step's generator."""
    weights = {"contrastive_weight": 0.7, "consistency_weight": 0.2, "distillation_weight": 1.9}
    loss, expected = (
        loss_of(replace(METHOD, rank=rank, teacher_order=order, **weights)),
        term_loops(rank, order != "given"),
    )
    assert {name: term.item() for name, term in loss.terms.items()} == pytest.approx(expected, rel=1e-6)
    assert loss.total.item() == pytest.approx(
        sum(w * term for w, term in zip(weights.values(), expected.values(), strict=True)), rel=1e-6
    )


def test_list_mle_of_released_code_has_an_epsilon_in_the_logarithm() -> None:
    found = loss_of(replace(METHOD, rank="list_mle", variant="released_code")).terms["rank"].item()
    assert found == pytest.approx(list_mle_loop(STUDENT, MIXED, 0.05, 1e-7), rel=1e-5)
    assert found > list_mle_loop(STUDENT, MIXED, 0.05) + 0.01


def test_released_code_follows_the_community_code() -> None:
    released = RankCSE(teachers=TEACHERS, variant="released_code", consistency_weight=0.5, student_temperature=0.02)
    found = {name: term.item() for name, term in loss_of(released).terms.items()}
    assert found["consistency"] == pytest.approx(consistency_released(STUDENT, 0.05).item())
    assert loss_of(released).total.item() == pytest.approx(sum(found.values()))
    ranks = {
        name: loss_of(replace(released, **{name: value})).terms["rank"].item()
        for name, value in (("student_temperature", 0.03), ("teacher_temperature", 0.5), ("temperature", 0.06))
    }
    assert ranks["student_temperature"] != found["rank"]  # tau2 is the teacher's there
    assert ranks["teacher_temperature"] == found["rank"]
    assert ranks["temperature"] != found["rank"]


ONLY = {
    term: {
        name: float(name.startswith(term))
        for name in ("contrastive_weight", "consistency_weight", "distillation_weight")
    }
    for term in ("contrastive", "consistency", "distillation")
}
TERMS: dict[str, RankCSE] = {
    "contrastive": replace(METHOD, **ONLY["contrastive"]),
    "consistency": replace(METHOD, **ONLY["consistency"]),
    "consistency, released": replace(METHOD, variant="released_code", **ONLY["consistency"]),
    **{
        f"{rank}, {order}": replace(
            METHOD, rank=rank, student_temperature=0.3, teacher_order=order, **ONLY["distillation"]
        )
        for rank in ("list_net", "list_mle", "mse")
        for order in ("given", "shuffled")
    },
    "all": replace(METHOD, student_temperature=0.2, teacher_temperature=0.1),
}


@pytest.mark.parametrize("name", TERMS)
def test_every_terms_gradient_reaches_both_views(name: str) -> None:
    """By finite differences: a side that is cut off would differ from them."""
    views = [view[:4] for view in VIEWS]

    def total(*views: Tensor) -> float:
        return loss_of(TERMS[name], views, [vectors[:4] for vectors in TAUGHT]).total.item()

    loss = loss_of(TERMS[name], views, [vectors[:4] for vectors in TAUGHT]).total
    check_against_loop(loss, total, *views, least=1e-4, atol=1e-6)


TIED = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])  # two groups of equal sentences


def plackett_luce(student: np.ndarray, teacher: np.ndarray, seed: int) -> float:
    """One order of columns a batch, drawn from the step's generator; then a stable sort by the teacher, high to low."""
    n, total = len(student), 0.0
    shuffle = torch.randperm(n, generator=seeded(seed)).tolist()
    for i in range(n):
        order = sorted(shuffle, key=lambda j: -teacher[i, j])
        scores = [student[i, j] for j in order]
        total += sum(np.log(np.exp(scores[k:]).sum()) - scores[k] for k in range(n))
    return total / n


def test_equal_teacher_scores_are_ordered_by_the_steps_own_generator() -> None:
    method = RankCSE(teachers=(Teacher(Pretrained("a")),), rank="list_mle", student_temperature=0.5)
    views, found = [view.detach()[:5] for view in VIEWS], {}
    student = (cosine_matrix(*views) / 0.5).numpy()
    for seed in (0, 1):
        found[seed] = loss_of(method, views, [TIED], seed).terms["rank"].item()
        assert found[seed] == pytest.approx(plackett_luce(student, (TIED @ TIED.T).numpy(), seed), rel=1e-6)
    assert found[0] != pytest.approx(found[1], rel=1e-3)


test_impossible_settings_are_refused = refuses(
    RankCSE,
    ({"student_temperature": 0.0}, "student_temperature must be positive"),
    ({"consistency_weight": -1.0}, "consistency_weight must be zero or positive"),
    ({"teacher_temperature": None}, "list_net needs a positive teacher_temperature"),
    ({}, "needs at least one teacher"),
    ({"contrastive_weight": 0.0, "consistency_weight": 0.0, "distillation_weight": 0.0}, "all three weights are 0"),
    ({"teachers": (Teacher(Pretrained("a"), 0.5),)}, "add up to 1"),
)


def test_published_settings_stand_in_table_9() -> None:
    from experiments.schema.study import published_lines

    titles = {"BERT-base": "bert-base-uncased", "BERT-large": "bert-large-uncased"}
    titles |= {"RoBERTa-base": "roberta-base", "RoBERTa-large": "roberta-large"}
    read = 0
    for line in published_lines("rankcse_table9"):
        recipe = PUBLISHED[{"listNet": "list_net", "listMLE": "list_mle"}[line["method"][8:]], titles[line["backbone"]]]
        method = recipe.method
        assert isinstance(method, RankCSE)
        ours = {
            "batch_size": recipe.batch_size,
            "learning_rate": recipe.learning_rate,
            "tau1": method.temperature,
            "tau2": method.student_temperature,
            "tau3": method.teacher_temperature,
        }
        assert ours[line["task"]] == float(line["value"])
        read += 1
    assert read == 36
