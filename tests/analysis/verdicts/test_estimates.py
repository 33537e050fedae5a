"""Estimates of each kind of test, on scores whose answer is known; seeds are noisy, so that a wrong wire shows."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from analysis import benchmark_ratios
from analysis.cells import join
from analysis.stats import significance
from analysis.stats.estimate import Estimate
from analysis.stats.significance import Interval
from analysis.verdicts import estimates
from analysis.verdicts.claims import claims
from analysis.verdicts.estimates import measure, supports
from analysis.verdicts.looks import study_verdicts
from analysis.verdicts.verdict import CONTRADICTED, INCONCLUSIVE, SUPPORTED, Verdict
from cse_core.data.senteval import STS_TEST
from cse_core.metrics import neighbours
from experiments.results import csv_record
from experiments.schema.contrasts import BINS, SPREAD, Contrast
from experiments.schema.hypotheses import Cost, Finding, Order, Trend, Untested
from experiments.schema.study import Published, Row, Study
from experiments.studies.catalogue import choose_studies
from tests.support.scored_rows import by_seed, judged, scored
from tests.support.toy_study import SEEDS, toy_run


def pair(kind: str = "mean", **more: object) -> Contrast:
    return Contrast(claim="R1", plus=("a",), minus=("b",), **({"paired": True, "kind": kind} | more))  # ty: ignore


def word(found: Verdict) -> str:
    assert found.estimate
    assert found.estimate.interval
    return supports(found.tested, found.estimate.interval)


def value(found: Verdict) -> float:
    assert found.estimate
    assert found.estimate.value is not None
    return found.estimate.value


def test_a_paired_contrast_is_the_difference_over_the_seeds_that_both_rows_have(study: Study) -> None:
    """Seeds are paired by number and not by place, and a seed on which both rows coincide is one of them."""
    rows = {"a": {42: [0.60], 1: [0.50], 2: [0.70], 7: [0.9]}, "b": {2: [0.65], 42: [0.60], 1: [0.49]}}
    (one,) = judged(study, rows, pair())
    assert one.estimate
    test = scipy_stats.ttest_1samp([0.0, 1.0, 5.0], 0)
    assert (one.estimate.mean, one.estimate.n, one.word) == (pytest.approx(2.0), 3, "")
    assert one.estimate.difference_p() == pytest.approx(test.pvalue)
    assert one.estimate.interval == pytest.approx(tuple(test.confidence_interval()))


def test_what_is_not_recorded_has_no_estimate_but_a_reason(study: Study, lines: pd.DataFrame) -> None:
    better, one_seed, absent, *_ = study_verdicts(join(study, lines))
    assert value(better) == pytest.approx((10 + 10 + 11) / 3)
    assert better.published == pytest.approx(80.05 - 76.25)
    assert one_seed.estimate
    assert (one_seed.estimate.n, one_seed.estimate.interval) == (1, None)
    assert (absent.estimate, absent.reason) == (None, "no stand-in for RoBERTa")
    nothing = study_verdicts(join(study, lines.iloc[:0]))
    assert nothing[0].reason == "no seed of Better has sts_avg; no seed of SimCSE has sts_avg"
    apart = Contrast(plus=("SimCSE",), minus=("As it is",), paired=True)
    assert measure(join(replace(study, contrasts=(apart,)), lines), apart).reason == "no seed in common"


def test_a_column_of_three_digits_has_smaller_differences(study: Study) -> None:
    rows, lines = scored({"a": by_seed(0.502, 0.513, 0.521), "b": by_seed(0.5, 0.51, 0.52)}, ("stsb_dev_geometry",))
    lines["metric"] = "uniformity"
    shown = replace(study, rows=rows, columns=("uniformity",), contrasts=(pair(column="uniformity"),))
    assert value(study_verdicts(join(shown, lines))[0]) == pytest.approx(0.002)


@pytest.mark.parametrize("seed", [42, 1])
def test_a_student_is_compared_with_the_run_that_taught_all_its_seeds(study: Study, seed: int) -> None:
    scores = {"a": by_seed(0.55, 0.553, 0.552), "b": by_seed(0.50, 0.60, 0.555)}
    (one,) = judged(study, scores, pair(teacher_seed=seed))
    assert one.estimate
    test = scipy_stats.ttest_1samp([55.0, 55.3, 55.2], 100 * scores["b"][seed][0])
    assert one.estimate.difference_p() == pytest.approx(test.pvalue)
    (none,) = judged(study, scores, pair(teacher_seed=7))
    assert (none.estimate, none.reason) == (None, "no score of b, seed 7")


def test_one_row_is_tested_against_zero(study: Study) -> None:
    (one,) = judged(study, {"a": by_seed(0.50, 0.51, 0.53)}, Contrast(claim="E4", plus=("a",)))
    assert one.estimate
    assert one.estimate.interval == pytest.approx(tuple(scipy_stats.ttest_1samp([50, 51, 53], 0).confidence_interval()))


def test_a_spread_is_the_ratio_of_deviations_and_holds_where_the_first_varies_less(study: Study) -> None:
    scores = {"a": by_seed(0.500, 0.501, 0.503), "b": by_seed(0.3, 0.5, 0.9)}
    (less,) = judged(study, scores, pair(SPREAD))
    assert value(less) == pytest.approx(np.std([0.500, 0.501, 0.503]) / np.std([0.3, 0.5, 0.9]))
    (more,) = judged(study, scores, replace(pair(SPREAD), plus=("b",), minus=("a",)))
    (alike,) = judged(study, {"a": scores["a"], "b": by_seed(0.4, 0.402, 0.405)}, pair(SPREAD))
    assert [word(found) for found in (less, more, alike)] == [SUPPORTED, CONTRADICTED, INCONCLUSIVE]
    (none,) = judged(study, {"a": {42: [0.5]}, "b": scores["b"]}, pair(SPREAD))
    assert (none.estimate, none.reason) == (None, "a deviation needs two seeds that differ")


def test_a_trend_over_bins_is_no_surer_with_more_seeds(study: Study) -> None:
    bins = Contrast(claim="E4", kind=BINS, plus=("a",))
    (one,) = judged(study, {"a": {42: [0.0057]}}, bins)
    (three,) = judged(study, {"a": by_seed(0.0057, 0.0057, 0.0057)}, bins)
    assert one.estimate
    assert three.estimate
    half = scipy_stats.norm.ppf(0.975) / np.sqrt(5)  # of six bins
    assert one.estimate.interval == three.estimate.interval == pytest.approx((0.57 - half, 1.0))
    assert (word(three), three.estimate.n) == (INCONCLUSIVE, 3)
    (strong,) = judged(study, {"a": by_seed(0.009, 0.0091, 0.009)}, bins)
    assert word(strong) == SUPPORTED


def test_no_recorded_run_has_fewer_bins_than_the_test_counts() -> None:
    paths = list(csv_record.MLRUNS.glob("figure_data/*/stsb_neighbours*.npz"))
    counts = [len(neighbours.bins(np.load(path)["cosines"])) for path in paths]
    assert counts
    assert min(counts) >= estimates.FEWEST_BINS


# Seeds move a row by tens of points, rows differ by two: only with the same seeds in both columns is their order one.
NOISY = {
    "a": by_seed(0.20, 0.52, 0.81),
    "b": by_seed(0.84, 0.21, 0.50),
    "c": by_seed(0.53, 0.86, 0.22),
    "d": by_seed(0.25, 0.55, 0.87),
}


def test_an_order_draws_the_same_seeds_for_both_columns(study: Study) -> None:
    (one,) = judged(study, NOISY, Order("S1", tuple(NOISY), "sts_avg", "sts12"))
    assert one.estimate
    assert one.estimate.interval == pytest.approx((1.0, 1.0))  # by two draws it would reach far below 0
    assert (word(one), one.estimate.seeds) == (SUPPORTED, "3, 4 rows")


@pytest.mark.parametrize(
    ("places", "tau", "expected"), [("abcd", 1.0, SUPPORTED), ("badc", 1 / 3, CONTRADICTED), ("dcba", -1, CONTRADICTED)]
)
def test_an_order_with_a_suffix_compares_each_row_with_its_own(
    study: Study, places: str, tau: float, expected: str
) -> None:
    levels = {name: by_seed(x, x + 0.001, x + 0.002) for name, x in zip("abcd", (0.2, 0.4, 0.6, 0.8), strict=True)}
    last = {f"{name}, last": levels[other] for name, other in zip("abcd", places, strict=True)}
    (one,) = judged(study, levels | last, Order("S3", tuple("abcd"), "sts_avg", "sts_avg", suffix=", last"))
    assert value(one) == pytest.approx(tau)
    assert word(one) == expected


def test_an_order_rests_on_rows_with_two_seeds_and_names_its_fewest(study: Study) -> None:
    three = {x: by_seed(i / 10, i / 10 + 0.001, i / 10 + 0.002) for i, x in enumerate("abc")}
    order = Order("S1", tuple("abcd"), "sts_avg", "sts12")
    for other, seeds in (({42: [0.9]}, "3, 3 rows"), ({42: [0.9], 1: [0.901]}, "2, 4 rows")):
        (one,) = judged(study, three | {"d": other}, order)
        assert one.estimate
        assert one.estimate.seeds == seeds
    two = {label: by_seed(x, x, x) for label, x in (("a", 0.2), ("b", 0.4))}
    (none,) = judged(study, two, Order("S1", ("a", "b"), "sts_avg", "sts_avg"))
    assert (none.estimate, none.reason) == (None, "2 of 2 rows have two seeds; an order needs three")


SIZE = [0.1, 0.5, 0.2, 0.7, 0.3, 0.6, 0.4]


def test_a_trend_takes_gains_of_seeds_that_both_rows_have(study: Study) -> None:
    """Gains of one seed over another's baseline would be noise, and more seeds make no interval narrower."""
    base = {42: [0.9, 0.1, 0.5, 0.3, 0.7, 0.2, 0.4], 1: [0.1, 0.8, 0.2, 0.9, 0.3, 0.6, 0.5], 2: [0.5] * 7}
    wobble = {42: [0.0] * 7, 1: [0.0, 0.0, 0.027, 0.0, 0.0, 0.0, 0.0], 2: [0.07] + [0.0] * 6}
    better = {
        seed: [x + size / 10 + e for x, size, e in zip(base[seed], SIZE, wobble[seed], strict=True)] for seed in SEEDS
    }
    worse = {seed: base[seed] for seed in (42, 2)}
    trend = Trend("E9", "better", "worse", STS_TEST, "data", STS_TEST)
    (one,) = judged(study, {"better": better, "worse": worse, "data": dict.fromkeys(SEEDS, SIZE)}, trend)
    rho = scipy_stats.spearmanr(np.mean([wobble[42], wobble[2]], axis=0) + np.array(SIZE) / 10, SIZE).statistic
    assert rho < 0.99
    assert one.estimate
    half = scipy_stats.norm.ppf(0.975) / np.sqrt(6)  # of seven columns
    assert (value(one), one.estimate.n) == (pytest.approx(rho), 2)
    assert one.estimate.interval == pytest.approx((rho - half, 1.0))
    flat = {"better": {42: [0.4]}, "worse": {42: [0.3]}, "data": {42: SIZE}}
    (none,) = judged(study, flat, trend)
    assert (none.estimate, none.reason) == (None, "all columns have the same gain, or the same value")


