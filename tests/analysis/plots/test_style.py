"""One look a method in all figures, distinct without colour; names that do not touch; what is missing, in words."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

from analysis.plots import figure_data, labels, style
from analysis.plots.registry import VIEWS
from cse_core.methods import METHODS
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained, Run
from experiments.schema.study import Row
from experiments.studies import catalogue
from tests.support.figure_records import empty, figure_data_of, lines_of, row_of, study_of

# Vienot, Brettel, Mollon 1999: what protanopes and deuteranopes see of linear RGB, from red and green only.
BLIND = {
    "none": np.eye(3),
    "protan": np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]),
    "deutan": np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]]),
}
RUN = Run(method=SimCSE(), backbone=Pretrained("wiki-tiny"), corpus=Corpus("synthetic", 100))
# Which methods stand in one figure of the papers, as lines, bars or points whose colour says what they are.
TOGETHER = (
    ("untrained", "SimCSE", "DiffCSE", "RankCSE-listNet", "RankCSE-listMLE"),
    ("SimCSE", "PromptBERT", "SNCSE", "RankEncoder"),
    ("SimCSE", "WhitenedCSE", "WhitenedCSE, dropout views"),
    ("SimCSE", "DiffCSE", "CompCSE"),
)


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of what is seen of a colour."""
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    linear = np.clip(seen @ np.array(channels), 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ linear / np.array([0.9505, 1.0, 1.089])
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("kind", BLIND)
def test_methods_in_one_figure_have_colours_that_everyone_can_distinguish(kind: str) -> None:
    for names in TOGETHER:
        for a, b in combinations(names, 2):
            distance = np.linalg.norm(np.subtract(*(lab(style.LOOKS[n].colour, BLIND[kind]) for n in (a, b))))
            assert distance > 15, (a, b, distance)


def test_every_method_has_its_own_colour_and_its_own_mark() -> None:
    looks = [*style.LOOKS.values(), *style.SPARE_LOOKS]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == len(looks)


@pytest.mark.parametrize("kind", BLIND)
def test_spare_colours_differ_from_all_others(kind: str) -> None:
    colours = [look.colour for look in (*style.SPARE_LOOKS, *style.LOOKS.values())]
    for i, spare in enumerate(colours[: len(style.SPARE_LOOKS)]):
        for other in colours[i + 1 :]:
            assert np.linalg.norm(lab(spare, BLIND[kind]) - lab(other, BLIND[kind])) > 15, (spare, other)


def test_methods_without_a_look_of_their_own_get_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    added = {f"new{i}": type(f"New{i}", (SimCSE,), {"name": f"new{i}"}) for i in range(8)}
    methods = {
        name: kind for name, kind in METHODS.items() if kind.__name__ in style.LOOKS or name in ("rankcse", "mlm")
    }
    monkeypatch.setattr(style, "METHODS", methods | added)
    rows = [Row(label=name, encoder=replace(RUN, method=kind())) for name, kind in added.items()]
    assert [style.method_of(row) for row in rows] == [f"New{i}" for i in range(8)]
    looks = style.looks(rows)
    assert list(looks.values())[:6] == list(style.SPARE_LOOKS)
    assert len({look.colour for look in looks.values()}) == 8
    assert len({(look.marker, str(look.dash)) for look in looks.values()}) == 8
    assert {look.colour for look in looks.values()}.isdisjoint(look.colour for look in style.LOOKS.values())
    assert style.looks(rows[3:4]) == {"new3": looks["new3"]}  # the same in every figure


def test_rows_are_called_by_their_method() -> None:
    found = {row.label: style.method_of(row) for row in study_of("rankcse-figure4").rows}
    expected = {name: name for name in ("SimCSE", "DiffCSE", "RankCSE-listNet", "RankCSE-listMLE", "PCL")}
    assert found == expected | {"untrained, mean": "untrained"}
    whitened = ("WhitenedCSE", "WhitenedCSE, dropout views")
    assert [style.method_of(row_of(study_of("whitenedcse-figure3"), name)) for name in whitened] == list(whitened)
    encoders = {row.label: style.method_of(row) for row in study_of("rankencoder-figure5").rows}
    assert encoders["SNCSE, E1"] == "SNCSE"
    assert encoders["SNCSE, RankEncoder_E1 (Eq2)"] == encoders["PromptBERT, retrain (Eq5)"] == "RankEncoder"
    assert style.method_of(row_of(study_of("compcse-figure2"), "+adjacent")) == "CompCSE"


def test_every_row_of_the_papers_figures_has_a_look_of_its_own() -> None:
    views = VIEWS.keys() - {"gains", "ladder"}  # which draw no method in a colour of its own
    figures = [study for study in catalogue.choose_studies(["all"], "small") if study.view in views]
    unknown = {style.method_of(row) for study in figures for row in study.rows} - style.LOOKS.keys()
    assert unknown == {"PCL"}  # a baseline, in one figure: a spare look, which is no other's there


def test_variants_of_a_method_differ_in_more_than_their_colour() -> None:
    found = style.looks(study_of("compcse-figure2").rows)
    variants = [look for label, look in found.items() if label != "SimCSE"]
    assert variants[0] == style.LOOKS["CompCSE"]
    assert len({look.marker for look in variants}) == len({str(look.dash) for look in variants}) == 4
    assert found["SimCSE"] == style.LOOKS["SimCSE"]


def test_a_figure_has_at_most_six_colours_and_grey() -> None:
    rows = study_of("rankcse-table4").rows
    found = style.distinct_looks(rows)
    assert list(found) == [row.label for row in rows]
    colours = [look.colour for look in found.values() if look.colour != style.FAINT]
    assert len(colours) == len(set(colours)) == style.MOST_COLOURS
    assert found["SimCSE"] == style.LOOKS["SimCSE"]
    assert found["RankCSE-listNet full"] == style.LOOKS["RankCSE-listNet"]
    grey = [look for look in found.values() if look.colour == style.FAINT]
    assert len(grey) == len(rows) - style.MOST_COLOURS
    assert len({(look.marker, str(look.dash)) for look in grey}) == len(grey)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8), st.floats(0.5, 20))
