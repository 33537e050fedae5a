"""The strip of verdicts shows each claim once, under its paper."""

from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from analysis.plots.verdict_strip import PAPERS, verdict_strip
from analysis.verdicts.claims import claims


def test_numbers_are_the_claims_of_each_paper_by_verdict() -> None:
    words = {"R1": "worse, by less than the margin", "R2": "equivalent", "R3": "equivalent", "R14": "supported"}
    words |= {"E1": "not testable here", "E2": "not run yet", "W1": "inconclusive", "C1": "worse"}
    strip = verdict_strip(words, "small")
    (axes,) = strip.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(PAPERS.values())
    counts = {letter: sum(name.startswith(letter) for name in claims()) for letter in PAPERS}
    drawn = [
        *((0, "1", "#117733"), (0, "1", "#d55e00"), (0, "2", "#0072b2"), (0, str(counts["R"] - 4), "#ffffff")),
        *((1, "1", "#ffffff"), (1, "1", "#ffffff"), (1, str(counts["E"] - 2), "#ffffff")),
        *((2, "1", None), (2, str(counts["W"] - 1), "#ffffff")),
        *((3, "1", "#d55e00"), (3, str(counts["C"] - 1), "#ffffff"), (4, str(counts["S"]), "#ffffff")),
    ]
    colours = [to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert [(y, text) for y, _, text in numbers(axes)] == [(y, text) for y, text, _ in drawn]
    assert all(colour in (None, found) for (*_, colour), found in zip(drawn, colours, strict=True))
    assert [bar.get_hatch() for bar in axes.patches][4:7] == [None, "////", "...."]
    assert [text.get_text() for text in strip.legends[0].get_texts()] == [
        "better or supported",
        "worse or contradicted",
        "equivalent",
        "inconclusive",
        "not testable here",
        "not run yet",
        "explored only",
    ]


def test_the_legend_names_only_what_is_drawn() -> None:
    strip = verdict_strip(dict.fromkeys(claims(), "equivalent"), "small")
    assert [text.get_text() for text in strip.legends[0].get_texts()] == ["equivalent"]


def numbers(axes: Axes) -> list[tuple[float, float, str]]:
    return [(text.get_position()[1], text.get_position()[0], text.get_text()) for text in axes.texts]
