"""Cosines of pairs against sums written out, and how many texts a scorer embeds."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_core.evaluation.scorers import Cosine
from cse_core.functional.contrastive import pair_cosines
from cse_core.models.encoder import Encoder
from cse_core.run import POOLINGS
from tests.support.encoders import wiki_tiny

TASKS = {
    "first": (["a cat sat", "the river", "a dog"], ["a dog", "the river", "a cat sat"]),
    "second": (["a dog", "snow fell on the hills"], ["a cat", "the river"]),
    "none": ([], []),
}
WITHOUT_TEMPLATE = [pooling for pooling in POOLINGS if pooling not in ("mask", "pooler_output")]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return wiki_tiny().eval()


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(math.fsum(x * x for x in a)) / math.sqrt(math.fsum(x * x for x in b))


def normal(n: int, d: int, seed: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 1000))
def test_pair_cosines_are_the_sums(n: int, d: int, seed: int) -> None:
    a, b = normal(n, d, seed), normal(n, d, seed + 1)
    scores, undefined = pair_cosines(a, b)
    expected = [cosine(x, y) for x, y in zip(a.double().tolist(), b.double().tolist(), strict=True)]
    assert scores.tolist() == pytest.approx(expected, abs=1e-14)
    assert (scores.dtype, undefined) == (np.float64, 0)


def test_pair_cosines_do_not_depend_on_lengths_and_are_bounded() -> None:
    a, b = normal(50, 6, 0), normal(50, 6, 1)
    scores = pair_cosines(a, b)[0]
    assert pair_cosines(b, a)[0].tolist() == scores.tolist()
    assert pair_cosines(a * 2**60, b / 2**60)[0].tolist() == pytest.approx(scores.tolist(), abs=1e-14)
    assert pair_cosines(-a, b)[0].tolist() == (-scores).tolist()
    assert pair_cosines(a, a * 3)[0].tolist() == pytest.approx([1] * 50, abs=1e-6)
    assert np.abs(scores).max() <= 1 + 1e-14


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_an_undefined_cosine_is_zero_and_counted(value: float) -> None:
    a, b = normal(5, 3, 0), normal(5, 3, 1)
    expected = pair_cosines(a, b)[0]
    a[1], b[3] = value, value
    scores, undefined = pair_cosines(a, b)
    assert undefined == 2
    assert scores[[1, 3]].tolist() == [0, 0]
    assert scores[[0, 2, 4]].tolist() == expected[[0, 2, 4]].tolist()


@pytest.mark.parametrize("pooling", [None, *WITHOUT_TEMPLATE])
@pytest.mark.slow
def test_a_scorer_gives_the_cosines_of_each_task_under_its_pooling(encoder: Encoder, pooling: str | None) -> None:
    found = Cosine(pooling).pair_scores(encoder, TASKS)
    other = wiki_tiny(pooling=pooling or "cls")
    assert found.keys() == TASKS.keys()
    for task, (first, second) in TASKS.items():
        a, b = ([other.encode([text])[0].double().tolist() for text in side] for side in (first, second))
        expected = [cosine(x, y) for x, y in zip(a, b, strict=True)]
        assert found[task].scores.tolist() == pytest.approx(expected, abs=1e-5)
        assert found[task].undefined == 0


def test_each_distinct_sentence_of_all_tasks_passes_once(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[tuple[int, ...]] = []
    real = Encoder.embed

    def spy(self: Encoder, ids: Sequence[Sequence[int]], *args: Any, **kwargs: Any) -> torch.Tensor:
        passed.extend(tuple(row) for row in ids)
        return real(self, ids, *args, **kwargs)

    monkeypatch.setattr(Encoder, "embed", spy)
    Cosine().pair_scores(encoder, TASKS)
    texts = {text for sides in TASKS.values() for side in sides for text in side}
    assert sorted(passed) == sorted(map(tuple, encoder.tokenise(sorted(texts))))
    assert len(passed) == len(texts)


@pytest.mark.parametrize("pooling", [None, "mean"])
def test_scoring_leaves_the_encoder_as_it_was(pooling: str | None) -> None:
    encoder = wiki_tiny().eval()
    encoder.precision = "bf16"
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    Cosine(pooling).pair_scores(encoder, TASKS)
    assert (encoder.pooling, encoder.precision, encoder.name) == ("cls", "bf16", "wiki-tiny")
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert [name for name, module in encoder.named_modules() if module.training] == []


def test_undefined_scores_of_a_task_are_counted_with_it() -> None:
    encoder = wiki_tiny()
    with torch.no_grad():
        for name, parameter in encoder.backbone.named_parameters():
            if name.startswith("encoder.layer.1.output.LayerNorm"):
                parameter.zero_()
    found = Cosine().pair_scores(encoder, TASKS)
    assert {task: scores.undefined for task, scores in found.items()} == {"first": 3, "second": 2, "none": 0}
    assert found["first"].scores.tolist() == [0, 0, 0]
    other_layer = Cosine("first_last_mean").pair_scores(encoder, TASKS)
    assert {task: scores.undefined for task, scores in other_layer.items()} == dict.fromkeys(TASKS, 0)


def test_names_are_unique_and_unknown_poolings_refused() -> None:
    assert str(Cosine()) == "cosine"
    assert str(Cosine("mean")) == "cosine mean"
    assert len({str(Cosine(pooling)) for pooling in (None, *WITHOUT_TEMPLATE)}) == 6
    with pytest.raises(ValueError, match=r"pooling must be one of cls, mean, .*, got 'max'"):
        Cosine("max")
    with pytest.raises(ValueError, match="the pooling mask and a template go together, got 'mask' and ''"):
        Cosine("mask")