def ratio(low: float, high: float, turns: int = 3) -> Estimate:
    return Estimate(1.5, Interval(low, high), turns, " turns")


@pytest.mark.parametrize(
    ("times", "at_most", "expected"),
    [
        (1.5, False, SUPPORTED),
        (1.53, False, SUPPORTED),
        (1.6, False, INCONCLUSIVE),
        (1.3, False, INCONCLUSIVE),
        (1.2, False, CONTRADICTED),
        (1.8, False, CONTRADICTED),
        (1.1, True, CONTRADICTED),
        (1.5, True, INCONCLUSIVE),
        (2.0, True, SUPPORTED),
    ],
)
def test_a_cost_is_judged_by_the_quartiles_of_its_turns(
    study: Study, monkeypatch: pytest.MonkeyPatch, times: float, at_most: bool, expected: str
) -> None:
    monkeypatch.setattr(benchmark_ratios, "ratio", lambda what: ratio(1.4, 1.6) if what == "an epoch" else None)
    costs = (Cost("R14", "an epoch", times, at_most=at_most), Cost("R14", "a step", times))
    one, none = judged(study, {"a": by_seed(0.5, 0.5, 0.5)}, *costs)
    assert one.estimate
    assert (word(one), one.estimate.seeds) == (expected, "3 turns")
    assert one.published == (None if at_most else times)
    assert (none.estimate, none.reason) == (None, "no benchmark of 'a step'")
    monkeypatch.setattr(benchmark_ratios, "ratio", lambda what: ratio(0.5, 3.0))
    (noise,) = judged(study, {"a": by_seed(0.5, 0.5, 0.5)}, costs[0])
    assert word(noise) == INCONCLUSIVE
    (elsewhere,) = judged(replace(study, scale=replace(study.scale, name="paper")), {"a": {42: [0.5]}}, costs[0])
    assert elsewhere.reason == "benchmarks are of the scale small"


