"""A study's gains: their intervals by hand, whichever seeds are recorded, and no word of a verdict."""

from dataclasses import replace

import numpy as np
import pytest
import scipy

from analysis.cells import join
from analysis.report.contrast_tables import contrasts_block, contrasts_grid
from analysis.verdicts.gains import gains
from analysis.verdicts.looks import study_verdicts
from experiments.schema.contrasts import PRIMARY, Contrast
from experiments.schema.study import Study
from tests.support.toy_study import FIRST, toy_lines


@pytest.mark.parametrize("paired", [True, False])
def test_a_gain_is_the_difference_of_means_with_its_t_interval(study: Study, paired: bool) -> None:
    shown = replace(study, contrasts=(Contrast(plus=("Better",), minus=("SimCSE",), paired=paired),))
    (found,) = gains(join(shown, toy_lines()))
    a, b = (100 * np.array(list(FIRST[name].values())) for name in ("Better", "SimCSE"))
    test = scipy.stats.ttest_rel(a, b) if paired else scipy.stats.ttest_ind(a, b, equal_var=False)
    low, high = test.confidence_interval(0.95)
    assert found.estimate is not None
    assert (found.estimate.mean, found.estimate.n) == (pytest.approx((a - b).mean()), 3)
    assert found.estimate.interval == pytest.approx((low, high))


def test_what_is_not_recorded_has_no_gain_and_one_seed_no_interval(study: Study) -> None:
    contrasts = (
        Contrast(plus=("Absent",), minus=("SimCSE",)),
        Contrast(plus=("One seed",), minus=("SimCSE",), paired=True),
        Contrast(claim="R1", family="f", role=PRIMARY, plus=("Better",), minus=("SimCSE",), margin=1.0),
    )
    results = join(replace(study, contrasts=contrasts), toy_lines())
    absent, single = gains(results)
    assert absent.estimate is None
    assert single.estimate is not None
    assert (single.estimate.n, single.estimate.interval, single.word) == (1, None, "")
    assert contrasts_grid(study_verdicts(results)).rows == (
        ("Absent − SimCSE", "STS avg", "–", "–", "0", "Welch", "–"),
        ("One seed − SimCSE", "STS avg", "+5.00", "–", "1", "paired", "–"),
    )
    assert "The plan judges this study's contrasts" in contrasts_block(results)


def test_a_study_that_compares_nothing_says_nothing(study: Study) -> None:
    assert contrasts_block(join(replace(study, contrasts=()), toy_lines())) == ""
