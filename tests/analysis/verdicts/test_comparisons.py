"""The kinds of claims beside a difference of means, each on scores whose answer is known."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from analysis import benchmark_ratios
from analysis.cells import join
from analysis.report.verdict_tables import how_judged, overall_lines, verdict_grid
from analysis.stats import significance
from analysis.verdicts.claims import overall
from analysis.verdicts.comparisons import BINS
from cse_core.data.senteval import TRANSFER
from cse_core.metrics import neighbours
from experiments.results import csv_record
from experiments.schema.columns import STS, column
from experiments.schema.hypotheses import MARGIN, Comparison, Cost, Order, Trend, Untested
from experiments.schema.study import BY_TRANSFER, SNAPSHOTS, Row
from experiments.studies.catalogue import choose_studies
from tests.support.scored_rows import by_seed, judged, scored
from tests.support.toy_study import SEEDS, toy_line, toy_run


@pytest.mark.parametrize(("margin", "verdict"), [(0.5, "supported"), (5.0, "contradicted")])
def test_beyond_a_margin_is_a_test_of_the_difference_against_it(study, margin, verdict):
    scores = {"a": by_seed(0.52, 0.53, 0.541), "b": by_seed(0.50, 0.51, 0.52)}
    beyond = (Comparison("C3", "a", "b", kind="beyond", margin=margin),)
    (one,) = found = judged(study, scores, comparisons=beyond)
    assert one.p == pytest.approx(scipy_stats.ttest_1samp([2.0, 2.0, 2.1], margin).pvalue)
    assert one.verdict == verdict
    (line,) = verdict_grid(found).rows
    assert line[1].endswith(f"beyond {margin:g}")
    assert line[3] == "+2.03"  # the difference itself


def test_a_treatment_that_never_acted_is_not_tested(study):
    scores = {"a": by_seed(0.52, 0.53, 0.54), "b": by_seed(0.50, 0.51, 0.53), "base": by_seed(0.52, 0.53, 0.54)}
    acts = (
        Comparison("E12", "a", "b", requires_difference=("a", "base")),
        Comparison("E12", "a", "b", requires_difference=("b", "base")),
    )
    idle, other = judged(study, scores, comparisons=acts)
    assert (idle.verdict, idle.reason) == ("not tested", "a is base on every seed, but for rounding")
    assert other.p is not None


def test_each_reading_of_a_text_has_a_verdict_of_its_own(study):
    scores = {"a": by_seed(0.60, 0.61, 0.62), "b": by_seed(0.50, 0.511, 0.52)}
    both = (Comparison("W1", "a", "b", reading="text"), Comparison("W1", "b", "a", reading="code"))
    found = overall(judged(study, scores, comparisons=both))
    assert [(one.reading, one.verdict) for one in found] == [("text", "supported"), ("code", "contradicted")]
    assert "(text): **supported**" in overall_lines(found)[0]


SAME = (Comparison("E7", "a", "b", kind="same"),)


def test_two_means_are_the_same_if_both_one_sided_tests_say_so(study):
    close = {"a": by_seed(0.5001, 0.5102, 0.5200), "b": by_seed(0.5000, 0.5100, 0.5201)}
    (one,) = judged(study, close, comparisons=SAME)
    differences = np.array([0.01, 0.02, -0.01])
    error = differences.std(ddof=1) / np.sqrt(3)
    below, above = (differences.mean() + MARGIN) / error, (MARGIN - differences.mean()) / error
    assert one.p == pytest.approx(max(scipy_stats.t(2).sf(below), scipy_stats.t(2).sf(above)))
    assert one.verdict == "supported"


def test_two_means_beyond_the_margin_contradict_that_they_are_the_same(study):
    far = {"a": by_seed(0.530, 0.541, 0.549), "b": by_seed(0.50, 0.51, 0.52)}
    assert judged(study, far, comparisons=SAME)[0].verdict == "contradicted"
    unsure = {"a": by_seed(0.50, 0.51, 0.53), "b": by_seed(0.51, 0.50, 0.52)}
    assert judged(study, unsure, comparisons=SAME)[0].verdict == "undecided"


def test_a_positive_score_is_tested_against_zero(study):
    claim = (Comparison("E4", "a", "a", kind="positive"),)
    (one,) = judged(study, {"a": by_seed(0.50, 0.51, 0.52)}, comparisons=claim)
    assert one.p == pytest.approx(scipy_stats.ttest_1samp([50, 51, 52], 0).pvalue)
    assert one.verdict == "supported"
    (below,) = judged(study, {"a": by_seed(-0.50, -0.51, -0.52)}, comparisons=claim)
    assert below.verdict == "contradicted"
    (single,) = judged(study, {"a": {42: [0.5]}}, comparisons=claim)
    assert (single.verdict, single.reason) == ("not tested", "one seed")


def test_orders_that_agree_by_far_are_the_same_and_opposite_ones_are_not(study):
    levels = {label: by_seed(x, x + 0.001, x + 0.002) for label, x in zip("abcd", (0.2, 0.4, 0.6, 0.8), strict=True)}
    rising = {f"{label}, last": found for label, found in levels.items()}
    falling = {f"{label}, last": levels[other] for label, other in zip("abcd", "dcba", strict=True)}
    order = Order("S3", tuple("abcd"), "sts_avg", "sts_avg", suffix=", last")
    (same,) = judged(study, levels | rising, findings=(order,))
    assert same.estimate.value == pytest.approx(1.0)
    assert (same.verdict, same.seeds) == ("supported", "3, 4 rows")
    (opposite,) = judged(study, levels | falling, findings=(order,))
    assert opposite.estimate.value == pytest.approx(-1.0)
    assert opposite.verdict == "contradicted"


def test_an_order_of_too_few_rows_is_not_tested(study):
    two = {label: by_seed(x, x, x) for label, x in (("a", 0.2), ("b", 0.4))}
    (one,) = judged(study, two, findings=(Order("S1", ("a", "b"), "sts_avg", "sts_avg"),))
    assert (one.verdict, one.reason) == ("not tested", "2 of 2 rows have two seeds; an order needs three")


def test_a_trend_is_spearman_over_columns_whatever_the_number_of_seeds(study):
    size = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    noise = ([0, 0, 0, 0, 0, 0, 0], [0, 0, 0.02, 0, 0, 0, 0], [0.02, 0, 0, 0, 0, 0, 0])
    worse = by_seed(0.3, 0.3, 0.3)
    gains = [[0.3 + x / 10 + e for x, e in zip(size, errors, strict=True)] for errors in noise]
    better = dict(zip(SEEDS, gains, strict=True))
    trend = Trend("E9", "better", "worse", STS, "data", STS)
    (one,) = judged(study, {"better": better, "worse": worse, "data": {42: size}}, findings=(trend,))
    rho = scipy_stats.spearmanr(np.mean(gains, axis=0), size).statistic
    assert one.estimate.value == pytest.approx(rho)
    assert one.p == pytest.approx(2 * scipy_stats.norm.sf(rho * np.sqrt(6)))
    assert (one.verdict, one.seeds) == ("supported", "3")
    same = {"better": {42: gains[0]}, "worse": {42: [0.3]}, "data": {42: size}}
    (single,) = judged(study, same, findings=(trend,))
    assert (single.estimate.value, single.p) == (pytest.approx(1), pytest.approx(2 * scipy_stats.norm.sf(np.sqrt(6))))
    (flat,) = judged(study, {"better": {42: [0.4]}, "worse": {42: [0.3]}, "data": {42: size}}, findings=(trend,))
    assert (flat.verdict, flat.reason) == ("not tested", "all columns have the same gain, or the same value")


@pytest.mark.parametrize(
    ("times", "at_most", "verdict"),
    [
        (1.5, False, "supported"),
        (1.53, False, "supported"),
        (1.6, False, "undecided"),
        (1.3, False, "undecided"),
        (1.2, False, "contradicted"),
        (1.8, False, "contradicted"),
        (1.1, True, "contradicted"),
        (1.5, True, "undecided"),
        (2.0, True, "supported"),
    ],
)
def test_a_cost_is_judged_by_the_quartiles_of_its_turns(study, monkeypatch, times, at_most, verdict):
    found = significance.Spread(1.5, significance.Interval(1.4, 1.6), None, (3, 3))
    monkeypatch.setattr(benchmark_ratios, "ratio", lambda what: found if what == "an epoch" else None)
    (one,) = judged(study, {"a": by_seed(0.5, 0.5, 0.5)}, findings=(Cost("R14", "an epoch", times, at_most=at_most),))
    assert (one.verdict, one.seeds) == (verdict, "3 turns")
    (none,) = judged(study, {"a": by_seed(0.5, 0.5, 0.5)}, findings=(Cost("R14", "a step", times),))
    assert (none.verdict, none.reason) == ("not tested", "no benchmark of 'a step'")


def test_noise_supports_no_cost(study, monkeypatch):
    """Quartiles far apart around the claim's number say nothing."""
    wide = significance.Spread(1.5, significance.Interval(1.0, 2.0), None, (3, 3))
    monkeypatch.setattr(benchmark_ratios, "ratio", lambda what: wide)
    (one,) = judged(study, {"a": by_seed(0.5, 0.5, 0.5)}, findings=(Cost("R14", "an epoch", 1.5),))
    assert one.verdict == "undecided"


