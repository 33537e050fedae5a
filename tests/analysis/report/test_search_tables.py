"""Searches as the report shows them, from lines of searches.csv made by hand."""

from itertools import combinations, product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from analysis.plots import style
from analysis.plots.search_history import best_of_resampled_trials, searches
from analysis.report.search_tables import SearchTrials, searches_block, searches_with_trials
from experiments.results import csv_record
from experiments.schema.scales import SCALES
from experiments.searches.spaces import SEARCHES, settings_text

SMALL = SCALES["small"]


def lines(name: str = "simcse", count: int = 12) -> pd.DataFrame:
    """Scores that the temperature decides, with a grain of the learning rate; the last two stopped and failed."""
    made = []
    for i in range(count):
        settings = {"learning_rate": 1e-4 * (1 + i % 4), "temperature": (0.01, 0.05, 0.1)[i % 3]}
        state = {count - 2: "stopped", count - 1: "failed"}.get(i, "finished")
        score = np.nan if state == "failed" else 0.5 + settings["temperature"] + 10 * settings["learning_rate"]
        made.append(("small", name, settings_text(settings), state, score, 16, "a b", "c"))
    return pd.DataFrame(made, columns=csv_record.SEARCHES)


def one(frame: pd.DataFrame) -> SearchTrials:
    return SearchTrials(SEARCHES["simcse"](SMALL), frame)


def test_the_best_of_two_trials_is_expected_as_counted() -> None:
    found = one(lines())
    scores = 100 * lines()["score"].dropna()
    assert len(scores) == 11  # a stopped trial counts, a failed one has no score
    pairs = [max(pair) for pair in combinations(scores, 2)]
    assert found.expected_best()[[0, 1, -1]] == pytest.approx([scores.mean(), np.mean(pairs), scores.max()])


def test_importance_goes_to_what_decides() -> None:
    shares = one(lines(count=32)).importances()
    assert list(shares) == ["learning_rate", "temperature"]
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["temperature"] > 0.9
    assert one(lines(count=31)).importances() == {}  # 29 finished


def test_where_the_study_stands_among_the_trials() -> None:
    frame = lines()
    assert one(frame).start() is None
    own = settings_text({"learning_rate": SMALL.training["learning_rate"], "temperature": 0.05})
    frame.loc[3, ["trial", "score"]] = [own, 0.625]
    assert one(frame).start() == 62.5


def test_a_line_for_each_search_and_none_for_those_without_trials() -> None:
    assert searches_block(lines().head(0), "small") == "Not searched yet at scale small."
    text = searches_block(lines(), "small")
    assert "| simcse | 12 | 1 | 1 | – | 60.30 | learning_rate 0.0003, temperature 0.1 |" in text
    assert "rankcse" not in text


@pytest.mark.slow
def test_the_figure_has_a_panel_a_method_with_bands_and_bars_for_enough_trials() -> None:
    grid = lines("rankcse-listmle-grid", 4)
    grid["trial"] = [settings_text({"learning_rate": r, "student_temperature": 0.05}) for r in (1e-4, 2e-4, 3e-4, 4e-4)]
    mle = lines("rankcse-listmle", 12)
    with plt.rc_context(style.RC):
        figure = searches(searches_with_trials(pd.concat([lines(count=32), mle, grid]), "small"))
    assert figure is not None
    simcse, both, bars = (axes for axes in figure.axes if axes.get_title())
    assert [axes.get_title() for axes in (simcse, both, bars)] == ["simcse", "rankcse-listmle", "simcse (30)"]
    assert [line.get_linestyle() for line in both.get_lines()[:2]] == ["-", "--"]  # its grid
    ends = [np.asarray(line.get_ydata())[-1] for line in both.get_lines()[:2]]
    assert ends == pytest.approx([60.3, 100 * grid["score"].max()])
    assert [len(axes.collections) for axes in (simcse, both)] == [1, 2]  # a band each
    assert [bar.get_path().get_extents(bar.get_patch_transform()).width > 90 for bar in bars.patches] == [False, True]
    assert "Too few finished trials for importances (fewer than 30): rankcse-listmle 10, rankcse-listmle-grid 2." in (
        style.caption(figure)
    )
    assert searches([]) is None
    plt.close(figure)


def test_the_band_of_the_best_of_k_trials_is_of_trials_drawn_anew() -> None:
    scores = [1.0, 2.0, 3.0, 10.0]
    found = best_of_resampled_trials(scores, draws=4000)
    assert found["best"].tolist() == pytest.approx([4.0, np.mean([max(p) for p in combinations(scores, 2)]), 8.25, 10])
    means = np.array([np.mean(drawn) for drawn in product(scores, repeat=4)])  # the expected best of one is the mean
    assert (found["low"][1], found["high"][1]) == pytest.approx(np.percentile(means, (2.5, 97.5)), abs=0.3)
    assert (found["low"] <= found["best"]).all()
    assert found.equals(best_of_resampled_trials(scores, draws=4000))
