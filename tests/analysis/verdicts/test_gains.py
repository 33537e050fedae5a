"""Exploratory gains: their intervals by hand, whichever seeds are recorded, and no word of a verdict."""

from dataclasses import replace

import numpy as np
import pytest
import scipy

from analysis.cells import join
from analysis.report import study_tables
from analysis.verdicts.comparisons import judge
from analysis.verdicts.gains import gains
from experiments.schema.contrasts import EXPLORATORY, Contrast
from experiments.schema.study import Study
from tests.support.toy_study import FIRST, toy_lines


def contrast(better: str, worse: str, **more: object) -> Contrast:
    kind = {"subject": f"{better} over {worse}", "family": "toys", "kind": EXPLORATORY} | more
    return Contrast(plus=(better,), minus=(worse,), **kind)  # ty: ignore[invalid-argument-type]


@pytest.mark.parametrize("paired", [True, False])
def test_a_gain_is_the_difference_of_means_with_its_t_interval(study: Study, paired: bool) -> None:
    shown = replace(study, contrasts=(contrast("Better", "SimCSE", paired=paired),), comparisons=())
    (found,) = gains(join(shown, toy_lines()))
    a, b = (100 * np.array(list(FIRST[name].values())) for name in ("Better", "SimCSE"))
    test = scipy.stats.ttest_rel(a, b) if paired else scipy.stats.ttest_ind(a, b, equal_var=False)
    low, high = test.confidence_interval(0.95)
    assert found.estimate is not None
    assert (found.estimate.mean, found.estimate.n) == (pytest.approx((a - b).mean()), 3)
    assert found.estimate.interval() == pytest.approx((low, high))


def test_what_is_not_recorded_has_no_gain_and_one_seed_no_interval(study: Study) -> None:
    some = (contrast("Absent", "SimCSE"), contrast("One seed", "SimCSE", paired=True, published=2.0))
    results = join(replace(study, contrasts=(*some, contrast("Better", "SimCSE", kind="primary"))), toy_lines())
    absent, single = gains(results)
    assert absent.estimate is None
    assert single.estimate is not None
    assert (single.estimate.n, single.estimate.interval()) == (1, None)
    grid = study_tables.grids(results)[-1]
    assert grid.rows == (
        ("Absent over SimCSE", "–", "–", "0", "no", "–"),
        ("One seed over SimCSE", "+5.00", "–", "1", "by seed", "+2.00"),
    )
    assert len(judge(results)) == len(study.comparisons)


def test_a_study_without_such_contrasts_has_no_such_grid(study: Study) -> None:
    assert not any("exploratory" in grid.title for grid in study_tables.grids(join(study, toy_lines())))