@pytest.mark.parametrize(("seed", "verdict"), [(42, "supported"), (1, "contradicted")])
def test_a_student_is_compared_with_the_run_that_taught_all_its_seeds(study, seed, verdict):
    scores = {"student": by_seed(0.55, 0.553, 0.552), "teacher": by_seed(0.50, 0.60, 0.555)}
    claim = (Comparison("R5", "student", "teacher", kind="teacher", teacher_seed=seed),)
    (one,) = found = judged(study, scores, comparisons=claim)
    taught_by = 100 * scores["teacher"][seed][0]
    assert one.p == pytest.approx(scipy_stats.ttest_1samp([55.0, 55.3, 55.2], taught_by).pvalue)
    assert (one.verdict, one.seeds) == (verdict, "3")
    (line,) = verdict_grid(found).rows
    assert line[1] == f"student \N{MINUS SIGN} teacher, seed {seed}"
    (none,) = judged(study, scores, comparisons=(replace(claim[0], teacher_seed=7),))
    assert (none.verdict, none.reason) == ("not tested", "no score of teacher, seed 7")


def test_parity_is_nearness_to_a_value(study):
    def verdict(*values: float) -> str:
        claim = (Comparison("C10", "a", "a", kind="parity", value=50.0, margin=5.0),)
        (one,) = found = judged(study, {"a": by_seed(*values)}, comparisons=claim)
        assert verdict_grid(found).rows[0][1] == "a \N{MINUS SIGN} 50, within 5"
        return one.verdict

    assert verdict(0.51, 0.512, 0.511) == "supported"
    assert verdict(0.61, 0.612, 0.611) == "contradicted"
    assert verdict(0.45, 0.55, 0.52) == "undecided"


