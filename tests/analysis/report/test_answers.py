"""README's line for each paper: its gains follow from the record, and a missing one says so."""

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis.cells import Results, join
from analysis.report.answers import ANSWERS, EQUALLY_TUNED, NO_BREAK, NOT_RUN, PLANNED, answers_grid, gains_shown
from analysis.stats.estimate import Estimate
from analysis.stats.significance import Interval
from analysis.verdicts.comparison import Gain
from analysis.verdicts.estimates import measure
from experiments.results import csv_record
from experiments.schema.contrasts import HEADLINES
from experiments.studies import catalogue
from tests.support.figure_records import lines_of

ROOT = Path(__file__).parents[3]
STUDIES = {each.study for shown, _ in ANSWERS.values() for each in shown}


def choose(results: dict[str, pd.DataFrame]) -> dict[str, Results]:
    empty = pd.DataFrame(columns=csv_record.RESULTS)
    return {name: join(catalogue.single(name, "small"), results.get(name, empty)) for name in STUDIES}


def test_what_is_not_recorded_says_so() -> None:
    studies = choose({})
    grid = answers_grid(lambda name, _: studies[name], {}, {}, str.upper)
    assert [row[0] for row in grid.rows] == list(HEADLINES)
    cells = [line.rpartition(": ")[2] for row in grid.rows for gains in row[2:4] for line in gains.split("<br>")]
    assert set(cells) == {NOT_RUN}
    assert len(cells) == sum(each.brief is not None for shown, _ in ANSWERS.values() for each in shown)


def test_a_value_in_how_to_read_a_gain_is_the_pages_own() -> None:
    studies = choose({})
    readings = [row[-1] for row in answers_grid(lambda name, _: studies[name], {}, {}, str.upper).rows]
    assert "ListNet is R1 points behind" in readings[0]
    assert not any("{" in reading for reading in readings)


def test_a_gain_is_that_of_the_declared_contrast_and_every_row_is_declared() -> None:
    studies = choose({})
    for shown, _ in ANSWERS.values():
        for each in shown:
            assert {each.plus, each.minus} <= {row.label for row in studies[each.study].study.rows}, each
    first = studies["plan2-first-plan"].study
    filled = join(first, lines_of(first))
    (expected,) = [
        measure(filled, each).estimate for each in first.contrasts if getattr(each, "plus", ()) == ("CompCSE",)
    ]
    text = answers_grid(lambda name, _: filled if name == first.name else studies[name], {}, {}, str).rows[3][2]
    assert expected
    assert f"{expected.mean:+.2f}{NO_BREAK}[" in text.partition("<br>")[0]


def test_a_line_shows_the_gain_that_its_own_method_prints_and_controls_show_none() -> None:
    published = pd.read_csv(ROOT / "experiments/published/rankcse_table2.csv").query("backbone == 'BERT-base'")
    average = published[published.task == "Avg"].set_index("method").value
    studies = choose({})
    shown = {(paper, words): printed for paper, words, _, printed in gains_shown(lambda name, _: studies[name], {})}
    for loss, count in {"ListNet": 4, "ListMLE": 5}.items():
        gain = average[f"RankCSE-l{loss[1:]}"] - average["SimCSE"]
        lines = [value for (paper, words), value in shown.items() if loss in words and "MiniLM" not in words]
        assert lines == [round(gain, 2)] * count
    ours = {
        "dropout views, no whitening",
        "halves of shuffled words",
        "two random crops",
        "better encoder: two random crops",
        "better encoder: halves of shuffled words",
        "better encoder: first half alone",
        "better encoder: ListNet, MiniLM teaches",
        "better encoder: ListMLE, MiniLM teaches",
    }
    assert {words for (_, words), printed in shown.items() if printed is None} == ours


def test_a_gain_of_equal_tuning_is_shown_with_its_verdict_and_the_others_are_not_complete() -> None:
    studies = choose({})
    estimate = Estimate(-0.5, Interval(-0.9, -0.1), 4)
    tuned = {"RankCSE": Gain(estimate=estimate, verdict="worse", detectable=0.8)}
    apart = {"RankCSE": Gain(estimate=Estimate(-0.3, None, 4), verdict="estimated")}
    grid = answers_grid(lambda name, _: studies[name], tuned, apart, str)
    assert [row[grid.header.index("small model, equally tuned")] for row in grid.rows] == [
        f"-0.50{NO_BREAK}[-0.90,{NO_BREAK}-0.10] (-0.30){PLANNED}: **worse**, 80 % power for 0.8",
        *["not complete"] * 3,
    ]
    assert "small model, equally tuned" not in answers_grid(lambda name, _: studies[name], {}, {}, str.upper).header
    lines = list(gains_shown(lambda name, _: studies[name], tuned))
    assert lines[0] == ("RankCSE", EQUALLY_TUNED, estimate, 3.8)
    assert len(lines) == 1 + len(list(gains_shown(lambda name, _: studies[name], {})))


def test_the_gain_on_disjoint_pairs_is_in_parentheses_if_all_seeds_have_it() -> None:
    studies = choose({})
    first = studies["plan2-first-plan"].study
    lines = lines_of(first)
    apart = lines.assign(task=lines["task"] + "_disjoint", score=lines["score"] / 2)

    def line(disjoint: pd.DataFrame) -> str:
        def chosen(name: str, column: str) -> Results:
            if name != first.name:
                return studies[name]
            shown = replace(first, columns=(column,), contrasts=())
            return join(shown, lines if column == "sts_avg" else disjoint)

        return answers_grid(chosen, {}, {}, str).rows[3][2].partition("<br>")[0]

    found = re.fullmatch(rf"([-+.\d]+)\s\[.*\] \(([-+.\d]+)\){PLANNED}, 10\sseeds", line(apart))
    assert found
    assert float(found[2]) == pytest.approx(float(found[1]) / 2, abs=0.01)
    (key, *_) = next(row for row in first.rows if row.label == "CompCSE").keys().values()
    assert line(apart[apart["key"] != key]).endswith(f"]{PLANNED}, 10{NO_BREAK}seeds")