@pytest.mark.slow
def test_the_benchmarks_that_costs_name_are_measured() -> None:
    for study in choose_studies(["all"], "small"):
        for cost in (finding for finding in study.findings if isinstance(finding, Cost)):
            found = benchmark_ratios.ratio(cost.what)
            assert found is not None
            assert found.interval is not None
            assert 0.5 < found.interval.low <= found.interval.high
    assert benchmark_ratios.ratio("no such ratio") is None


def test_what_nothing_tests_says_why(study: Study) -> None:
    (one,) = judged(study, {"a": {42: [0.5]}}, Untested("R14", "the large backbone", "no benchmark of it"))
    assert (one.estimate, one.reason) == (None, "no benchmark of it")


def test_published_effects_are_those_of_the_contrasts_rows(study: Study) -> None:
    def row(label: str, i: int) -> Row:
        published = Published("rankcse_table6", "BERT-base", label, columns={"sts_avg": "STS Avg"})
        return Row(label=label, encoder=toy_run(0.05 + i / 100), seeds=SEEDS, published=published, published_runs=5)

    rows = tuple(row(label, i) for i, label in enumerate(("RankCSE-listMLE", "SimCSE")))
    more, less = (row.label for row in rows)
    tested: Mapping[str, Contrast | Finding] = {
        "mean": Contrast(plus=(more,), minus=(less,)),
        "sum": Contrast(plus=(more, more), minus=(less,), over=2),
        "spread": Contrast(kind=SPREAD, plus=(more,), minus=(less,)),
        "alone": Contrast(plus=(more,)),
    }
    results = join(
        replace(study, rows=rows, contrasts=tuple(tested.values())), pd.DataFrame(columns=csv_record.RESULTS)
    )
    found = {name: measure(results, each).published for name, each in tested.items()}
    # RankCSE, Table 6: 80.39 +- 0.04 against 75.52 +- 0.70.
    printed = {"mean": 4.87, "sum": 80.39 - 75.52 / 2, "spread": 0.04 / 0.70, "alone": None}
    assert found == pytest.approx(printed)


