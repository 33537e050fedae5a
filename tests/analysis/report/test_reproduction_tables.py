"""Others' re-runs: which are counted, choices among several, what gains are worth, against other ways to count."""

import math
import statistics

import pytest
from scipy import stats

from analysis.report.reproduction_tables import (
    gains_grid,
    many_dev_scores,
    many_seeds,
    power_grid,
    read_reproductions,
    runs_grid,
    selection_grid,
)
from analysis.stats.significance import expected_choice


@pytest.fixture(scope="module")
def lines():
    return read_reproductions()


def test_usable_numbers_are_single_clean_runs(lines) -> None:
    assert len(lines) == 213
    assert lines["note"].str.startswith("clean").all()
    assert set(lines["what"]) == {"trained"}


def test_simcse_on_bert_base_is_as_the_reading_of_the_sources_says(lines) -> None:
    values = many_seeds(lines)
    assert (len(values), round(statistics.mean(values), 2), round(statistics.stdev(values), 2)) == (50, 75.11, 0.84)
    rows = {row[:2]: row[2:] for row in runs_grid(lines).rows}
    assert rows["SimCSE BERT-base", "separate reports"][:6] == ("6", "74.84", "75.38", "76.10", "75.44", "0.52")
    assert rows["SimCSE BERT-base", "50 seeds of hppRC/simple-simcse"][-1] == "5 of 50"


def test_the_best_of_k_is_the_mean_over_all_draws(lines) -> None:
    values = many_seeds(lines)
    shown = {row[0]: row[1] for row in selection_grid(lines).rows}
    assert float(shown["1"]) == pytest.approx(statistics.mean(values), abs=0.005)
    below = sorted(values)
    exact = sum(value * math.comb(i, 4) for i, value in enumerate(below)) / math.comb(len(below), 5)
    assert float(shown["5"]) == pytest.approx(exact, abs=0.005)


def test_the_chosen_of_k_on_dev_is_the_mean_over_all_draws(lines) -> None:
    """Runs by dev score: the i-th from below is chosen in C(i, k - 1) draws; 48 scores are distinct, two pairs tie."""
    values, dev = many_seeds(lines), many_dev_scores(lines)
    assert (len(dev), dev[0], len(set(dev))) == (50, 80.05, 48)
    rows = {row[0]: row[1:] for row in selection_grid(lines).rows}
    assert [row[1] for row in rows.values()] == ["75.11", "75.82", "76.02", "76.27"]
    for order in (1, -1):  # of the tied runs: what they are worth here is less than a hundredth
        ranked = [value for _, value in sorted(zip(dev, values, strict=True), key=lambda run: (run[0], order * run[1]))]
        for k in (1, 5, 10, 20):
            exact = sum(value * math.comb(i, k - 1) for i, value in enumerate(ranked)) / math.comb(len(ranked), k)
            assert float(rows[str(k)][1]) == pytest.approx(exact, abs=0.01)


def test_by_which_score_the_published_average_is_the_chosen_one_of_how_many(lines) -> None:
    """The smallest number of runs whose chosen one is expected to reach 76.25."""
    values = many_seeds(lines)
    assert [
        next(k for k, value in enumerate(expected_choice(criterion, values), 1) if value >= 76.25)
        for criterion in (values, many_dev_scores(lines))
    ] == [8, 19]


def test_gains_are_printed_differences_in_deviations_of_a_difference(lines) -> None:
    deviation = statistics.stdev(many_seeds(lines))
    rows = {row[0]: row[1:] for row in gains_grid(lines).rows}
    assert rows["CompCSE"][:2] == ("78.18", "+1.93")
    assert float(rows["CompCSE"][2]) == pytest.approx(1.93 / (deviation * math.sqrt(2)), abs=0.01)
    assert float(rows["RankCSE, ListNet"][3]) == pytest.approx(3.80 / (deviation * math.sqrt(2 / 5)), abs=0.01)


def test_the_plan_detects_what_welchs_test_of_ten_seeds_does_at_an_eighth_of_the_level(lines) -> None:
    grid = power_grid(lines)
    assert grid.header[2:] == (
        "plan: 10 seeds, the first of 8 tests",
        "one plain test, 10 seeds",
        "one plain test, 5 seeds",
    )
    for backbone, _, *shown in grid.rows:
        deviation = statistics.stdev(many_seeds(lines, backbone))
        for cell, n, level in zip(shown, (10, 10, 5), (0.05 / 8, 0.05, 0.05), strict=True):
            law = stats.nct(2 * n - 2, float(cell) / (deviation * math.sqrt(2 / n)))
            assert law.sf(stats.t(2 * n - 2).isf(level / 2)) == pytest.approx(0.8, abs=0.02)
