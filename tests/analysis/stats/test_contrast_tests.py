"""Contrasts of means against scipy, closed forms and simulation."""

import numpy as np
import pytest
from scipy import stats

from analysis.stats.contrast_tests import estimate_contrast, paired_contrast, welch_contrast
from analysis.stats.estimate import t_estimate

RNG = np.random.default_rng(1)


def group(n: int, mean: float = 0.0, sd: float = 1.0) -> dict[int, float]:
    return dict(enumerate(RNG.normal(mean, sd, n)))


def test_two_groups_are_welchs_test() -> None:
    first, second = group(10, 1.0, 2.0), group(7)
    found = welch_contrast([first, second], [1, -1])
    assert found
    expected = stats.ttest_ind(list(first.values()), list(second.values()), equal_var=False)
    assert found.difference_p() == pytest.approx(expected.pvalue, rel=1e-9)
    interval = expected.confidence_interval()
    assert found.interval == pytest.approx((interval.low, interval.high))
    assert found.n == 7


def test_paired_rows_are_a_paired_test_on_the_seeds_that_both_have() -> None:
    first, second = group(9, 1.0), group(12)
    found = paired_contrast([first, second], [1, -1])
    assert found
    expected = stats.ttest_rel(list(first.values()), [second[seed] for seed in first])
    assert found.difference_p() == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.interval == pytest.approx(tuple(expected.confidence_interval()))


def test_weights_are_those_of_the_groups() -> None:
    a, b, c = group(6, 3.0), group(6, 1.0), group(6, 5.0)
    for estimate in (paired_contrast, welch_contrast):
        found = estimate([a, b, c], [1, -0.5, -0.5])
        assert found
        means = [np.mean(list(g.values())) for g in (a, b, c)]
        assert found.mean == pytest.approx(means[0] - (means[1] + means[2]) / 2)
    variances = [np.var(list(g.values()), ddof=1) / 6 for g in (a, b, c)]
    assert found.error == pytest.approx(np.sqrt(variances[0] + (variances[1] + variances[2]) / 4))


@pytest.mark.parametrize("mean", [0.4, -0.4, 1.2, -1.2])
def test_equivalence_is_two_one_sided_tests(mean: float) -> None:
    lower = stats.t(8).sf((mean + 1.0) / 0.2)
    upper = stats.t(8).cdf((mean - 1.0) / 0.2)
    expected = max(lower, upper)
    assert t_estimate(mean, 0.2, 8, 5).equivalence_p(1.0) == pytest.approx(expected)
    assert (expected > 0.5) == (abs(mean) > 1)


def test_detectable_is_found_with_that_power() -> None:
    found = t_estimate(0.0, 0.5, 18, 10)
    size = found.detectable(0.01)
    assert size
    shift, critical = size / 0.5, stats.t(18).isf(0.005)
    assert stats.nct.sf(critical, 18, shift) + stats.nct.cdf(-critical, 18, shift) == pytest.approx(0.8, abs=1e-4)
    rng, cut = np.random.default_rng(2), stats.t(18).isf(0.005)
    draws = (rng.standard_normal(200_000) + size / 0.5) / np.sqrt(rng.chisquare(18, 200_000) / 18)
    assert (np.abs(draws) > cut).mean() == pytest.approx(0.8, abs=0.004)


def test_no_spread_decides_and_one_seed_does_not() -> None:
    constant = paired_contrast([{1: 3.0, 2: 3.0}], [1])
    assert constant
    assert (constant.difference_p(), constant.equivalence_p(5.0), constant.equivalence_p(1.0)) == (0.0, 0.0, 1.0)
    nothing = paired_contrast([{1: 0.0, 2: 0.0}], [1])
    assert nothing
    assert nothing.difference_p() == 1.0
    single = welch_contrast([{1: 3.0}, {1: 2.0}], [1, -1])
    assert single
    assert single.difference_p() is single.interval is single.equivalence_p(1.0) is single.detectable(0.05) is None


def test_rows_without_a_common_seed_or_any_seed_have_no_estimate() -> None:
    assert paired_contrast([{1: 1.0}, {2: 1.0}], [1, -1]) is None
    assert welch_contrast([{1: 1.0}, {}], [1, -1]) is None


def test_a_group_that_is_the_same_on_every_seed_is_its_value() -> None:
    one = estimate_contrast([{1: 5.0, 2: 5.0, 3: 5.0}], [1.0], paired=False)
    assert one is not None
    assert (one.interval, one.difference_p(), one.equivalence_p(10.0)) == ((5.0, 5.0), 0.0, 0.0)
