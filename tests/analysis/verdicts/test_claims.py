"""Verdicts of comparisons and claims."""

from dataclasses import replace

import pandas as pd
import pytest

from analysis.cells import join
from analysis.stats import significance
from analysis.verdicts.claims import Claim, Overall, claims, count_verdicts, judge, judge_claims, overall
from experiments.schema.hypotheses import Comparison
from experiments.schema.study import Study


def test_a_comparison_is_the_paired_difference_over_common_seeds(study, lines):
    first = judge(join(study, lines))[0]
    assert isinstance(first.estimate, significance.Paired)
    assert first.estimate.mean == pytest.approx((10 + 10 + 11) / 3)
    assert first.seeds == "3"
    assert first.published == pytest.approx(80.05 - 76.25)
    assert first.verdict == "supported"


def test_seeds_that_one_row_lacks_are_left_out(study, lines):
    better = study.rows[1].keys()
    shorter = lines[lines["key"] != better[42]]
    first = judge(join(study, shorter))[0]
    assert isinstance(first.estimate, significance.Paired)
    assert first.estimate.mean == pytest.approx(((64 - 54) + (66 - 55)) / 2)
    assert first.seeds == "2"


def test_the_opposite_claim_is_contradicted(study, lines):
    opposite = judge(join(study, lines))[3]
    assert opposite.verdict == "contradicted"
    assert opposite.effect < 0


def test_holm_counts_the_tested_comparisons_only(study, lines):
    judged = judge(join(study, lines))
    tested = [one for one in judged if one.p is not None]
    assert len(tested) == 3
    assert [one.adjusted for one in tested] == pytest.approx(
        significance.holm([one.p for one in tested if one.p is not None])
    )
    assert tested[0].p is not None
    assert tested[0].adjusted == pytest.approx(3 * tested[0].p)


def test_why_a_comparison_is_not_tested(study, lines):
    judged = judge(join(study, lines))
    assert [one.verdict for one in judged[1:3]] == ["not tested", "not tested"]
    assert judged[1].reason == "one seed in common"
    assert judged[1].estimate is not None
    assert judged[2].reason == "no stand-in for RoBERTa"
    assert judged[2].estimate is None
    nothing = judge(join(study, lines.iloc[:0]))
    assert nothing[0].reason == "no seed of Better has sts_avg; no seed of SimCSE has sts_avg"


def test_rows_without_a_common_seed_are_not_tested(study, lines):
    changed = replace(study, comparisons=(Comparison("R1", "SimCSE", "As it is"),))
    (one,) = judge(join(changed, lines))
    assert (one.verdict, one.reason) == ("not tested", "no seed in common")


def test_spread_claims_that_the_first_varies_less(study, lines):
    spread = judge(join(study, lines))[4]
    assert isinstance(spread.estimate, significance.Spread)
    assert spread.estimate.ratio == pytest.approx(0.01 / 0.0152752523)
    assert spread.effect > 0
    assert spread.verdict == "undecided"
    swapped = replace(study, comparisons=(Comparison("R10", "Better", "SimCSE", kind="spread"),))
    assert judge(join(swapped, lines))[0].effect == pytest.approx(-spread.effect)


def test_spread_of_one_seed_is_not_tested(study, lines):
    changed = replace(study, comparisons=(Comparison("R10", "One seed", "SimCSE", kind="spread"),))
    (one,) = judge(join(changed, lines))
    assert (one.verdict, one.reason) == ("not tested", "a deviation needs two seeds")


def test_a_claims_verdict_over_its_comparisons(study, lines):
    judged = judge(join(study, lines))
    by_claim = {one.claim: one for one in overall(judged)}
    assert by_claim["R1"].verdict == "supported where tested"  # one tested, two that could not be
    assert (by_claim["R1"].counts, by_claim["R1"].declared) == ({"supported": 1}, 3)
    assert by_claim["R1"].reasons == ("one seed in common", "no stand-in for RoBERTa")
    assert by_claim["R6"].verdict == "contradicted"
    assert by_claim["R10"].verdict == "undecided"

    def verdict(*words: str) -> str:
        return overall([replace(judged[0], verdict=word) for word in words])[0].verdict

    assert verdict("supported", "contradicted", "undecided") == "contradicted"
    assert verdict("supported", "undecided") == "undecided"
    assert verdict("supported", "not tested") == "supported where tested"
    assert verdict("supported", "supported") == "supported"
    assert verdict("not tested", "not tested") == "not tested"


def test_claims_are_read_with_their_words():
    assert claims()["R6"] == "the consistency loss alone is worse than SimCSE"
    assert {"R1", "R17", "E13", "W9", "C11", "S4"} <= set(claims())


def claim(name: str, *verdicts: str) -> Claim:
    return Claim(name, "", tuple(Overall(name, "", "", verdict, {}, 1, ()) for verdict in verdicts), ())


def test_a_claim_counts_once_by_its_strongest_reading() -> None:
    counts = count_verdicts(
        [
            claim("W1", "supported", "contradicted"),
            claim("W2", "undecided", "supported where tested"),
            claim("W3", "undecided", "not tested"),
            claim("W4"),
        ]
    )
    assert counts == {"contradicted": 1, "supported": 1, "undecided": 1, "not tested": 1}


def test_every_claim_is_there_judged_or_not(study: Study, lines: pd.DataFrame) -> None:
    found = {one.id: one for one in judge_claims([join(study, lines), join(replace(study, name="again"), lines)])}
    assert list(found) == list(claims())
    assert [one.name for one in found["R1"].studies] == ["toy", "again"]
    assert found["R1"].verdicts[0].declared == 3  # the same comparisons in two tables count once
    assert found["E1"].verdicts == ()
