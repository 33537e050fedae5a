"""The strip of verdicts shows each claim once, under its paper."""

from dataclasses import replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from analysis.cells import join
from analysis.plots.verdict_strip import PAPERS, verdict_strip
from analysis.verdicts.claims import Claim, Overall, claims, count_verdicts, judge_claims
from experiments.schema.study import Study


def claim(name: str, *verdicts: str) -> Claim:
    return Claim(name, "", tuple(Overall(name, "", "", verdict, {}, 1, ()) for verdict in verdicts), ())


def test_numbers_are_the_claims_of_each_paper_by_verdict() -> None:
    judged = [claim("R1", "supported"), claim("R2", "undecided"), claim("R3", "undecided"), claim("W1", "contradicted")]
    planned = {
        "R1": "worse, by less than the margin",
        "R2": "equivalent",
        "R3": "equivalent",
        "E1": "not testable here",
        "E2": "not run yet",
    }
    strip = verdict_strip([*judged, claim("E1"), claim("E2")], planned, "small")
    decides, explores, *_ = strip.axes
    assert [label.get_text() for label in decides.get_yticklabels()] == list(PAPERS.values())
    assert numbers(decides) == [(0, 0.5, "1"), (0, 2, "2"), (1, 0.5, "1"), (1, 1.5, "1"), (2, 0.5, "1")]
    assert numbers(explores) == [(0, 0.5, "1"), (0, 2, "2"), (1, 1, "2"), (2, 0.5, "1")]
    colours = [to_hex(bar.get_facecolor()) for bar in decides.patches]
    assert colours == ["#d55e00", "#0072b2", "#ffffff", "#ffffff", "#ffffff"]
    assert [bar.get_hatch() for bar in decides.patches] == [None, None, None, "////", "...."]  # W1 has no plan
    assert [text.get_text() for text in strip.legends[0].get_texts()] == [
        "better or supported",
        "worse or contradicted",
        "equivalent",
        "inconclusive or undecided",
        "not testable here or not tested",
        "not run yet",
        "explored only",
    ]


def test_the_legend_names_only_what_is_drawn() -> None:
    strip = verdict_strip([claim("R1", "undecided")], {"R1": "equivalent"}, "small")
    assert [text.get_text() for text in strip.legends[0].get_texts()] == ["equivalent", "inconclusive or undecided"]


def numbers(axes: Axes) -> list[tuple[float, float, str]]:
    return [(text.get_position()[1], text.get_position()[0], text.get_text()) for text in axes.texts]


def test_a_claim_counts_once_by_its_strongest_reading() -> None:
    counts = count_verdicts(
        [
            claim("W1", "supported", "contradicted"),
            claim("W2", "undecided", "supported where tested"),
            claim("W3", "undecided", "not tested"),
            claim("W4"),
        ]
    )
    assert counts == {"contradicted": 1, "supported": 1, "undecided": 1, "not tested": 1}


def test_every_claim_is_there_judged_or_not(study: Study, lines: pd.DataFrame) -> None:
    found = {one.id: one for one in judge_claims([join(study, lines), join(replace(study, name="again"), lines)])}
    assert list(found) == list(claims())
    assert [one.name for one in found["R1"].studies] == ["toy", "again"]
    assert found["R1"].verdicts[0].declared == 3  # the same comparisons in two tables count once
    assert found["E1"].verdicts == ()
