"""Parts of contrastive losses against loops, and their digits where these are easily lost."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_core.functional.contrastive import (
    column_mask,
    cosine_matrix,
    info_nce,
    log_one_minus_softmax,
    nt_xent,
    without_diagonal,
)
from tests.support.method_oracles import drawn, nt_xent_loop, slopes


def complement_loop(row: list[float]) -> list[float]:
    """log(sum of all others / sum of all)."""
    top = max(row)
    shares = [Fraction(math.exp(x - top)) for x in row]
    found = []
    for i in range(len(row)):
        rest = sum((s for j, s in enumerate(shares) if j != i), Fraction(0)) / sum(shares)
        found.append(math.log1p(-float(1 - rest)) if rest > 0.5 else math.log(rest))
    return found


@given(st.integers(2, 6), st.integers(0, 10_000), st.sampled_from([1.0, 20.0, 100.0]))
def test_log_one_minus_softmax_is_exact_next_to_one(m: int, seed: int, scale: float) -> None:
    logits = scale * drawn(4, m, seed=seed)
    for row, expected in zip(log_one_minus_softmax(logits).tolist(), logits.tolist(), strict=True):
        assert row == pytest.approx(complement_loop(expected), rel=1e-9, abs=1e-300)


def test_the_gradient_of_log_one_minus_softmax_is_its_slope() -> None:
    logits = (3 * drawn(3, 4, seed=2)).requires_grad_()
    log_one_minus_softmax(logits).sum().backward()
    (expected,) = slopes(lambda x: sum(sum(complement_loop(row)) for row in x.tolist()), logits)
    assert logits.grad is not None
    assert torch.allclose(logits.grad, expected, atol=1e-7)


def test_a_probability_of_one_has_a_finite_value_and_gradient() -> None:
    for row in ([[5.0]], [[5.0, -torch.inf]], [[0.0, 1e30]], [[7.0, 7.0]]):
        logits = torch.tensor(row, requires_grad=True)
        found = log_one_minus_softmax(logits)
        found.sum().backward()
        assert found.isfinite().all()
        assert logits.grad is not None
        assert not logits.grad.isnan().any()
    assert log_one_minus_softmax(torch.tensor([[7.0, 7.0]])).tolist()[0] == pytest.approx([math.log(0.5)] * 2)
    assert log_one_minus_softmax(torch.tensor([[5.0, -torch.inf]]))[0, 1].item() == 0


@pytest.mark.parametrize("n", [1, 2, 5])
def test_without_the_diagonal_each_row_keeps_its_order(n: int) -> None:
    matrix = torch.arange(n * n).view(n, n).double()
    found = without_diagonal(matrix)
    assert found.shape == (n, n - 1)
    assert found.tolist() == [[matrix[i, j].item() for j in range(n) if j != i] for i in range(n)]


def test_a_column_mask_is_a_one_hot_matrix() -> None:
    columns = torch.tensor([2, 0, 2, 1])
    assert torch.equal(column_mask(columns, 5), torch.nn.functional.one_hot(columns, 5).bool())
    assert column_mask(columns[:0], 3).shape == (0, 3)


def test_info_nce_agrees_with_its_equation_and_its_options() -> None:
    a, b, hard = (torch.randn(n, 6, dtype=torch.float64) for n in (4, 4, 3))
    s = cosine_matrix(a, torch.cat([b, hard]))
    expected = sum(math.log(sum(math.exp(x / 0.05) for x in s[i])) - s[i, i].item() / 0.05 for i in range(4)) / 4
    assert info_nce(a, b, 0.05, hard).item() == pytest.approx(expected)
    assert info_nce(a, b, 0.05, dims=3).item() == pytest.approx(info_nce(a[:, :3], b[:, :3], 0.05).item())
    assert info_nce(torch.ones(7, 3), torch.ones(7, 3), 0.05).item() == pytest.approx(math.log(7))
    far = torch.eye(4)
    assert info_nce(far, far, 0.001).item() == pytest.approx(0, abs=1e-6)


@given(st.integers(1, 5), st.integers(1, 6), st.sampled_from([0.05, 0.1, 1.0]), st.integers(0, 1000))
def test_nt_xent_is_its_equation(n: int, d: int, temperature: float, seed: int) -> None:
    view1, view2 = drawn(n, d, seed=seed), drawn(n, d, seed=seed + 1)
    expected = nt_xent_loop(view1.tolist(), view2.tolist(), temperature)
    assert nt_xent(view1, view2, temperature).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert nt_xent(view2, view1, temperature).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert nt_xent(3 * view1, 0.5 * view2, temperature).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_nt_xent_of_equal_views_at_right_angles_has_a_closed_form() -> None:
    """n orthogonal pairs of equal vectors: log(1 + (2n - 2) e^{-1/t}); a single pair has no negatives."""
    for n in (1, 2, 5):
        found = nt_xent(torch.eye(n, dtype=torch.float64), 2 * torch.eye(n, dtype=torch.float64), 0.1).item()
        assert found == pytest.approx(math.log1p((2 * n - 2) * math.exp(-10)), rel=1e-9, abs=1e-15)


def test_the_gradient_of_nt_xent_is_its_slope() -> None:
    view1, view2 = drawn(3, 4, seed=1, gradient=True), drawn(3, 4, seed=2, gradient=True)
    assert torch.autograd.gradcheck(lambda a, b: nt_xent(a, b, 0.3), (view1, view2))
