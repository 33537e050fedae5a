"""RankCSE's terms against loops written from the paper's equations, closed forms, limits and properties."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_core.functional.contrastive import cosine_matrix, info_nce
from cse_core.method import Batch, Tokens
from cse_core.methods.rankcse import (
    PUBLISHED,
    RankCSE,
    Teacher,
    consistency,
    consistency_released,
    list_mle,
    list_net,
    mix_teachers,
)
from cse_core.methods.simcse import SimCSE
from cse_core.run import Pretrained
from tests.support.method_variants import Encoded

seeds = st.integers(0, 10_000)
sizes = st.integers(3, 8)


def cosines(n: int, seed: int, *, d: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(2, n, d, generator=generator, dtype=torch.float64)
    return cosine_matrix(draw[0], draw[1])


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


def list_mle_loop(student: torch.Tensor, teacher: torch.Tensor, t: float) -> float:
    """Eq. 5 as the product of choices: the best of what is left, one after the other."""
    total = 0.0
    for scores, order in zip(student.tolist(), teacher.argsort(dim=1, descending=True).tolist(), strict=True):
        left = [math.exp(scores[j] / t) for j in order]
        total -= sum(math.log(left[k] / sum(left[k:])) for k in range(len(left)))
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


def test_list_mle_includes_the_positive() -> None:
    teacher = cosines(5, 0) + 9 * torch.eye(5, dtype=torch.float64)
    student = cosines(5, 1)
    assert list_mle(student + torch.eye(5), teacher, 0.05) < list_mle(student, teacher, 0.05)


@given(sizes, seeds)
def test_list_mle_does_not_depend_on_the_order_of_columns(n: int, seed: int) -> None:
    s, t = cosines(n, seed), cosines(n, seed + 1)
    shuffle = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    assert list_mle(s[:, shuffle], t[:, shuffle], 0.05).item() == pytest.approx(list_mle(s, t, 0.05).item())


def test_list_mle_orders_ties_at_random_and_by_the_generator() -> None:
    student, ties = cosines(6, 0), torch.ones(6, 6, dtype=torch.float64)
    values = {list_mle(student, ties, 0.05, torch.Generator().manual_seed(i)).item() for i in range(8)}
    assert len(values) > 1
    again = [list_mle(student, ties, 0.05, torch.Generator().manual_seed(3)).item() for _ in range(2)]
    assert again[0] == again[1]


def test_the_released_epsilon_inflates_list_mle() -> None:
    s, t = cosines(64, 0, d=128), cosines(64, 1, d=128)
    exact, released = list_mle(s, t, 0.025), list_mle(s, t, 0.025, epsilon=1e-7)
    assert released > exact


@given(sizes, seeds, st.floats(0, 1))
def test_mixing_is_the_weighted_mean_of_cosines(n: int, seed: int, share: float) -> None:
    a, b = cosines(n, seed), cosines(n, seed + 1)
    assert torch.allclose(mix_teachers([a, b], [share, 1 - share]), share * a + (1 - share) * b)


@pytest.mark.parametrize("weights", [[0.5, 0.6], [1.0], [-0.5, 1.5], []])
def test_mixing_refuses_other_weights(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        mix_teachers([torch.eye(3), torch.eye(3)], weights)


def embed(*tokens: Tokens) -> tuple[torch.Tensor, ...]:
    """Views that differ: what the ids say, plus the view's number."""
    return tuple(t.ids.double() + 0.3 * i * t.ids.double().sin() for i, t in enumerate(tokens))


def outcome(method: RankCSE | SimCSE, n: int = 6) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 50, (n, 4), generator=generator)
    batch = Batch(torch.arange(n), {"text": Tokens(ids, ids > 0)}, torch.Generator().manual_seed(1))
    modules = torch.nn.ModuleDict({"head": torch.nn.Identity()})
    teachers = {f"teacher_{i}": torch.randn(n, 3, generator=generator).double() for i in range(2)}
    loss = method.loss(Encoded(embed), batch, modules, teachers)
    return {"total": loss.total, **loss.terms}


TEACHERS = (Teacher(Pretrained("a"), 0.25), Teacher(Pretrained("b"), 0.75))


def test_the_loss_is_the_weighted_sum_of_its_terms() -> None:
    method = RankCSE(
        teachers=TEACHERS, contrastive_weight=0.7, consistency_weight=0.2, distillation_weight=1.9, rank="list_mle"
    )
    found = outcome(method)
    expected = 0.7 * found["contrastive"] + 0.2 * found["consistency"] + 1.9 * found["rank"]
    assert found["total"].item() == pytest.approx(expected.item(), rel=1e-12)


