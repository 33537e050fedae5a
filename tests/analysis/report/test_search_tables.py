"""Searches as the report shows them, from lines of searches.csv made by hand."""

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from analysis.plots import style
from analysis.plots.search_history import searches
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
def test_the_figure_shows_a_curve_and_bars_for_each_search() -> None:
    grid = lines("rankcse-listmle-grid", 4)
    grid["trial"] = [settings_text({"learning_rate": r, "student_temperature": 0.05}) for r in (1e-4, 2e-4, 3e-4, 4e-4)]
    with plt.rc_context(style.RC):
        figure = searches(searches_with_trials(pd.concat([lines(count=32), grid]), "small"))
    assert figure is not None
    curves, simcse = (axes for axes in figure.axes if axes.get_title())
    ends = [np.asarray(line.get_ydata())[-1] for line in curves.lines]
    assert ends == pytest.approx([60.4, 100 * grid["score"].max()])
    assert [text.get_text() for text in curves.texts] == ["simcse", "rankcse-listmle-grid"]
    assert [bar.get_path().get_extents(bar.get_patch_transform()).width > 90 for bar in simcse.patches] == [False, True]
    assert "dashed: the method's grid" in style.caption(figure)
    assert "Too few finished trials for importances (fewer than 30): rankcse-listmle-grid 2." in style.caption(figure)
    assert searches([]) is None
    plt.close(figure)
    with plt.rc_context(style.RC):
        figure = searches(searches_with_trials(pd.concat([lines("rankcse-listmle", 12), grid]), "small"))
    assert figure is not None
    (curves,) = (axes for axes in figure.axes if axes.get_title())
    assert [text.get_text() for text in curves.texts] == ["rankcse-listmle"]  # its grid has its colour, dashed
    assert [line.is_dashed() for line in curves.lines] == [False, True]
    assert curves.get_xticks()[-1] <= 12 < curves.get_xlim()[1]
    plt.close(figure)
