"""Effects stand in their lines with interval, colour and published effect. Far ones leave room to read near ones."""

from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from analysis.plots import effects, style
from analysis.plots.effects import Effect
from analysis.stats.estimate import t_estimate
from analysis.verdicts.gains import GROUPS, MethodGain
from tests.support.figure_records import dots_of, figure_data_of, figure_of, ranges_of, study_of


def gain(method: str, group: str, mean: float | None, published: float | None) -> MethodGain:
    estimate = None if mean is None else t_estimate(mean, 0.5, 4, 3)
    return MethodGain(group=group, method=method, study="s", estimate=estimate, published=published)


MEASURED = (
    gain("RankCSE", "planned", None, 3.8),
    gain("RankCSE-listNet", "exploratory", 1.0, 2.0),
    gain("WhitenedCSE", "exploratory", -13.0, None),
    gain("DiffCSE", "exploratory", 0.0, None),
    gain("D", "baselines", 2.5, -9.67),
)
HALF = 0.5 * 2.7764  # t of 4 degrees of freedom


def test_effects_stand_in_their_groups_with_intervals_colours_and_published_effects() -> None:
    figure: Any = effects.forest(MEASURED, "small")
    (axes,) = figure.axes
    places = dict(zip([text.get_text() for text in axes.get_yticklabels()], axes.get_yticks(), strict=True))
    assert list(places) == [one.method for one in MEASURED]
    assert np.diff(list(places.values())).tolist() == [2.5, 1, 1, 2.5]  # room above a heading
    drawn = {at: (x, colour) for (x, at), colour in dots_of(axes).items()}
    expected = {"RankCSE-listNet": (1.0, "open"), "WhitenedCSE": (-13.0, "worse"), "D": (2.5, "better")}
    for name, (mean, direction) in {**expected, "DiffCSE": (0.0, "open")}.items():
        assert drawn[places[name]] == (pytest.approx(mean), style.DIRECTIONS[direction].lower())
        assert ranges_of(axes)[places[name]] == pytest.approx((mean - HALF, mean + HALF), abs=1e-3)
    assert len(drawn) == 4
    diamonds = {line.get_ydata()[0]: line.get_xdata()[0] for line in axes.get_lines() if line.get_marker() == "D"}
    assert diamonds == {places["RankCSE"]: 3.8, places["RankCSE-listNet"]: 2.0, places["D"]: -9.67}
    texts = [text.get_text() for text in axes.texts]
    assert "+1.00 [-0.39, +2.39], 3" in texts
    assert texts.count("–") == 3  # one here, two in print
    assert [text for text in texts if text in GROUPS.values()] == list(GROUPS.values())


def test_far_effects_are_not_clipped_and_a_tenth_is_seen() -> None:
    figure: Any = effects.forest(MEASURED, "small")
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    assert low < -13 - HALF < 3.9 < high
    figure.draw_without_rendering()
    zero, tenth = axes.transData.transform([(0, 0), (0.1, 0)])[:, 0]
    assert (tenth - zero) / axes.bbox.width > 0.01


def test_first_claims_are_the_lines_of_readmes_table() -> None:
    gain = t_estimate(1.0, 0.5, 2.0, 3)
    shown = [("RankCSE", "planned", gain, 3.8), ("RankCSE", "later", None, 3.8), ("WhitenedCSE", "as read", gain, 2.5)]
    figure: Any = effects.first_claims(shown, "small")
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == ["planned", "later", "as read"]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert [text for text in texts if text in ("RankCSE", "WhitenedCSE", "CompCSE")] == ["RankCSE", "WhitenedCSE"]


@pytest.mark.slow
def test_a_studys_contrasts_over_its_baseline_come_before_its_details() -> None:
    study = study_of("baselines")
    figure = figure_of(effects.gain_intervals, figure_data_of(study))
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names[:2] == ["ESimCSE", "MoCoSE"]
    assert names.index("MixCSE") < names.index("ConSERT over Wikipedia") < names.index("IS-BERT over no ReLU")
    assert len(names) == len(study.contrasts)


def test_an_effect_of_one_seed_is_open_and_has_no_interval() -> None:
    one = t_estimate(2.0, None, None, 1)
    assert effects.direction(one) == "open"
    assert Effect(name="a", estimate=one).text == "+2.00 –"
    assert to_hex(style.DIRECTIONS["open"]) == style.FAINT
