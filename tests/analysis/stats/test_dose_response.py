"""Dose and response: against scipy, against every resample, and in the cases without an order."""

import itertools

import numpy as np
import pytest
from scipy import stats as reference

from analysis.stats.dose_response import dose_response
from analysis.stats.estimate import Estimate

DOSES = [48.0, 54.5, 60.0, 60.0, 79.0]
RESPONSES = [[1.0, 2.0], [1.8, 1.7], [2.5, 1.2], [2.9, 3.3], [3.0, 3.6]]


def known(found: Estimate | None) -> Estimate:
    assert found is not None
    return found


def test_the_correlation_is_scipys_of_the_means() -> None:
    found = known(dose_response(DOSES, RESPONSES, resamples=10))
    means = [np.mean(seeds) for seeds in RESPONSES]
    assert found.value == pytest.approx(reference.spearmanr(DOSES, means).statistic)
    assert found.n == 5


@pytest.mark.slow
def test_the_interval_is_percentiles_over_every_draw_of_seeds_within_rungs() -> None:
    found = known(dose_response(DOSES, RESPONSES, resamples=40_000))
    means = [[np.mean(picked) for picked in itertools.product(seeds, repeat=2)] for seeds in RESPONSES]
    everything = [reference.spearmanr(DOSES, draw).statistic for draw in itertools.product(*means)]
    assert found.interval is not None
    for end, q in zip(found.interval, (0.025, 0.975), strict=True):
        low, high = np.quantile(everything, [max(q - 0.006, 0), min(q + 0.006, 1)], method="inverted_cdf")
        assert low - 1e-9 <= end <= high + 1e-9


def test_a_shift_of_all_responses_changes_nothing() -> None:
    """Gains over one baseline and the students' own scores have the same order."""
    shifted = [[value - 1.3 for value in seeds] for seeds in RESPONSES]
    assert dose_response(DOSES, shifted, resamples=500) == dose_response(DOSES, RESPONSES, resamples=500)


def test_a_perfect_order_without_noise_is_one() -> None:
    found = known(dose_response([1, 2, 3], [[1.0, 1.1], [2.0, 2.1], [3.0, 3.1]]))
    assert (found.value, found.interval) == (pytest.approx(1), pytest.approx((1, 1)))
    reverse = known(dose_response([3, 2, 1], [[1.0, 1.1], [2.0, 2.1], [3.0, 3.1]]))
    assert reverse.value == pytest.approx(-1)


def test_what_has_no_order_or_no_spread_is_none() -> None:
    assert dose_response(DOSES[:2], RESPONSES[:2]) is None
    one_seed = known(dose_response(DOSES, [*RESPONSES[:4], [3.0]]))
    assert one_seed.value is not None
    assert one_seed.interval is None
    assert dose_response([1, 2, 3], [[2.0, 2.0]] * 3) == Estimate(None, None, 3)
    with pytest.raises(ValueError, match="expected one list of responses a dose, got 4 for 5"):
        dose_response(DOSES, RESPONSES[:4])
    with pytest.raises(ValueError, match="responses, dose 2: expected finite"):
        dose_response([1, 2, 3], [[1.0], [float("nan")], [1.0]])
