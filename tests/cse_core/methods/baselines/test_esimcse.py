"""ESimCSE: repetitions by hand, the whole loss one sentence at a time over steps, its null, what its queue is fed."""

import copy
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_core.methods.baselines.esimcse import PUBLISHED, ESimCSE, drawn_places, repeat, repetition_limit, set_random
from cse_core.methods.simcse import SimCSE
from tests.support.method_cases import UNSTATED
from tests.support.method_steps import TEXTS, batch_of, encoder_of, refuses, rows_of, seeded
from tests.support.one_by_one import nce, perturb, tanh_of, vector_of

SHORT = ESimCSE(queue_size=8, momentum=0.6, temperature=0.3)  # the queue is half-full after a batch, full after two


@given(st.lists(st.integers(5, 99), max_size=20), st.data())
def test_chosen_word_pieces_stand_twice(pieces: list[int], data: st.DataObject) -> None:
    ids = [2, *pieces, 3]
    places = data.draw(st.lists(st.integers(1, max(len(pieces), 1)), unique=True)) if pieces else []
    expected = []
    for place, token in enumerate(ids):
        expected.append(token)
        if place in places:
            expected.append(token)
    assert repeat(ids, places) == expected


@pytest.mark.parametrize(
    ("pieces", "rate", "paper", "released"),
    [
        (0, 0.32, 0, 0),
        (1, 0.32, 1, 0),
        (2, 0.32, 2, 0),
        (4, 0.32, 2, 0),  # the code repeats none of four pieces
        (5, 0.32, 2, 1),
        (10, 0.32, 3, 2),
        (20, 0.32, 6, 6),
        (30, 0.32, 9, 9),
        (60, 0.32, 19, 9),  # nine at most in the code
        (20, 0.0, 2, 0),
        (20, 1.0, 20, 9),
    ],
)
def test_the_limits_of_paper_and_code(pieces: int, rate: float, paper: int, released: int) -> None:
    assert repetition_limit(pieces, rate) == paper
    assert repetition_limit(pieces, rate, "released_code") == released


def test_how_many_are_repeated_is_uniform_and_each_place_as_likely() -> None:
    """0 to 6 of 20 pieces are repeated, 3 in the mean."""
    draws = [drawn_places([2, *range(10, 29), 10_000 + i, 3], 0.32) for i in range(3500)]
    counts = Counter(map(len, draws))
    assert set(counts) == set(range(7))
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 27.9  # chi-square, six degrees, p = 1e-4
    places = Counter(place for draw in draws for place in draw)
    assert set(places) == set(range(1, 21))
    expected = sum(places.values()) / 20
    assert sum((count - expected) ** 2 / expected for count in places.values()) < 50.8  # nineteen degrees, p = 1e-4
    assert all(len(set(draw)) == len(draw) for draw in draws)


def test_the_second_column_is_the_first_with_repetitions() -> None:
    encoder = encoder_of()
    texts = [*TEXTS, "", "word " * 60]
    columns = ESimCSE().examples(texts, encoder.tokenizer, 32)
    assert list(columns) == ["text", "repeated"]
    assert columns["text"] == SimCSE().examples(texts, encoder.tokenizer, 32)["text"]
    for ids, longer in zip(columns["text"], columns["repeated"], strict=True):
        assert longer == repeat(ids, drawn_places(ids, 0.32))
        assert (longer[0], longer[-1]) == (ids[0], ids[-1])
        assert len(ids) <= len(longer) <= 41
    assert columns["repeated"] != columns["text"]
    # The draw is of the sentence, not of its neighbours.
    assert ESimCSE().examples(texts[::-1], encoder.tokenizer, 32)["repeated"] == columns["repeated"][::-1]
    assert list(ESimCSE(repetition=0.0).examples(texts, encoder.tokenizer, 32)) == ["text"]


def test_a_view_that_the_backbone_has_no_places_for_is_refused() -> None:
    encoder = encoder_of()
    texts = [f"{'word ' * 60} {i}" for i in range(40)]
    with pytest.raises(ValueError, match=r"max_length 48: with repetitions a view has \d\d tokens, .* at most 48"):
        ESimCSE(repetition=0.9).examples(texts, encoder.tokenizer, 48)


