"""What choosing seeds is worth, and how many an effect needs, against draws and against power that is simulated."""

from itertools import combinations
from statistics import mean

import numpy as np
import pytest
from scipy import stats

from analysis.report.findings import EFFECTS, SPENT, Seeds, costs_grid, seeds_for, seeds_grid, selection_grid
from experiments.studies import catalogue
from tests.support.figure_records import EmptyRecord

SEEDS = Seeds(dev=(60.0, 64.0, 62.0, 61.0), test=(50.0, 53.0, 54.0, 51.0))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_best_of_n_seeds_is_the_mean_over_all_draws(n: int) -> None:
    draws = list(combinations(range(4), n))
    by_dev = mean(SEEDS.test[max(draw, key=lambda i: SEEDS.dev[i])] for draw in draws)
    by_test = mean(max(SEEDS.test[i] for i in draw) for draw in draws)
    assert SEEDS.gained_by_dev(n) == pytest.approx(by_dev - mean(SEEDS.test))
    assert SEEDS.gained_by_test(n) == pytest.approx(by_test - mean(SEEDS.test))
    assert SEEDS.gained_by_dev(5) is None


@pytest.mark.parametrize(("effect", "deviation"), [(0.5, 0.38), (1.0, 0.84), (2.0, 0.5)])
def test_as_many_seeds_detect_an_effect_four_times_in_five_and_fewer_do_not(effect: float, deviation: float) -> None:
    seeds, random = seeds_for(effect, deviation), np.random.default_rng(0)

    def detected(n: int) -> float:
        first, second = random.normal(0, deviation, (2, 20_000, n))
        return float((stats.ttest_ind(first + effect, second, axis=1, equal_var=False).pvalue < 0.05).mean())

    assert detected(seeds) > 0.78
    if seeds > 2:
        assert detected(seeds - 1) < 0.81


def test_more_deviation_or_a_smaller_effect_needs_more_seeds() -> None:
    needed = [seeds_for(effect, 0.84) for effect in EFFECTS]
    assert needed == sorted(needed, reverse=True)
    assert seeds_for(0.5, 1.74) > seeds_for(0.5, 0.84)
    with pytest.raises(ValueError, match=r"deviation must be above 0, got 0"):
        seeds_for(0.5, 0.0)


def test_without_a_record_gains_are_dashes_and_the_rows_stay() -> None:
    assert {cell for row in selection_grid(Seeds((), ())).rows for cell in row[1:]} == {"\N{EN DASH}"}
    assert all("re-runs" in row[0] for row in seeds_grid({"BERT-base, re-runs of others": 0.84}).rows)


@pytest.mark.slow
def test_costs_are_of_rows_that_studies_have_and_in_epochs_of_simcse() -> None:
    for _, study, label in SPENT:
        assert label in {row.label for row in catalogue.single(study, "small").rows}
    rows = {row[0]: row for row in costs_grid(EmptyRecord()).rows}
    assert rows["SimCSE, eight epochs"][1:] == ("8.0", "0", "\N{EN DASH}", "\N{EN DASH}", "0")
    assert rows["RankCSE (ListNet)"][2] == "2"  # teachers
    assert float(rows["WhitenedCSE, dropout views"][1]) == pytest.approx(1.5)  # three passes, not two
