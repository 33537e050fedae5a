"""A planned study's verdicts: looks, corrections and controls, on scores made for each case."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.cells import Results, join
from analysis.report.plan_tables import verdicts_block
from analysis.stats.contrast_tests import moderate
from analysis.stats.estimate import t_estimate
from analysis.stats.sequential import nominal_levels
from analysis.verdicts.looks import _moderate_looks
from analysis.verdicts.plan import PlanVerdicts
from analysis.verdicts.verdict import BETTER, EQUIVALENT, INCONCLUSIVE, NOT_RUN, NOT_TESTABLE, WORSE, Verdict
from experiments.results.csv_record import RESULTS
from experiments.schema.contrasts import MARGIN, NEGATIVE, POSITIVE, PRIMARY, Contrast
from experiments.schema.scales import PLANNED_SEEDS, SCALES
from experiments.schema.study import Row, Study
from tests.support.toy_study import toy_line, toy_run

NOISE = np.random.default_rng(3).normal(0, 0.3, (10, 20))
ABOUT: dict[str, Any] = {"family": "f", "column": "stsb", "margin": MARGIN}
CONTROLS = (
    Contrast(claim="helps", role=POSITIVE, plus=("oracle",), minus=("base",), **ABOUT),
    Contrast(claim="does not", role=NEGATIVE, plus=("noise",), minus=("base",), **ABOUT),
)
MEANS = {"base": 50.0, "oracle": 55.0, "noise": 50.0}
BLIND = MEANS | {"oracle": 50.0}  # the positive control is not detected
HELPFUL = MEANS | {"noise": 52.0}  # the negative control helps


def contrast(plus: str = "ours", minus: str = "base", **more: Any) -> Contrast:
    about: dict[str, Any] = ABOUT | {"claim": "R1", "role": PRIMARY} | more
    return Contrast(plus=(plus,), minus=(minus,), **about)


def judge(*results: Results, moderated: bool = False) -> tuple[Verdict, ...]:
    plan = PlanVerdicts(results)
    return plan.moderated if moderated else plan.contrasts


def scored(means: Mapping[str, float], *contrasts: Contrast, seeds: int = 10, missing: int = 0) -> Results:
    """Return a study of these rows, each mean with a deviation of 0.3 points over seeds."""
    rows = tuple(
        Row(label=label, encoder=toy_run(0.05 + i / 100), seeds=PLANNED_SEEDS[:seeds]) for i, label in enumerate(means)
    )
    about: dict[str, Any] = {"name": "planned", "source": "", "question": "", "scale": SCALES["small"]}
    study = Study(rows=rows, columns=("stsb",), contrasts=contrasts, **about)
    lines = [
        toy_line(key, "stsb", (means[row.label] + NOISE[0 if row.label == "twin" else i, j]) / 100, seed=seed)
        for i, row in enumerate(rows)
        for j, (seed, key) in enumerate(row.keys().items())
        if j < seeds - missing
    ]
    return join(study, pd.DataFrame(lines, columns=RESULTS))


def judged(
    ours: float, *, seeds: int = 10, missing: int = 0, means: Mapping[str, float] = MEANS, **more: Any
) -> Verdict:
    found = judge(scored({**means, "ours": ours}, *CONTROLS, contrast(**more), seeds=seeds, missing=missing))
    return found[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "verdict"), [(52.0, BETTER), (48.0, WORSE), (50.1, EQUIVALENT), (50.4, INCONCLUSIVE)])
def test_each_verdict_has_its_effect(ours: float, verdict: str) -> None:
    assert judged(ours, margin=0.5 if verdict == INCONCLUSIVE else 1.0).word == verdict


@pytest.mark.slow
def test_the_estimate_is_of_the_last_complete_look() -> None:
    assert judged(52.0, seeds=10, missing=1).estimate == judged(52.0, seeds=5).estimate
    twenty = judged(52.0, seeds=20)
    assert twenty.estimate
    assert twenty.estimate.n == 20


@pytest.mark.parametrize("seeds", [5, 10, 20])
@pytest.mark.slow
def test_what_is_detectable_is_detected_by_the_looks_own_bound_in_eighty_of_a_hundred(seeds: int) -> None:
    one = judged(52.0, seeds=seeds, paired=True)
    assert one.estimate
    assert one.estimate.error
    assert one.detectable
    shares = tuple(n / 20 for n in (5, 10, 20) if n <= seeds)
    level = nominal_levels(0.05 / 2, shares)[-1]  # of two: the primary and the positive control
    law = stats.nct(seeds - 1, one.detectable / one.estimate.error)
    assert law.sf(stats.t(seeds - 1).isf(level / 2)) == pytest.approx(0.8, abs=0.005)


def test_without_the_first_look_there_is_no_verdict_but_a_reason() -> None:
    one = judged(52.0, seeds=5, missing=1)
    assert one.word == NOT_RUN
    assert "ours: 4 of 5 seeds" in one.reason


def test_a_family_whose_positive_control_is_not_detected_shows_nothing() -> None:
    one = judged(52.0, means=BLIND)
    assert one.word == NOT_TESTABLE
    assert "the positive control is not detected (helps:" in one.reason
    assert one.estimate


def test_a_claim_without_runs_shows_nothing_in_a_family_whose_control_failed() -> None:
    controls = scored(BLIND, *CONTROLS)
    one = judge(controls, scored({"base": 50.0, "ours": 52.0}, contrast(), seeds=5, missing=5))[-1]
    assert (one.word, one.estimate) == (NOT_TESTABLE, None)
    assert one.reason.startswith("the positive control is not detected")
    assert one.own == "not run yet"


def test_a_family_whose_negative_control_helps_shows_nothing() -> None:
    one = judged(52.0, means=HELPFUL)
    assert one.word == NOT_TESTABLE
    assert "the negative control helps (does not:" in one.reason
    assert one.own == "better"


@pytest.mark.parametrize("control", CONTROLS)
def test_a_family_waits_for_both_of_its_controls(control: Contrast) -> None:
    (other,) = set(CONTROLS) - {control}
    begun = scored(MEANS, control, seeds=5, missing=1)
    one = judge(begun, scored({**MEANS, "ours": 52.0}, other, contrast()))[-1]
    assert one.word == NOT_RUN
    assert (one.reason, one.own) == (f"the {control.role} ({control.claim}: not run yet)", "better")
    assert one.estimate


def test_a_positive_control_with_looks_to_come_is_not_detected_so_far() -> None:
    assert " not detected so far, with 5 of 10 seeds (" in judged(52.0, means=BLIND, missing=1).reason
    assert " not detected (" in judged(52.0, means=BLIND).reason


def test_a_family_whose_negative_control_cannot_be_judged_shows_nothing() -> None:
    never_acted = replace(CONTROLS[1], plus=("twin",), paired=True)
    one = judge(scored({**MEANS, "twin": 50.0, "ours": 52.0}, CONTROLS[0], never_acted, contrast()))[-1]
    assert one.word == NOT_TESTABLE
    assert one.reason.startswith("the negative control can't be judged (does not: not testable here)")


def test_rows_of_one_seed_are_not_tested() -> None:
    assert judged(52.0, seeds=1).reason == "a test needs two seeds of each row, which declare one"


def test_controls_in_another_study_count() -> None:
    claim = scored({"base": 50.0, "ours": 52.0}, contrast())
    assert judge(scored(BLIND, *CONTROLS), claim)[-1].word == NOT_TESTABLE


def test_p_values_are_welchs_under_the_bounds_and_holms_over_primaries_and_positive_controls() -> None:
    results = scored({**MEANS, "ours": 50.6}, *CONTROLS, contrast(), seeds=20)
    helps, _, one = judge(results)
    ours, base = (list(results.cells[label, "stsb"].scores.values()) for label in ("ours", "base"))
    last = stats.ttest_ind(ours, base, equal_var=False).pvalue
    assert one.difference_p is not None
    assert helps.difference_p is not None
    assert helps.difference_p < one.difference_p
    # The last look's level is nearly the whole; of Holm's two tests this p is the larger.
    assert last * 0.5 < one.difference_p < last * 2


def test_one_look_of_fewer_seeds_than_five_has_the_tests_own_p_values() -> None:
    """Holm's last p, after two positive controls', is the primary's own; equivalence counts only the primary."""
    again = replace(CONTROLS[0], claim="helps again", paired=True)
    results = scored({**MEANS, "ours": 50.3}, *CONTROLS, again, contrast(), seeds=3)
    one = judge(results)[-1]
    ours, base = (np.array(list(results.cells[label, "stsb"].scores.values())) for label in ("ours", "base"))
    assert one.difference_p == pytest.approx(stats.ttest_ind(ours, base, equal_var=False).pvalue, rel=1e-3)
    one_sided = [
        stats.ttest_ind(ours, base + margin, equal_var=False, alternative=side).pvalue
        for margin, side in ((1.0, "less"), (-1.0, "greater"))
    ]
    assert one.equivalence_p == pytest.approx(max(one_sided), rel=1e-3)


