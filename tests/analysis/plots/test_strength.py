"""Gains against the backbone's strength: recorded ones at their backbone, and what was not run says so."""

from functools import cache
from typing import Any

import pandas as pd
import pytest

from analysis.cells import Results, join
from analysis.plots import strength
from analysis.stats.estimate import t_estimate
from analysis.verdicts.estimates import measure
from cse_core.run import Run
from experiments.results import csv_record
from experiments.schema.contrasts import HEADLINES
from experiments.studies.catalogue import single
from tests.support.figure_records import lines_of


@cache
def choose(name: str, scale: str) -> Results:
    """A record of stage D only."""
    study = single(name, scale)
    assert study.scale.name == scale
    return join(study, lines_of(study) if scale == "minilm" else pd.DataFrame(columns=csv_record.RESULTS))


def test_gains_stand_at_their_backbones_and_the_rest_is_not_run() -> None:
    tuned = t_estimate(1.5, 0.5, 4, 3)
    tuned_at = {("CompCSE", "wiki-tiny"): tuned, ("RankCSE", "wiki-medium"): tuned}
    gains = strength.gains_by_strength(choose, tuned_at)
    by_place = {(gain.paper, gain.backbone): gain for gain in gains}
    assert by_place["RankCSE", "wiki-medium"].how == strength.TUNED
    assert by_place["RankCSE", strength.PUBLISHED].estimate.mean == 3.8
    assert by_place["CompCSE", "wiki-tiny"].how == strength.TUNED
    assert ("RankCSE", "wiki-tiny") not in by_place
    quality = choose("plan2-quality", "minilm")
    (expected,) = [
        measure(quality, each).estimate
        for each in quality.study.contrasts
        if (getattr(each, "claim", ""), getattr(each, "column", "")) == ("D4", "sts_avg")
    ]
    assert expected
    assert by_place["CompCSE", "minilm-remasked"].estimate.mean == pytest.approx(expected.mean)
    figure: Any = strength.strength(gains)
    labels = {label.get_text() for label in figure.axes[-1].get_xticklabels()}
    simcse = list(quality.cells["SimCSE", "sts_avg"].scores.values())
    assert f"minilm-remasked\n{sum(simcse) / len(simcse):.1f}" in labels
    assert "wiki-medium" in labels  # whose SimCSE is not in this record
    for axes, paper in zip(figure.axes, HEADLINES, strict=True):
        drawn = {name for of, name in by_place if of == paper}
        assert axes.get_title() == paper
        assert len(axes.texts) == len(strength.BACKBONES) - len(drawn)
        heights = {round(float(y), 6) for line in axes.get_lines() for y in line.get_ydata()}
        assert {round(gain.estimate.mean, 6) for gain in gains if gain.paper == paper} <= heights


def test_each_row_is_declared_and_beside_simcse() -> None:
    assert list(strength.ROWS) == [backbone for backbone, scale in strength.BACKBONES.items() if scale]
    for backbone, papers in strength.ROWS.items():
        assert list(papers) == (["WhitenedCSE", "CompCSE"] if backbone == "wiki-medium" else list(HEADLINES))
        for study, row, base in papers.values():
            rows = {each.label: each for each in choose(study, strength.BACKBONES[backbone]).study.rows}
            for label in (row, base):
                encoder = rows[label].encoder
                assert isinstance(encoder, Run)
                assert encoder.backbone.name == backbone
            assert base.startswith("SimCSE")
