"""SNCSE's margin against its equation and closed forms, the whole loss by a loop in double precision, and its texts."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import AutoModel, AutoTokenizer

from cse_core.functional.contrastive import info_nce
from cse_core.method import Recipe
from cse_core.methods import sncse
from cse_core.methods.sncse import PUBLISHED, SNCSE, TEMPLATES, soft_negative
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import ASSETS
from cse_core.text.negation import negations
from cse_core.text.prompts import prompt_ids
from tests.support.encoders import wiki_tiny
from tests.support.method_cases import UNSTATED
from tests.support.method_oracles import cosine
from tests.support.method_steps import HEADLESS, Views, batch_of, refuses, seeded, views_of

LENGTH = 20  # ten tokens are the template's
TEXTS = ["A cat sat on the mat.", "He is old", "no", "Did the men argue about the price?", "Snow fell " * 9]
SHARP = SNCSE(temperature=0.3, margin_weight=0.7, nearest=0.1, farthest=0.15)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return wiki_tiny(pooling="mask", template=TEMPLATES[0], dropout=0.0)


@pytest.fixture(scope="module")
def bytewise(roberta: Path) -> Any:
    return AutoTokenizer.from_pretrained(roberta)


def margin_loop(vectors: list[list[list[float]]], nearest: float, farthest: float) -> float:
    """Eq. 6, one sentence after the other."""
    total = 0.0
    for anchor, positive, negation in zip(*vectors, strict=True):
        difference = cosine(anchor, negation) - cosine(anchor, positive)
        total += max(0.0, difference + nearest) + max(0.0, -difference - farthest)
    return total / len(vectors[0])


def at(similarity: float) -> torch.Tensor:
    """A vector whose cosine with (1, 0) is `similarity`, twice as long."""
    return 2 * torch.tensor([[similarity, math.sqrt(1 - similarity**2)]], dtype=torch.float64)


ANCHOR = at(1.0)


@given(st.integers(1, 6), st.integers(0, 10_000), st.sampled_from([(0.0, 0.0), (0.1, 0.3), (0.5, 0.5), (0.0, 1.2)]))
def test_the_margin_is_the_equation(n: int, seed: int, margins: tuple[float, float]) -> None:
    views = torch.randn(3, n, 4, generator=seeded(seed), dtype=torch.float64)
    found = soft_negative(views[0], views[1], views[2], *margins).item()
    assert found == pytest.approx(margin_loop(views.tolist(), *margins), abs=1e-12)


@pytest.mark.parametrize(
    ("positive", "negation", "expected"),
    [
        (0.9, 0.7, 0.0),  # D = -0.2, between
        (0.4, 0.3, 0.0),  # D = -a
        (0.4, 0.1, 0.0),  # D = -b
        (0.6, 0.6, 0.1),  # D = 0: a
        (1.0, 0.0, 0.7),  # D = -1: 1 - b
        (0.0, 1.0, 1.1),  # D = 1: 1 + a
        (1.0, -1.0, 1.7),  # D = -2: 2 - b
        (0.9, 0.85, 0.05),
        (0.9, 0.5, 0.1),
    ],
)
def test_the_margin_in_closed_form(positive: float, negation: float, expected: float) -> None:
    found = soft_negative(ANCHOR, 3 * at(positive), at(negation), 0.1, 0.3)
    assert found.item() == pytest.approx(expected, abs=1e-12)
    pair = [torch.cat([vector, at(1.0)]) for vector in (ANCHOR, at(positive), at(negation))]
    pair[2][1] = at(0.8)  # D = -0.2 in the second sentence
    assert soft_negative(*pair, 0.1, 0.3).item() == pytest.approx(expected / 2, abs=1e-12)


@pytest.mark.parametrize(("negation", "sign"), [(0.7, 0), (0.85, 1), (0.95, 1), (0.3, -1)])
def test_the_margin_pulls_back_from_either_side_and_rests_between(negation: float, sign: int) -> None:
    """The gradient with regard to D is 1 above -a, -1 below -b, 0 between; it reaches all three vectors."""
    leaves = [vector.clone().requires_grad_() for vector in (at(0.999), at(0.9), at(negation))]
    anchor, positive, negated = leaves
    difference = nn.functional.cosine_similarity(anchor, negated) - nn.functional.cosine_similarity(anchor, positive)
    found = torch.autograd.grad(soft_negative(*leaves, 0.1, 0.3), leaves)
    for gradient, slope in zip(found, torch.autograd.grad(difference.sum(), leaves), strict=True):
        assert torch.allclose(gradient, sign * slope, atol=1e-12)
        assert slope.abs().max() > 1e-3


def loss_loop(method: SNCSE, head: Any, texts: tuple[list[str], ...]) -> tuple[float, float]:
    """Contrast and margin in double precision, from one column of closed texts after the other."""
    folder = ASSETS / "wiki-tiny"
    model = AutoModel.from_pretrained(folder, dtype=torch.float64).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    weight, bias = head[0].weight.double().tolist(), head[0].bias.double().tolist()

    def vector(text: str, before: str) -> list[float]:
        inner = tokenizer.tokenize(text)[: LENGTH - 10]
        tokens = ["[CLS]", *before.split(), *inner, '"', "means", "[MASK]", ".", "[SEP]"]
        with torch.no_grad():
            states = model(input_ids=torch.tensor([tokenizer.convert_tokens_to_ids(tokens)])).last_hidden_state[0]
        h = states[len(tokens) - 3].tolist()
        return [math.tanh(sum(x * y for x, y in zip(w, h, strict=True)) + b) for w, b in zip(weight, bias, strict=True)]

    sides = ('this sentence : "', 'this sentence of "', 'this sentence of "')
    views = [[vector(text, before) for text in column] for column, before in zip(texts, sides, strict=True)]
    rows = [[math.exp(cosine(a, b) / method.temperature) for b in views[1]] for a in views[0]]
    contrast = -sum(math.log(row[i] / sum(row)) for i, row in enumerate(rows)) / len(rows)
    return contrast, margin_loop(views, method.nearest, method.farthest)


def test_the_loss_is_the_equation(encoder: Encoder) -> None:
    modules = SHARP.modules(encoder, seeded(2))
    nn.init.normal_(modules.get_parameter("head.0.weight"), std=0.3, generator=seeded(3))
    loss = SHARP.loss(encoder, batch_of(SHARP, encoder, TEXTS, length=LENGTH), modules, {})
    closed = ["A cat sat on the mat.", "He is old .", "no .", "Did the men argue about the price?", TEXTS[4] + " ."]
    negated = [text if text[-1] in ".?" else f"{text} ." for text in negations([t.strip() for t in TEXTS], "words")]
    contrast, margin = loss_loop(SHARP, modules["head"], (closed, closed, negated))
    assert margin > 1e-3
    assert loss.terms["contrastive"].item() == pytest.approx(contrast, rel=1e-5)
    assert loss.terms["margin"].item() == pytest.approx(margin, rel=1e-4)
    assert loss.total.item() == pytest.approx(contrast + 0.7 * margin, rel=1e-5)
    assert set(loss.terms) == {"contrastive", "margin"}
    assert torch.equal(info_nce(*views_of(loss), 0.3), loss.terms["contrastive"])


def test_one_pass_of_three_columns_reaches_all_of_them(encoder: Encoder) -> None:
    draw = seeded(0)
    views = [torch.randn(len(TEXTS), 6, generator=draw).requires_grad_() for _ in range(3)]
    encode, batch = Views(*views), batch_of(SHARP, encoder, TEXTS, length=LENGTH)
    loss = SHARP.loss(encode, batch, HEADLESS, {})
    assert encode.asked == [(batch["anchor"], batch["positive"], batch["negation"])]
    gradients = torch.autograd.grad(loss.total, views, retain_graph=True)
    assert all(gradient.abs().max() > 1e-4 for gradient in gradients)
    contrast = torch.autograd.grad(loss.terms["contrastive"], views, allow_unused=True)
    assert contrast[2] is None  # no negative of the contrast


@pytest.mark.parametrize("length", [10, 7])
def test_a_length_without_room_for_the_sentence_is_refused(encoder: Encoder, length: int) -> None:
    message = rf"'This sentence : .*' leaves room for {length - 10} word pieces of the sentence, expected at least one"
    with pytest.raises(ValueError, match=message):
        SNCSE().examples(TEXTS, encoder.tokenizer, length)


def test_columns_are_the_sentence_twice_and_its_negation_closed_last(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[str], str]] = []

    def spy(texts: Sequence[str], how: str) -> list[str]:
        asked.append((list(texts), how))
        return [f"never {text}" for text in texts]

    monkeypatch.setattr(sncse, "negations", spy)
    texts = ["a cat", "a dog.", "We do not know!", 'He said "no"']
    closed = ["a cat .", *texts[1:]]
    for how in ("words", "spacy"):
        assert SNCSE(negation=how).examples(texts, encoder.tokenizer, 32) == {
            "anchor": prompt_ids(closed, TEMPLATES[0], encoder.tokenizer, 22),
            "positive": prompt_ids(closed, TEMPLATES[1], encoder.tokenizer, 22),
            "negation": prompt_ids([f"never {text}" for text in closed], TEMPLATES[1], encoder.tokenizer, 22),
        }
    assert asked == [(texts, "words"), (texts, "spacy")]


def test_the_closing_full_stop_is_set_off_by_a_blank(bytewise: Any) -> None:
    columns = SNCSE().examples(["the cats", "the cats."], bytewise, 60)
    for name in ("anchor", "positive"):
        texts = [bytewise.decode(ids) for ids in columns[name]]
        before = TEMPLATES[name == "positive"].split(" {}")[0]
        assert texts[0].startswith(f'<s>{before} the cats . " means')
        assert texts[1].startswith(f'<s>{before} the cats. " means')


def test_an_encoder_that_does_not_pool_at_the_mask_is_refused(encoder: Encoder) -> None:
    with pytest.raises(ValueError, match="templates need an encoder with pooling 'mask' and a template, got 'cls'"):
        SNCSE().modules(wiki_tiny(), torch.Generator())
    assert set(SNCSE().modules(encoder, torch.Generator()).state_dict()) == {"head.0.weight", "head.0.bias"}


test_impossible_settings_are_refused = refuses(
    SNCSE,
    ({"margin_weight": -1.0}, r"margin_weight must be zero or positive, got -1\.0"),
    ({"nearest": -0.1}, r"margins must satisfy 0 <= nearest <= farthest, got -0\.1 and 0\.3"),
    ({"nearest": 0.4}, r"margins must satisfy 0 <= nearest <= farthest, got 0\.4 and 0\.3"),
    ({"farthest": math.nan}, r"margins must satisfy 0 <= nearest <= farthest, got 0\.1 and nan"),
    ({"first": "[MASK]"}, r"a template has one \{\} and one \[MASK\] after it, got '\[MASK\]'"),
    ({"second": "{}"}, r"a template has one \{\} and one \[MASK\] after it, got '\{\}'"),
)


def test_published_settings() -> None:
    expected = {
        "bert-base-uncased": (256, 1e-5, 1e-3),
        "bert-large-uncased": (128, 5e-6, 1e-3),
        "roberta-base": (256, 1e-5, 5e-4),
        "roberta-large": (128, 5e-6, 5e-4),
    }
    assert set(PUBLISHED) == set(expected)
    for backbone, (batch_size, learning_rate, weight) in expected.items():
        recipe = PUBLISHED[backbone]
        assert isinstance(recipe, Recipe)
        own = SNCSE(temperature=0.05, margin_weight=weight, nearest=0.1, farthest=0.3, negation="spacy")
        assert recipe.method == own
        training = UNSTATED | {"batch_size": batch_size, "learning_rate": learning_rate}
        assert recipe.training == training | {"pooling": "mask", "template": TEMPLATES[0]}
    assert TEMPLATES == ('This sentence : " {} " means [MASK] .', 'This sentence of " {} " means [MASK] .')
