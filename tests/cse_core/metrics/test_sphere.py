"""Densities, cosines of pairs and spreads against double loops of their definitions and closed forms."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch
from torch import Tensor

from cse_core.metrics.geometry import uniformity
from cse_core.metrics.sphere import BLOCK, cosines_of_pairs, log_densities, principal_plane, spread
from tests.support.vectors import normal, squared_distance


def test_a_density_is_the_mean_kernel_of_all_others() -> None:
    x = normal(40, 5)
    rows = x.double().tolist()
    by_hand = [
        math.log(math.fsum(math.exp(-2 * squared_distance(a, b)) for j, b in enumerate(rows) if j != i) / 39)
        for i, a in enumerate(rows)
    ]
    np.testing.assert_allclose(log_densities(x), by_hand, rtol=1e-10)


@pytest.mark.parametrize("n", [2, BLOCK, BLOCK + 3])
def test_uniformity_is_the_log_of_the_mean_density(n: int) -> None:
    x = normal(n, 6) + 1
    assert math.log(np.exp(log_densities(x)).mean()) == pytest.approx(uniformity(x.double()), abs=1e-9)


def test_uniformity_is_a_mean_over_the_cosines_of_pairs() -> None:
    x = normal(50, 4)
    cosines = cosines_of_pairs(x)
    assert len(cosines) == 50 * 49 // 2
    by_hand = [1 - squared_distance(a, b) / 2 for a, b in combinations(x.double().tolist(), 2)]
    np.testing.assert_allclose(sorted(cosines), sorted(by_hand), atol=1e-12)
    assert math.log(np.exp(4 * cosines - 4).mean()) == pytest.approx(uniformity(x.double()), abs=1e-9)


def test_a_crowd_is_denser_than_a_vector_apart() -> None:
    crowd = torch.tensor([[1.0, 0.0], [2.0, 0.01], [3.0, -0.01]])
    densities = log_densities(torch.cat([crowd, torch.tensor([[-5.0, 0.0]])]))
    assert densities[:3].min() > densities[3] == pytest.approx(-8, abs=0.01)


def test_spread_is_a_ratio_of_mean_squared_distances() -> None:
    x = normal(7, 3, 5) + 2 * normal(7, 1, 5, seed=1)
    sentences = x.double().tolist()
    within = [squared_distance(a, b) for copies in sentences for a, b in combinations(copies, 2)]
    between = [squared_distance(a, b) for p, q in combinations(sentences, 2) for a, b in product(p, q)]
    assert spread(x) == pytest.approx((math.fsum(within) / len(within)) / (math.fsum(between) / len(between)), rel=1e-9)


def test_spread_is_zero_for_equal_vectors_and_one_for_any() -> None:
    equal = normal(9, 1, 4).expand(9, 5, 4)
    assert spread(equal) == pytest.approx(0, abs=1e-12)
    assert spread(equal * torch.arange(1, 6).reshape(1, 5, 1)) == pytest.approx(0, abs=1e-12)  # lengths don't count
    assert spread(normal(300, 8, 20)) == pytest.approx(1, abs=0.01)


def test_the_plane_holds_what_varies_most() -> None:
    angles = torch.linspace(0, 2 * math.pi, 33)[:-1]
    circle = torch.stack([torch.full((32,), 0.5), angles.cos(), 1e-3 * normal(32), angles.sin()], 1)
    places = principal_plane(circle)
    np.testing.assert_allclose(np.hypot(*places.T), 1 / math.hypot(1, 0.5), rtol=1e-2)


@pytest.mark.parametrize(
    ("measure", "x", "message"),
    [
        (log_densities, torch.ones(1, 3), "a density needs at least two vectors, got 1"),
        (log_densities, torch.tensor([[1.0, 0], [0, 0]]), "density, row 1: expected a finite vector other than zero"),
        (spread, torch.ones(1, 2, 3), "spread needs at least two sentences of two vectors each, got 1 of 2"),
        (spread, torch.ones(3, 1, 3), "spread needs at least two sentences of two vectors each, got 3 of 1"),
        (spread, torch.ones(3, 2, 4), "vectors of different sentences have one direction"),
    ],
)
def test_what_is_undefined_is_refused(measure, x: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure(x)
