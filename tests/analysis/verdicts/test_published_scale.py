"""The plan at the published scale: made-up scores of its rows with the seeds declared there, and what it decides."""

import zlib
from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd
import pytest

from analysis.cells import Results, join
from analysis.report.reproduction_tables import detectable_gain, planned_level, planned_tests
from analysis.stats.significance import ALPHA
from analysis.verdicts.looks import _looks
from analysis.verdicts.plan import PlanVerdicts
from analysis.verdicts.verdict import BETTER, NOT_RUN, NOT_TESTABLE, Verdict
from experiments.results.csv_record import RESULTS
from experiments.schema.contrasts import HEADLINES, NEGATIVE, POSITIVE, PRIMARY
from experiments.schema.study import Row, Study
from experiments.studies.catalogue import choose_studies, single
from tests.support.figure_records import lines_of

FIRST = ("plan-losses", "plan-teachers", "plan-ranks", "plan-whitening", "plan-composition")
GAINS = {"ListNet": 3.8, "RankEncoder": 2.1, "WhitenedCSE": 2.5, "CompCSE": 1.9}
HELPS = {"ListNet, MiniLM teaches": 5.0, "MiniLM ranks": 5.0, "SimCSE without dropout": -15.0}
HARMS = dict.fromkeys(
    (
        "ListNet, MiniLM in shuffled order",
        "the untrained backbone ranks",
        "three dropout views, rotated at random",
        "halves of shuffled words",
    ),
    -3.0,
)
SD = 0.84  # over seeds, of re-runs of SimCSE on BERT-base


def made_up(study: Study, gains: Mapping[str, float], seeds: int) -> Results:
    """Return the study with a score of each run: SimCSE's 75, its row's gain, and noise of its own key."""
    lines = lines_of(study)
    rows: dict[str, Row] = {key: row for row in study.rows for key in row.keys().values()}
    chosen = {key for row in study.rows for key in list(row.keys().values())[:seeds]}
    noise = {key: np.random.default_rng([1, zlib.crc32(key.encode())]).normal(0, SD) for key in rows}
    points = lines["key"].map({key: 75 + gains.get(row.label, 0.0) + noise[key] for key, row in rows.items()})
    lines["score"] = points / 100
    return join(study, lines[lines["key"].isin(chosen)])


def judged(gains: Mapping[str, float], *, seeds: int = 10) -> dict[str, Verdict]:
    studies = tuple(made_up(single(name, "paper"), gains, seeds) for name in FIRST)
    return {verdict.contrast.name: verdict for verdict in PlanVerdicts(studies).contrasts}


@cache
def plan_at(scale: str) -> tuple[Study, ...]:
    return tuple(choose_studies(["plan"], scale))


@pytest.mark.slow
def test_gains_of_the_published_size_are_better() -> None:
    verdicts = judged(GAINS | HELPS | HARMS)
    assert {verdicts[claim].word for claim in ("R1", "W1")} == {BETTER}
    for one in (verdicts[claim] for claim in HEADLINES.values()):
        assert one.word != NOT_TESTABLE
        assert one.estimate
        assert one.estimate.n == one.declared == 10


@pytest.mark.slow
def test_no_gain_is_not_better() -> None:
    verdicts = judged(HELPS | HARMS)
    assert {verdicts[claim].word for claim in HEADLINES.values()}.isdisjoint({BETTER, NOT_TESTABLE})


@pytest.mark.slow
def test_a_control_that_does_nothing_leaves_its_families_undecided() -> None:
    verdicts = judged(GAINS | HELPS | HARMS | {"SimCSE without dropout": 0.0})
    assert {verdicts[claim].word for claim in ("W1", "C1")} == {NOT_TESTABLE}
    assert verdicts["W1"].reason.startswith("the positive control is not detected (")
    assert verdicts["R1"].word == BETTER


@pytest.mark.slow
def test_the_only_look_is_at_all_ten_seeds() -> None:
    verdicts = judged(GAINS | HELPS | HARMS, seeds=9)
    assert {verdicts[claim].word for claim in HEADLINES.values()} == {NOT_RUN}


@pytest.mark.slow
def test_first_claims_and_controls_are_corrected_for_one_another_only() -> None:
    verdicts = judged(GAINS | HELPS | HARMS)
    assert {verdict.contrast.role for verdict in verdicts.values()} == {PRIMARY, POSITIVE, NEGATIVE}
    corrected = [verdict for verdict in verdicts.values() if verdict.difference_p is not None]
    assert {v.contrast.claim for v in corrected if v.contrast.role != POSITIVE} == set(HEADLINES.values())
    assert planned_tests("paper") == 8
    assert planned_level("paper") == pytest.approx(ALPHA / 8)
    one = verdicts["W1"]
    assert one.estimate
    assert one.detectable == pytest.approx(one.estimate.detectable(ALPHA / 8))
    assert detectable_gain(SD, 10, planned_level("paper")) == pytest.approx(1.5, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scale", "study", "claim", "shares"),
    [
        ("small", "plan-losses", "R1", [5 / 20, 10 / 20, 20 / 20]),
        ("small", "plan-composition", "C1", [5 / 20, 10 / 20]),
        ("paper", "plan-losses", "R1", [1.0]),
        ("paper", "plan-composition", "C1", [1.0]),
    ],
)
def test_a_looks_share_is_of_the_seeds_of_the_scales_last_look(
    scale: str, study: str, claim: str, shares: list[float]
) -> None:
    results = made_up(single(study, scale), {}, seeds=20)
    (contrast,) = (each for each in results.study.contrasts if each.claim == claim)
    assert list(_looks(results, contrast)) == shares


@pytest.mark.slow
def test_claims_of_families_that_are_only_explored_have_no_verdict() -> None:
    nothing = pd.DataFrame(columns=RESULTS)
    decided = {
        scale: PlanVerdicts(tuple(join(study, nothing) for study in plan_at(scale))).of_claims()
        for scale in ("small", "paper")
    }
    assert set(decided["paper"]) == {*HEADLINES.values(), "R10", "R14", "W8", "E11"}
    assert {"E4", "E9", "S1", "S2", "S3", "S4"} <= set(decided["small"])
    assert len(decided["small"]) == 54
