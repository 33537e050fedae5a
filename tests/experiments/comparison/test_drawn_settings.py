"""A draw from each method's space can be trained: no space has settings that only training would refuse."""

from pathlib import Path

import pytest

from cse_core.methods import METHODS
from cse_core.training.loop import Execution
from cse_core.training.train import train
from experiments.comparison.comparison import Scores
from experiments.schema.study_parts import shorten
from tests.support.comparisons import comparison_of


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_draw_of_each_method_trains_for_two_steps(tmp_path: Path, name: str) -> None:
    comparison = comparison_of(name, "simcse" if name != "simcse" else "mixcse")
    drawn = comparison.draws(comparison.entrants[0], 0, Scores({}))[0]
    run = shorten(drawn.run, 2, 256)
    for nested in run.nested():
        train(nested, Execution(tmp_path), rules=(comparison.dev,))
    losses = train(run, Execution(tmp_path), rules=("last",)).curves
    assert any(curve.startswith("loss/") for curve in losses)
    shown = run.settings()
    assert {name: shown[name] for name in drawn.settings if name in shown}.items() <= drawn.settings.items()
