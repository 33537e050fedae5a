"""NT-Xent by loops over its 2n vectors, in closed form, and its gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cse_core.functional.contrastive import nt_xent
from tests.support.one_by_one import cosine


def drawn(n: int, d: int, seed: int) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_loops(view1: Tensor, view2: Tensor, temperature: float) -> float:
    vectors, n = [*view1, *view2], len(view1)
    total = 0.0
    for i, vector in enumerate(vectors):
        chances = {k: math.exp(cosine(vector, other) / temperature) for k, other in enumerate(vectors) if k != i}
        total -= math.log(chances[i + n if i < n else i - n] / sum(chances.values())) / (2 * n)
    return total


@given(st.integers(1, 5), st.integers(1, 6), st.sampled_from([0.05, 0.1, 1.0]), st.integers(0, 1000))
def test_it_is_the_equation(n: int, d: int, temperature: float, seed: int) -> None:
    view1, view2 = drawn(n, d, seed), drawn(n, d, seed + 1)
    expected = by_loops(view1, view2, temperature)
    assert nt_xent(view1, view2, temperature).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert nt_xent(view2, view1, temperature).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert nt_xent(3 * view1, 0.5 * view2, temperature).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_of_equal_views_and_right_angles_it_is_known() -> None:
    """n orthogonal pairs of equal vectors: log(1 + (2n - 2) e^{-1/t}); a single pair has no negatives."""
    for n in (1, 2, 5):
        found = nt_xent(torch.eye(n, dtype=torch.float64), 2 * torch.eye(n, dtype=torch.float64), 0.1).item()
        assert found == pytest.approx(math.log1p((2 * n - 2) * math.exp(-10)), rel=1e-9, abs=1e-15)


def test_equal_views_still_have_a_gradient() -> None:
    """Without views and dropout: both sides are one tensor, and the other sentences push it away."""
    view = drawn(4, 3, 1).requires_grad_()
    nt_xent(view, view, 0.1).backward()
    assert view.grad is not None
    assert view.grad.abs().min() > 1e-9


def test_its_gradient_is_that_of_the_loops() -> None:
    view1, view2 = drawn(3, 4, 1).requires_grad_(), drawn(3, 4, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: nt_xent(a, b, 0.3), (view1, view2))
