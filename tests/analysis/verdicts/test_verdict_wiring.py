"""Which numbers reach which test: seeds that coincide, noise that two columns share, versions, curves, corrections.

Scores here are noisy on purpose: where seeds are all alike and corrections agree, a wrong wire changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from analysis.cells import join
from analysis.report import report_blocks
from analysis.stats import significance
from analysis.stats.resampling import Estimate
from analysis.verdicts import claims as claims_module
from analysis.verdicts.claims import judge
from analysis.verdicts.comparisons import Verdict
from cse_core.data.senteval import STS_TEST
from experiments.results import csv_record
from experiments.schema.hypotheses import Comparison, Order, Trend
from experiments.schema.study import Published, Row, Study
from tests.support.toy_study import SEEDS, toy_line, toy_run

BySeed = Mapping[int, float]


def by_seed(*values: float) -> dict[int, float]:
    return dict(zip(SEEDS, values, strict=True))


def rows_of(scores: Mapping[str, BySeed], **more: object) -> tuple[Row, ...]:
    return tuple(
        Row(label=label, encoder=toy_run(0.05 + i / 100), seeds=tuple(found), **more)  # ty: ignore
        for i, (label, found) in enumerate(scores.items())
    )


def lines_of(scores: Mapping[str, BySeed], tasks: Sequence[str] = STS_TEST) -> list[dict[str, object]]:
    return [
        toy_line(row.keys()[seed], task, score, seed=seed)
        for row in rows_of(scores)
        for seed, score in scores[row.label].items()
        for task in tasks
    ]


def frame(lines: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    return pd.DataFrame(lines, columns=csv_record.RESULTS)


def judged(study: Study, scores: Mapping[str, BySeed], *claims: Comparison, **more: object) -> tuple[Verdict, ...]:
    changed = replace(study, rows=rows_of(scores), comparisons=claims, **more)
    return judge(join(changed, frame(lines_of(scores))))


def test_a_seed_on_which_two_rows_coincide_is_one_of_the_tests_seeds(study: Study) -> None:
    """Two rows with one score on one seed of three differ on the others: nothing is 'the same on every seed'."""
    scores = {"a": by_seed(0.52, 0.53, 0.55), "b": by_seed(0.52, 0.51, 0.50)}
    (one,) = judged(study, scores, Comparison("R1", "a", "b"))
    assert one.reason == ""
    assert one.p == pytest.approx(scipy_stats.ttest_1samp([0.0, 2.0, 5.0], 0).pvalue)
    assert one.seeds == "3"
    assert isinstance(one.estimate, significance.Paired)
    assert one.estimate.mean == pytest.approx(7 / 3)


def test_a_treatment_that_acted_on_some_seeds_acted(study: Study) -> None:
    scores = {"a": by_seed(0.52, 0.53, 0.55), "b": by_seed(0.50, 0.51, 0.50), "base": by_seed(0.52, 0.53, 0.50)}
    (one,) = judged(study, scores, Comparison("E12", "a", "b", requires_difference=("a", "base")))
    assert one.reason == ""
    assert one.p is not None


def test_seeds_are_paired_by_their_number_and_not_by_their_place(study: Study) -> None:
    a, b = {42: 0.60, 1: 0.50, 2: 0.70}, {2: 0.65, 42: 0.58, 1: 0.49}
    (one,) = judged(study, {"a": a, "b": b}, Comparison("R1", "a", "b"))
    assert isinstance(one.estimate, significance.Paired)
    assert one.p == pytest.approx(scipy_stats.ttest_1samp([2.0, 1.0, 5.0], 0).pvalue)


# Seeds move a row by tens of points, rows differ by two: only with the same seeds in both columns is their order one.
NOISY = {
    "a": by_seed(0.20, 0.52, 0.81),
    "b": by_seed(0.84, 0.21, 0.50),
    "c": by_seed(0.53, 0.86, 0.22),
    "d": by_seed(0.25, 0.55, 0.87),
}


def test_an_order_draws_the_same_seeds_for_both_columns(study: Study) -> None:
    found = judged(study, NOISY, findings=(Order("S1", tuple(NOISY), "sts_avg", "sts12"),))
    (one,) = found
    assert one.estimate is not None
    assert one.estimate.interval == pytest.approx((1.0, 1.0))  # by two draws it would reach far below 0
    assert (one.verdict, one.seeds) == ("supported", "3, 4 rows")


def test_an_order_with_a_suffix_pairs_each_row_with_its_own(study: Study) -> None:
    last = {f"{label}, last": {seed: score + 0.001 for seed, score in found.items()} for label, found in NOISY.items()}
    order = Order("S3", tuple(NOISY), "sts_avg", "sts_avg", suffix=", last")
    (one,) = judged(study, NOISY | last, findings=(order,))
    assert one.verdict == "supported"
    turned = dict(zip(last, reversed(list(last.values())), strict=True))
    (other,) = judged(study, NOISY | turned, findings=(order,))
    assert other.verdict != "supported"


def test_a_trend_takes_gains_of_seeds_that_both_rows_have(study: Study) -> None:
    """Gains of one seed over another's baseline would be noise."""
    size = [0.1, 0.5, 0.2, 0.7, 0.3, 0.6, 0.4]
    base = {42: [0.9, 0.1, 0.5, 0.3, 0.7, 0.2, 0.4], 1: [0.1, 0.8, 0.2, 0.9, 0.3, 0.6, 0.5], 2: [0.5] * 7}
    wobble = {42: [0.0] * 7, 1: [0.0, 0.0, 0.027, 0.0, 0.0, 0.0, 0.0], 2: [0.07] + [0.0] * 6}
    rows = {"better": base, "worse": base, "data": dict.fromkeys(SEEDS, size)}
    lines = []
    for row in rows_of({label: dict.fromkeys(SEEDS, 0.0) for label in rows}):
        for seed, key in row.keys().items():
            gain = [x / 10 + e for x, e in zip(size, wobble[seed], strict=True)] if row.label == "better" else [0] * 7
            values = [x + g for x, g in zip(rows[row.label][seed], gain, strict=True)]
            if (row.label, seed) != ("worse", 1):
                lines += [toy_line(key, t, v, seed=seed) for t, v in zip(STS_TEST, values, strict=True)]
    trend = Trend("E9", "better", "worse", STS_TEST, "data", STS_TEST)
    changed = replace(study, rows=rows_of({r: by_seed(0, 0, 0) for r in rows}), comparisons=(), findings=(trend,))
    (one,) = judge(join(changed, frame(lines)))
    wobbled = np.mean([wobble[42], wobble[2]], axis=0) + np.array(size) / 10
    assert isinstance(one.estimate, Estimate)
    rho = scipy_stats.spearmanr(wobbled, size).statistic
    assert one.estimate.value == pytest.approx(rho)
    assert rho < 0.99
    assert one.seeds == "2"


