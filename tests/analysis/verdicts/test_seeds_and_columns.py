"""Comparisons read the seeds, columns and values that they name, no fewer and no others."""

from dataclasses import replace

import pytest

from analysis.cells import join
from analysis.report.verdict_tables import verdict_grid
from analysis.stats.significance import Paired
from analysis.verdicts.claims import judge
from experiments.schema.columns import column
from experiments.schema.hypotheses import Comparison, Order
from experiments.schema.study import Study
from tests.support.scored_rows import by_seed, judged, scored


def test_an_order_that_agrees_a_little_is_contradicted(study: Study) -> None:
    levels = {name: by_seed(x, x + 0.001, x + 0.002) for name, x in zip("abcd", (0.2, 0.4, 0.6, 0.8), strict=True)}
    partly = {f"{name}, last": levels[other] for name, other in zip("abcd", "badc", strict=True)}
    order = Order("S3", tuple("abcd"), "sts_avg", "sts_avg", suffix=", last")
    (one,) = judged(study, levels | partly, findings=(order,))
    assert one.estimate.interval == pytest.approx((1 / 3, 1 / 3))
    assert one.verdict == "contradicted"


def test_an_order_names_its_fewest_seeds(study: Study) -> None:
    scores = {name: by_seed(i / 10, i / 10 + 0.001, i / 10 + 0.002) for i, name in enumerate("abc")}
    scores["d"] = {42: [0.9], 1: [0.901]}
    (one,) = judged(study, scores, findings=(Order("S1", tuple("abcd"), "sts_avg", "sts12"),))
    assert one.seeds == "2, 4 rows"


def test_a_spread_takes_all_seeds_of_each_row(study: Study) -> None:
    rows = {"a": by_seed(0.50, 0.51, 0.53), "b": {42: [0.50], 1: [0.53]}}
    (one,) = judged(study, rows, comparisons=(Comparison("R10", "a", "b", kind="spread"),))
    assert (one.estimate.n, one.seeds) == ((3, 2), "3, 2")


def test_a_column_of_three_digits_has_smaller_differences(study: Study) -> None:
    rows, lines = scored({"a": by_seed(0.502, 0.513, 0.521), "b": by_seed(0.5, 0.51, 0.52)}, ("stsb_dev_geometry",))
    lines["metric"] = "uniformity"
    assert column("uniformity").digits == 3
    compared = (Comparison("W6", "a", "b", "uniformity"),)
    (one,) = judge(join(replace(study, rows=rows, columns=("uniformity",), comparisons=compared), lines))
    assert one.p is not None
    assert isinstance(one.estimate, Paired)
    assert one.estimate.mean == pytest.approx(0.002)


def test_parity_shows_the_difference_from_its_value(study: Study) -> None:
    parity = (Comparison("S2", "a", "a", kind="parity", value=50.0, margin=2.0),)
    (one,) = found = judged(study, {"a": by_seed(0.50, 0.51, 0.52)}, comparisons=parity)
    assert one.estimate.mean == pytest.approx(1.0)
    assert verdict_grid(found).rows[0][3] == "+1.00"


def test_a_treatment_that_moved_a_score_by_rounding_never_acted(study: Study) -> None:
    scores = {"a": by_seed(0.520001, 0.53, 0.54), "b": by_seed(0.50, 0.51, 0.53), "base": by_seed(0.52, 0.53, 0.54)}
    (one,) = judged(study, scores, comparisons=(Comparison("E12", "a", "b", requires_difference=("a", "base")),))
    assert (one.verdict, one.reason) == ("not tested", "a is base on every seed, but for rounding")