@pytest.mark.slow
def test_the_benchmarks_that_costs_name_are_measured():
    for study in choose_studies(["all"], "small"):
        for cost in (finding for finding in study.findings if isinstance(finding, Cost)):
            found = benchmark_ratios.ratio(cost.what)
            assert found is not None
            assert found.interval is not None
            assert 0.5 < found.interval.low <= found.interval.high
    assert benchmark_ratios.ratio("no such ratio") is None


def test_every_kind_has_a_line_and_says_how_it_was_judged(study):
    rows = {"a": by_seed(0.5, 0.51, 0.52), "b": by_seed(0.4, 0.42, 0.41)}
    kinds = ("mean", "spread", "same", "positive")
    comparisons = tuple(Comparison("R1", "a", "b", kind=kind) for kind in kinds)
    findings = (
        Order("S1", ("a", "b"), "sts_avg", "sts12"),
        Cost("W8", "a step", 1.0),
        Trend("E9", "a", "b", STS, "a", STS),
        Untested("R14", "the large backbone", "no benchmark of it"),
    )
    found = judged(study, rows, comparisons=comparisons, findings=findings)
    grid = verdict_grid(found)
    assert [row[1] for row in grid.rows] == [
        "a − b",
        "sd of a / sd of b",
        "a − b, within 0.2",
        "a",
        "order of 2 rows, and by STS12",
        "a step",
        "gain of a over b, by what a has",
        "the large backbone",
    ]
    assert (found[-1].verdict, found[-1].reason) == ("not tested", "no benchmark of it")
    text = how_judged(found)
    assert all(
        word in text for word in ("paired t test", "F test", "one-sided", "Above 0", "Kendall", "benchmark", "Trends")
    )


