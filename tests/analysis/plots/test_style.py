"""One look a method in all figures, distinct without colour; names that do not touch; what is missing, in words."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import scipy
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from analysis import make_figures
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
    views = VIEWS.keys() - {"gains", "ladder", "dots"}  # which draw no method in a colour of its own
    figures = [study for study in catalogue.choose_studies(["all"], "small") if study.view in views]
    unknown = {style.method_of(row) for study in figures for row in study.rows} - style.LOOKS.keys()
    assert unknown == {"PCL"}  # a baseline, in one figure: a spare look, which is no other's there


def test_the_first_row_of_a_method_has_its_look_and_others_one_that_differs_in_more_than_its_colour() -> None:
    found = style.looks(study_of("compcse-figure2").rows)
    first, *others = [look for label, look in found.items() if label != "SimCSE"]
    assert (found["SimCSE"], first) == (style.LOOKS["SimCSE"], style.LOOKS["CompCSE"])
    assert set(others) < set(style.SPARE_LOOKS)
    assert len({look.marker for look in (first, *others)}) == len({look.colour for look in (first, *others)}) == 4


def test_no_two_of_many_rows_look_the_same() -> None:
    rows = study_of("rankcse-table4").rows
    found = style.looks(rows)
    assert list(found) == [row.label for row in rows]
    assert len({(look.colour, str(look.marker), str(look.dash)) for look in found.values()}) == len(rows) > 10


def test_seaborn_gets_the_dashes_and_colours_of_rows() -> None:
    by_label = {"a": style.Look("#000000", "o", "-"), "b": style.Look("#ff0000", "s", (0, (4, 1.2)))}
    found = style.lines_by_row(by_label)
    assert found["dashes"] == {"a": "", "b": (4, 1.2)}
    assert found["palette"] == {"a": "#000000", "b": "#ff0000"}


def test_the_interval_of_seeds_is_students_and_one_seed_has_none() -> None:
    low, high = style.interval([1.0, 2.0, 4.0])
    assert (low, high) == pytest.approx(scipy.stats.ttest_1samp([1, 2, 4], 0).confidence_interval())
    assert np.isnan(style.interval([1.0])).all()


def laid_out() -> Axes:
    _, (axes,) = style.panels(1, 1, height=3.0)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    return axes


def test_names_beside_points_cover_neither_names_nor_points() -> None:
    axes = laid_out()
    points = [(0.5, 0.5, "one name"), (0.52, 0.5, "another"), (0.5, 0.53, "a third")]
    labels.beside_points(axes, points)
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    spots = [axes.transData.transform(point[:2]) for point in points]
    assert not any(box.contains(*spot) for box in boxes for spot in spots)
    assert all(np.hypot(*(np.mean(box, axis=0) - spot)) < 80 for box, spot in zip(boxes, spots, strict=True))


def test_names_at_ends_stand_right_of_them_apart_and_in_their_order() -> None:
    axes = laid_out()
    heights = {"low": 0.5, "middle": 0.505, "high": 0.51, "far": 0.9}
    labels.beside_ends(axes, [(1.0, y, name, "#000000") for name, y in heights.items()])
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    assert not any(a.overlaps(b) for a, b in combinations(boxes.values(), 2))
    assert sorted(boxes, key=lambda name: boxes[name].y0) == list(heights)
    end, far = (axes.transData.transform((1, y)) for y in (0.5, 0.9))
    assert {round(box.x0 - end[0], 3) for box in boxes.values()} == {round(5 * axes.figure.dpi / 72, 3)}
    assert (boxes["far"].y0 + boxes["far"].y1) / 2 == pytest.approx(far[1], abs=1)


def test_lines_that_end_at_one_place_share_a_name() -> None:
    axes = laid_out()
    labels.beside_ends(axes, [(1.0, 0.5, "a", "#000000"), (1.0, 0.5, "b", "#000000"), (1.0, 0.1, "c", "#000000")])
    assert [text.get_text() for text in axes.texts] == ["a, b", "c"]


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


@pytest.mark.parametrize("view", [*VIEWS, "table"])
def test_without_a_record_no_view_has_a_figure(view: str) -> None:
    study = next(study for study in catalogue.choose_studies(["all"], "small") if study.view == view)
    assert make_figures.draw(empty(study)) is None