def test_a_difference_that_an_early_look_detects_keeps_its_sign() -> None:
    """Five seeds 2 points above with hardly any spread, five far below: not "worse" by the evidence for "better"."""
    results = scored({**MEANS, "ours": 50.0}, *CONTROLS, contrast(paired=True))
    base, ours = (results.cells[label, "stsb"] for label in ("base", "ours"))
    gains = [2 + i / 1e5 for i in range(5)] + [-5.0, -6.0, -7.0, -8.0, -9.0]
    scores = {seed: score + gain for (seed, score), gain in zip(base.scores.items(), gains, strict=True)}
    changed = replace(results, cells={**results.cells, ("ours", "stsb"): replace(ours, scores=scores)})
    one = judge(changed)[-1]
    assert one.estimate
    assert one.estimate.mean < 0
    assert one.word == BETTER


def test_the_seed_pairs_rows_only_where_the_contrast_says_so() -> None:
    paired, unpaired = judged(50.6, paired=True).estimate, judged(50.6).estimate
    assert paired
    assert unpaired
    assert paired.mean == pytest.approx(unpaired.mean)
    assert paired.df == 9
    assert unpaired.df
    assert 9 < unpaired.df <= 18


@pytest.mark.slow
def test_moderated_variances_are_those_of_contrasts_of_one_kind() -> None:
    """Six rows over one base: each unpaired contrast is judged by what all six vary by, the paired one by itself."""
    names = [f"row{i}" for i in range(6)]
    contrasts = [contrast(name) for name in names] + [contrast("row0", paired=True)]
    results = scored({**MEANS, **dict.fromkeys(names, 50.6)}, *CONTROLS, *contrasts, seeds=5)
    plain, moderated = (judge(results, moderated=how) for how in (False, True))
    estimates = {verdict.contrast: verdict.estimate for verdict in plain}
    unpaired = {c: e for c, e in estimates.items() if e and not c.paired}
    expected = moderate(unpaired)
    for verdict in moderated:
        own = estimates[verdict.contrast]
        assert verdict.estimate == (own if verdict.contrast.paired else expected[verdict.contrast])
    changed = [c for c, e in unpaired.items() if expected[c] != e]
    assert len(changed) == len(unpaired) == 8
    p_values = {v.contrast: v.difference_p for v in plain}
    assert any(v.difference_p != p_values[v.contrast] for v in moderated)


