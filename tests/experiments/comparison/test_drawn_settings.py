"""A draw from each method's space trains: settings that only training would refuse are in no space."""

from dataclasses import replace
from pathlib import Path

import pytest

from cse_core.methods import METHODS
from experiments.comparison.comparison import Scores
from experiments.execution.job import ExecutionSettings, execute
from experiments.schema.study_parts import shorten
from tests.support.comparisons import comparison_of


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_draw_of_each_method_trains_for_two_steps(tmp_path: Path, name: str) -> None:
    comparison = comparison_of(name, "simcse" if name != "simcse" else "mixcse")
    drawn = comparison.draws(comparison.entrants[0], 0, Scores({}))[0]
    trial = replace(drawn, run=shorten(drawn.run, 2, 256))
    for job in comparison.jobs([trial], final=False).values():
        losses = execute(job, ExecutionSettings(tmp_path))["curves"]
    assert any(curve.startswith("loss/") for curve in losses)
    shown = trial.run.settings()
    assert {name: shown[name] for name in trial.settings if name in shown}.items() <= trial.settings.items()
