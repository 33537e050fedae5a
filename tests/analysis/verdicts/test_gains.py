"""A study's gains: shown whichever seeds are recorded, without a word of a verdict."""

from dataclasses import replace

import pandas as pd

from analysis.cells import join
from analysis.report.contrast_tables import contrasts_block, contrasts_grid, disjoint_grid
from analysis.verdicts.gains import gains
from analysis.verdicts.looks import study_verdicts
from experiments.schema.contrasts import PRIMARY, Contrast
from experiments.schema.study import Study
from tests.support.toy_study import toy_lines


def test_what_is_not_recorded_has_no_gain_and_one_seed_no_interval(study: Study) -> None:
    contrasts = (
        Contrast(plus=("Absent",), minus=("SimCSE",)),
        Contrast(plus=("One seed",), minus=("SimCSE",), paired=True),
        Contrast(claim="R1", family="f", role=PRIMARY, plus=("Better",), minus=("SimCSE",), margin=1.0),
    )
    results = join(replace(study, contrasts=contrasts), toy_lines())
    absent, single = gains(results)
    assert absent.estimate is None
    assert single.estimate is not None
    assert (single.estimate.n, single.estimate.interval, single.word) == (1, None, "")
    assert contrasts_grid(study_verdicts(results)).rows == (
        ("Absent − SimCSE", "STS avg", "–", "–", "0", "Welch", "–"),
        ("One seed − SimCSE", "STS avg", "+5.00", "–", "1", "paired", "–"),
    )
    assert "The plan judges this study's contrasts" in contrasts_block(results)


def test_a_study_that_compares_nothing_says_nothing(study: Study) -> None:
    assert contrasts_block(join(replace(study, contrasts=()), toy_lines())) == ""


def test_a_line_has_both_sets_of_pairs_and_a_dash_where_one_is_not_declared(study: Study) -> None:
    better, single = (Contrast(plus=(label,), minus=("SimCSE",)) for label in ("Better", "One seed"))
    both = (better, replace(better, column="sts_disjoint_avg"), single)
    lines = toy_lines()
    apart = lines.assign(task=lines["task"] + "_disjoint", score=lines["score"] / 2)
    results = join(replace(study, contrasts=both), pd.concat([lines, apart]))
    on_all, halved, one = contrasts_grid(study_verdicts(results)).rows
    assert on_all[2] != halved[2]
    assert disjoint_grid(study_verdicts(results)).rows == (
        ("Better − SimCSE", " ".join(on_all[2:4]), on_all[4], " ".join(halved[2:4]), halved[4]),
        ("One seed − SimCSE", " ".join(one[2:4]), one[4], "–", "–"),
    )
