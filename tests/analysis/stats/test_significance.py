"""Statistics against closed forms, scipy and properties."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from analysis.stats import significance

SCORES = st.lists(st.integers(0, 10_000).map(lambda i: i / 10_000), min_size=2, max_size=8)
SPREAD = SCORES.filter(lambda scores: np.ptp(scores) > 0)
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=10)


def test_summary_is_the_sample_deviation():
    found = significance.summary([1.0, 2.0, 3.0, 4.0])
    assert (found.mean, found.sd, found.n) == (2.5, pytest.approx(math.sqrt(5 / 3)), 4)


def test_one_score_has_no_deviation_and_no_interval():
    assert significance.summary([0.5]) == significance.Summary(0.5, None, 1)
    assert significance.prediction_interval([0.5]) is None


def test_equal_scores_have_deviation_zero_whatever_the_order_of_summing():
    assert significance.summary([0.1 + 0.2, 0.3, 0.3]).sd == 0.0
    assert significance.prediction_interval([0.3, 0.3]) == (0.3, 0.3)


@pytest.mark.parametrize("call", [significance.summary, significance.prediction_interval])
@pytest.mark.parametrize("scores", [[], [0.1, math.nan], [math.inf, 0.1], [[0.1]]])
def test_scores_must_be_finite_numbers_in_a_row(call, scores):
    with pytest.raises(ValueError, match="scores: expected"):
        call(scores)


def test_nan_is_refused_by_name():
    with pytest.raises(ValueError, match="p values: expected finite"):
        significance.holm([0.1, math.nan])
    with pytest.raises(ValueError, match="published number is NaN"):
        significance.published_verdict(math.nan, significance.Interval(0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 5])
def test_prediction_interval_covers_the_mean_of_further_runs(runs):
    random = np.random.default_rng(1)
    bands = [significance.prediction_interval(draw, runs=runs) for draw in random.normal(0, 1, (2000, 3))]
    further = random.normal(0, 1, (2000, runs)).mean(axis=1)
    covered = [band.low <= value <= band.high for band, value in zip(bands, further, strict=True) if band]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_prediction_interval_by_hand():
    half = 4.302652729911275 * 1.0 * math.sqrt(1 / 3 + 1 / 5)
    assert significance.prediction_interval([1.0, 2.0, 3.0], runs=5) == pytest.approx((2 - half, 2 + half))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        significance.prediction_interval([1.0, 2.0], runs=0)


def test_spread_ratio_inverts_the_f_test():
    first, second = [0.0, 1.0, 3.0, 4.0], [0.0, 5.0, 9.0]
    found = significance.spread(first, second)
    assert found
    ratio, (low, high) = found
    variances = np.var(first, ddof=1) / np.var(second, ddof=1)
    assert ratio == pytest.approx(math.sqrt(variances))
    assert reference.f.sf(variances / low**2, 3, 2) == pytest.approx(0.025)
    assert reference.f.cdf(variances / high**2, 3, 2) == pytest.approx(0.025)


@pytest.mark.parametrize(("first", "second"), [(20, 20), (5, 12)])
def test_the_least_spread_is_just_significant_and_the_true_one_shows_it_four_times_in_five(
    first: int, second: int
) -> None:
    observed, true = significance.detectable_spread(first, second)
    a, b = (np.linspace(-1, 1, n) / np.linspace(-1, 1, n).std(ddof=1) for n in (first, second))
    found = significance.spread(observed * a, b)
    assert found
    assert found[1].high == pytest.approx(1)  # the interval ends where the deviations are equal
    assert reference.f(first - 1, second - 1).cdf((observed / true) ** 2) == pytest.approx(0.8)
    assert true < observed < 1


@given(SPREAD, SPREAD)
def test_spread_of_swapped_samples_is_the_reciprocal(first, second):
    one, two = significance.spread(first, second), significance.spread(second, first)
    assert one
    assert two
    assert two[0] == pytest.approx(1 / one[0])
    assert two[1] == pytest.approx((1 / one[1].high, 1 / one[1].low))


@pytest.mark.parametrize(("first", "second"), [([0.5], [0.4, 0.6]), ([0.4, 0.6], [0.5]), ([0.5, 0.5], [0.4, 0.6])])
def test_spread_needs_two_deviations(first, second):
    assert significance.spread(first, second) is None


@given(st.lists(st.integers(0, 9).map(float), min_size=1, max_size=7))
def test_expected_maximum_is_the_mean_over_all_choices(scores):
    expected = [np.mean([max(c) for c in itertools.combinations(scores, k + 1)]) for k in range(len(scores))]
    assert significance.expected_maximum(scores) == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 3).map(float), st.integers(0, 9).map(float)), min_size=1, max_size=7))
def test_expected_choice_is_the_mean_over_all_choices_ties_being_shared(trials):
    """With seven trials and four values of the criterion many tie: a choice is worth the mean of its best ones."""

    def chosen(draw):
        best = max(criterion for criterion, _ in draw)
        return np.mean([score for criterion, score in draw if criterion == best])

    expected = [np.mean([chosen(c) for c in itertools.combinations(trials, k + 1)]) for k in range(len(trials))]
    assert significance.expected_choice(*zip(*trials, strict=True)) == pytest.approx(expected)


def test_expected_choice_needs_a_criterion_a_score():
    with pytest.raises(ValueError, match="expected a criterion a score, got 2 for 1"):
        significance.expected_choice([1.0, 2.0], [1.0])


def test_expected_maximum_of_many_trials_is_in_closed_form():
    """The best of k of 1 to n is (n + 1) k / (k + 1); binomials of 2,000 would not fit a float."""
    n, k = 2000, np.arange(1, 2001)
    assert significance.expected_maximum(list(range(1, n + 1))) == pytest.approx((n + 1) * k / (k + 1))
    with pytest.raises(ValueError, match="scores: expected a list of at least one number"):
        significance.expected_maximum([])


def test_rounding_is_a_share_of_scores_in_points():
    assert significance.summary([100 * (0.1 + 0.2), 100 * 0.3]).sd == 0.0
    assert significance.summary([75.0, 75.0 + 1e-9]).sd != 0.0


def test_holm_by_hand():
    assert significance.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert significance.holm([]) == []
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        significance.holm([1.2])


@given(P_VALUES)
def test_holm_raises_p_keeps_order_and_stays_under_bonferroni(p_values):
    adjusted = significance.holm(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert p <= q <= min(1.0, p * len(p_values) + 1e-12)
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()
    assert adjusted[order[0]] == pytest.approx(min(1.0, len(p_values) * min(p_values)))


@pytest.mark.parametrize(("value", "word"), [(0.9, "below"), (1.0, "within"), (2.0, "within"), (2.1, "above")])
def test_a_published_number_is_below_within_or_above_the_interval(value, word):
    assert significance.published_verdict(value, significance.Interval(1.0, 2.0)) == word
    assert significance.published_verdict(value, None) == "not tested"
