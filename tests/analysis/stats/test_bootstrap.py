"""Bootstraps against exhaustive enumerations, scipy's own and closed forms; rank correlations against scipy's."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from analysis.stats import bootstrap
from analysis.stats.bootstrap import (
    difference_bootstrap,
    dose_response,
    interquartile_mean,
    mean,
    order_bootstrap,
    paired_bootstrap,
    probability_of_improvement,
    resampled_spearman,
    tau_b,
)
from analysis.stats.estimate import Estimate
from analysis.stats.significance import Interval

SEEDS = np.array([[70.0, 80.0], [71.0, 84.0], [73.0, 81.5]])
OTHERS = np.array([[69.5, 82.0], [72.5, 82.5], [70.0, 79.0]])
DOSES = [48.0, 54.5, 60.0, 60.0, 79.0]
RESPONSES = [[1.0, 2.0], [1.8, 1.7], [2.5, 1.2], [2.9, 3.3], [3.0, 3.6]]
WHOLE = st.integers(0, 3)  # few values: many ties


def draws(n):
    """All resamples of n, as index arrays."""
    return [np.array(picks) for picks in itertools.product(range(n), repeat=n)]


def assert_percentiles(interval, everything):
    """Ends lie between percentiles of all resamples that are a little further out and a little further in."""
    for end, q in zip(interval, (0.025, 0.975), strict=True):
        low, high = np.quantile(everything, [max(q - 0.006, 0), min(q + 0.006, 1)], method="inverted_cdf")
        assert low - 1e-9 <= end <= high + 1e-9


def known(found):
    assert found is not None
    return found


def some_pairs(n, seed=0, noise=(1.0, 1.3)):
    random = np.random.default_rng(seed)
    gold = np.round(random.uniform(0, 5, n), 1)
    return *(gold + scale * random.normal(size=n) for scale in noise), gold


def gap(first, second, gold):
    return reference.spearmanr(first, gold).statistic - reference.spearmanr(second, gold).statistic


def ranked_gap(first, second, gold):
    # the same, quick enough to call for every resample
    a, b, c = (reference.rankdata(x) for x in (first, second, gold))
    return np.corrcoef(a, c)[0, 1] - np.corrcoef(b, c)[0, 1]


@pytest.mark.slow
def test_paired_bootstrap_is_the_enumeration_of_all_resamples():
    first, second, gold = np.array([1.0, 2, 4, 3, 3]), np.array([2.0, 1, 1, 4, 3]), np.array([0.0, 1, 2, 2, 5])
    everything = []
    for picks in draws(5):
        if all(np.ptp(x[picks]) for x in (first, second, gold)):
            everything.append(ranked_gap(first[picks], second[picks], gold[picks]))
    found = paired_bootstrap([first], [second], [gold], resamples=40_000)
    assert found.difference == pytest.approx(gap(first, second, gold))
    assert_percentiles(found.interval, everything)
    tails = np.mean(np.array(everything) <= 1e-12), np.mean(np.array(everything) >= -1e-12)
    assert found.p == pytest.approx(2 * min(tails), abs=0.015)
    assert found.n == 5


@pytest.mark.slow
def test_paired_bootstrap_of_sets_is_the_mean_over_sets_whatever_their_sizes():
    sets = [some_pairs(12, 1), some_pairs(40, 2)]
    first, second, gold = (list(one) for one in zip(*sets, strict=True))
    found = paired_bootstrap(first, second, gold, resamples=4000)
    assert found.difference == pytest.approx((gap(*sets[0]) + gap(*sets[1])) / 2)
    assert found.n == 52
    random = np.random.default_rng(3)
    everything = []
    for _ in range(2000):
        picks = [random.integers(0, len(one[2]), len(one[2])) for one in sets]
        everything.append(np.mean([ranked_gap(*(x[p] for x in one)) for p, one in zip(picks, sets, strict=True)]))
    assert found.interval == pytest.approx(tuple(np.quantile(everything, [0.025, 0.975])), abs=0.02)


@pytest.mark.slow
def test_paired_p_is_small_as_often_as_it_says_where_encoders_are_equally_good():
    samples = [some_pairs(60, seed, (1.5, 1.5)) for seed in range(400)]
    p_values = [paired_bootstrap([a], [b], [gold], resamples=300).p for a, b, gold in samples]
    for share in (0.1, 0.5):
        assert np.mean(np.array(p_values) < share) == pytest.approx(share, abs=0.06)


def test_paired_bootstrap_keeps_its_properties():
    a, b, gold = some_pairs(80)
    found, back = paired_bootstrap([a], [b], [gold], 500), paired_bootstrap([b], [a], [gold], 500)
    assert (back.difference, back.p) == (pytest.approx(-known(found.difference)), found.p)
    assert back.interval == pytest.approx((-known(found.interval).high, -known(found.interval).low))
    assert paired_bootstrap([np.exp(a)], [b**3], [gold], 500) == found
    assert paired_bootstrap([a], [2 * a], [gold], 500) == bootstrap.Difference(0.0, Interval(0.0, 0.0), 1.0, 80)
    assert paired_bootstrap([gold], [-gold], [gold], 99).p == 2 / 100


def test_blocks_fill_every_resample(monkeypatch):
    a, b, gold = some_pairs(50)
    whole = paired_bootstrap([a], [b], [gold], 3001), difference_bootstrap(SEEDS, OTHERS, resamples=3001)
    monkeypatch.setattr(bootstrap, "BLOCK", 500)
    cut = paired_bootstrap([a], [b], [gold], 3001), difference_bootstrap(SEEDS, OTHERS, resamples=3001)
    assert cut[0].interval == pytest.approx(whole[0].interval, abs=0.01)
    assert cut[1].interval == pytest.approx(whole[1].interval, abs=0.2)


def test_a_correlation_that_is_undefined_leaves_nothing_to_compare():
    _, b, gold = some_pairs(10)
    assert paired_bootstrap([np.ones(10)], [b], [gold], 50) == bootstrap.Difference(None, None, None, 10)


def test_no_resample_is_refused():
    one = [np.arange(3.0)]
    with pytest.raises(ValueError, match="resamples must be at least 1, got 0"):
        paired_bootstrap(one, one, one, resamples=0)


@given(st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=1, max_size=7))
def test_interquartile_mean_is_rliables(rows):
    scores = np.array(rows, dtype=float)
    assert interquartile_mean(scores) == pytest.approx(reference.trim_mean(scores, 0.25, axis=None))
    both = interquartile_mean(np.stack([scores, 2 * scores]))
    assert both == pytest.approx(interquartile_mean(scores) * np.array([1, 2]))


@pytest.mark.parametrize("statistic", [mean, interquartile_mean])
def test_difference_bootstrap_is_the_enumeration_of_seeds_with_all_their_tasks(statistic):
    found = difference_bootstrap(SEEDS, OTHERS, statistic, 20_000)
    assert found.value == pytest.approx(statistic(SEEDS) - statistic(OTHERS))
    assert_percentiles(found.interval, [statistic(SEEDS[p]) - statistic(OTHERS[p]) for p in draws(3)])
    shifted = difference_bootstrap(SEEDS, SEEDS - 2, statistic, 500)
    assert (shifted.value, *known(shifted.interval)) == pytest.approx((2, 2, 2))


def test_probability_of_improvement_is_mann_and_whitneys():
    random = np.random.default_rng(6)
    a, b = random.integers(0, 6, (5, 3)).astype(float), random.integers(0, 6, (4, 3)).astype(float)
    expected = [reference.mannwhitneyu(a[:, task], b[:, task]).statistic / 20 for task in range(3)]
    found, back = probability_of_improvement(a, b, 200), probability_of_improvement(b, a, 200)
    assert found.value == pytest.approx(np.mean(expected))
    assert back.value == pytest.approx(1 - np.mean(expected))
    assert probability_of_improvement(a, a, 200).value == pytest.approx(0.5)
    assert probability_of_improvement(a + 6, b, 200) == Estimate(1.0, Interval(1.0, 1.0))


def test_probability_of_improvement_has_the_interval_of_the_enumeration():
    one, other = np.array([[1.0], [3.0], [4.0]]), np.array([[2.0], [3.0]])
    everything = [
        np.mean([(x > y) + (x == y) / 2 for x in one[p, 0] for y in other[q, 0]])
        for p, q in itertools.product(draws(3), draws(2))
    ]
    assert_percentiles(probability_of_improvement(one, other, 20_000).interval, everything)
    two = np.tile(one, 2), np.tile(other, 2)  # as two tasks that rise and fall together
    assert_percentiles(probability_of_improvement(*two, 20_000).interval, everything)


def test_order_bootstrap_is_the_enumeration():
    first, second = [[1.0, 4], [2.0, 3.5], [3.0, 5]], [[1.0, 2], [4.0, 3], [2.5, 6]]
    everything = []
    for picks in itertools.product(draws(2), repeat=3):
        orders = [[np.array(x)[i].mean() for x, i in zip(m, picks, strict=True)] for m in (first, second)]
        everything.append(reference.kendalltau(*orders).statistic)
    found = order_bootstrap(first, second, 20_000)
    assert found.value == pytest.approx(reference.kendalltau([2.5, 2.75, 4], [1.5, 3.5, 4.25]).statistic)
    assert_percentiles(found.interval, np.array(everything)[np.isfinite(everything)])
    assert order_bootstrap(first, first, 300) == Estimate(1.0, Interval(1.0, 1.0))
    assert order_bootstrap([[1.0, 1.0]] * 2, first[:2], 300) == Estimate(None, None)


def test_one_seed_has_no_interval():
    one, other = SEEDS[:1], OTHERS[:1]
    found = difference_bootstrap(one, other)
    assert (found.value, found.interval) == (pytest.approx(one.mean() - other.mean()), None)
    assert probability_of_improvement(one, SEEDS).interval is None


@pytest.mark.slow
def test_dose_response_is_the_enumeration_of_seeds_within_rungs():
    found = known(dose_response(DOSES, RESPONSES, resamples=40_000))
    assert found.value == pytest.approx(reference.spearmanr(DOSES, np.mean(RESPONSES, axis=1)).statistic)
    assert found.n == 5
    means = [[np.mean(picked) for picked in itertools.product(seeds, repeat=2)] for seeds in RESPONSES]
    everything = [reference.spearmanr(DOSES, draw).statistic for draw in itertools.product(*means)]
    assert_percentiles(found.interval, everything)


def test_a_shift_of_all_responses_changes_no_order():
    """Gains over one baseline and the students' own scores have the same order."""
    shifted = [[value - 1.3 for value in seeds] for seeds in RESPONSES]
    assert dose_response(DOSES, shifted, resamples=500) == dose_response(DOSES, RESPONSES, resamples=500)