def test_places_are_spread_no_further_than_they_must(places: list[float], gap: float) -> None:
    found = labels.spread_apart(places, gap)
    order = np.argsort(places, kind="stable")
    assert (np.diff(np.array(found)[order]) >= gap - 1e-6).all()
    assert np.mean(found) == pytest.approx(np.mean(places), abs=1e-6)
    if len(places) > 1 and np.diff(np.sort(places)).min() >= gap:
        assert found == pytest.approx(places)


def test_places_that_touch_move_by_half_of_what_is_lacking() -> None:
    assert labels.spread_apart([10.0, 0.0, 1.0], 3.0) == [10.0, -1.0, 2.0]


def test_names_cover_neither_names_nor_points() -> None:
    _, (axes,) = style.panels(1, 1, height=3.0)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    points = [(0.5, 0.5, "one name", "#000000"), (0.52, 0.5, "another", "#000000"), (0.5, 0.53, "a third", "#000000")]
    texts = labels.beside_points(axes, points)
    boxes = [text.get_window_extent() for text in texts]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    spots = [axes.transData.transform(point[:2]) for point in points]
    assert not any(box.contains(*spot) for box in boxes for spot in spots)


def test_the_title_names_source_and_scale_and_the_caption_what_is_said_and_missing() -> None:
    study = replace(study_of("rankcse-figure3a"), caption="The paper's is clipped.")
    figure, _ = style.panels(1, 1, height=1.0)
    style.finish(figure, figure_data_of(study), "What is shown.", ["this", "that"])
    title = " ".join(figure.get_suptitle().split())
    assert title == "RankCSE, Figure 3a · scale small. Which temperatures are best for ListNet?"
    assert style.caption(figure) == "What is shown. The paper's is clipped. Missing: this; that."


def test_missing_scores_are_named_with_columns_seeds_and_reasons() -> None:
    study = study_of("rankencoder-corpus")
    lines = lines_of(study)
    cosine, ranked = study.rows[:2]
    similar = lines["task"] == "stsb_similar"
    first = lines["key"] == cosine.keys()[1]
    kept = lines[~(similar & (lines["scorer"] == "cosine")) & ~(first & (lines["scorer"] == str(ranked.scorer)))]
    found = figure_data.missing_scores(figure_data_of(study, lines=kept), study.columns)
    assert found == ["cosine (STS-B test, similar pairs)", "1,000 corpus sentences of seed 1"]
    absent = figure_data.missing_scores(empty(study_of("rankcse-figure3b")), ("sts_avg",))
    assert absent[0] == "BERT-base, tau2 0.0125"
    assert absent[-1].startswith("RoBERTa-large, tau2 0.0125 and 2 more (not run: ")


def test_long_lists_of_what_is_missing_are_cut_with_a_count() -> None:
    assert figure_data.missing_sentence([]) == ""
    assert figure_data.missing_sentence(list("abcdef")) == "Missing: a; b; c; d and 2 more."


def test_numbers_of_seeds_leave_out_rows_that_have_none() -> None:
    assert [figure_data.seeds_text(counts) for counts in ((3, 3, 0), (1,), (1, 3, 2))] == [
        "3 seeds",
        "1 seed",
        "1 to 3 seeds",
    ]


def test_letters_on_a_colour_contrast_with_it() -> None:
    figure, (axes,) = style.panels(1, 1, height=1.0)
    image = axes.imshow([[0.0, 1.0]], cmap="gray")
    assert (style.text_colour_on(image, 0.0), style.text_colour_on(image, 1.0)) == ("white", "black")
    assert math.isclose(figure.get_size_inches()[0], style.WIDE)
