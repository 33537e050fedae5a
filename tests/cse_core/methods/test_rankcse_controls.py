"""RankCSE's controls against loops: distillation without ranking, and a teacher whose ranking is destroyed."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_core.functional.contrastive import cosine_matrix
from cse_core.method import Batch, Tokens
from cse_core.methods.rankcse import RankCSE, Teacher, list_mle, list_net, shuffle_others, squared_error
from cse_core.run import Pretrained
from tests.support.method_variants import Encoded

seeds = st.integers(0, 10_000)
METHOD = RankCSE(teachers=(Teacher(Pretrained("a"), 0.25), Teacher(Pretrained("b"), 0.75)))


def draw(n: int, d: int, seed: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def numbered(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(st.integers(2, 8), seeds)
def test_the_squared_error_is_the_mean_off_the_diagonal(n: int, seed: int) -> None:
    s, t = draw(n, n, seed), draw(n, n, seed + 1)
    total = sum((s[i, j].item() - t[i, j].item()) ** 2 for i in range(n) for j in range(n) if i != j)
    assert squared_error(s, t).item() == pytest.approx(total / (n * (n - 1)))
    assert squared_error(s, s + torch.diag(t[0])).item() == 0  # blind to the positive
    with pytest.raises(ValueError, match="other sentences need at least two sentences, got 1"):
        squared_error(s[:1, :1], t[:1, :1])


@given(st.integers(2, 9), seeds)
def test_a_shuffled_teacher_has_the_values_of_each_row_and_its_positive(n: int, seed: int) -> None:
    teacher = draw(n, n, seed)
    kept = teacher.clone()
    found = shuffle_others(teacher, numbered(seed))
    assert torch.equal(teacher, kept)
    assert torch.equal(found.diagonal(), teacher.diagonal())
    assert torch.equal(found.sort(1).values, teacher.sort(1).values)
    assert torch.equal(found, shuffle_others(teacher, numbered(seed)))
    others = ~torch.eye(n, dtype=torch.bool)
    off, back = (rows[others].view(n, n - 1).softmax(-1) for rows in (teacher, found))
    assert torch.allclose((off * off.log()).sum(1), (back * back.log()).sum(1))  # as soft as before


@pytest.mark.slow
def test_every_order_of_a_row_is_as_likely_and_rows_have_their_own() -> None:
    """Three others have six orders; 6,000 draws put each within five standard errors of a sixth."""
    teacher, generator = torch.arange(16.0).view(4, 4), numbered(0)
    draws = [shuffle_others(teacher, generator) for _ in range(6_000)]
    for i in range(4):
        rows = [tuple(d[i].tolist()) for d in draws]
        assert len(set(rows)) == 6
        for order in set(rows):
            assert rows.count(order) / 6_000 == pytest.approx(1 / 6, abs=5 * math.sqrt(5 / 36 / 6_000))
    alike = sum(torch.equal(d[0, 1:] - 1, d[3, :3] - 12) for d in draws) / 6_000
    assert alike == pytest.approx(1 / 6, abs=5 * math.sqrt(5 / 36 / 6_000))


def outcome(method: RankCSE, n: int = 6) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The rank term, the student's cosines and the teachers' mixed ones."""
    z1, z2, a, b = (draw(n, 4, i) for i in range(4))
    text = Tokens(torch.ones(n, 2).long(), torch.ones(n, 2).bool())
    modules = torch.nn.ModuleDict({"head": torch.nn.Identity()})
    batch, targets = Batch(torch.arange(n), {"text": text}, numbered(1)), {"teacher_0": a, "teacher_1": b}
    loss = method.loss(Encoded(lambda *tokens: (z1, z2)), batch, modules, targets)
    mixed = 0.25 * cosine_matrix(a, a) + 0.75 * cosine_matrix(b, b)
    return loss.terms["rank"].item(), cosine_matrix(z1, z2), mixed.float()


def test_distillation_is_of_the_mixed_cosines_without_temperature() -> None:
    method = replace(METHOD, rank="mse")
    found, s, t = outcome(method)
    total = sum((s[i, j].item() - t[i, j].item()) ** 2 for i in range(6) for j in range(6) if i != j)
    assert found == pytest.approx(total / 30)
    assert outcome(replace(method, student_temperature=0.5, teacher_temperature=None))[0] == found


@pytest.mark.parametrize("rank", ["list_net", "list_mle", "mse"])
def test_every_rank_sees_the_shuffled_teacher(rank: str) -> None:
    found, s, t = outcome(replace(METHOD, rank=rank, teacher_order="shuffled"))
    generator = numbered(1)
    shuffled = shuffle_others(t, generator)
    expected = {
        "list_net": lambda: list_net(s, shuffled, 0.025, 0.0125),
        "list_mle": lambda: list_mle(s, shuffled, 0.025, generator),
        "mse": lambda: squared_error(s, shuffled),
    }[rank]().item()
    assert found == pytest.approx(expected, rel=1e-12)
    assert found != pytest.approx(outcome(replace(METHOD, rank=rank))[0], rel=1e-3)


@pytest.mark.parametrize("rank", ["mse", "list_mle"])
def test_only_the_student_has_a_gradient(rank: str) -> None:
    z1, z2, a, b = (draw(5, 4, i).requires_grad_() for i in range(4))
    text = Tokens(torch.ones(5, 2).long(), torch.ones(5, 2).bool())
    modules = torch.nn.ModuleDict({"head": torch.nn.Identity()})
    targets = {"teacher_0": a.detach(), "teacher_1": b.detach()}
    method = replace(METHOD, rank=rank, teacher_order="shuffled")
    batch = Batch(torch.arange(5), {"text": text}, numbered(1))
    loss = method.loss(Encoded(lambda *tokens: (z1, z2)), batch, modules, targets)
    for grad in torch.autograd.grad(loss.terms["rank"], (z1, z2)):
        assert grad.isfinite().all()
        assert grad.abs().sum() > 0


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="teacher_order must be one of given, shuffled, got 'random'"):
        replace(METHOD, teacher_order="random")
