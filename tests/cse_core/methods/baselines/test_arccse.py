"""ArcCSE's losses and masks against loops written from its formulas, their limits, and what the whole method reads."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from cse_core.data.batches import pad
from cse_core.method import Loss, Tokens
from cse_core.methods.baselines.arccse import (
    PUBLISHED,
    ArcCSE,
    add_margin,
    arc_con,
    disorder,
    draw_spans,
    mask_spans,
    triplet_loss,
)
from cse_core.models.encoder import Encoder
from experiments.schema.scales import RESCALED
from tests.support.method_oracles import cosine, drawn
from tests.support.method_steps import batch_of, check_against_loop, loss_under, refuses, seeded, step_of

LONG = "two old men argued about fish because the price of it rose and the river with it rose again"
SENTENCES = [
    "a cat sat on a mat",
    LONG,
    "snow fell",
    "the women who had come by boat laughed and went home that night",
    "no",
]
CLS, SEP, PAD, MASK = 2, 3, 0, 4
FORMS = ("exact", "easy", "monotone")
sizes, seeds = st.integers(1, 6), st.integers(0, 10_000)


def angle_loop(c: float, degrees: float, form: str) -> float:
    """cos(theta + m) by way of the angle itself."""
    theta, m = math.acos(max(-1.0, min(1.0, c))), math.radians(degrees)
    if form == "easy" and c <= 0:
        return c
    if form == "monotone" and theta + m > math.pi:
        return c - m * math.sin(m)
    return math.cos(theta + m)


def arc_loop(z1: Tensor, z2: Tensor, temperature: float, degrees: float, form: str) -> float:
    a, b, total = z1.tolist(), z2.tolist(), 0.0
    for i in range(len(a)):
        positive = math.exp(angle_loop(cosine(a[i], b[i]), degrees, form) / temperature)
        others = sum(math.exp(cosine(a[i], b[j]) / temperature) for j in range(len(b)) if j != i)
        total -= math.log(positive / (positive + others)) / len(a)
    return total


def triplet_loop(h: Tensor, light: Tensor, heavy: Tensor, margin: float) -> float:
    rows = zip(h.tolist(), light.tolist(), heavy.tolist(), strict=True)
    return sum(max(0.0, cosine(a, c) - cosine(a, b) + margin) for a, b, c in rows) / len(h)


def masks_loop(words: list[int], spans: list[tuple[int, int]], share: float) -> list[int]:
    """The wordpieces with spans masked one after the other, place by place, until there are enough."""
    count, masked = max(1, round(share * len(words))), set()
    for start, length in spans:
        for place in range(start, min(start + length, len(words))):
            if len(masked) < count:
                masked.add(place)
    return [MASK if j in masked else word for j, word in enumerate(words)]


@given(sizes, seeds, st.sampled_from([0.0, 5.0, 10.0, 90.0, 170.0]), st.sampled_from(FORMS))
def test_arccon_is_the_formula(n: int, seed: int, degrees: float, form: str) -> None:
    z1, z2 = drawn(n, 3, seed=seed), drawn(n, 3, seed=seed + 1)
    found = arc_con(z1, z2, 0.1, degrees, form).item()
    assert found == pytest.approx(arc_loop(z1, z2, 0.1, degrees, form), rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("degrees", [0.0, 10.0, 60.0])
def test_its_gradient_is_its_slope(form: str, degrees: float) -> None:
    z1, z2 = drawn(4, 3, seed=18, gradient=True), drawn(4, 3, seed=19, gradient=True)
    cosines = nn.functional.cosine_similarity(z1, z2)
    assert cosines.min() < -0.5
    assert cosines.max() > 0.3
    loss = arc_con(z1, z2, 0.3, degrees, form)
    check_against_loop(loss, lambda a, b: arc_loop(a, b, 0.3, degrees, form), z1, z2, least=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS)
def test_identical_and_opposite_views_have_the_exact_value_and_a_finite_gradient(form: str, dtype: Any) -> None:
    z = drawn(5, 16, seed=1).to(dtype)
    for sign in (1, -1):
        first = z.clone().requires_grad_()
        loss = arc_con(first, sign * z, 0.05, 10.0, form)
        loss.backward()
        assert loss.item() == pytest.approx(arc_loop(z, sign * z, 0.05, 10.0, form), rel=1e-3 if sign < 0 else 1e-2)
        assert first.grad is not None
        assert first.grad.isfinite().all()
    ends = torch.tensor([1.0, -1.0], dtype=dtype)
    expected = [angle_loop(c, 10.0, form) for c in (1.0, -1.0)]
    assert add_margin(ends, 10.0, form).tolist() == pytest.approx(expected, rel=1e-6)


def test_the_slope_of_the_sine_is_held_where_it_is_infinite() -> None:
    """d cos(theta + m)/dc = cos m + c sin m / sqrt(1 - c^2), the root at least 1e-6."""
    c = torch.tensor([1.0, 1 - 1e-13, 0.6, -1.0], dtype=torch.float64, requires_grad=True)
    add_margin(c, 10.0).sum().backward()
    m = math.radians(10)
    expected = [math.cos(m) + x * math.sin(m) / max(1e-6, math.sqrt(1 - x * x)) for x in c.tolist()]
    assert c.grad is not None
    assert c.grad.tolist() == pytest.approx(expected, rel=1e-6)


@given(st.integers(2, 5), seeds)
def test_the_loss_rises_with_the_margin_below_180_degrees(n: int, seed: int) -> None:
    z1, z2 = drawn(n, 4, seed=seed), drawn(n, 4, seed=seed + 1)
    z2 = z1 + 0.5 * z2
    widest = 180 - math.degrees(math.acos(nn.functional.cosine_similarity(z1, z2).min().item()))
    losses = [arc_con(z1, z2, 0.05, widest * part).item() for part in (0.0, 0.25, 0.5, 0.75, 0.99)]
    assert losses == sorted(losses)
    assert losses[0] < losses[1]


def test_one_sentence_has_no_loss() -> None:
    z = drawn(1, 4, seed=1, gradient=True)
    loss = arc_con(z, drawn(1, 4, seed=2), 0.05, 10.0)
    loss.backward()
    assert loss.item() == 0
    assert z.grad is not None
    assert not z.grad.any()


@given(sizes, seeds, st.sampled_from([0.0, 0.3]))
def test_triplets_are_the_formula(n: int, seed: int, margin: float) -> None:
    h, light, heavy = (drawn(n, 3, seed=seed + i, gradient=True) for i in range(3))
    loss = triplet_loss(h, light, heavy, margin)
    check_against_loop(loss, lambda a, b, c: triplet_loop(a, b, c, margin), h, light, heavy)


def test_only_counted_sentences_make_triplets_and_none_makes_no_gradient() -> None:
    h, light, heavy = (drawn(5, 3, seed=i, gradient=True) for i in range(3))
    counted = torch.tensor([True, False, True, False, False])
    found = triplet_loss(h, light, heavy, 0.5, counted).item()
    assert found == pytest.approx(triplet_loop(h[counted], light[counted], heavy[counted], 0.5), rel=1e-9)
    nothing = triplet_loss(h, light, heavy, 0.5, torch.zeros(5, dtype=torch.bool))
    assert nothing.item() == 0
    assert not any(gradient.any() for gradient in torch.autograd.grad(nothing, (h, light, heavy)))
    same = triplet_loss(h, h.detach(), h.detach(), 0.0)
    assert same.item() == 0
    assert not torch.autograd.grad(same, h)[0].any()


def test_disorder_is_positive_where_the_heavily_masked_version_is_nearer() -> None:
    h = torch.tensor([[1.0, 0.0]])
    near, far = torch.tensor([[2.0, 0.1]]), torch.tensor([[0.0, 1.0]])
    assert disorder(h, near, far).item() < -0.9
    assert disorder(h, far, near).item() > 0.9


def tokens_of(sentences: list[list[int]], width: int = 0) -> Tokens:
    return pad([[CLS, *words, SEP] for words in sentences], PAD, width)


lists = st.lists(st.lists(st.integers(10, 99), max_size=12), min_size=1, max_size=4)


@given(lists, seeds, st.sampled_from([(0.2, 0.4), (0.1, 1.0), (0.5, 0.75)]))
def test_masks_are_spans_one_after_the_other(sentences: list[list[int]], seed: int, shares: tuple) -> None:
    generator = seeded(seed)
    starts = torch.randint(0, 12, (len(sentences), 7), generator=generator)
    lengths = torch.randint(1, 5, starts.shape, generator=generator)
    spans = torch.stack([starts, lengths], dim=2)
    versions = mask_spans(tokens_of(sentences, 16), spans, *shares, MASK)
    for share, version in zip(shares, versions, strict=True):
        assert torch.equal(version.mask, tokens_of(sentences, 16).mask)
        for words, row, own in zip(sentences, version.ids.tolist(), spans.tolist(), strict=True):
            expected = masks_loop(words, own, share) if words else []
            assert row == [CLS, *expected, SEP] + [PAD] * (14 - len(words))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), seeds)
def test_drawn_masks_are_nested_and_have_their_shares(lengths: list[int], seed: int) -> None:
    tokens = tokens_of([list(range(10, 10 + w)) for w in lengths])
    spans = draw_spans(tokens, seeded(seed))
    light, heavy = (version.ids == MASK for version in mask_spans(tokens, spans, 0.2, 0.4, MASK))
    assert not (light & ~heavy).any()
    for share, masked in ((0.2, light), (0.4, heavy)):
        assert masked.sum(1).tolist() == [min(w, max(1, round(share * w))) for w in lengths]


def test_spans_start_anywhere_and_are_one_to_three_long() -> None:
    tokens = tokens_of([list(range(10, 20))] * 3000)
    spans = draw_spans(tokens, seeded(1))[:, :10]
    starts, lengths = spans.unbind(2)
    assert torch.equal(starts.sort(1).values, torch.arange(10).expand(3000, -1))
    first = torch.nn.functional.one_hot(starts[:, 0], 10).double().mean(0)
    assert (first - 0.1).abs().max() < 5 * (0.09 / 3000) ** 0.5
    share = torch.nn.functional.one_hot(lengths.flatten() - 1, 3).double().mean(0)
    assert (share - 1 / 3).abs().max() < 5 * (2 / 9 / 30_000) ** 0.5


def loss_of(method: Any, encoder: Encoder) -> Loss:
    batch = batch_of(method, encoder, SENTENCES, length=24)
    return loss_under(method, encoder, batch, method.modules(encoder, seeded()))


def test_the_method_puts_its_parts_together(encoder: Encoder) -> None:
    """Masked versions through the encoder as evaluation reads them: without dropout."""
    method = ArcCSE(shortest=9, triplet_margin=0.2, triplet_weight=0.7, margin_degrees=20.0, temperature=0.06)
    loss = loss_of(method, encoder)
    z1, z2 = (view.detach().double() for view in loss.views or ())
    arc = arc_loop(z1, z2, 0.06, 20.0, "exact")
    assert loss.terms["contrastive"].item() == pytest.approx(arc, rel=1e-4)
    text, mask_id = batch_of(method, encoder, SENTENCES, length=24)["text"], encoder.tokenizer.mask_token_id
    spans = draw_spans(text, seeded(1))
    versions = [text, *mask_spans(text, spans, 0.2, 0.4, mask_id)]
    head = method.modules(encoder, seeded(2))["head"]
    h = [head(encoder.embed([ids[m].tolist() for ids, m in zip(v.ids, v.mask, strict=True)])) for v in versions]
    long = text.mask.sum(1) >= 11
    assert long.tolist() == [False, True, False, True, False]
    h = [part[long].detach().double() for part in h]
    assert loss.terms["triplet"].item() == pytest.approx(triplet_loop(*h, 0.2), rel=1e-4)
    assert loss.total.item() == pytest.approx(arc + 0.7 * triplet_loop(*h, 0.2), rel=1e-4)
    assert loss.terms["share_violated"].item() == (disorder(*h) > -0.2).double().mean().item()


def test_a_batch_of_short_sentences_has_no_triplet_and_no_nan() -> None:
    found, plain = step_of(ArcCSE(shortest=30)), step_of(ArcCSE(triplet_weight=0.0))
    assert found.loss.terms["triplet"].item() == found.loss.terms["share_violated"].item() == 0
    assert all(torch.allclose(a, b) for a, b in zip(found.bits, plain.bits, strict=True))


def test_the_published_settings() -> None:
    found = {key: (recipe.batch_size, recipe.learning_rate, recipe.method) for key, recipe in PUBLISHED.items()}
    plain = ArcCSE(margin_degrees=10.0, triplet_weight=0.1, triplet_margin=0.0, light=0.2, heavy=0.4, shortest=20)
    assert found == {"bert-base-uncased": (64, 3e-5, plain), "bert-large-uncased": (64, 1e-5, plain)}
    assert all("inferred" in recipe.source for recipe in PUBLISHED.values())
    assert RESCALED["arccse"]["bert-base-uncased"] == {"shortest": 12}
    assert "SimCSE's training settings" in replace(plain, shortest=3).substituted


test_impossible_settings_are_refused = refuses(
    ArcCSE,
    ({"margin_degrees": 180.0}, r"margin_degrees must be in \[0, 180\), got 180\.0"),
    ({"triplet_weight": -1.0}, r"triplet_weight must be zero or positive, got -1\.0"),
    ({"triplet_margin": -1.0}, r"triplet_margin must be zero or positive, got -1\.0"),
    ({"light": 0.4}, r"masked shares must be 0 < light < heavy <= 1, got 0\.4 and 0\.4"),
    ({"shortest": 0}, "shortest must be at least 1, got 0"),
)
