"""The plan's verdicts on claims without a contrast: in the plan's words, and none before the first look is run."""

import pandas as pd

from analysis.cells import join
from analysis.verdicts.uncontrasted import judge_uncontrasted
from experiments.schema.study import Study
from experiments.studies.catalogue import single
from tests.support.figure_records import lines_of

ORDERS = {"S1", "S3", "S4"}


def ordered(study: Study) -> pd.DataFrame:
    """A record in which every column and checkpoint ranks the rows as they are declared."""
    lines = lines_of(study)
    base = [row.label for row in study.rows if row.select != "last"]
    place = {key: base.index(row.label.removesuffix(", last")) for row in study.rows for key in row.keys().values()}
    lines["score"] = 0.5 + lines["key"].map(place) / 100
    return lines


def test_orders_that_agree_are_supported_and_others_are_not() -> None:
    study = single("plan-orders", "small")
    lines = ordered(study)
    assert judge_uncontrasted([join(study, lines)]) == dict.fromkeys(ORDERS, "supported")
    disjoint = lines["task"].str.endswith("_disjoint")
    lines.loc[disjoint, "score"] = 1 - lines.loc[disjoint, "score"]
    verdicts = judge_uncontrasted([join(study, lines)])
    assert verdicts["S1"] == "contradicted"
    assert verdicts["S3"] == verdicts["S4"] == "supported"


def test_there_is_no_verdict_before_each_row_has_the_first_looks_seeds() -> None:
    study = single("plan-orders", "small")
    lines = ordered(study)
    keys = list(study.rows[1].keys().values())
    five, four = (lines[~lines["key"].isin(keys[count:])] for count in (5, 4))
    assert judge_uncontrasted([join(study, five)]) == dict.fromkeys(ORDERS, "supported")
    assert judge_uncontrasted([join(study, four)]) == dict.fromkeys(ORDERS, "not run yet")


def test_what_can_t_be_run_is_not_testable() -> None:
    study = single("plan-costs", "small")
    verdicts = judge_uncontrasted([join(study, lines_of(study))])
    assert verdicts["E11"] == "not testable here"