def test_variances_are_moderated_at_every_look_within_a_column() -> None:
    columns = {"stsb": 0.3, "sickr": 3.0}
    looks = {
        replace(contrast(f"row{i}"), column=column): {
            share: t_estimate(1.0, error * (1 + i) * share, 8, 5) for share in (0.25, 0.5)
        }
        for column, error in columns.items()
        for i in range(5)
    }
    moderated = _moderate_looks(looks)
    for column in columns:
        for share in (0.25, 0.5):
            plain = {c: by_look[share] for c, by_look in looks.items() if c.column == column}
            alone = {c: by_look[share] for c, by_look in moderated.items() if c.column == column}
            assert alone == moderate(plain)
            assert alone != plain


def test_a_contrast_without_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="contrast R1: no row has a weight"):
        contrast("base", "base")


def test_the_published_effect_is_inside_or_excluded() -> None:
    assert judged(52.0, added=2.0).published_inside is True
    assert judged(52.0, added=4.0).published_inside is False
    assert judged(52.0).published_inside is None


@pytest.mark.parametrize("missing", [0, 1])
def test_a_treatment_that_never_acted_in_the_first_look_waits_for_no_seeds(missing: int) -> None:
    results = scored({**MEANS, "twin": 50.0}, *CONTROLS, contrast("twin", paired=True), missing=missing)
    same = judge(results)[-1]
    assert (same.word, same.reason) == (NOT_TESTABLE, "the same on every seed: the treatment never acted")
    assert same.estimate is None


def test_a_row_that_this_scale_cannot_run_does_not_count_as_missing() -> None:
    results = scored({**MEANS, "ours": 52.0}, *CONTROLS, contrast(), missing=10)
    rows = [replace(row, encoder=None, why="no stand-in") if row.label == "ours" else row for row in results.study.rows]
    study = replace(results.study, rows=tuple(rows))
    cannot = judge(join(study, pd.DataFrame(columns=RESULTS)))[-1]
    assert (cannot.word, cannot.reason) == (NOT_TESTABLE, "no stand-in")


def test_a_family_that_fails_both_controls_says_so() -> None:
    one = judged(52.0, means=BLIND | {"noise": 52.0})
    assert one.reason.startswith("the positive control is not detected (helps: ")
    assert "; the negative control helps (does not: +" in one.reason


def test_a_row_of_fewer_seeds_than_the_first_look_is_looked_at_once() -> None:
    results = scored({**MEANS, "ours": 53.0}, *CONTROLS, contrast(), seeds=5)
    rows = tuple(replace(row, seeds=row.seeds[:3]) if row.label == "ours" else row for row in results.study.rows)
    one = judge(join(replace(results.study, rows=rows), results.lines))[-1]
    assert one.estimate is not None
    assert (one.declared, one.estimate.n, one.word) == (3, 3, BETTER)


def test_the_table_gives_a_familys_reason_once_and_each_rows_own_verdict_in_its_row() -> None:
    plan = PlanVerdicts((scored({**HELPFUL, "ours": 52.0}, *CONTROLS, contrast(), contrast("oracle")),))
    text = verdicts_block(plan)
    assert text.count("the negative control helps (does not: ") == 1
    assert text.startswith(f"- **{ABOUT['family']}**: not testable here: the negative control helps")
    assert [line.split(" | ")[-2] for line in text.splitlines()[-2:]] == ["not testable here; its own test: better"] * 2
