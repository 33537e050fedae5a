"""Moderated variances against draws from a known prior, and their limits."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis.stats.contrast_tests import paired_contrast
from analysis.stats.estimate import Estimate, t_estimate
from analysis.stats.moderated import fit_prior, moderate

RNG = np.random.default_rng(5)


def estimate(error: float, df: float = 4, mean: float = 1.0) -> Estimate:
    return t_estimate(mean, error, df, 5)


def test_the_prior_of_many_contrasts_is_found() -> None:
    """Variances drawn from s0^2 F(d, d0), as the model says, with degrees of freedom that differ."""
    dfs = RNG.choice([4.0, 9.0, 19.0], 20_000)
    drawn = 0.3 * stats.f(dfs, 8).rvs(random_state=RNG)
    prior = fit_prior(list(drawn), list(dfs))
    assert prior.variance == pytest.approx(0.3, rel=0.03)
    assert prior.df == pytest.approx(8, rel=0.1)


def test_equal_true_variances_are_pooled() -> None:
    drawn = 0.3 * stats.chi2(4).rvs(12, random_state=3) / 4
    prior = fit_prior(list(drawn), [4.0] * 12)
    assert prior.df == math.inf
    moderated = moderate({i: estimate(math.sqrt(s)) for i, s in enumerate(drawn)})
    # All contrasts together have 48 degrees of freedom, and nearly the same error then.
    assert {found.df for found in moderated.values()} == {48.0}
    errors = [found.error or 0.0 for found in moderated.values()]
    assert max(errors) / min(errors) < math.sqrt(max(drawn) / min(drawn)) / 3


def test_each_error_lies_between_its_own_and_the_priors() -> None:
    drawn = 0.3 * stats.f(4, 6).rvs(200, random_state=1)
    prior = fit_prior(list(drawn), [4.0] * 200)
    for i, found in moderate({i: estimate(math.sqrt(s)) for i, s in enumerate(drawn)}).items():
        expected = (prior.df * prior.variance + 4 * drawn[i]) / (prior.df + 4)
        assert found.error
        assert found.error**2 == pytest.approx(expected)
        assert found.df == pytest.approx(4 + prior.df)
        assert found.mean == 1.0


@pytest.mark.slow
def test_p_is_uniform_where_nothing_differs() -> None:
    """Twenty contrasts of five seeds each at a time: of all p, as many are below a level as the level says."""
    p_values = []
    for _ in range(150):
        deviations = np.sqrt(0.3 / stats.gamma(4, scale=1 / 4).rvs(20, random_state=RNG))
        groups = RNG.normal(0, 1, (20, 5)) * deviations[:, None]
        found = {i: paired_contrast([dict(enumerate(group))], [1]) for i, group in enumerate(groups)}
        p_values += [e.difference_p() for e in moderate({i: e for i, e in found.items() if e}).values()]
    for level in (0.01, 0.05, 0.5):
        expected, error = level, math.sqrt(level * (1 - level) / len(p_values))
        assert abs(np.mean(np.array(p_values) < level) - expected) < 4 * error


def test_what_can_not_be_moderated_stays_as_it_is() -> None:
    few = {name: estimate(error) for name, error in (("a", 0.1), ("b", 0.3), ("c", 0.2))}
    assert moderate(few) == few
    without = {"none": t_estimate(1.0, None, None, 1), "equal": estimate(0.0)}
    many = moderate({**few, "d": estimate(0.4), **without})
    assert {name: many[name] for name in without} == without
    assert many["a"] != few["a"]
