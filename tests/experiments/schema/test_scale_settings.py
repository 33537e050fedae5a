"""Whose value a run's training field has: its recipe's, its scale's, or what the scale makes of this method."""

from dataclasses import replace
from typing import Any

import pytest

from cse_core.method import Recipe
from cse_core.methods.simcse import SimCSE
from experiments.schema.scales import SCALES

BASE, SMALL = "bert-base-uncased", SCALES["small"]
RECIPE = Recipe(SimCSE(), batch_size=96, learning_rate=5e-7, dropout=0.0, max_length=67, source="a test")


def settings(recipe: Recipe, **rescaled: Any) -> tuple:
    run = replace(SMALL, rescaled={"simcse": {BASE: rescaled}}).run(recipe, BASE)
    assert run is not None
    return run.dropout, run.learning_rate, run.max_length, run.batch_size, run.method


def test_a_scale_replaces_a_recipes_training_fields() -> None:
    assert settings(RECIPE) == (0.3, 3e-4, 67, 64, SimCSE())
    assert SCALES["paper"].training == {"precision": "fp16"}
    published = SCALES["paper"].run(RECIPE, BASE)
    assert published is not None
    assert {name: getattr(published, name) for name in RECIPE.training} == RECIPE.training


def test_but_none_that_the_recipe_fixes() -> None:
    assert settings(replace(RECIPE, fixed=("dropout",))) == (0.0, 3e-4, 67, 64, SimCSE())
    assert settings(replace(RECIPE, fixed=("dropout", "batch_size"))) == (0.0, 3e-4, 67, 96, SimCSE())
    with pytest.raises(ValueError, match=r"fixed must name training fields, batch_size, .*; got \['temperature'\]"):
        replace(RECIPE, fixed=("temperature",))


def test_what_a_scale_makes_of_a_method_comes_last() -> None:
    found = settings(replace(RECIPE, fixed=("dropout",)), max_length=32, learning_rate=5e-6, temperature=0.1)
    assert found == (0.0, 5e-6, 32, 64, SimCSE(temperature=0.1))
    with pytest.raises(TypeError, match="max_lenght"):
        settings(RECIPE, max_lenght=32)
