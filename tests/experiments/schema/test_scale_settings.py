"""A training field of a run comes from its recipe, from its scale, or from what the scale changes for the method."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cse_core.data.corpora import lines_hash, read_source
from cse_core.method import Recipe
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Run
from experiments.schema.recipes import FIRST_LINES, RUNS, STS_TEXTS, consert_run, ct_run, first_lines
from experiments.schema.scales import SCALES

BASE, LARGE, SMALL = "bert-base-uncased", "bert-large-uncased", SCALES["small"]
RECIPE = Recipe(SimCSE(), batch_size=96, learning_rate=5e-7, dropout=0.0, max_length=67, source="a test")


def settings(recipe: Recipe, **rescaled: Any) -> tuple:
    run = replace(SMALL, rescaled={"simcse": {BASE: rescaled}}).run(recipe, BASE)
    assert run is not None
    return run.dropout, run.learning_rate, run.max_length, run.batch_size, run.method


def test_a_scale_replaces_a_recipes_training_fields() -> None:
    assert settings(RECIPE) == (0.3, 3e-4, 67, 64, SimCSE())
    assert SCALES["paper"].training == {"precision": "bf16"}
    published = SCALES["paper"].run(RECIPE, BASE)
    assert published is not None
    assert {name: getattr(published, name) for name in RECIPE.training} == RECIPE.training


def test_a_scale_replaces_no_field_that_the_recipe_fixes() -> None:
    assert settings(replace(RECIPE, fixed=("dropout",))) == (0.0, 3e-4, 67, 64, SimCSE())
    assert settings(replace(RECIPE, fixed=("dropout", "batch_size"))) == (0.0, 3e-4, 67, 96, SimCSE())
    with pytest.raises(ValueError, match=r"fixed must name training fields, batch_size, .*; got \['temperature'\]"):
        replace(RECIPE, fixed=("temperature",))


def test_what_a_scale_makes_of_a_method_comes_last() -> None:
    found = settings(replace(RECIPE, fixed=("dropout",)), max_length=32, learning_rate=5e-6, temperature=0.1)
    assert found == (0.0, 5e-6, 32, 64, SimCSE(temperature=0.1))
    with pytest.raises(TypeError, match="max_lenght"):
        settings(RECIPE, max_lenght=32)


def made(run: Run | None) -> Run:
    assert run is not None
    return run


def test_consert_trains_on_the_test_sets_sentences_unless_on_the_scales_own() -> None:
    expected = {"small": (STS_TEXTS.name, 16_384), "small-1m": (STS_TEXTS.name, 89_192), "paper": ("sts_texts", 89_192)}
    for name, (corpus, lines) in expected.items():
        run = made(consert_run(SCALES[name], BASE))
        assert (run.corpus.name, run.corpus.lines, len(run.corpus.sha256)) == (corpus, lines, 64)
        assert made(consert_run(SCALES[name], BASE, texts="wiki")) == replace(run, corpus=SCALES[name].corpus)
    assert made(consert_run(SCALES["quickstart"], BASE)).corpus == SCALES["quickstart"].corpus
    assert consert_run(SMALL, "roberta-base") is None
    with pytest.raises(ValueError, match="texts must be one of sts_texts, wiki, got 'nli'"):
        consert_run(SMALL, BASE, texts="nli")


def test_consert_and_ct_keep_what_makes_them_themselves_at_small() -> None:
    """ConSERT has no dropout; CT has RMSprop and a staircase. Their learning rates have the published ratio."""
    consert, ct = made(consert_run(SMALL, BASE)), made(ct_run(SMALL, BASE))
    assert (consert.dropout, consert.learning_rate, consert.max_length) == (0.0, 5e-6, 32)
    assert (consert.pooling, consert.weight_decay, consert.batch_size, consert.warmup) == ("mean", 0.01, 64, 0.0)
    assert (ct.dropout, ct.learning_rate, ct.max_length) == (0.0, 1e-4, 32)
    assert (ct.pooling, ct.optimizer, ct.schedule, ct.batch_size) == ("mean", "rmsprop", "staircase", 64)
    assert made(consert_run(SMALL, LARGE)).dropout == 0.1
    published = made(consert_run(SCALES["paper"], BASE))
    assert (published.dropout, published.epochs, published.max_length, published.eval_steps) == (0.0, 10, 67, 200)


def test_ct_takes_the_sentences_of_its_published_steps() -> None:
    found = {pairs: made(ct_run(SCALES["paper"], BASE, pairs=pairs)) for pairs in ("anchored", "independent")}
    assert {pairs: (run.batch_size, run.corpus.lines) for pairs, run in found.items()} == {
        "anchored": (16, 80_000),
        "independent": (30, 150_000),
    }
    assert {len(made(ct_run(SCALES["small-1m"], BASE, pairs=pairs)).corpus.sha256) for pairs in found} == {64}
    assert made(ct_run(SMALL, BASE)).corpus == SMALL.corpus
    assert made(ct_run(SMALL, BASE, negatives=3)).method.negatives == 3  # ty: ignore[missing-attribute]
    assert ct_run(SMALL, "other-large-uncased") is None


@pytest.mark.slow
def test_pinned_first_lines_are_what_they_say(real_data: Path) -> None:
    for name, lines in FIRST_LINES:
        corpus = Corpus(name, lines)
        assert lines_hash(read_source(corpus, real_data)) == FIRST_LINES[name, lines]
    assert lines_hash(read_source(STS_TEXTS, real_data)) == STS_TEXTS.sha256
    assert first_lines(SMALL.corpus, 10) == Corpus(SMALL.corpus.name, 10)
    assert first_lines(SMALL.corpus, 16_384) == SMALL.corpus


def test_mocoses_schedule_is_as_long_as_its_training() -> None:
    found = {name: made(RUNS["mocose"](scale, BASE)) for name, scale in SCALES.items()}
    assert {name: run.method.momentum_steps for name, run in found.items()} == {  # ty: ignore[missing-attribute]
        "quickstart": 8192 // 64,
        "small": 16_384 // 64,
        "minilm": 160,
        "small-1m": 15_000,
        "paper": 15_000,
    }
