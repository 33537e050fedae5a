"""The forest plot shows every gain, its interval and the published gain, and what lies beyond its axis."""

from typing import Any

import pytest

from analysis.plots import gain_intervals, style
from analysis.stats.estimate import t_estimate
from analysis.verdicts.gains import GROUPS, MethodGain


def gain(method: str, group: str, mean: float | None, published: float | None) -> MethodGain:
    estimate = None if mean is None else t_estimate(mean, 0.5, 4, 3)
    return MethodGain(group=group, method=method, study="s", estimate=estimate, published=published)


MEASURED = (
    gain("A", "planned", None, 3.8),
    gain("B", "exploratory", 1.0, 2.0),
    gain("C", "exploratory", -13.0, None),
    gain("D", "baselines", 2.5, -9.67),
    gain("E", "baselines", -5.5, None),
)


def test_gains_stand_in_their_groups_with_intervals_and_published_gains() -> None:
    figure: Any = gain_intervals.forest(MEASURED, "small")
    (axes,) = figure.axes
    places = dict(zip("ABCDE", axes.get_yticks(), strict=True))
    assert sorted(places.values()) == list(places.values())
    marks = [line for line in axes.get_lines() if line.get_marker() in ("o", "<", ">")]
    marks = [line for line in marks if line.get_markerfacecolor() != "white"]
    assert [line.get_marker() for line in marks if line.get_ydata()[0] == places["C"]] == ["<"]  # one arrow for all
    assert sorted(line.get_marker() for line in marks if line.get_ydata()[0] == places["E"]) == ["<", "o"]
    dots = {line.get_ydata()[0]: line for line in marks}
    assert set(dots) == {places[name] for name in "BCDE"}
    assert dots[places["B"]].get_xdata()[0] == 1.0
    assert dots[places["C"]].get_marker() == "<"  # beyond the axis
    ends = {
        line.get_ydata()[0]: line
        for line in axes.get_lines()
        if line.get_marker() == "None" and len(set(line.get_ydata())) == 1
    }
    interval = t_estimate(1.0, 0.5, 4, 3).interval
    assert tuple(ends[places["B"]].get_xdata()) == pytest.approx(interval)
    assert [ends[places[name]].get_color() for name in "BD"] == [style.FAINT, gain_intervals.CERTAIN]
    printed = {
        line.get_ydata()[0]: line.get_marker() for line in axes.get_lines() if line.get_markerfacecolor() == "white"
    }
    assert printed == {places["A"]: "D", places["B"]: "D", places["D"]: "<"}
    texts = [text.get_text() for text in axes.texts]
    assert "+1.00 [-0.39, +2.39], 3" in texts
    assert "-13.00 [-14.39, -11.61], 3" in texts
    assert texts.count("–") == 3  # A here, C and E in print
    assert [text for text in texts if text in GROUPS.values()] == list(GROUPS.values())