@pytest.mark.parametrize("newest_first", [False, True])
def test_of_a_cell_in_two_versions_the_newest_counts(study: Study, newest_first: bool) -> None:
    """Versions are numbers: the tenth is newer than the ninth."""
    scores = {"a": by_seed(0.52, 0.53, 0.55)}
    old = frame(lines_of(scores)).assign(version=9)
    new = old.assign(version=10, score=old["score"] + 0.1)
    both = pd.concat([new, old] if newest_first else [old, new], ignore_index=True)
    found = join(replace(study, rows=rows_of(scores), comparisons=()), both)
    assert found.cells["a", "sts_avg"].scores == pytest.approx({42: 62.0, 1: 63.0, 2: 65.0})
    assert set(found.lines["version"]) == {10}
    assert len(found.lines) == 3 * len(STS_TEST)


def test_the_end_of_a_curve_its_best_and_what_is_near_it_are_three_things(study: Study) -> None:
    """A curve whose tail falls below where it came from, its lines in no order."""
    scores = {"a": {42: 0.5}}
    (row,) = rows_of(scores)
    curve = {10: 0.50, 20: 0.61, 30: 0.72, 40: 0.735, 50: 0.74, 60: 0.70, 70: 0.60}
    lines = [("small", row.keys()[42], "dev/stsb_dev", step, value) for step, value in curve.items()]
    lines += [("small", row.keys()[42], "loss/rank", step, 1 / step) for step in curve]
    lines += [("small", row.keys()[42], "loss/contrastive", step, step / 10) for step in curve]
    lines += [("small", row.keys()[42], "loss/share_rank_larger", step, step / 100) for step in curve]
    curves = pd.DataFrame([lines[i] for i in (3, 0, 6, 1, 5, 2, 4)] + lines[:6:-1], columns=csv_record.CURVES)
    names = ("near_best", "below_best", "last_rank", "last_contrastive", "rank_larger", "last_rank_larger")
    found = join(replace(study, rows=(row,), columns=names, comparisons=()), frame(lines_of(scores)), curves)
    assert {name: found.cells["a", name].scores[42] for name in names} == {
        "near_best": 40,  # the first within a point of .74; within a point of the end it would be 20
        "below_best": pytest.approx(100 * (0.04 + 0.14) / 7),
        "last_rank": pytest.approx(1 / 70),
        "last_contrastive": 7.0,
        "rank_larger": pytest.approx(40.0),
        "last_rank_larger": pytest.approx(70.0),
    }


CLOSE = {"a": by_seed(0.530, 0.550, 0.575), "b": by_seed(0.50, 0.51, 0.52), "c": by_seed(0.50, 0.53, 0.51)}


def claimed(study: Study, *tables: Sequence[Comparison]) -> str:
    rows, lines = rows_of(CLOSE), frame(lines_of(CLOSE))
    found = [
        join(replace(study, name=f"table{i}", rows=rows, comparisons=tuple(t)), lines) for i, t in enumerate(tables)
    ]
    grid = report_blocks.claims_grid(found)
    return next(row[2] for row in grid.rows if row[0] == "R1")