def test_teachers_are_mixed_on_cosines_with_their_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 50, (6, 4), generator=generator)
    a, b = (torch.randn(6, 3, generator=generator).double() for _ in range(2))
    z1, z2 = embed(Tokens(ids, ids > 0), Tokens(ids, ids > 0))
    teacher = (0.25 * cosine_matrix(a, a) + 0.75 * cosine_matrix(b, b)).float()
    expected = list_net_loop(cosine_matrix(z1, z2), teacher, 0.025, 0.0125)
    assert outcome(RankCSE(teachers=TEACHERS))["rank"].item() == pytest.approx(expected, rel=1e-6)


def test_both_weights_zero_is_simcse_bit_for_bit() -> None:
    null = RankCSE(consistency_weight=0.0, distillation_weight=0.0)
    assert torch.equal(outcome(null)["total"], outcome(SimCSE())["total"])


def test_released_code_follows_the_community_code() -> None:
    released = RankCSE(teachers=TEACHERS, variant="released_code", consistency_weight=0.5, student_temperature=0.02)
    found = outcome(released)
    ids = torch.randint(1, 50, (6, 4), generator=torch.Generator().manual_seed(0))
    z1, z2 = embed(Tokens(ids, ids > 0), Tokens(ids, ids > 0))
    s = cosine_matrix(z1, z2)
    assert found["consistency"].item() == pytest.approx(consistency_released(s, 0.05).item())
    assert found["total"].item() == pytest.approx(sum(found[n].item() for n in ("contrastive", "consistency", "rank")))
    moved = outcome(replace(released, student_temperature=0.03))
    assert moved["rank"] != found["rank"]  # tau2 is the teacher's there
    assert outcome(replace(released, teacher_temperature=0.5))["rank"] == found["rank"]
    assert outcome(replace(released, temperature=0.06))["rank"] != found["rank"]


def test_gradient_reaches_both_views_and_no_teacher() -> None:
    z1, z2 = (torch.randn(5, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    teacher = torch.randn(5, 4, dtype=torch.float64)
    text = Tokens(torch.ones(5, 2).long(), torch.ones(5, 2).bool())
    batch = Batch(torch.arange(5), {"text": text}, torch.Generator())
    modules = torch.nn.ModuleDict({"head": torch.nn.Identity()})
    for method in (RankCSE(teachers=(Teacher(Pretrained("a")),), rank=rank) for rank in ("list_net", "list_mle")):
        loss = method.loss(Encoded(lambda *tokens: (z1, z2)), batch, modules, {"teacher_0": teacher})
        for term in loss.terms.values():
            grads = torch.autograd.grad(term, (z1, z2), retain_graph=True)
            assert all(g.isfinite().all() and g.abs().sum() > 0 for g in grads)
    assert teacher.grad is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -0.05}, "temperature must be positive, got -0.05"),
        ({"student_temperature": 0.0}, "student_temperature must be positive"),
        ({"consistency_weight": -1.0}, "consistency_weight must be zero or positive"),
        ({"rank": "listwise"}, "rank must be one of list_net, list_mle, mse, got 'listwise'"),
        ({"teacher_temperature": None}, "list_net needs a positive teacher_temperature"),
        ({}, "needs at least one teacher"),
        ({"contrastive_weight": 0.0, "consistency_weight": 0.0, "distillation_weight": 0.0}, "all three weights are 0"),
        ({"teachers": (Teacher(Pretrained("a"), 0.5),)}, "add up to 1"),
    ],
)
def test_impossible_settings_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankCSE(**changes)


def test_published_settings_are_those_of_table_9() -> None:
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


def test_info_nce_agrees_with_its_equation_and_its_options() -> None:
    a, b, hard = (torch.randn(n, 6, dtype=torch.float64) for n in (4, 4, 3))
    s = cosine_matrix(a, torch.cat([b, hard]))
    expected = sum(math.log(sum(math.exp(x / 0.05) for x in s[i])) - s[i, i].item() / 0.05 for i in range(4)) / 4
    assert info_nce(a, b, 0.05, hard).item() == pytest.approx(expected)
    assert info_nce(a, b, 0.05, dims=3).item() == pytest.approx(info_nce(a[:, :3], b[:, :3], 0.05).item())
    assert info_nce(torch.ones(7, 3), torch.ones(7, 3), 0.05).item() == pytest.approx(math.log(7))
    far = torch.eye(4)
    assert info_nce(far, far, 0.001).item() == pytest.approx(0, abs=1e-6)
