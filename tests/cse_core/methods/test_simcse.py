"""SimCSE with columns: the published formula by loops, the recipe, and what a column of one's own changes."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from cse_core.api import make_batch
from cse_core.data.batches import pad
from cse_core.method import Batch
from cse_core.methods.simcse import PUBLISHED, SimCSE
from tests.support.encoders import wiki_tiny
from tests.support.method_oracles import cosine, drawn
from tests.support.method_steps import HEADLESS, Encoded, Views, check_against_loop, encoder_for, loss_under, on_lists
from tests.support.method_steps import batch_of as texts_of

TRIPLES = [
    ("a cat sat on a mat", "a cat lay down", "a dog ran"),
    ("the river rose", "the water was high", "the river fell"),
    ("snow fell", "it snowed", "the sun shone"),
    ("two old men argued", "there was a quarrel", "two old men agreed"),
]
LENGTHS = {"text": [3, 4, 5, 6], "positive": [9, 3, 3, 3], "negative": [3, 3, 3, 4]}


def batch_of(columns: int) -> Batch:
    """Ids that are all different, in columns of different widths."""
    names = list(LENGTHS)[:columns]
    numbers = iter(range(1, 1000))
    ids = {name: [[next(numbers) for _ in range(length)] for length in LENGTHS[name]] for name in names}
    return Batch(torch.arange(4), {name: pad(rows, 0) for name, rows in ids.items()}, torch.Generator())


def loop(views: list[list[list[float]]], temperature: float, weight: float) -> float:
    """Eq. 5 with the released code's weight, a sentence at a time."""
    first, positives, *hard = views
    total = 0.0
    for i, h in enumerate(first):
        below = sum(math.exp(cosine(h, positive) / temperature) for positive in positives)
        for j, negative in enumerate(hard[0] if hard else []):
            below += (math.exp(weight) if i == j else 1.0) * math.exp(cosine(h, negative) / temperature)
        total -= math.log(math.exp(cosine(h, positives[i]) / temperature) / below)
    return total / len(first)


def loss_of(views: list[Tensor], **settings: float) -> Tensor:
    return SimCSE(**settings).loss(Views(*views), batch_of(len(views)), HEADLESS, {}).total


@pytest.mark.parametrize(("columns", "weight"), [(2, 0.0), (3, 0.0), (3, 1.3), (3, -2.0)])
def test_columns_give_the_published_loss_and_its_slope(columns: int, weight: float) -> None:
    views = [drawn(4, 3, seed=seed, gradient=True) for seed in range(columns)]
    loss = loss_of(views, temperature=0.3, hard_negative_weight=weight)
    check_against_loop(loss, on_lists(lambda *views: loop(list(views), 0.3, weight)), *views, least=1e-3)


def test_two_dropout_views_of_one_column_are_contrasted() -> None:
    """InfoNCE by loops over the very views that the encoder gave, the head by its formula."""
    method, encoder, views = SimCSE(temperature=0.07), encoder_for(SimCSE()), list[Tensor]()
    modules: Any = method.modules(encoder, torch.Generator().manual_seed(2))

    def recorded(*tokens: Any) -> tuple[Tensor, ...]:
        views.extend(encoder.train()(*tokens))
        return tuple(views)

    loss = loss_under(method, Encoded(recorded), texts_of(method, encoder), modules)
    weight, bias = (value.detach().double() for value in modules["head"][0].parameters())
    sides = [torch.tanh(view.detach().double() @ weight.T + bias).tolist() for view in views]
    assert len(sides) == 2
    assert not torch.allclose(views[0], views[1])
    assert loss.total.item() == pytest.approx(loop(sides, 0.07, 0.0), rel=1e-5)
    assert loss.terms["contrastive"].item() == loss.total.item()


def test_the_encoder_reads_each_column_once_with_the_head_over_it() -> None:
    encoder = encoder_for(SimCSE(), dropout=0.0)
    method = SimCSE(temperature=0.1, hard_negative_weight=0.7)
    modules = method.modules(encoder, torch.Generator().manual_seed(0))
    batch = make_batch(method, TRIPLES, encoder)
    assert list(batch.columns) == ["text", "positive", "negative"]
    views = [modules["head"](encoder.encode(list(column))).tolist() for column in zip(*TRIPLES, strict=True)]
    found = method.loss(encoder, batch, modules, {}).total.item()
    assert found == pytest.approx(loop(views, 0.1, 0.7), rel=1e-5)


def test_the_columns_of_examples_are_the_sentences_cut_to_the_length() -> None:
    encoder = wiki_tiny()
    columns = SimCSE().examples(TRIPLES, encoder.tokenizer, 5)
    for name, texts in zip(("text", "positive", "negative"), zip(*TRIPLES, strict=True), strict=True):
        assert columns[name] == encoder.tokenizer(list(texts), truncation=True, max_length=5)["input_ids"]
    pairs = SimCSE().examples([row[:2] for row in TRIPLES], encoder.tokenizer, 5)
    assert pairs == {name: columns[name] for name in ("text", "positive")}


def test_a_weight_without_hard_negatives_is_refused() -> None:
    views = [drawn(4, 3, seed=seed) for seed in range(2)]
    with pytest.raises(ValueError, match=r"hard_negative_weight.*three columns"):
        loss_of(views, hard_negative_weight=1.0)


def test_a_pooling_with_a_head_of_its_own_gets_no_second_one() -> None:
    class WithPooler:
        pooling, width = "pooler_output", 4

    x = torch.randn(2, 4)
    assert torch.equal(SimCSE().modules(WithPooler(), torch.Generator())["head"](x), x)


def test_the_supervised_recipe_is_the_released_script() -> None:
    expected: dict[str, Any] = {"batch_size": 512, "epochs": 3, "max_length": 32, "eval_steps": 125, "pooling": "cls"}
    rates = {"bert-base-uncased": 5e-5, "bert-large-uncased": 1e-5, "roberta-base": 5e-5, "roberta-large": 1e-5}
    for backbone, rate in rates.items():
        recipe = PUBLISHED["supervised", backbone]
        assert recipe.method == SimCSE(temperature=0.05)
        assert {name: recipe.training[name] for name in expected} == expected
        assert (recipe.learning_rate, recipe.warmup, recipe.weight_decay) == (rate, 0.0, 0.0)
