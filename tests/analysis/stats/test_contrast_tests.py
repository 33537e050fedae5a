"""Contrasts of means against scipy, closed forms and simulation; moderated errors against draws from a known prior."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis.stats.contrast_tests import estimate_contrast, fit_prior, moderate, paired_contrast, welch_contrast
from analysis.stats.estimate import Estimate, t_estimate

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


def of_error(error: float) -> Estimate:
    return t_estimate(1.0, error, 4, 5)


def test_the_prior_of_many_contrasts_is_found() -> None:
    """Variances drawn from s0^2 F(d, d0), as the model says, with degrees of freedom that differ."""
    rng = np.random.default_rng(5)
    dfs = rng.choice([4.0, 9.0, 19.0], 20_000)
    drawn = 0.3 * stats.f(dfs, 8).rvs(random_state=rng)
    prior = fit_prior(list(drawn), list(dfs))
    assert prior.variance == pytest.approx(0.3, rel=0.03)
    assert prior.df == pytest.approx(8, rel=0.1)


def test_equal_true_variances_are_pooled() -> None:
    drawn = 0.3 * stats.chi2(4).rvs(12, random_state=3) / 4
    prior = fit_prior(list(drawn), [4.0] * 12)
    assert prior.df == math.inf
    moderated = moderate({i: of_error(math.sqrt(s)) for i, s in enumerate(drawn)})
    # All contrasts together have 48 degrees of freedom, and nearly the same error then.
    assert {found.df for found in moderated.values()} == {48.0}
    errors = [found.error or 0.0 for found in moderated.values()]
    assert max(errors) / min(errors) < math.sqrt(max(drawn) / min(drawn)) / 3


def test_each_error_lies_between_its_own_and_the_priors() -> None:
    drawn = 0.3 * stats.f(4, 6).rvs(200, random_state=1)
    prior = fit_prior(list(drawn), [4.0] * 200)
    for i, found in moderate({i: of_error(math.sqrt(s)) for i, s in enumerate(drawn)}).items():
        expected = (prior.df * prior.variance + 4 * drawn[i]) / (prior.df + 4)
        assert found.error
        assert found.error**2 == pytest.approx(expected)
        assert found.df == pytest.approx(4 + prior.df)
        assert found.mean == 1.0


@pytest.mark.slow
def test_p_is_uniform_where_nothing_differs() -> None:
    """Twenty contrasts of five seeds each at a time: of all p, as many are below a level as the level says."""
    p_values, rng = [], np.random.default_rng(5)
    for _ in range(150):
        deviations = np.sqrt(0.3 / stats.gamma(4, scale=1 / 4).rvs(20, random_state=rng))
        groups = rng.normal(0, 1, (20, 5)) * deviations[:, None]
        found = {i: paired_contrast([dict(enumerate(group))], [1]) for i, group in enumerate(groups)}
        p_values += [e.difference_p() for e in moderate({i: e for i, e in found.items() if e}).values()]
    for level in (0.01, 0.05, 0.5):
        expected, error = level, math.sqrt(level * (1 - level) / len(p_values))
        assert abs(np.mean(np.array(p_values) < level) - expected) < 4 * error


def test_what_cannot_be_moderated_stays_as_it_is() -> None:
    few = {name: of_error(error) for name, error in (("a", 0.1), ("b", 0.3), ("c", 0.2))}
    assert moderate(few) == few
    without = {"none": t_estimate(1.0, None, None, 1), "equal": of_error(0.0)}
    many = moderate({**few, "d": of_error(0.4), **without})
    assert {name: many[name] for name in without} == without
    assert many["a"] != few["a"]
