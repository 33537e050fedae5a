"""O'Brien-Fleming bounds against published ones, simulation and the limits of one look."""

import numpy as np
import pytest
from scipy.stats import norm

from analysis.stats.sequential import nominal_levels, sequential_p, spending

# ldbounds and the tables of Reboussin, DeMets, Kim and Lan (2000): two-sided 0.05, equal looks.
PUBLISHED_BOUNDS = {3: (3.7103, 2.5114, 1.9930), 5: (4.8769, 3.3569, 2.6803, 2.2898, 2.0310)}


@pytest.mark.parametrize("looks", PUBLISHED_BOUNDS)
def test_nominal_levels_are_the_published_bounds(looks: int) -> None:
    levels = nominal_levels(0.05, tuple((i + 1) / looks for i in range(looks)))
    assert [norm.isf(level / 2) for level in levels] == pytest.approx(PUBLISHED_BOUNDS[looks], abs=2e-4)


@pytest.mark.slow
def test_one_look_spends_everything() -> None:
    assert nominal_levels(0.05, (1.0,)) == pytest.approx((0.05,))
    assert sequential_p([0.03], [1.0]) == pytest.approx(0.03, rel=1e-3)


def test_all_looks_together_reject_as_often_as_alpha_under_the_null() -> None:
    shares, rng = (0.25, 0.5, 1.0), np.random.default_rng(0)
    steps = rng.standard_normal((200_000, 3)) * np.sqrt(np.diff((0.0, *shares)))
    z = np.abs(steps.cumsum(1)) / np.sqrt(shares)
    crossed = (2 * norm.sf(z) <= nominal_levels(0.05, shares)).any(1)
    assert crossed.mean() == pytest.approx(0.05, abs=0.0015)  # three standard errors


@pytest.mark.slow
def test_sequential_p_is_alpha_at_the_nominal_level_of_each_look() -> None:
    shares = (0.25, 0.5, 1.0)
    for look, level in enumerate(nominal_levels(0.05, shares), 1):
        values = [1.0] * (look - 1) + [level]
        assert sequential_p(values, shares[:look]) == pytest.approx(0.05, rel=0.02)


@pytest.mark.slow
def test_an_early_rejection_stands_and_no_look_is_one() -> None:
    early = sequential_p([1e-8], [0.25])
    assert early < 0.01
    assert sequential_p([1e-8, 0.9], [0.25, 0.5]) == pytest.approx(early)
    assert sequential_p([], []) == 1.0


def test_spending_rises_to_alpha() -> None:
    assert spending(0.05, 1.0) == pytest.approx(0.05)
    assert spending(0.05, 0.25) < spending(0.05, 0.5) < 0.05


@pytest.mark.parametrize("shares", [(0.5, 0.25), (0.0, 1.0), (0.5, 1.5)])
def test_shares_that_do_not_rise_within_one_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must rise within"):
        nominal_levels(0.05, shares)
