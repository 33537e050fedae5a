"""Ridges, neighbours and densities against their definitions."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.integrate import trapezoid

from analysis.plots import distributions, style
from cse_core.metrics.neighbours import bins
from experiments.schema.columns import PUBLISHED_NAMES, STS
from tests.support.figure_records import arrays_of, empty, figure_data_of, figure_of, lacking, study_of


def test_ridges_have_the_median_of_every_band_and_one_height() -> None:
    study = study_of("rankcse-figure5")
    figure = figure_of(distributions.ridges, figure_data_of(study))
    for axes, row in zip(figure.axes, study.rows, strict=True):
        arrays = arrays_of(row, 42, "stsb_dev_geometry")
        medians = [c.get_segments()[0] for c in axes.collections if hasattr(c, "get_segments")]
        lines = axes.get_lines()
        for band, (middle, ridge) in enumerate(zip(medians, lines, strict=True)):
            high = band + 1 if band < 4 else 5.1
            own = arrays["cosines"][(arrays["gold"] >= band) & (arrays["gold"] < high)]
            assert middle[0] == pytest.approx((np.median(own), band))
            assert max(ridge.get_ydata()) == pytest.approx(band + distributions.RIDGE)
            assert np.abs(own - ridge.get_xdata()[np.argmax(ridge.get_ydata())]).min() < 0.05
        assert axes.get_title() == f"{row.label}\none seed"
    gold = arrays_of(study.rows[0], 42, "stsb_dev_geometry")["gold"]
    counts = ", ".join(str(int(((gold >= b) & (gold < b + 1)).sum())) for b in range(5))
    assert f"lowest band up: {counts}." in style.caption(figure)


def test_a_band_holds_its_upper_edge_the_lowest_both_and_a_band_of_one_pair_is_a_point() -> None:
    def one(row, seed, task):
        gold = np.array([0.0, 0.99, 1.0, 4.0, 4.5, 5.0], np.float32)
        return {"cosines": np.linspace(0, 1, 6).astype(np.float32), "gold": gold}

    study = study_of("rankcse-figure5")
    figure = figure_of(distributions.ridges, figure_data_of(study, arrays=one))
    assert "lowest band up: 3, 0, 0, 1, 2." in style.caption(figure)
    assert len(figure.axes[0].get_lines()) == 2


def test_ridges_name_models_without_arrays() -> None:
    figure = figure_of(distributions.ridges, figure_data_of(study_of("rankcse-figure5"), arrays=lacking("DiffCSE")))
    assert [axes.get_title().partition("\n")[0] for axes in figure.axes] == [
        "SimCSE",
        "RankCSE-listNet",
        "RankCSE-listMLE",
    ]
    assert "Missing: DiffCSE." in style.caption(figure)


def rho(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's correlation of average ranks."""
    x, y = (pd.Series(np.asarray(v, np.float64)).rank().to_numpy() for v in (a, b))
    return float(np.corrcoef(x, y)[0, 1])


def test_neighbours_are_means_and_gains_differences_of_rho_in_the_same_bins() -> None:
    study = study_of("rankencoder-figure6")
    found = [arrays_of(study.rows[0], seed, "stsb_neighbours") for seed in (42, 1, 2)]
    figure = figure_of(distributions.neighbours, figure_data_of(study))
    upper, lower = figure.axes
    groups = bins(np.mean([one["cosines"] for one in found], axis=0))
    shared = [np.mean([one["shared"][group].mean() for one in found]) for group in groups]
    assert upper.get_lines()[-1].get_ydata() == pytest.approx(shared)
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
    assert lower.get_lines()[-1].get_ydata() == pytest.approx(gains.mean(0))
    bars = [line.get_ydata() for line in lower.get_lines() if len(set(line.get_xdata())) == 1]
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
        curve = axes.get_lines()[0]
        assert trapezoid(curve.get_ydata(), curve.get_xdata()) == pytest.approx(1, abs=0.01)
        heights = [patch.get_height() for patch in axes.patches[:20]]
        assert heights == pytest.approx([20 * np.mean((gold * 20).astype(int).clip(0, 19) == b) for b in range(20)])
    gains = [line.get_xdata()[0] for line in panels[-1].get_lines() if len(line.get_xdata()) == 1]
    similar = {name: np.mean(arrays_of(study.rows[0], 0, f"{name}_gold")["gold"] >= 0.67) for name in STS}
    names = sorted(STS, key=lambda name: -similar[name])
    scores = [[drawn.results.cells[label, name].scores for label in ("+RankEncoder", "SimCSE")] for name in names]
    expected = [np.mean([ours[seed] - base[seed] for seed in base]) for ours, base in scores]
    assert gains == pytest.approx(expected)
    texts = [text.get_text() for text in panels[-1].get_yticklabels()]
    assert texts == [f"{PUBLISHED_NAMES[name]} {similar[name]:.0%}" for name in names]


def test_a_reflected_density_is_the_mean_of_kernels_and_their_mirror_images() -> None:
    values, grid = np.array([0.0, 0.1, 0.9, 1.0, 0.5]), np.linspace(0, 1, 11)
    width = values.std(ddof=1) * len(values) ** (-1 / 5)
    expected = np.zeros(11)
    for i, x in enumerate(grid):
        for value in values:
            for mirrored in (value, -value, 2 - value):
                expected[i] += np.exp(-0.5 * ((x - mirrored) / width) ** 2) / (width * np.sqrt(2 * np.pi)) / len(values)
    np.testing.assert_allclose(distributions.reflected_density(values, grid), expected, rtol=1e-9)


def test_sets_without_gold_are_named() -> None:
    figure = figure_of(
        distributions.densities, figure_data_of(study_of("rankencoder-figure9"), arrays=partial(only, "sts13_gold"))
    )
    assert [axes.get_title()[:5] for axes in figure.axes] == ["STS13", "gain "]
    assert "Missing: STS12; STS14; STS15; STS16 and 2 more." in style.caption(figure)


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("rankcse-figure5", distributions.ridges),
        ("rankencoder-figure6", distributions.neighbours),
        ("rankencoder-figure9", distributions.densities),
    ],
)
def test_without_arrays_there_is_no_figure(name: str, draw) -> None:
    assert draw(empty(study_of(name))) is None