def test_the_same_runs_in_two_tables_count_by_the_correction_that_is_strictest(study: Study) -> None:
    """By itself the difference has p = 0.04; among a table's other comparisons it has none below 0.05."""
    pair, other = Comparison("R1", "a", "b"), Comparison("R2", "c", "b")
    p = scipy_stats.ttest_1samp([3.0, 4.0, 5.5], 0).pvalue
    assert significance.ALPHA / 2 < p < significance.ALPHA
    alone, among = [pair], [pair, other]
    assert claimed(study, alone).startswith("**supported**")
    assert claimed(study, among).startswith("**undecided**")
    for tables in ((alone, among), (among, alone), (alone, among, alone)):
        assert claimed(study, *tables) == "**undecided** (1 of 1 comparisons tested: 1 undecided)"


def test_other_columns_kinds_checkpoints_and_scorers_are_other_comparisons(study: Study) -> None:
    lines = frame(lines_of(CLOSE))
    pair = Comparison("R1", "a", "b")

    def table(one: Comparison = pair, **row: object) -> object:
        changed = replace(study, rows=rows_of(CLOSE, **row), comparisons=(one,))
        return claims_module._identity(changed, one)

    variants = [
        table(),
        table(replace(pair, column="sts12")),
        table(replace(pair, kind="same")),
        table(replace(pair, better="b", worse="a")),
        table(replace(pair, better="c")),
        table(select="last"),
        table(vary="all", metric="pearson.all"),
    ]
    assert len(set(variants)) == len(variants)
    assert table(replace(pair, claim="R5")) == table()  # whatever it is said for
    assert len(lines)


def test_published_differences_and_ratios_are_the_better_rows_against_the_worse(study: Study) -> None:
    def row(label: str, i: int) -> Row:
        published = Published("rankcse_table6", "BERT-base", label, columns={"sts_avg": "STS Avg"})
        return Row(label=label, encoder=toy_run(0.05 + i / 100), seeds=SEEDS, published=published, published_runs=5)

    labels = ("RankCSE-listMLE", "SimCSE")
    pairs = [Comparison("R10", *labels, kind=kind) for kind in ("mean", "same", "beyond", "spread")]
    changed = replace(study, rows=tuple(row(label, i) for i, label in enumerate(labels)), comparisons=tuple(pairs))
    found = judge(join(changed, frame([])))
    # RankCSE, Table 6: 80.41 +- 0.11 against 75.52 +- 0.70.
    cells = [changed.rows[i].published for i in (0, 1)]
    mean, other = (cell.value("sts_avg") for cell in cells if cell)
    assert [one.published for one in found[:3]] == [pytest.approx(mean - other)] * 3  # ty: ignore
    std, more = (cell.std("sts_avg") for cell in cells if cell)
    assert found[3].published == pytest.approx(std / more)  # ty: ignore
    assert mean == pytest.approx(80, abs=1)
    assert (other, more) == (75.52, 0.70)
    assert found[3].published < 1  # ty: ignore


def test_rows_that_lack_what_a_comparison_presumes_are_named(study: Study) -> None:
    scores = {"a": by_seed(0.52, 0.53, 0.55), "b": by_seed(0.50, 0.51, 0.50)}
    gone = Row(label="gone", encoder=toy_run(0.9), seeds=SEEDS)
    changed = replace(
        study,
        rows=(*rows_of(scores), gone),
        comparisons=(
            Comparison("R7", "a", "b", only_if_better=("gone", "b")),
            Comparison("R7", "a", "b", requires_difference=("a", "gone")),
            Comparison("R7", "a", "b", only_if_better=("a", "b")),
            Comparison("R7", "a", "b", only_if_better=("b", "a")),
        ),
    )
    found = judge(join(changed, frame(lines_of(scores))))
    assert [one.reason for one in found] == [
        "no seed of gone has sts_avg",
        "no seed of gone has sts_avg",
        "",
        "b is no better than a here",
    ]
    assert [one.adjusted for one in found if one.p is not None] == [found[2].p]  # Holm's over the one that was tested


def test_thresholds_are_as_declared() -> None:
    """A changed one changes verdicts of the past: each needs a reason in CLAIMS.md or REPORT.md."""
    from analysis.verdicts import comparisons
    from cse_core.metrics import geometry
    from experiments.execution import plan
    from experiments.results import row_scores
    from experiments.schema import hypotheses, scales
    from experiments.searches import spaces
    from experiments.studies import compcse_tables

    assert (significance.LEVEL, significance.ALPHA, significance.POWER) == (0.95, 0.05, 0.8)
    assert (comparisons.BINS, comparisons.AGREES, comparisons.COST_TOLERANCE) == (6, 0.8, 0.1)
    assert row_scores.POINT == 0.01
    assert (hypotheses.NEGLIGIBLE_COST_RATIO, hypotheses.MARGIN, compcse_tables.COLLAPSE) == (1.1, 0.2, 5.0)
    assert plan.SCORE_TOLERANCE == 5e-5
    assert (scales.SEARCH_SEEDS, spaces.PUBLISHED_RATE, spaces.TRIALS) == ((101, 102), 3e-5, 24)
    assert geometry.positives(pd.Series([3.9, 4.0, 4.01, 5.0]).to_numpy()).tolist() == [2, 3]