def test_dose_response_of_a_perfect_order_is_one():
    found = known(dose_response([1, 2, 3], [[1.0, 1.1], [2.0, 2.1], [3.0, 3.1]]))
    assert (found.value, found.interval) == (pytest.approx(1), pytest.approx((1, 1)))
    reverse = known(dose_response([3, 2, 1], [[1.0, 1.1], [2.0, 2.1], [3.0, 3.1]]))
    assert reverse.value == pytest.approx(-1)


def test_dose_response_without_order_or_spread_is_none():
    assert dose_response(DOSES[:2], RESPONSES[:2]) is None
    one_seed = known(dose_response(DOSES, [*RESPONSES[:4], [3.0]]))
    assert one_seed.value is not None
    assert one_seed.interval is None
    assert dose_response([1, 2, 3], [[2.0, 2.0]] * 3) == Estimate(None, None, 3)
    with pytest.raises(ValueError, match="expected one list of responses a dose, got 4 for 5"):
        dose_response(DOSES, RESPONSES[:4])
    with pytest.raises(ValueError, match="responses, dose 2: expected finite"):
        dose_response([1, 2, 3], [[1.0], [float("nan")], [1.0]])


def constant(*arrays):
    return any(np.ptp(array) == 0 for array in arrays)


@given(st.lists(st.tuples(WHOLE, WHOLE, WHOLE, st.integers(0, 3)), min_size=4, max_size=12))
def test_spearman_of_a_resample_is_scipys_of_the_pairs_written_out(rows):
    first, second, gold, counts = np.array(rows, dtype=float).T
    counts = np.stack([counts, np.ones(len(counts)), counts[::-1]], axis=1).astype(int)
    found = resampled_spearman(np.stack([first, second]), gold, counts)
    for draw in range(3):
        picks = np.repeat(np.arange(len(gold)), counts[:, draw])
        for encoder, scores in enumerate((first, second)):
            if len(picks) < 2 or constant(scores[picks], gold[picks]):
                assert np.isnan(found[encoder, draw])
            else:
                expected = reference.spearmanr(scores[picks], gold[picks]).statistic
                assert found[encoder, draw] == pytest.approx(expected, abs=1e-12)


