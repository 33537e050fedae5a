"""Verdicts of one look, of the second plan and of own studies: t tests by scipy, Holm over a stage or a study."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import scipy

from analysis.cells import Cell, Results
from analysis.report.contrast_tables import contrast_lines, contrasts_grid
from analysis.report.plan_tables import one_look_grid
from analysis.verdicts.looks import study_verdicts
from analysis.verdicts.plan import judge_stage
from experiments.schema.contrasts import EXPLORATORY, ONE_LOOK, Contrast
from experiments.schema.hypotheses import beats, equals, varies_less
from experiments.schema.study import Row, Study

Scores = Mapping[str, np.ndarray]
SEEDS = range(301, 309)


def stage(scores: Scores, study: Study, *contrasts: Contrast, missing: int = 0) -> Results:
    """Return results of rows with these scores; the first row does not have its last `missing` seeds."""
    rows = tuple(Row(label=label, encoder=study.rows[0].encoder, seeds=tuple(SEEDS)) for label in scores)
    shown = replace(study, rows=rows, contrasts=contrasts)
    cells = {}
    for label, values in scores.items():
        kept = dict(zip(SEEDS, map(float, values), strict=True))
        gone = tuple(SEEDS)[-missing:] if missing and label == next(iter(scores)) else ()
        for column in ("sts_avg", "sts_disjoint_avg"):
            here = {seed: score - (column != "sts_avg") for seed, score in kept.items() if seed not in gone}
            cells[label, column] = Cell(
                row=label,
                column=column,
                provenance="",
                scores=here,
                missing=gone,
                published=None,
                published_std=None,
                published_runs=1,
            )
    return Results(study=shown, cells=cells, lines=None)  # ty: ignore[invalid-argument-type]


def contrast(claim: str, plus: str, minus: str, **more: object) -> Contrast:
    about = {"claim": claim, "family": "toys", "role": ONE_LOOK, "margin": 0.5} | more
    return Contrast(plus=(plus,), minus=(minus,), **about)  # ty: ignore[invalid-argument-type]


PRIMARY = contrast("A1", "up", "base", paired=True)
APART = replace(PRIMARY, role=EXPLORATORY, column="sts_disjoint_avg")  # the same difference, on disjoint pairs


@pytest.fixture
def scores() -> Scores:
    draw = np.random.default_rng(0)
    base = draw.normal(55, 0.3, len(SEEDS))
    return {
        "up": base + 1 + draw.normal(0, 0.2, len(SEEDS)),
        "same": base + draw.normal(0, 0.2, len(SEEDS)),
        "down": draw.normal(53, 0.3, len(SEEDS)),
        "wild": draw.normal(55, 3.0, len(SEEDS)),
        "base": base,
    }


def test_primaries_have_scipys_tests_corrected_by_holm_over_the_stage(study: Study, scores: Scores) -> None:
    contrasts = [
        PRIMARY,
        contrast("A2", "same", "base", paired=True),
        contrast("A3", "down", "base"),
        contrast("A4", "wild", "base"),
    ]
    ignored = contrast("A1", "wild", "down", role=EXPLORATORY)
    other = contrast("D1", "wild", "down")
    judged = judge_stage([stage(scores, study, *contrasts, ignored, other)], "A")
    assert [verdict.word for verdict in judged] == ["better", "equivalent", "worse", "inconclusive"]
    base = scores["base"]
    tests = [
        scipy.stats.ttest_rel(scores["up"], base),
        scipy.stats.ttest_rel(scores["same"], base),
        scipy.stats.ttest_ind(scores["down"], base, equal_var=False),
        scipy.stats.ttest_ind(scores["wild"], base, equal_var=False),
    ]
    ordered = sorted(range(4), key=lambda i: tests[i].pvalue)
    adjusted: dict[int, float] = {}
    for place, i in enumerate(ordered):
        before = adjusted[ordered[place - 1]] if place else 0.0
        adjusted[i] = min(1.0, max(before, (4 - place) * tests[i].pvalue))
    assert [verdict.difference_p for verdict in judged] == pytest.approx([adjusted[i] for i in range(4)])
    shifted = [
        scipy.stats.ttest_rel(scores["same"] - s, base, alternative=a) for s, a in ((0.5, "less"), (-0.5, "greater"))
    ]
    assert judged[1].equivalence_p == pytest.approx(4 * max(test.pvalue for test in shifted))


def test_a_primary_without_a_seed_is_not_run_and_still_counts(study: Study, scores: Scores) -> None:
    contrasts = [contrast("A1", "up", "base"), contrast("A2", "down", "base")]
    absent, whole = judge_stage([stage(scores, study, *contrasts, missing=1)], "A")
    assert (absent.word, absent.reason, absent.estimate) == ("not run yet", "up: 7 of 8 seeds", None)
    test = scipy.stats.ttest_ind(scores["down"], scores["base"], equal_var=False)
    assert whole.difference_p == pytest.approx(2 * test.pvalue)


def test_the_table_has_the_effect_on_disjoint_pairs(study: Study, scores: Scores) -> None:
    (line,) = one_look_grid([stage(scores, study, PRIMARY, APART)], "A").rows
    mean = (scores["up"] - scores["base"]).mean()
    assert (line[0], line[2], line[4], line[6], line[-1]) == ("A1", f"+{mean:.2f}", f"+{mean:.2f}", "8", "better")


def test_before_the_last_seed_the_table_shows_no_effect_and_it_takes_nothing_from_another_stage(
    study: Study, scores: Scores
) -> None:
    short = stage({"up": scores["up"], "base": scores["base"]}, study, PRIMARY, APART, missing=3)
    other = stage(scores, study, replace(PRIMARY, claim="D1"), APART)
    (line,) = one_look_grid([short, other], "A").rows
    none = "\N{EN DASH}"
    assert (line[2], line[4], line[5], line[-1]) == (none, none, none, "not complete (up: 5 of 8 seeds)")


def test_an_own_study_judges_what_it_declares_with_a_margin_and_estimates_the_rest(
    study: Study, scores: Scores
) -> None:
    rows = {label: Row(label=label, encoder=study.rows[0].encoder) for label in scores}
    declared = (
        beats(rows["up"], rows["base"], "more", margin=0.5),
        beats(rows["up"], rows["same"], "no margin"),
        equals(rows["same"], rows["base"], "no less", margin=0.5),
        varies_less(rows["base"], rows["wild"], "steadier"),
    )
    found = study_verdicts(stage(scores, study, *declared))
    assert [verdict.word for verdict in found] == ["better", "", "equivalent", ""]
    up, plain, same, _ = found
    tests = [scipy.stats.ttest_rel(scores[label], scores["base"]).pvalue for label in ("up", "same")]
    assert (up.difference_p, same.difference_p) == pytest.approx((2 * min(tests), max(tests)))
    assert plain.estimate
    assert plain.estimate.mean == pytest.approx((scores["up"] - scores["same"]).mean())
    grid = contrasts_grid(found)
    assert grid.header[-2:] == ("margin", "verdict")
    assert [line[-2:] for line in grid.rows] == [("0.5", "better"), ("–", "–"), ("0.5", "equivalent"), ("–", "–")]
    first, *_ = contrast_lines(found)
    assert first == f"up − base: {grid.rows[0][3]} {grid.rows[0][4]}, 8 seeds: better"
    early = study_verdicts(stage(scores, study, *declared, missing=1))[0]
    assert (early.word, early.reason) == ("not run yet", "up: 7 of 8 seeds")
    assert early.estimate
    assert early.estimate.n == 7  # what there is, is shown
