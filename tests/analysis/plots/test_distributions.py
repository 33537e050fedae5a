"""Ridges, neighbours and densities against their definitions."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from scipy import stats

from analysis.plots import distributions, style
from cse_core.metrics.neighbours import bins
from experiments.schema.columns import PUBLISHED_NAMES, STS
from tests.support.figure_records import arrays_of, dots_of, figure_data_of, figure_of, lacking, study_of


def medians_of(axes) -> list[float]:
    """The middle one of each half violin's three lines."""
    return [line.get_xdata()[0] for line in axes.get_lines()[1::3]]


def test_each_model_stands_above_the_first_with_the_median_of_every_band() -> None:
    study = study_of("rankcse-figure5")
    figure = figure_of(distributions.ridges, figure_data_of(study))
    assert [axes.get_title() for axes in figure.axes] == [f"{row.label}, below: SimCSE" for row in study.rows[1:]]
    for axes, row in zip(figure.axes, study.rows[1:], strict=True):
        expected = []
        for band in reversed(range(5)):
            for model in (row, study.rows[0]):
                arrays = arrays_of(model, 42, "stsb_dev_geometry")
                inside = (arrays["gold"] >= band) & (arrays["gold"] < (band + 1 if band < 4 else 5.1))
                expected.append(np.median(arrays["cosines"][inside]))
        assert sorted(medians_of(axes)) == pytest.approx(sorted(expected))
    bands = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert bands == ["4–5", "3–4", "2–3", "1–2", "0–1"]
    gold = arrays_of(study.rows[0], 42, "stsb_dev_geometry")["gold"]
    counts = ", ".join(str(int(((gold >= b) & (gold < b + 1)).sum())) for b in range(5))
    assert f"lowest band up: {counts}." in style.caption(figure)


def test_a_band_holds_its_upper_edge_the_lowest_both_and_a_band_of_one_pair_is_drawn() -> None:
    def one(row, seed, task):
        gold = np.array([0.0, 0.99, 1.0, 4.0, 4.5, 5.0], np.float32)
        return {"cosines": np.linspace(0, 1, 6).astype(np.float32), "gold": gold}

    figure = figure_of(distributions.ridges, figure_data_of(study_of("rankcse-figure5"), arrays=one))
    assert "lowest band up: 3, 0, 0, 1, 2." in style.caption(figure)


def test_ridges_name_models_without_arrays() -> None:
    figure = figure_of(distributions.ridges, figure_data_of(study_of("rankcse-figure5"), arrays=lacking("DiffCSE")))
    models = [axes.get_title().partition(",")[0] for axes in figure.axes]
    assert models == ["RankCSE-listNet", "RankCSE-listMLE"]
    assert "Missing: DiffCSE." in style.caption(figure)


def rho(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's correlation of average ranks."""
    x, y = (pd.Series(np.asarray(v, np.float64)).rank().to_numpy() for v in (a, b))
    return float(np.corrcoef(x, y)[0, 1])


def longest(axes) -> np.ndarray:
    """The heights of the line through all bins."""
    return np.asarray(max((line.get_ydata() for line in axes.get_lines()), key=len))


def test_neighbours_are_means_and_gains_differences_of_rho_in_the_same_bins() -> None:
    study = study_of("rankencoder-figure6")
    found = [arrays_of(study.rows[0], seed, "stsb_neighbours") for seed in (42, 1, 2)]
    figure = figure_of(distributions.neighbours, figure_data_of(study))
    upper, lower = figure.axes
    groups = bins(np.mean([one["cosines"] for one in found], axis=0))
    shared = [np.mean([one["shared"][group].mean() for one in found]) for group in groups]
    assert longest(upper) == pytest.approx(shared)
    assert upper.get_ylim()[0] == 0
    gains = np.array(
        [
            [
                100 * (rho(one["pair_scores"][g], one["gold"][g]) - rho(one["cosines"][g], one["gold"][g]))
                for g in groups
            ]
            for one in found
        ]
    )
    assert longest(lower) == pytest.approx(gains.mean(0))
    bars = [line.get_ydata() for line in lower.get_lines() if list(line.get_xdata()) != [0, 1]]
    bars = [ends for ends in bars if len(ends) == 2]
    half = stats.t(2).ppf(0.975) * gains.std(0, ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(bars, np.stack([gains.mean(0) - half, gains.mean(0) + half], 1))
    labels = [text.get_text() for text in lower.get_xticklabels()]
    assert [int(label.rpartition("=")[2]) for label in labels] == list(map(len, groups))
    assert "3 seeds" in style.caption(figure)


def without_gold(row, seed, task):
    return {name: array for name, array in arrays_of(row, seed, task).items() if name != "gold"}


def test_without_gold_neighbours_have_no_gain_and_say_so() -> None:
    figure = figure_of(distributions.neighbours, figure_data_of(study_of("rankencoder-figure6"), arrays=without_gold))
    assert len(figure.axes) == 1
    assert "Missing: gold scores, so no gain." in style.caption(figure)


def only(name: str, row, seed, task):
    return arrays_of(row, seed, task) if task == name else None


@pytest.mark.slow
def test_densities_have_a_panel_a_set_with_the_share_of_similar_pairs() -> None:
    study = study_of("rankencoder-figure9")
    drawn = figure_data_of(study)
    figure = figure_of(distributions.densities, drawn)
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert len(panels) == 8
    for axes, task in zip(panels, study.columns[:7], strict=False):
        gold = arrays_of(study.rows[0], 0, task)["gold"]
        assert axes.get_title().endswith(f": {np.mean(gold >= 0.67):.0%} similar")
        heights = np.zeros(20)
        for bar in axes.patches:
            heights[round(20 * bar.get_x())] += bar.get_height()
        assert heights == pytest.approx([100 * np.mean((gold * 20).astype(int).clip(0, 19) == b) for b in range(20)])
        brown = [bar.get_height() for bar in axes.patches if to_hex(bar.get_facecolor()) == "#7b5b3a"]
        assert sum(brown) == pytest.approx(100 * np.mean(gold >= 0.67))
    gains = [x for x, _ in sorted(dots_of(panels[-1]), key=lambda place: place[1])]
    similar = {name: np.mean(arrays_of(study.rows[0], 0, f"{name}_gold")["gold"] >= 0.67) for name in STS}
    names = sorted(STS, key=lambda name: -similar[name])
    scores = [[drawn.results.cells[label, name].scores for label in ("+RankEncoder", "SimCSE")] for name in names]
    expected = [np.mean([ours[seed] - base[seed] for seed in base]) for ours, base in scores]
    assert gains == pytest.approx(expected)
    texts = [text.get_text() for text in panels[-1].get_yticklabels()]
    assert texts == [f"{PUBLISHED_NAMES[name]} {similar[name]:.0%}" for name in names]


def test_sets_without_gold_are_named() -> None:
    figure = figure_of(
        distributions.densities, figure_data_of(study_of("rankencoder-figure9"), arrays=partial(only, "sts13_gold"))
    )
    assert [axes.get_title()[:5] for axes in figure.axes] == ["STS13", "gain "]
    assert "Missing: STS12; STS14; STS15; STS16 and 2 more." in style.caption(figure)
