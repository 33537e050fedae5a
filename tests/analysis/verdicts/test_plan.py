"""The plan's verdicts on claims without a contrast: at complete looks, by controls, none before the first is run."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.cells import Results, join
from analysis.report.plan_tables import claims_grid, others_grid
from analysis.verdicts import plan
from analysis.verdicts.plan import PlanVerdicts
from experiments.schema.study import Study
from experiments.studies.catalogue import single
from tests.support.figure_records import lines_of

ORDERS = {"S1", "S3", "S4"}
ALIKE = dict.fromkeys(ORDERS, "supported")


def ordered(study: Study) -> pd.DataFrame:
    """A record in which every column and checkpoint ranks the rows as they are declared."""
    lines = lines_of(study)
    base = [row.label for row in study.rows if row.select != "last"]
    place = {key: base.index(row.label.removesuffix(", last")) for row in study.rows for key in row.keys().values()}
    lines["score"] = 0.5 + lines["key"].map(place) / 100
    return lines


def words_of(*planned: Results) -> dict[str, str]:
    return {verdict.tested.claim: verdict.word for verdict in PlanVerdicts(planned).others}


@pytest.fixture
def study() -> Study:
    return single("plan-orders", "small")


@pytest.fixture
def controls() -> Study:
    """The study with the controls of these orders."""
    return single("plan-scoring", "small")


@pytest.fixture
def working_controls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "blocked_families", lambda judged: {})


@pytest.mark.usefixtures("working_controls")
@pytest.mark.slow
def test_orders_that_agree_are_supported_and_others_are_not(study: Study) -> None:
    lines = ordered(study)
    assert words_of(join(study, lines)) == ALIKE
    disjoint = lines["task"].str.endswith("_disjoint")
    lines.loc[disjoint, "score"] = 1 - lines.loc[disjoint, "score"]
    assert words_of(join(study, lines)) == ALIKE | {"S1": "contradicted"}


@pytest.mark.usefixtures("working_controls")
@pytest.mark.slow
def test_there_is_no_verdict_before_each_row_that_is_read_has_the_first_looks_seeds(study: Study) -> None:
    lines = ordered(study)
    keys = list(study.rows[1].keys().values())
    five, four = (lines[~lines["key"].isin(keys[count:])] for count in (5, 4))
    assert words_of(join(study, five)) == ALIKE
    assert words_of(join(study, four)) == dict.fromkeys(ORDERS, "not run yet")
    without = lines[~lines["task"].str.endswith("_disjoint")]
    assert words_of(join(study, without)) == ALIKE | {"S1": "not run yet"}
    trends = single("plan-trends", "small")
    lines = lines_of(trends)
    data = set(trends.rows[0].keys().values())
    assert words_of(join(trends, lines[~lines["key"].isin(data)])) == {"E9": "not run yet"}


@pytest.mark.usefixtures("working_controls")
def test_seeds_after_the_last_complete_look_are_left_out(study: Study) -> None:
    """Seven seeds of one row: it is the lowest with the first five, which decide, and the highest with all seven."""
    lines = ordered(study)
    seeds = [key for row in study.rows[:1] for key in row.keys().values()]
    later = lines["key"].isin(seeds[5:7]) & lines["task"].str.endswith("_disjoint")
    lines.loc[later, "score"] = 9.0
    assert words_of(join(study, lines[~lines["key"].isin(seeds[7:])])) == ALIKE


@pytest.mark.usefixtures("working_controls")
@pytest.mark.slow
def test_the_last_complete_look_is_the_one_that_decides(study: Study) -> None:
    """Ten seeds: disjoint sets order the rows as the others do in the first five, and in all ten the other way."""
    lines = ordered(study)
    keys = [list(row.keys().values()) for row in study.rows]
    lines = lines[~lines["key"].isin([key for row in keys for key in row[10:]])]
    later = lines["key"].isin([key for row in keys for key in row[5:]]) & lines["task"].str.endswith("_disjoint")
    lines.loc[later, "score"] = 2 - 3 * lines.loc[later, "score"]
    assert words_of(join(study, lines)) == ALIKE | {"S1": "contradicted"}


@pytest.mark.slow
def test_a_family_whose_controls_failed_has_no_verdict(study: Study, controls: Study) -> None:
    same = lines_of(controls).assign(score=0.5)
    orders = ordered(study)
    for lines in (orders, orders.iloc[:0]):
        planned = [join(study, lines), join(controls, same)]
        assert words_of(*planned) == dict.fromkeys(ORDERS, "not testable here")


@pytest.mark.slow
def test_a_family_whose_controls_are_not_run_waits(study: Study, controls: Study) -> None:
    planned = [join(study, ordered(study)), join(controls, lines_of(controls).iloc[:0])]
    assert words_of(*planned) == dict.fromkeys(ORDERS, "not run yet")


def test_what_cannot_be_run_is_not_testable(controls: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    study = single("plan-costs", "small")
    planned = [join(study, lines_of(study)), join(controls, lines_of(controls).iloc[:0])]
    assert words_of(*planned)["E11"] == "not testable here"
    monkeypatch.setitem(plan.FAMILY_OF, "E11", controls.contrasts[0].family)  # whose controls are not run
    assert words_of(*planned)["E11"] == "not testable here"


@pytest.mark.usefixtures("working_controls")
def test_the_table_says_what_would_decide() -> None:
    studies = [single(f"plan-{name}", "small") for name in ("spread", "neighbours", "trends", "costs")]
    others = PlanVerdicts(tuple(join(study, lines_of(study)) for study in studies)).others
    lines = {line[0]: line for line in others_grid(others).rows}
    assert {claim: line[5] for claim, line in lines.items()} == {
        "R10": "a ratio up to 0.63 (80 % power: a true one of 0.52)",
        "E4": "a correlation from 0.88 over 6 points",
        "E9": "a correlation from 0.80 over 7 points",
        "R14": "quartiles from 1.35 to 1.65, or both outside",
        "W8": "quartiles up to 1.1, or both outside",
        "E11": "–",
    }
    assert [lines["R10"][4], lines["R14"][4], lines["E11"][6]] == ["20", "12 turns", "not testable here"]
    empty = others_grid(PlanVerdicts((join(studies[0], lines_of(studies[0]).iloc[:0]),)).others).rows
    assert empty == (("R10", lines["R10"][1], *["–"] * 2, "0", "–", "not run yet"),)


@pytest.mark.slow
def test_an_undecided_claim_of_a_family_with_a_failed_control_is_not_testable(
    study: Study, controls: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = lines_of(controls).assign(score=0.5)
    lines = ordered(study)
    disjoint = lines["task"].str.endswith("_disjoint")
    lines.loc[disjoint, "score"] += np.random.default_rng(0).normal(0, 0.1, disjoint.sum())
    assert words_of(join(study, lines), join(controls, same))["S1"] == "not testable here"
    monkeypatch.setattr(plan, "blocked_families", lambda judged: {})
    assert words_of(join(study, lines))["S1"] == "inconclusive"


@pytest.mark.usefixtures("working_controls")
def test_each_claim_has_its_verdict_and_the_studies_that_are_about_it() -> None:
    study = single("plan-costs", "small")
    verdicts = PlanVerdicts((join(study, lines_of(study)),))
    lines = {line[0]: line for line in claims_grid([single("rankcse-table11", "small")], verdicts).rows}
    assert len(lines) == 54
    assert lines["R14"][2:] == ("supported", "[rankcse-table11](analysis/tables/small/rankcse-table11.md)")
    assert lines["R1"][2:] == ("–", "–")


def test_a_claim_is_tested_once() -> None:
    study = single("plan-costs", "small")
    twice = join(replace(study, findings=study.findings * 2), lines_of(study))
    with pytest.raises(ValueError, match="plan-costs: expected one test of claim R14 in the plan"):
        _ = PlanVerdicts((twice,)).others
