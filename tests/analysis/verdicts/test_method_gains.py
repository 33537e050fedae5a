"""Gains over SimCSE are differences of recorded scores. Published gains come from the papers' tables."""

import pandas as pd
import pytest
import scipy

from analysis.cells import join
from analysis.verdicts.gains import BASELINES, OWN, PLANNED, PRINTED, method_gains
from experiments.results import csv_record
from experiments.schema.contrasts import HEADLINES
from experiments.studies import catalogue
from tests.support.figure_records import lines_of, study_of

NONE = pd.DataFrame(columns=csv_record.RESULTS)


def scores(results, label: str) -> list[float]:
    return list(results.cells[label, "sts_avg"].scores.values())


def test_exploratory_gains_are_of_independent_seeds_but_for_ranks_of_a_base() -> None:
    study = study_of("robustness")
    results = join(study, lines_of(study))
    found = {gain.method: gain for gain in method_gains([results])}
    assert list(found) == list(PRINTED)
    base = scores(results, "SimCSE")
    for label, gain in found.items():
        ours = scores(results, label)
        paired = label == "RankEncoder on SimCSE"
        test = scipy.stats.ttest_rel(ours, base) if paired else scipy.stats.ttest_ind(ours, base, equal_var=False)
        assert gain.group == OWN
        assert gain.estimate
        assert gain.estimate.interval == pytest.approx(tuple(test.confidence_interval()))


def test_published_gains_are_those_of_one_table() -> None:
    published = {gain.method: gain.published for gain in method_gains([join(study_of("robustness"), NONE)])}
    assert published["RankCSE-listNet"] == 3.80
    assert published["RankCSE-listMLE"] == 4.11
    assert published["RankEncoder on SimCSE"] == 2.1  # Table 4, where SimCSE has 76.0
    assert published["WhitenedCSE"] == 2.53
    assert published["CompCSE"] == 1.93
    assert published["WhitenedCSE, dropout views"] is None


def test_what_is_not_recorded_has_only_its_published_gain() -> None:
    studies = [join(study, NONE) for study in catalogue.choose_studies(["baselines", "plan"], "small")]
    found = method_gains(studies)
    assert [gain.method for gain in found if gain.group == PLANNED] == list(HEADLINES)
    assert {gain.claim for gain in found if gain.group == PLANNED} == set(HEADLINES.values())
    baselines = {gain.method: gain for gain in found if gain.group == BASELINES}
    assert len(baselines) == 10
    assert baselines["IS-BERT"].published == -9.67
    assert all(gain.estimate is None for gain in found)