def test_claims_are_read_with_their_words() -> None:
    assert claims()["R6"] == "the consistency loss alone is worse than SimCSE"
    assert {"R1", "R17", "E13", "W9", "C11", "S4"} <= set(claims())


def test_thresholds_are_as_declared() -> None:
    """A changed one changes verdicts of the past: each needs a reason in PLAN.md."""
    from cse_core.metrics import geometry
    from experiments.execution import plan
    from experiments.results import row_scores
    from experiments.schema import contrasts, hypotheses, scales
    from experiments.searches import spaces

    assert (significance.LEVEL, significance.ALPHA, significance.POWER) == (0.95, 0.05, 0.8)
    assert (estimates.FEWEST_BINS, estimates.AGREES, estimates.COST_TOLERANCE) == (6, 0.8, 0.1)
    assert row_scores.POINT == 0.01
    assert (hypotheses.NEGLIGIBLE_COST_RATIO, contrasts.MARGIN) == (1.1, 1.0)
    assert plan.SCORE_TOLERANCE == 5e-5
    assert (scales.SEARCH_SEEDS, spaces.PUBLISHED_RATE, spaces.TRIALS) == ((101, 102), 3e-5, 24)
    assert geometry.positives(pd.Series([3.9, 4.0, 4.01, 5.0]).to_numpy()).tolist() == [2, 3]
