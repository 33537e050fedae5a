"""PromptBERT against a loop in double precision over single sentences, closed forms of its denoising, and its text."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModel

from cse_core.functional.contrastive import info_nce
from cse_core.method import Recipe, Tokens
from cse_core.methods.promptbert import PUBLISHED, TEMPLATES, BareTemplate, PromptBERT, denoised_states
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import ASSETS
from tests.support.encoders import wiki_tiny
from tests.support.method_cases import UNSTATED
from tests.support.method_steps import Encoded, batch_of, gradient_of, seeded, views_of

CUT = 9  # of word pieces
LONG = "the old man walked his dog along the river before breakfast"
TEXTS = ["a cat sat", "snow fell fast", "no", LONG, " ", "two old men argued about it"]  # two of three pieces
BERT = PromptBERT(temperature=0.07)
ROBERTA = PromptBERT(first=TEMPLATES["roberta"][0], second=TEMPLATES["roberta"][1], temperature=0.07)
# The sides of both views' templates as the tokenizer reads them, written out by hand.
SIDES = {
    "bert": (('This sentence of "', '" means [MASK].'), ('This sentence : "', '" means [MASK].')),
    "roberta": (("This sentence : '", " ' means <mask>."), ("The sentence : '", " ' means <mask>.")),
}


def prompting(folder: Path | str = "wiki-tiny", dropout: float = 0.0, template: str = BERT.first) -> Encoder:
    return Encoder.from_pretrained(folder, pooling="mask", template=template, dropout=dropout)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return prompting()


def modules_of(method: PromptBERT, encoder: Encoder, seed: int = 2) -> nn.ModuleDict:
    """The method's modules with a bias, so that a sentence without words has a vector after the head."""
    modules = method.modules(encoder, seeded(seed))
    nn.init.normal_(modules.get_parameter("head.0.bias"), std=0.1, generator=seeded(seed))
    return modules


def bare_templates(encoder: Encoder) -> list[BareTemplate]:
    return [BareTemplate(template, encoder.tokenizer) for template in (BERT.first, BERT.second)]


