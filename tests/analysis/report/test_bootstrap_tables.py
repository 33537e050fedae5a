"""Blocks of differences by other seeds and other pairs: closed forms of the toy study."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t, trim_mean

from analysis.cells import join
from analysis.report.bootstrap_tables import estimates_block, pairs_and_seeds_block, seeds_drawn, two_row_differences
from analysis.verdicts.plan import PlanVerdicts
from experiments.results import csv_record
from experiments.schema.contrasts import PRIMARY, Contrast
from experiments.schema.study import Study
from experiments.studies import catalogue
from tests.support.toy_study import FIRST

NOTHING = pd.DataFrame(columns=csv_record.PAIRS)


def cells(block: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in block.splitlines() if "|" in line]
    return {line[0].strip("| "): [cell.strip("| ") for cell in line[1:]] for line in lines[2:]}


def test_seeds_are_drawn_with_all_their_sets(wide: Study, lines: pd.DataFrame) -> None:
    found = cells(estimates_block(join(wide, lines), NOTHING))
    others = [f"{label} \N{MINUS SIGN} SimCSE" for label in ("Better", "One seed", "Absent")]
    assert list(found) == [*others, "SimCSE \N{MINUS SIGN} Better"]
    gaps = [100 * (FIRST["Better"][seed] - FIRST["SimCSE"][seed]) for seed in (42, 1, 2)]
    drawn = sorted(np.mean(one) for one in product(gaps, repeat=3))  # 27 equally likely draws of three seeds
    low, high = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf")
    seeds, middle, better, *rest = found["Better \N{MINUS SIGN} SimCSE"]
    assert seeds == f"+{np.mean(gaps):.2f} [+{low:.2f}, +{high:.2f}]"
    scores = {name: [100 * x + i for x in FIRST[name].values() for i in range(7)] for name in ("Better", "SimCSE")}
    assert middle.split()[0] == f"+{trim_mean(scores['Better'], 0.25) - trim_mean(scores['SimCSE'], 0.25):.2f}"
    assert better == "1.00 [1.00, 1.00]"
    assert rest == ["\N{EN DASH}"] * 2  # no pairs; and no column for seeds and pairs, as it would be empty
    assert found["SimCSE \N{MINUS SIGN} Better"][2] == "0.00 [0.00, 0.00]"


def test_one_seed_has_no_interval_and_a_row_without_runs_no_number(wide: Study, lines: pd.DataFrame) -> None:
    found = cells(estimates_block(join(wide, lines), NOTHING))
    expected = 100 * (0.55 - FIRST["SimCSE"][42])  # of the seed that both have
    assert found["One seed \N{MINUS SIGN} SimCSE"][0] == f"+{expected:.2f} \N{EN DASH}"
    assert found["Absent \N{MINUS SIGN} SimCSE"] == ["\N{EN DASH}"] * 5


def test_pairs_are_shown_from_the_record_with_holms_correction_over_the_table(wide: Study, lines: pd.DataFrame) -> None:
    by_label = {row.label: csv_record.score_source(row) for row in wide.rows if row.encoder is not None}
    shared = {"scale": "small", "second": by_label["SimCSE"], "column": "sts_avg", "seeds": "", "low": -1.0}
    shared |= {"high": 3.0}
    drawn = pd.DataFrame(
        [
            shared | {"first": by_label["Better"], "difference": 1.25, "p": 0.04, "resamples": 10_000},
            shared | {"first": by_label["One seed"], "difference": -0.5, "p": 0.01, "resamples": 10_000},
            shared | {"first": by_label["As it is"], "difference": 9.0, "p": 0.001, "resamples": 10_000},
        ]
    )
    block = estimates_block(join(wide, lines), drawn)
    found = cells(block)
    assert found["Better \N{MINUS SIGN} SimCSE"][-2:] == ["+1.25 [-1.00, +3.00]", "0.040"]
    assert found["One seed \N{MINUS SIGN} SimCSE"][-2:] == ["-0.50 [-1.00, +3.00]", "0.020"]
    assert "(10,000 draws)" in block


def test_the_line_with_most_seeds_of_both_rows_is_shown(wide: Study, lines: pd.DataFrame) -> None:
    better, simcse = (next(row for row in wide.rows if row.label == label) for label in ("Better", "SimCSE"))
    shared = {"scale": "small", "column": "sts_avg", "p": 0.04, "pairs": 9, "resamples": 10_000}
    shared |= {"seeds": "independent"}

    def line(first: tuple[int, ...], second: tuple[int, ...], value: float) -> dict[str, object]:
        sides = {
            "first": csv_record.score_source(better, first),
            "second": csv_record.score_source(simcse, second),
        }
        return shared | sides | {"difference": value, "low": value - 1, "high": value + 1}

    two, three, mixed = line((42, 1), (42, 1), 2.0), line((42, 1, 2), (42, 2), 3.0), line((42,), (42, 1), 9.0)
    elsewhere = [line((42, 1, 2), (42, 1, 2), 7.0) | {"column": "stsb"}, line((42, 1), (42, 1, 2), 8.0)]
    elsewhere[1]["second"] = str(elsewhere[1]["second"]).replace("cosine", "cosine mean")
    name = "Better \N{MINUS SIGN} SimCSE"
    both = cells(estimates_block(join(wide, lines), pd.DataFrame([two, three, mixed, *elsewhere])))[name]
    assert both[3:] == ["\N{EN DASH}", "\N{EN DASH}", "+3.00 [+2.00, +4.00] (3, 2)"]
    without = estimates_block(join(wide, lines), pd.DataFrame([mixed, *elsewhere]))
    assert cells(without)[name] == both[:-1]  # no column without an estimate
    assert "Seeds and pairs" not in without
    assert str(three["first"]).count("+") == 2


def test_planned_contrasts_of_two_rows_are_differences_too() -> None:
    (plan,) = catalogue.choose_studies(["plan-losses"], "small")
    differences = {(each.name, *each.rows) for each in two_row_differences(plan)}
    assert ("R1", "ListNet, 8 epochs", "SimCSE, 8 epochs") in differences
    assert len(differences) == len(plan.contrasts)
    for name in ("baselines", "ladder"):  # exploratory
        assert two_row_differences(*catalogue.choose_studies([name], "small")) == []


def planned(wide: Study, *, paired: bool, margin: float = 1.0) -> Study:
    names: dict[str, Any] = {"plus": ("Better",), "minus": ("SimCSE",)}
    return replace(
        wide, contrasts=(Contrast(claim="R1", family="f", role=PRIMARY, paired=paired, margin=margin, **names),)
    )


def planned_cells(study: Study, lines: pd.DataFrame, drawn: pd.DataFrame) -> dict[str, list[str]]:
    """The cells of the block of planned contrasts, by claim."""
    return cells(pairs_and_seeds_block(PlanVerdicts((join(study, lines),)), drawn))


def drawn_line(study: Study, seeds: tuple[int, ...], how: str, low: float, high: float) -> dict[str, object]:
    rows = {row.label: row for row in study.rows}
    first, second = (csv_record.score_source(rows[label], seeds) for label in ("Better", "SimCSE"))
    numbers = {"difference": (low + high) / 2, "low": low, "high": high, "p": 0.5, "pairs": 1234, "resamples": 10_000}
    return {"scale": "small", "first": first, "second": second, "column": "sts_avg", "seeds": how} | numbers


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.5, 2.5, "excludes 0, not within the margin"),
        (-2.5, -0.5, "excludes 0, not within the margin"),
        (0.5, 0.9, "excludes 0, within the margin"),
        (-0.5, 0.9, "holds 0, within the margin"),
        (-0.5, 1.5, "holds 0, not within the margin"),
        (-1.5, 0.5, "holds 0, not within the margin"),
    ],
)
def test_a_planned_contrast_is_shown_over_seeds_and_over_seeds_and_pairs(
    wide: Study, lines: pd.DataFrame, low: float, high: float, says: str
) -> None:
    study = planned(wide, paired=True)
    drawn = pd.DataFrame(
        [drawn_line(study, (42, 1), "paired", low, high), drawn_line(study, (42, 1, 2), "independent", 7.0, 9.0)]
    )
    name, seeds, count, both, of_both, number, where = planned_cells(study, lines, drawn)["R1"]
    gaps = [100 * (FIRST["Better"][seed] - FIRST["SimCSE"][seed]) for seed in (42, 1, 2)]
    half = t(2).ppf(0.975) * np.std(gaps, ddof=1) / np.sqrt(3)
    assert name == "Better \N{MINUS SIGN} SimCSE"
    assert seeds == f"+{np.mean(gaps):.2f} [+{np.mean(gaps) - half:.2f}, +{np.mean(gaps) + half:.2f}]"
    assert both == f"{(low + high) / 2:+.2f} [{low:+.2f}, {high:+.2f}]"
    assert (count, of_both, number, where) == ("3", "2, 2", "1,234", says)


def test_only_draws_of_seeds_as_the_contrasts_test_takes_them_are_shown(wide: Study, lines: pd.DataFrame) -> None:
    study = planned(wide, paired=False)
    together = pd.DataFrame([drawn_line(study, (42, 1), "paired", 1.0, 2.0)])
    assert planned_cells(study, lines, together) == {}
    apart = pd.DataFrame([drawn_line(study, (42, 1), "independent", 1.0, 2.0)])
    assert "R1" in planned_cells(study, lines, apart)
    assert planned_cells(study, lines, NOTHING) == {}


def test_each_contrast_of_a_study_draws_seeds_as_its_own_test_takes_them(wide: Study) -> None:
    study = planned(wide, paired=True)
    apart = replace(study.contrasts[0], claim="R2", plus=("One seed",), paired=False)
    exploratory = Contrast(claim="R3", plus=("One seed",), minus=("SimCSE",), paired=True)
    study = replace(study, contrasts=(*study.contrasts, apart, exploratory))
    assert [seeds_drawn(each) for each in two_row_differences(study)] == ["paired", "independent", "independent"]


def test_runs_that_lose_on_all_sets_together_widen_the_probability_of_improvement(
    wide: Study, lines: pd.DataFrame
) -> None:
    better = next(row for row in wide.rows if row.label == "Better")
    changed = lines.copy()
    changed.loc[changed["key"] == better.keys()[42], "score"] -= 0.3  # below all of SimCSE's, on every set
    found = cells(estimates_block(join(wide, changed), NOTHING))["Better \N{MINUS SIGN} SimCSE"]
    assert found[2] == "0.67 [0.00, 1.00]"