def test_a_row_selected_on_transfer_dev_shows_the_snapshot_whose_dev_scores_are_best(study):
    row = Row(label="a", encoder=toy_run(0.05), seeds=(42,), select=BY_TRANSFER)
    lines = []
    for i, select in enumerate(SNAPSHOTS):
        for task in TRANSFER:
            for metric, score in (("devacc", [0.5, 0.8, 0.7, 0.6][i]), ("acc", 0.1 * (i + 1))):
                lines.append(toy_line(row.keys()[42], task, score, select=select) | {"metric": metric})
    frame = pd.DataFrame(lines, columns=csv_record.RESULTS)
    shown = replace(study, rows=(row,), columns=(*TRANSFER, "transfer_avg"), comparisons=())
    assert join(shown, frame).cells["a", "transfer_avg"].scores == {42: pytest.approx(20.0)}
    gap = frame[(frame["select"] != "last") | (frame["task"] != "mr")]
    assert join(shown, gap).cells["a", "transfer_avg"].scores == {}  # a snapshot that is not scored could be the best


def test_facts_of_a_run_are_its_fields_its_cost_and_what_its_curves_are_like(study):
    rows, lines = scored({"a": {42: [0.5]}})
    key = rows[0].keys()[42]
    curves = pd.DataFrame(
        [
            ("small", key, "loss/contrastive", 32, 2.0),
            ("small", key, "loss/contrastive", 64, 0.5),
            ("small", "x", "loss/contrastive", 96, 9.0),
            *[
                ("small", key, "dev/stsb_dev", 10 * i, score)
                for i, score in enumerate((0.5, 0.72, 0.69, 0.7, 0.725), 1)
            ],
        ],
        columns=csv_record.CURVES,
    )
    names = ("batch_size", "tau1", "tau3", "time_min", "near_best", "below_best", "last_contrastive")
    found = join(replace(study, rows=rows, columns=names, comparisons=()), lines.assign(seconds=90.0), curves)
    values = {name: found.cells["a", name].scores for name in names}
    assert values == {
        "batch_size": {42: 64},
        "tau1": {42: 0.05},
        "tau3": {},
        "time_min": {42: 1.5},
        "near_best": {42: 20},
        "below_best": {42: pytest.approx(1.0)},  # points: three and two below .72, over five evaluations
        "last_contrastive": {42: 0.5},
    }


def test_columns_have_their_own_metric_and_units(study):
    row = Row(label="a", encoder=toy_run(0.05), seeds=(42,), metric="kendall")
    key = row.keys()[42]
    cells = {"spearman.all": ("sts12", 0.5), "kendall": ("sts12_groups", 0.25), "alignment": ("stsb_dev_geometry", 0.3)}
    lines = [toy_line(key, task, score) | {"metric": metric} for metric, (task, score) in cells.items()]
    shown = replace(study, rows=(row,), columns=("sts12_groups", "alignment"), comparisons=())
    found = join(shown, pd.DataFrame(lines, columns=csv_record.RESULTS))
    assert found.cells["a", "sts12_groups"].scores == {42: 25.0}
    assert found.cells["a", "alignment"].scores == {42: 0.3}
    assert column("alignment").factor == 1.0