@pytest.mark.parametrize("start", ["online", "random"])
def test_the_loss_is_the_equation_step_after_step(start: str) -> None:
    """Queue and slow weights by hand, each sentence by itself; the weights move between steps."""
    method, encoder = replace(SHORT, slow_start=start), encoder_of()
    modules: Any = method.modules(encoder, seeded()).train()
    slow = copy.deepcopy(modules["slow"].encoder.backbone).eval()
    queue: list[torch.Tensor] = []
    for step in range(4):
        batch = batch_of(method, encoder, TEXTS[step % 2 :])
        found = method.loss(encoder, batch, modules, {})
        head, reference = modules["head"][0], copy.deepcopy(encoder.backbone).eval()
        sides = []
        for name in ("text", "repeated"):
            sides.append([tanh_of(head, vector_of(reference, row)) for row in rows_of(batch[name])])
        assert found.total.item() == pytest.approx(nce(*sides, queue, 0.3), rel=1e-5)
        assert found.terms == {"contrastive": found.total}
        with torch.no_grad():
            for mine, theirs in zip(slow.parameters(), reference.parameters(), strict=True):
                mine.copy_(0.6 * mine + 0.4 * theirs)
        rows = rows_of(batch["text"])
        queue = [*queue, *(tanh_of(head, vector_of(slow, row)) for row in rows)][-8:]
        held: Any = modules["queue"].newest
        assert torch.allclose(held.double(), torch.stack(queue), atol=1e-5)
        perturb(encoder, step)
        perturb(modules["head"], step)


def test_the_slow_pass_has_no_dropout_and_the_queue_no_gradient() -> None:
    encoder = encoder_of(0.3)
    modules: Any = SHORT.modules(encoder, seeded()).train()
    loss = SHORT.loss(encoder, batch_of(SHORT, encoder), modules, {})
    ids = SHORT.examples(TEXTS, encoder.tokenizer, 12)["text"]
    expected = modules["head"](encoder.embed(ids))
    assert torch.allclose(modules["queue"].newest, expected, atol=1e-5)
    assert not modules["queue"].newest.requires_grad
    loss.total.backward()
    assert not any(p.requires_grad or p.grad is not None for p in modules["slow"].parameters())
    assert modules["slow"].updates == 1


def test_the_slow_encoder_of_the_published_runs_starts_at_random() -> None:
    encoder = encoder_of()
    made: list[Any] = [replace(SHORT, slow_start="random").modules(encoder, seeded()) for _ in range(2)]
    first, second = made
    slow: Any = first["slow"].encoder.backbone
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert torch.equal(first["head"][0].weight, SimCSE().modules(encoder, seeded())["head"][0].weight)  # ty: ignore[not-subscriptable]
    for name, value in slow.named_parameters():
        online = encoder.backbone.get_parameter(name)
        if "LayerNorm.weight" in name or name.endswith("bias"):
            assert value.unique().tolist() == [float("LayerNorm.weight" in name)], name
        else:
            assert value.std().item() == pytest.approx(0.02, rel=0.1), name
            assert not torch.isclose(value, online).any(dim=1).all(), name
    assert slow.embeddings.word_embeddings.weight[encoder.pad_id].abs().max() == 0
    assert encoder.encode(["x"]).isfinite().all()
    set_random(slow, seeded(3))
    assert not torch.equal(
        slow.embeddings.word_embeddings.weight, second["slow"].encoder.backbone.embeddings.word_embeddings.weight
    )


test_impossible_settings_are_refused = refuses(
    partial(replace, SHORT),
    ({"repetition": -0.1}, r"repetition must be in \[0, 1\], got -0.1"),
    ({"queue_size": -1}, "queue_size must be zero or positive, got -1"),
    ({"momentum": 1.1}, r"momentum must be in \[0, 1\], got 1.1"),
)


def test_published_settings() -> None:
    rows = {
        "bert-base-uncased": (3e-5, 0.32, 160, 0.1),
        "bert-large-uncased": (1e-5, 0.32, 160, 0.1),
        "roberta-base": (1e-5, 0.30, 160, 0.1),
        "roberta-large": (1e-5, 0.28, 128, 0.15),
    }
    assert set(PUBLISHED) == set(rows)
    for backbone, (rate, repetition, queue_size, dropout) in rows.items():
        recipe = PUBLISHED[backbone]
        assert recipe.method == ESimCSE(repetition=repetition, queue_size=queue_size)
        assert recipe.training == UNSTATED | {"batch_size": 64, "learning_rate": rate, "dropout": dropout}