def mask_state(model: Any, tokenizer: Any, pieces: tuple[list[int], list[int], list[int]], shift: int) -> list[float]:
    """The mask's state of one row without padding; what comes after the sentence stands `shift` positions later."""
    left, inner, right = pieces
    ids = [tokenizer.cls_token_id, *left, *inner, *right, tokenizer.sep_token_id]
    first = 2 if model.config.model_type == "roberta" else 0
    places = [first + i + (shift if i > len(left) + len(inner) else 0) for i in range(len(ids))]
    with torch.no_grad():
        states = model(input_ids=torch.tensor([ids]), position_ids=torch.tensor([places])).last_hidden_state[0]
    return states[ids.index(tokenizer.mask_token_id)].tolist()


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def loss_loop(method: PromptBERT, family: str, folder: Path, head: Any, texts: list[str]) -> float:
    """Eq. 4 and the contrast in double precision, one sentence and one coordinate after the other."""
    model, tokenizer = AutoModel.from_pretrained(folder, dtype=torch.float64).eval(), prompting(folder).tokenizer
    weight, bias = head[0].weight.double().tolist(), head[0].bias.double().tolist()

    def pieces(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    views: list[list[list[float]]] = []
    for before, after in SIDES[family]:
        views.append([])
        for text in texts:
            inner = pieces(text if family == "bert" else f" {text}")[:CUT]
            h = mask_state(model, tokenizer, (pieces(before), inner, pieces(after)), 0)
            if method.denoise:
                bias_state = mask_state(model, tokenizer, (pieces(before), [], pieces(after)), len(inner))
                h = [a - b for a, b in zip(h, bias_state, strict=True)]
            views[-1].append([math.tanh(dot(w, h) + b) for w, b in zip(weight, bias, strict=True)])

    def chance(a: list[float], b: list[float]) -> float:
        return math.exp(dot(a, b) / math.hypot(*a) / math.hypot(*b) / method.temperature)

    rows = [[chance(a, b) for b in views[1]] for a in views[0]]
    return -sum(math.log(row[i] / sum(row)) for i, row in enumerate(rows)) / len(rows)


@pytest.mark.parametrize("texts", [TEXTS, TEXTS[1:3]], ids=["six", "two"])
@pytest.mark.parametrize("denoise", [True, False])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_loss_is_the_equation(family: str, denoise: bool, texts: list[str], roberta: Path) -> None:
    folder = roberta if family == "roberta" else ASSETS / "wiki-tiny"
    method = replace(ROBERTA if family == "roberta" else BERT, denoise=denoise)
    encoder = prompting(folder, template=method.first).train()
    modules = modules_of(method, encoder)
    loss = method.loss(encoder, batch_of(method, encoder, texts, length=CUT), modules, {})
    assert loss.total.item() == pytest.approx(loss_loop(method, family, folder, modules["head"], texts), rel=1e-5)
    assert list(loss.terms.items()) == [("contrastive", loss.total)]
    assert torch.equal(info_nce(*views_of(loss), 0.07), loss.total)


def test_one_pass_with_one_bare_row_for_each_length(encoder: Encoder) -> None:
    recording, batch = Encoded(encoder), batch_of(BERT, encoder, TEXTS, length=CUT)
    BERT.loss(recording, batch, modules_of(BERT, encoder), {})
    (asked,) = recording.asked
    assert asked[:2] == (batch["first"], batch["second"])
    lengths = sorted({len(encoder.tokenizer.tokenize(text)[:CUT]) for text in TEXTS})
    assert lengths[:3] == [0, 1, 3]
    assert len(asked) == 4
    for bare, column in zip(asked[2:], ("first", "second"), strict=True):
        (empty,) = BERT.examples([" "], encoder.tokenizer, CUT)[column]
        assert bare.ids.tolist() == [empty] * len(lengths)
        assert bare.mask.all()
        assert bare.positions is not None
        before = empty.index(encoder.tokenizer('"', add_special_tokens=False)["input_ids"][0]) + 1
        usual = list(range(len(empty)))
        expected = [usual[:before] + [i + words for i in usual[before:]] for words in lengths]
        assert bare.positions.tolist() == expected


def test_without_denoising_nothing_bare_is_encoded(encoder: Encoder) -> None:
    recording, method = Encoded(encoder), replace(BERT, denoise=False)
    method.loss(recording, batch_of(method, encoder, TEXTS, length=CUT), modules_of(method, encoder), {})
    assert [len(asked) for asked in recording.asked] == [2]


def test_denoising_takes_off_the_bare_state_and_hands_it_the_gradient(encoder: Encoder) -> None:
    """A bare row's gradient is minus the summed gradient of all sentences of its length."""
    batch = batch_of(BERT, encoder, TEXTS, length=CUT)
    lengths = [len(encoder.tokenizer.tokenize(text)[:CUT]) for text in TEXTS]
    order = sorted(set(lengths))
    draw = seeded(0)
    given: list[torch.Tensor] = []

    def embed(*tokens: Tokens) -> tuple[torch.Tensor, ...]:
        given.extend(torch.randn(len(part.ids), 5, generator=draw).requires_grad_() for part in tokens)
        return tuple(given)

    views = denoised_states(Encoded(embed), [batch["first"], batch["second"]], bare_templates(encoder))
    for view, h, h_hat in zip(views, given[:2], given[2:], strict=True):
        for i, length in enumerate(lengths):
            assert torch.equal(view[i], h[i] - h_hat[order.index(length)])
    torch.stack([view.sin() for view in views]).sum().backward()
    for view, h, h_hat in zip(views, given[:2], given[2:], strict=True):
        assert torch.allclose(gradient_of(h), view.cos())
        for row, length in enumerate(order):
            own = [i for i, other in enumerate(lengths) if other == length]
            assert torch.allclose(gradient_of(h_hat)[row], -gradient_of(h)[own].sum(0), atol=1e-6)
    assert lengths.count(3) == 2


def test_sentences_of_one_length_share_the_dropout_of_their_bare_row() -> None:
    encoder = prompting(dropout=0.3).train()
    torch.manual_seed(0)
    batch = batch_of(BERT, encoder, ["a cat sat"] * 2, length=CUT)
    given: list[torch.Tensor] = []
    recording = Encoded(lambda *tokens: given.extend(encoder(*tokens)) or tuple(given))
    view = denoised_states(recording, [batch["first"], batch["second"]], bare_templates(encoder))[0]
    h, h_hat = given[0], given[2]
    assert not torch.allclose(h[0], h[1], atol=0.1)
    assert torch.allclose(h[0] - view[0], h[1] - view[1], atol=1e-5)
    evaluated = encoder.eval()(*recording.asked[0])[2]
    assert not torch.allclose(h_hat, evaluated, atol=0.1)  # dropout is on in the bare row as well


def test_equal_sentences_cannot_be_distinguished(encoder: Encoder) -> None:
    modules = modules_of(BERT, encoder)
    for n in (2, 5):
        loss = BERT.loss(encoder, batch_of(BERT, encoder, ["a cat sat"] * n, length=CUT), modules, {})
        assert loss.total.item() == pytest.approx(math.log(n), rel=1e-5)
    same = replace(BERT, second=BERT.first)
    loss = same.loss(encoder, batch_of(same, encoder, TEXTS[:4], length=CUT), modules_of(same, encoder), {})
    assert torch.allclose(*views_of(loss), atol=1e-5)


def test_a_sentence_without_words_has_a_finite_gradient() -> None:
    encoder = prompting(dropout=0.1).train()
    torch.manual_seed(0)
    modules = BERT.modules(encoder, seeded(2))
    BERT.loss(encoder, batch_of(BERT, encoder, [" ", "a cat", "  "], length=CUT), modules, {}).total.backward()
    assert all(p.grad is not None and p.grad.abs().max() < 1e3 for p in encoder.parameters())


def test_an_encoder_that_does_not_pool_at_the_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="templates need an encoder with pooling 'mask' and a template, got 'cls'"):
        BERT.modules(wiki_tiny(), torch.Generator())