def test_spearman_stays_exact_in_narrow_counts():
    """Counts come as 32-bit numbers; the sums of products of 5,000 ranks are far beyond those."""
    random = np.random.default_rng(0)
    gold = random.normal(size=5000)
    scores = gold + random.normal(size=5000)
    found = resampled_spearman(scores[None], gold, np.ones((5000, 1), dtype=np.int32))
    assert found[0, 0] == pytest.approx(reference.spearmanr(scores, gold).statistic, abs=1e-13)


@given(st.lists(st.tuples(WHOLE, WHOLE), min_size=2, max_size=9))
def test_tau_is_scipys_for_every_draw(rows):
    a, b = np.array(rows, dtype=float).T
    a, b = np.stack([a, a[::-1]]), np.stack([b, b])
    for found, x, y in zip(tau_b(a, b), a, b, strict=True):
        if constant(x) or constant(y):
            assert np.isnan(found)
        else:
            assert found == pytest.approx(reference.kendalltau(x, y).statistic)


def test_tau_ties_what_was_summed_in_another_order():
    a, b = np.array([[0.1 + 0.2, 0.3, 1.0]]), np.array([[2.0, 1.0, 3.0]])
    assert tau_b(a, b)[0] == pytest.approx(reference.kendalltau([0.3, 0.3, 1.0], b[0]).statistic)
    assert tau_b(100 * a, b)[0] == pytest.approx(tau_b(a, b)[0])
