"""The first page counts what is recorded, and says what is not."""

from collections import Counter
from dataclasses import dataclass
from functools import cache

import pandas as pd
import pytest

from analysis import benchmark_ratios
from analysis.cells import Results, join
from analysis.report import first_page, plan_tables
from analysis.report.blocks import Record, block_text
from analysis.stats.estimate import t_estimate
from analysis.verdicts.claims import claims
from analysis.verdicts.plan import PlanVerdicts
from analysis.verdicts.verdict import Verdict
from experiments.results import csv_record
from experiments.schema.contrasts import POSITIVE, PRIMARY, Contrast
from experiments.schema.study import Study
from experiments.studies import catalogue
from tests.support.figure_records import EmptyRecord, lines_of, study_of

PAIR = ("SimCSE, the test sets' sentences", "SimCSE")
NONE = pd.DataFrame(columns=csv_record.RESULTS)


@cache
def choose_empty(names: str) -> list[Results]:
    return [join(study, NONE) for study in catalogue.choose_studies([names], "small")]


@cache
def empty_plan() -> PlanVerdicts:
    return PlanVerdicts(tuple(choose_empty("plan")))


@dataclass(frozen=True)
class Asked:
    """What a block reads of a `Request`."""

    name: str
    choose: first_page.Choose
    plan: PlanVerdicts
    record: Record


def page(name: str, choose: first_page.Choose = choose_empty, plan: PlanVerdicts | None = None) -> str:
    return block_text("page", Asked(name, choose, plan or empty_plan(), EmptyRecord()))  # ty: ignore[invalid-argument-type]


def contrast(plus: str, role: str = POSITIVE) -> Contrast:
    claim = "R1" if role == PRIMARY else ""
    return Contrast(claim=claim, family="teachers", role=role, plus=(plus,), minus=("SimCSE",), margin=1.0)


@pytest.mark.parametrize(("verdict", "expected"), [("better", "detected"), ("inconclusive", "not detected")])
def test_a_planned_control_is_detected_by_the_plans_own_test(verdict: str, expected: str) -> None:
    """Its interval is above 0 either way."""
    judged = Verdict(tested=contrast("it"), estimate=t_estimate(5.0, 1.0, 4, 5), word=verdict)
    sentence = first_page._controls_sentence([judged])
    assert f"teachers +5.00 [+2.22, +7.78] ({expected}; 5 seeds)" in sentence


def test_the_planned_sentence_counts_seeds_and_differences_smaller_than_the_margin() -> None:
    def judged(word: str, mean: float, seeds: int) -> Verdict:
        return Verdict(tested=contrast("it", PRIMARY), estimate=t_estimate(mean, 0.1, 4, seeds), word=word)

    primaries = [judged("better", 0.5, 20), judged("better", 1.5, 20), judged("equivalent", 0.1, 10)]
    assert plan_tables._seeds_text(primaries) == " (2 after 20, 1 after 10)"
    without = Verdict(tested=contrast("it", PRIMARY))
    assert plan_tables._seeds_text([*primaries, without]) == " (2 after 20, 1 after 10, 1 without an estimate)"
    assert plan_tables._seeds_text([without]) == ""
    assert [verdict.text for verdict in primaries] == ["better, by less than the margin", "better", "equivalent"]
    counted = plan_tables._count([verdict.word for verdict in primaries], ("better", "worse"), {"better": 1})
    assert counted == "2 better (1 by less than the margin), 0 worse"


@pytest.mark.slow
def test_without_a_record_nothing_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_ratios, "ratio", lambda what: None)  # costs are decided by benchmarks
    text = page("summary")
    primaries = sum(
        each.role == PRIMARY for study in catalogue.choose_studies(["plan"], "small") for each in study.contrasts
    )
    assert f"{primaries} contrasts" in text
    assert f"{primaries} not run yet" in text
    assert "0 trained encoders" in text
    assert "whitening not run" in text


def test_the_findings_count_the_records_pairs() -> None:
    study = study_of("overlap")
    lines = lines_of(study).assign(score=7.0)

    def choose(names: str) -> list[Results]:
        return [join(study, lines)] if names == "overlap" else choose_empty(names)

    text = page("findings", choose)
    assert "35 test pairs of STS12 to STS16 are also in STS-B's dev set" in text
    assert "4 printed averages" in text
    assert "reached by 5 of 50 seeds" in text


@pytest.mark.slow
def test_the_findings_say_what_training_on_the_test_sentences_is_worth() -> None:
    study = study_of("baselines")
    trained, simcse = (next(row for row in study.rows if row.label == label) for label in PAIR)
    lines = lines_of(study)
    lines["score"] = 0.4
    for row, score in ((trained, 0.5), (simcse, 0.47)):
        lines.loc[lines["key"].isin(row.keys().values()), "score"] = score

    def choose(names: str) -> list[Results]:
        return [join(study, lines)] if names == "baselines" else choose_empty(names)

    text = page("findings", choose)
    assert "SimCSE trained on the test sentences gains +3.00 [" in text
    assert "gains \N{EN DASH} over SimCSE" in page("findings")


@pytest.mark.slow
def test_every_claim_has_a_line() -> None:
    text = page("claims")
    ids = [
        line.split(" | ")[0].removeprefix("| ")
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith("| --")
    ]
    assert sorted(ids) == sorted(["id", *claims()])


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no block `page cover`; there are .*page claims, page findings"):
        page("cover")


@cache
def choose_made_up(names: str) -> list[Results]:
    return [join(study, lines_of(study)) for study in catalogue.choose_studies([names], "small")]


@pytest.mark.slow
def test_once_the_plan_is_run_its_verdicts_stand_on_the_page() -> None:
    plan = PlanVerdicts(tuple(choose_made_up("plan")))
    counts = Counter(each.word for each in plan.primaries)
    text = page("summary", plan=plan)
    assert sum(counts.values()) >= 40
    for verdict, count in counts.items():
        assert f"{count} {verdict}" in text
    others = Counter(each.word for each in plan.others)
    assert f"{sum(others.values())} claims about orders, trends, spreads and costs: {others['supported']} supp" in text
    assert "whitening not run" not in text


def test_a_family_whose_control_failed_is_named_even_if_only_its_controls_are_run() -> None:
    study = catalogue.single("plan-transfer", "small")
    lines = lines_of(study).assign(score=0.5)
    controls = {label for each in study.contrasts if each.role != PRIMARY for label in each.rows}
    keys = {key for row in study.rows if row.label in controls for key in row.keys().values()}
    plan = PlanVerdicts((join(study, lines[lines["key"].isin(keys)]),))
    assert "2 not testable here, 0 not run yet. A control fails in: transfer (" in plan_tables.planned_sentence(plan)


def test_a_failure_names_the_controls_that_fail_and_the_seeds_so_far() -> None:
    late = "the positive control is not detected so far, with 5 of 20 seeds (MiniLM over SimCSE: +0.08)"
    reason = f"{late}; the negative control helps (it over SimCSE: +0.46)"
    expected = "the positive control is not detected so far, with 5 of 20 seeds; the negative control helps"
    assert plan_tables._failure_text("transfer", reason) == f"transfer ({expected})"


def test_an_encoder_that_was_not_trained_here_does_not_count_as_one(study: Study, lines: pd.DataFrame) -> None:
    as_it_is = next(row for row in study.rows if row.label == "As it is")
    assert set(as_it_is.keys().values()) <= set(lines["key"])  # it has scores
    assert first_page._count_trained([join(study, lines)] * 2) == 7  # three, three and one seed, each once
