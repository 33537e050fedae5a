"""Colours, curves and positives show the recorded densities, pairs and coordinates."""

import numpy as np
import pandas as pd
import pytest

from analysis.plots import embeddings, sphere_panels, style
from analysis.plots.sphere_panels import even_density, kind_of_positives
from cse_core.metrics.sphere import EDGES, cosines_of_pairs
from tests.support.figure_records import (
    arrays_of,
    clouds,
    figure_data_of,
    figure_of,
    lines_of,
    row_of,
    seed_of,
    study_of,
)

KINDS = {"SimCSE": "dropout", "WhitenedCSE": "whitened", "WhitenedCSE, dropout views": "both"}


def test_each_sentence_has_the_colour_of_its_own_density_on_one_scale() -> None:
    study = study_of("whitenedcse-figure1")
    figure = figure_of(embeddings.spaces, figure_data_of(study))
    limits = set()
    for axes, row in zip(figure.axes, study.rows, strict=False):
        (points,) = clouds(axes)
        places = arrays_of(row, seed_of(row), "stsb_dev_projection")["coordinates"]
        densities = arrays_of(row, seed_of(row), "stsb_dev_density")["log_density"]
        shown = {tuple(place): value for place, value in zip(points.get_offsets(), points.get_array(), strict=True)}
        assert [shown[tuple(place)] for place in places] == pytest.approx(densities)
        assert list(points.get_array()) == sorted(densities)  # the densest are drawn last
        limits.add(points.get_clim())
    assert len(limits) == 1


def test_uniformity_is_the_mean_over_seeds_and_trustworthiness_of_the_seed_that_is_drawn() -> None:
    study = study_of("rankencoder-figure7")
    drawn = figure_data_of(study)
    figure = figure_of(embeddings.spaces, drawn)
    for axes, row in zip(figure.axes, study.rows, strict=False):
        mean = np.mean(list(drawn.cell(row, "stsb_sample_uniformity").scores.values()))
        trust = drawn.cell(row, "stsb_sample_projection").scores[42]
        assert axes.get_title(loc="left").split("\n") == [
            row.label,
            f"trustworthiness {trust:.3f}",
            f"uniformity {mean:.3f}",
        ]


def test_the_caption_names_the_most_and_the_least_even() -> None:
    study = study_of("whitenedcse-figure1")
    lines = lines_of(study)
    uniform = lines["metric"] == "uniformity"
    scores = {key: -place for place, row in enumerate(study.rows) for key in row.keys().values()}
    lines.loc[uniform, "score"] = lines.loc[uniform, "key"].map(scores).astype(float)
    caption = style.caption(figure_of(embeddings.spaces, figure_data_of(study, lines=lines)))
    assert "Most even in the mean: WhitenedCSE, dropout views; least: untrained, mean." in caption


def test_a_curve_is_the_mean_over_seeds_of_the_share_of_pairs() -> None:
    study = study_of("rankencoder-figure7")
    axes = figure_of(embeddings.spaces, figure_data_of(study)).axes[2]
    *lines, even = [line for line in axes.get_lines() if len(line.get_xdata()) > 2]
    for row, line, band in zip(study.rows, lines, axes.collections, strict=True):
        shares = [arrays_of(row, seed, "stsb_sample_density")["pairs"] / 5000 for seed in row.seeds]
        np.testing.assert_allclose(line.get_ydata() * np.diff(EDGES), np.mean(shares, 0), atol=1e-12)
        assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(np.max(shares) / (EDGES[1] - EDGES[0]))
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == [*(row.label for row in study.rows), "even"]
    assert even.get_linestyle() == ":"


@pytest.mark.parametrize("dimensions", [3, 20])
def test_the_dotted_curve_is_of_vectors_drawn_evenly(dimensions: int) -> None:
    import torch

    x = torch.randn(2000, dimensions, generator=torch.Generator().manual_seed(0))
    counts, edges = np.histogram(cosines_of_pairs(x), np.linspace(-1, 1, 21), density=True)
    np.testing.assert_allclose(even_density((edges[1:] + edges[:-1]) / 2, dimensions), counts, atol=0.06)


def test_each_method_shows_the_positives_that_it_trains_with() -> None:
    study = study_of("whitenedcse-figure1")
    assert {row.label: kind_of_positives(row) for row in study.rows} == {"untrained, mean": ""} | KINDS
    drawn = figure_data_of(study)
    figure = figure_of(embeddings.spaces, drawn)
    for axes, (label, kind) in zip(figure.axes[5:8], KINDS.items(), strict=True):
        row = row_of(study, label)
        places = arrays_of(row, 42, "stsb_dev_positives")[kind]
        every, *followed = clouds(axes)
        np.testing.assert_allclose(every.get_offsets(), places.reshape(-1, 2))
        assert len(followed) == sphere_panels.FOLLOWED
        for sentence, copies in zip(followed, places, strict=False):
            np.testing.assert_allclose(sentence.get_offsets(), copies)
        mean = np.mean(list(drawn.cell(row, f"spread_{kind}").scores.values()))
        assert f"spread {mean:.3f}" in axes.get_title(loc="left")


def test_a_metric_that_is_no_column_is_of_the_newest_version_and_of_one_only() -> None:
    study = study_of("rankcse-figure1")
    lines, row = lines_of(study), study.rows[0]
    task = next(iter(study.tasks))
    chosen = lines[lines["key"].isin(list(row.keys().values())) & (lines["task"] == task)]
    old = chosen.iloc[:3].assign(metric="other", score=[0.1, 0.2, 0.3])
    new = old.assign(version=2, score=[0.5, 0.6, 0.7])

    def mean_of(*frames: pd.DataFrame) -> float | None:
        return figure_data_of(study, lines=pd.concat([lines, *frames])).mean_score(row, task, "other")

    assert mean_of() is None
    assert mean_of(old) == pytest.approx(0.2)
    assert mean_of(new, old) == mean_of(old, new) == pytest.approx(0.6)
    with pytest.raises(ValueError, match=rf"{task}: other scores of evaluator versions 1 and 2"):
        mean_of(old, new.iloc[:2])
    with pytest.raises(ValueError, match="3 cells have a second line"):
        mean_of(old, old)