def test_a_trend_over_bins_is_no_surer_with_more_seeds(study):
    claim = (Comparison("E4", "a", "a", kind="bins"),)
    (one,) = judged(study, {"a": {42: [0.0057]}}, comparisons=claim)
    (three,) = judged(study, {"a": by_seed(0.0057, 0.0057, 0.0057)}, comparisons=claim)
    assert one.p == three.p == pytest.approx(2 * scipy_stats.norm.sf(0.57 * np.sqrt(5)))
    assert three.verdict == "undecided"
    (strong,) = judged(study, {"a": by_seed(0.009, 0.0091, 0.009)}, comparisons=claim)
    assert strong.verdict == "supported"


def test_no_recorded_run_has_fewer_bins_than_the_test_counts():
    paths = list(csv_record.MLRUNS.glob("figure_data/*/stsb_neighbours*.npz"))
    counts = [len(neighbours.bins(np.load(path)["cosines"])) for path in paths]
    assert counts
    assert min(counts) >= BINS


def test_a_comparison_that_presumes_another_is_tested_only_where_that_holds(study):
    rows = {"good": by_seed(0.5, 0.51, 0.52), "bad": by_seed(0.4, 0.42, 0.41), "student": by_seed(0.6, 0.63, 0.61)}
    given = [Comparison("R7", "student", "bad", only_if_better=pair) for pair in (("good", "bad"), ("bad", "good"))]
    tested, untested = judged(study, rows, comparisons=tuple(given))
    assert tested.verdict == "supported"
    assert (untested.verdict, untested.reason, untested.p) == ("not tested", "bad is no better than good here", None)
    rows["bad"][42] = [0.55]  # of the run that teaches, in which it is better; not of its mean
    taught = [replace(each, teacher_seed=42) for each in given]
    untested, tested = judged(study, rows, comparisons=tuple(taught))
    assert (untested.reason, tested.reason) == ("good is no better than bad here", "")
    assert tested.p is not None


def test_the_margin_of_sameness_is_the_comparisons_own(study):
    rows = {"a": by_seed(0.500, 0.501, 0.502), "b": by_seed(0.490, 0.492, 0.491)}
    found = judged(study, rows, comparisons=tuple(Comparison("E5", "a", "b", kind="same", margin=m) for m in (5, 0.2)))
    assert [one.verdict for one in found] == ["supported", "contradicted"]


def test_costs_are_of_the_scale_that_was_benchmarked(study, monkeypatch):
    monkeypatch.setattr(
        benchmark_ratios, "ratio", lambda what: significance.Spread(1.5, significance.Interval(1.4, 1.6), None, (3, 3))
    )
    large = replace(study, scale=replace(study.scale, name="paper"))
    (one,) = judged(large, {"a": by_seed(0.5, 0.5, 0.5)}, findings=(Cost("R14", "an epoch", 1.5),))
    assert (one.verdict, one.reason) == ("not tested", "benchmarks are of the scale small")


def test_differences_that_no_table_shows_are_not_tested(study):
    rows = {"a": by_seed(0.500001, 0.510002, 0.520003), "b": by_seed(0.5, 0.51, 0.52)}
    (one,) = judged(study, rows, comparisons=(Comparison("E8", "a", "b"),))
    assert (one.verdict, one.reason) == ("not tested", "the same on every seed but for rounding")
    rows["a"] = by_seed(0.5001, 0.5102, 0.5203)
    (one,) = judged(study, rows, comparisons=(Comparison("E8", "a", "b"),))
    assert one.p is not None


def test_an_order_rests_on_the_rows_with_two_seeds(study):
    found = {x: by_seed(i / 10, i / 10 + 0.001, i / 10 + 0.002) for i, x in enumerate("abc")} | {"d": {42: [0.9]}}
    (one,) = judged(study, found, findings=(Order("S1", tuple("abcd"), "sts_avg", "sts12"),))
    assert (one.verdict, one.seeds) == ("supported", "3, 3 rows")
