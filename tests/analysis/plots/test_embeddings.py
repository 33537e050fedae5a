"""Projections and heat maps show the arrays of the record."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from analysis.plots import embeddings, style
from cse_core.evaluation.suite import PHRASES
from tests.support.figure_records import (
    arrays_of,
    clouds,
    figure_data_of,
    figure_of,
    lacking,
    seed_of,
    study_of,
)

TASK = "stsb_dev_projection"


def panels(figure) -> list:
    """Those that have a title; a scale of colours has none."""
    return [axes for axes in figure.axes if axes.get_title() or axes.get_title(loc="left")]


def test_lengths_are_colours_on_one_scale_and_shortcuts_are_named() -> None:
    study = study_of("compcse-figure5")
    drawn = figure_data_of(study)
    figure = figure_of(embeddings.spaces, drawn)
    limits = set()
    for axes, row in zip(panels(figure), study.rows, strict=True):
        arrays = arrays_of(row, 42, TASK)
        (points,) = clouds(axes)
        np.testing.assert_allclose(points.get_offsets(), arrays["coordinates"])
        np.testing.assert_array_equal(points.get_array(), arrays["words"])
        limits.add(points.get_clim())
        shortcut = np.mean(list(drawn.results.cells[row.label, "length_shortcut"].scores.values()))
        assert axes.get_title(loc="left").startswith(f"{row.label}\n")
        assert f"length shortcut {shortcut:.3f}" in axes.get_title(loc="left")
    assert len(limits) == 1
    assert "UMAP of 300 sentences of STS-B dev by cosine, seed 42" in style.caption(figure)
    assert "the other numbers above are means over 3 seeds" in style.caption(figure)


@pytest.mark.slow
def test_lines_join_the_same_pairs_of_high_gold_in_every_panel() -> None:
    study = study_of("whitenedcse-figure1")
    figure = figure_of(embeddings.spaces, figure_data_of(study))
    chosen = []
    for axes, row in zip(panels(figure), study.rows, strict=False):
        arrays = arrays_of(row, seed_of(row), TASK)
        (joined,) = [found for found in axes.collections if isinstance(found, LineCollection)]
        place = {tuple(at): i for i, at in enumerate(arrays["coordinates"])}
        chosen.append([tuple(place[tuple(end)] for end in line) for line in joined.get_segments()])
    alike = {
        (int(a), int(b))
        for a, b, gold in zip(*(arrays[n] for n in ("first", "second", "gold")), strict=True)
        if gold > 4
    }
    assert all(pairs == chosen[0] for pairs in chosen)
    assert len(set(chosen[0])) == len(chosen[0]) == min(len(alike), embeddings.PAIRS)
    assert set(chosen[0]) <= alike
    assert f"Lines join {len(chosen[0])} random pairs with a gold score above 4" in style.caption(figure)


def test_no_more_pairs_are_joined_than_can_be_followed() -> None:
    def all_alike(row, seed, task):
        arrays = arrays_of(row, seed, task)
        return arrays | ({"gold": np.full(len(arrays["first"]), 4.5, np.float32)} if task == TASK else {})

    figure = figure_of(embeddings.spaces, figure_data_of(study_of("whitenedcse-figure1"), arrays=all_alike))
    (joined,) = [found for found in panels(figure)[0].collections if isinstance(found, LineCollection)]
    assert len(joined.get_segments()) == 40


@pytest.mark.slow
def test_spaces_name_models_without_arrays() -> None:
    figure = figure_of(embeddings.spaces, figure_data_of(study_of("compcse-figure5"), arrays=lacking("CompCSE")))
    assert len(panels(figure)) == 2
    assert "Missing: CompCSE." in style.caption(figure)


def test_the_first_heat_map_has_cosines_and_the_others_differences_from_them() -> None:
    study = study_of("compcse-figure4")
    figure = figure_of(embeddings.heat, figure_data_of(study))
    first, *others = [arrays_of(row, 42, "phrases")["cosines"] for row in study.rows]
    limits = {axes.collections[0].get_clim() for axes in panels(figure)[1:]}
    assert len(limits) == 1
    assert sum(*limits) == 0  # no difference is in the middle of the colours
    shown = [first, *(other - first for other in others)]
    for axes, row, matrix, values in zip(panels(figure), study.rows, [first, *others], shown, strict=True):
        less = "" if row is study.rows[0] else " less SimCSE"
        assert axes.get_title() == f"{row.label}{less}\nhalves differ by {matrix[0, 1] - matrix[0, 2]:.2f}"
        assert len(axes.texts) == 15
        for text in axes.texts:
            x, y = map(int, text.get_position())
            assert x < y
            assert float(text.get_text()) == pytest.approx(values[y, x], abs=0.0051)
    labels = [" ".join(text.get_text().split()) for text in panels(figure)[0].get_yticklabels()]
    assert labels == [f"{i + 1} {phrase}" for i, phrase in enumerate(PHRASES)][1:]
    assert PHRASES[0] in style.caption(figure)


def test_heat_maps_name_models_without_arrays() -> None:
    figure = figure_of(
        embeddings.heat, figure_data_of(study_of("compcse-figure4"), arrays=lacking("SimCSE", "DiffCSE"))
    )
    assert "Missing: SimCSE; DiffCSE." in style.caption(figure)