def test_a_saved_state_is_only_the_head(encoder: Encoder) -> None:
    modules = modules_of(BERT, encoder)
    assert set(modules.state_dict()) == {"head.0.weight", "head.0.bias"} == {n for n, _ in modules.named_parameters()}
    assert [value.device.type for value in modules.to("meta").buffers()] == ["meta", "meta"]


def test_impossible_settings_are_refused() -> None:
    for make in (lambda t: PromptBERT(first=t), lambda t: PromptBERT(second=t)):
        with pytest.raises(ValueError, match=r"a template has one \{\} and one \[MASK\] after it, got 'so \{\}'"):
            make("so {}")


def test_published_settings() -> None:
    assert set(PUBLISHED) == {"bert-base-uncased", "roberta-base"}
    for backbone, recipe in PUBLISHED.items():
        assert isinstance(recipe, Recipe)
        first, second = TEMPLATES[backbone.split("-")[0]]
        assert recipe.method == PromptBERT(first=first, second=second, temperature=0.05, denoise=True)
        training = UNSTATED | {"batch_size": 256, "learning_rate": 1e-5}
        assert recipe.training == training | {"pooling": "mask", "template": first}
    assert TEMPLATES["bert"] == ('This sentence of "{}" means [MASK].', 'This sentence : "{}" means [MASK].')
    assert TEMPLATES["roberta"] == ("This sentence : ' {} ' means [MASK].", "The sentence : ' {} ' means [MASK].")
