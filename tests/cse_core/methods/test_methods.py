"""What holds for every method: no dead knobs, the protocol, gradients everywhere, and the pieces that most share."""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cse_core.data.batches import pad
from cse_core.lookup import choices_of
from cse_core.method import Loss, Method, Targets, innermost, no_targets, single_column, tanh_head, with_fields
from cse_core.methods import METHODS
from cse_core.methods.baselines.arccse import ArcCSE
from cse_core.methods.baselines.consert import ConSERT
from cse_core.methods.baselines.dclr import DCLR
from cse_core.methods.baselines.esimcse import ESimCSE
from cse_core.methods.baselines.l2pcsr import L2PCSR
from cse_core.methods.baselines.mixcse import MixCSE
from cse_core.methods.baselines.pcl import PCL
from cse_core.methods.diffcse import DiffCSE
from cse_core.methods.mlm import MLM
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.methods.sncse import SNCSE
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.models.encoder import Encoder
from cse_core.models.momentum import Queue, Slow
from cse_core.run import Pretrained
from cse_core.seeding import generator_for, seed_for
from cse_core.text import negation
from tests.support.encoders import wiki_tiny
from tests.support.method_cases import BOTH, CASES, FIELDS, TEACHER_MOVES, TRAINED
from tests.support.method_steps import (
    TEXTS,
    Known,
    NoSource,
    batch_of,
    encoder_for,
    length_for,
    loss_under,
    seeded,
    step_of,
)

WITH_CLAUSES = [*TEXTS[:3], "two old men argued about fish because the price rose", "no", "x y"]
TRIPLES = list(zip(TEXTS, TEXTS[1:] + TEXTS[:1], TEXTS[::-1], strict=True))
CHOICES = [(name, field) for name, kind in METHODS.items() for field in choices_of(kind)]
NOWHERE = Pretrained("an encoder that is never looked for")
NULLS: dict[str, Method] = {  # settings under which a method is the one that it builds on
    "rankcse": RankCSE(consistency_weight=0.0, distillation_weight=0.0),
    "rankencoder": RankEncoder(rank_weight=0.0),
    "rankencoder with a base": RankEncoder(base=NOWHERE, rank_weight=0.0),
    "rankencoder on promptbert": RankEncoder(inner=PromptBERT(), rank_weight=0.0),
    "rankencoder on sncse": RankEncoder(inner=SNCSE(), rank_weight=0.0),
    "whitenedcse": WhitenedCSE(whitening="none", views="dropout", positives=2),
    "diffcse": DiffCSE(detection_weight=0.0, head="tanh", generator=NOWHERE),
    "mlm": MLM(mlm_weight=0.0),
    "esimcse": ESimCSE(repetition=0.0, queue_size=0),
    "consert": ConSERT(first="none", first_rate=0.0, second="none", contrast="one_way", head="tanh", temperature=0.05),
    "dclr": DCLR(noise_times=0.0, threshold=2.0),
    "mixcse": MixCSE(negatives="none"),
    "pcl": PCL(positive_weight=0.0, cooperation_weight=0.0, peer=False),
    "arccse": ArcCSE(margin_degrees=0.0, triplet_weight=0.0),
    "l2pcsr": L2PCSR(threshold=-1.0, steps=0, layers=2),
}
DRAWN: dict[str, Method] = {  # methods that draw from the step's generator
    "rankcse": replace(BOTH, teacher_order="shuffled"),
    "whitenedcse": WhitenedCSE(groups=64, views="dropout"),
    "diffcse": CASES["diffcse"].base,
    "mlm": MLM(mlm_weight=1.0, mlm_share=0.5),
    "consert": ConSERT(),
    "dclr": DCLR(threshold=2.0, noise_times=2.0),
    "pcl": PCL(),
    "arccse": ArcCSE(shortest=1, triplet_margin=1.0),
    "l2pcsr": L2PCSR(layers=2, steps=0, threshold=0.3),
}


def head_of(encoder: Encoder, seed: int = 2) -> Any:
    """The shared head, as a Sequential of its linear map and tanh."""
    return tanh_head(None, encoder, seeded(seed))["head"]


def loss_of(
    method: Method, encoder: Encoder, modules: nn.ModuleDict, texts: Sequence[Any] = WITH_CLAUSES
) -> tuple[Loss, Targets]:
    batch = batch_of(method, encoder, texts, length=length_for(method))
    targets = method.targets(Known(len(batch.rows)))
    return loss_under(method, encoder, batch, modules, targets.at(batch.rows, encoder.device)), targets


def outcome(method: Method, texts: Sequence[Any] = WITH_CLAUSES) -> tuple:
    """All that a method decides: its examples, its targets, its losses and their gradient, and where it starts.

    One step, or three where something outlives a step, each with weights a little larger than the last one's.
    """
    encoder = encoder_for(method)
    modules = method.modules(encoder, seeded()).train()
    state, losses = {name: value.clone() for name, value in encoder.state_dict().items()}, []
    for step in range(3 if any(isinstance(part, Slow | Queue) for part in modules.modules()) else 1):
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.mul_(1 + 0.01 * step)
        loss, targets = loss_of(method, encoder, modules, texts)
        loss.total.backward()
        losses.append(loss.total.item())
    gradient = nn.utils.get_total_norm([p.grad for p in encoder.parameters() if p.grad is not None])
    encoder.zero_grad()
    encoder.load_state_dict(state)
    fixed: Mapping[str, Any] = {**targets.rows, **targets.shared}
    examples = method.examples(texts, encoder.tokenizer, length_for(method))
    vectors, start = {name: value.tolist() for name, value in fixed.items()}, getattr(method, "starts_from", None)
    return examples, vectors, tuple(losses), gradient.item(), start


first_outcome = cache(outcome)


def centred(method: Method) -> bool:
    """Whether something takes a constant out of the features (whitening, denoising): no bias before it is taught."""
    inner = innermost(method)
    head: str = getattr(inner, "head", "")
    return inner.name == "whitenedcse" or head == "batch_norm" or getattr(inner, "denoise", False)


class NoParse:
    """Replaces spaCy's English model, which tests do without: every sentence is negated by "Not" before it."""

    @staticmethod
    def pipe(texts: list[str]) -> list[list[negation.Token]]:
        return [[negation.Token(word, " ", "", "", "") for word in text.split()] for text in texts]


def test_every_field_of_every_method_has_a_change() -> None:
    assert {name: list(case.fields) for name, case in CASES.items()} == {
        name: [field.name for field in fields(kind)]  # ty: ignore[invalid-argument-type]
        for name, kind in METHODS.items()
    }


@pytest.mark.parametrize(("name", "field"), FIELDS)
@pytest.mark.slow
def test_no_dead_knobs(name: str, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(negation, "_english", NoParse)
    base, moved = CASES[name].pair(field)
    different = [f.name for f in fields(METHODS[name]) if getattr(base, f.name) != getattr(moved, f.name)]  # ty: ignore[invalid-argument-type]
    assert different == [field]
    if field == "hard_negative_weight":  # of a third column
        assert outcome(base, TRIPLES) != outcome(moved, TRIPLES)
        return
    assert first_outcome(base) != outcome(moved)  # ty: ignore[invalid-argument-type] - a frozen dataclass


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.slow
def test_no_method_leaves_anything_in_the_encoder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All methods share one encoder here: an outcome stays the same after other methods have used it."""
    monkeypatch.setattr(negation, "_english", NoParse)
    for base in {CASES[name].pair(field)[0] for field in CASES[name].fields}:
        assert outcome(base) == first_outcome(base)  # ty: ignore[invalid-argument-type] - a frozen dataclass


@pytest.mark.parametrize("field", [field.name for field in fields(Teacher)])
def test_no_dead_knobs_of_a_teacher(field: str) -> None:
    base, moved = TEACHER_MOVES[field]
    assert outcome(base)[1:] != outcome(moved)[1:]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_a_method(name: str) -> None:
    method = CASES[name].base
    assert isinstance(method, METHODS[name])
    assert isinstance(method, Method)
    assert method.name == name
    assert method.version >= 1
    for member in ("examples", "modules", "targets", "loss"):
        protocol, found = (inspect.signature(getattr(kind, member)) for kind in (Method, METHODS[name]))
        assert list(found.parameters) == list(protocol.parameters)
    assert hash(method) == hash(replace(method))
    with pytest.raises(AttributeError):
        setattr(method, next(iter(CASES[name].fields)), None)


@pytest.mark.parametrize(("name", "field"), CHOICES)
def test_a_choice_is_checked_and_a_near_one_is_suggested(name: str, field: str) -> None:
    choices = choices_of(METHODS[name])[field]
    near = f"{choices[0]}s"
    with pytest.raises(ValueError, match=f"{field} must be one of {', '.join(choices)}, got '{near}'.*{choices[0]}"):
        with_fields(CASES[name].base, **{field: near})


@pytest.mark.parametrize("name", [name for name, field in FIELDS if field == "temperature"])
def test_a_temperature_is_positive_and_finite(name: str) -> None:
    for value in (0.0, -0.1, math.nan):
        with pytest.raises(ValueError, match=rf"temperature must be positive, got {value}"):
            with_fields(CASES[name].base, temperature=value)
    with pytest.raises(ValueError, match="temperature must be finite, got inf"):
        with_fields(CASES[name].base, temperature=math.inf)


@pytest.mark.parametrize("name", NULLS)
def test_a_null_setting_is_the_method_beneath_bit_for_bit(name: str) -> None:
    """Loss, views, gradients, examples, modules, targets, and all that is drawn."""
    null = NULLS[name]
    beneath: Any = getattr(null, "inner", SimCSE())
    found, expected = step_of(null), step_of(beneath)
    assert len(found.bits) == len(expected.bits) > 40
    assert all(torch.equal(a, b) for a, b in zip(found.bits, expected.bits, strict=True))
    if name != "l2pcsr":  # which draws its masks before it drops nothing
        assert all(torch.equal(a, b) for a, b in zip(found.generators, expected.generators, strict=True))
    assert {*found.modules} - {*expected.modules} <= {"embeddings"}  # ConSERT's note of its width
    assert torch.equal(found.loss.terms["contrastive"], expected.loss.terms["contrastive"])
    assert null.targets(NoSource()) == Targets()
    examples = [method.examples(TEXTS, encoder_for(null).tokenizer, 32) for method in (null, beneath)]
    assert list(examples[0].values()) == list(examples[1].values())


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.slow
def test_draws_depend_only_on_the_steps_generator(name: str) -> None:
    targets = {f"teacher_{i}": torch.randn(6, 5, generator=seeded(i)) for i in range(2)}
    first, again, other = (step_of(DRAWN[name], seed=seed, targets=targets) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first.bits, again.bits, strict=True))
    assert not torch.equal(first.loss.total, other.loss.total)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("method", TRAINED.values(), ids=TRAINED)
@pytest.mark.slow
def test_gradient_reaches_every_parameter(method: Method, precision: str) -> None:
    encoder = encoder_for(method)
    modules = method.modules(encoder, seeded()).train()
    encoder.precision = precision
    loss, _ = loss_of(method, encoder, modules)
    assert loss.total.dtype == torch.float32
    loss.total.backward()
    parameters = dict(nn.ModuleList([encoder, modules]).named_parameters())
    gradients = {name: p.grad for name, p in parameters.items() if p.requires_grad}
    encoder.precision = "fp32"
    encoder.zero_grad()
    # A key's bias is the same for all keys of a query, so softmax takes it out.
    still = ("key.bias", "0.backbone.encoder.layer.1.output.LayerNorm.bias")[: 1 + centred(method)]
    assert len(gradients) > 30
    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert gradient.isfinite().all(), name
        if not name.endswith(still):
            assert gradient.abs().max() > 1e-6, name


@pytest.mark.parametrize("method", TRAINED.values(), ids=TRAINED)
@pytest.mark.slow
def test_bf16_changes_the_loss_by_rounding_only(method: Method) -> None:
    exact = outcome(method)[2]
    encoder_for(method).precision = "bf16"
    rounded = outcome(method)[2]
    encoder_for(method).precision = "fp32"
    assert rounded != exact
    assert rounded == pytest.approx(exact, rel=0.05)


def test_bf16_is_for_training_passes_only() -> None:
    encoder = wiki_tiny(dropout=0.0)
    expected = encoder.encode(TEXTS)
    encoder.precision = "bf16"
    tokens = pad(encoder.tokenise(TEXTS), encoder.pad_id)
    assert torch.equal(encoder.encode(TEXTS), expected)
    (rounded,) = encoder.train()(tokens)
    assert rounded.dtype == torch.float32
    assert 1e-4 < (rounded - expected).abs().max() < 0.2
    assert torch.equal(encoder.encode(TEXTS), expected)


@pytest.mark.parametrize("length", [3, 6, 32])
def test_a_single_column_is_the_sentence_cut_to_the_length(encoder: Encoder, length: int) -> None:
    columns = single_column(None, TEXTS, encoder.tokenizer, length)
    assert list(columns) == ["text"]
    cls, sep = encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id
    for text, ids in zip(TEXTS, columns["text"], strict=True):
        words: Any = encoder.tokenizer.convert_tokens_to_ids(encoder.tokenizer.tokenize(text))
        assert ids == [cls, *words[: length - 2], sep]
    assert max(map(len, columns["text"])) <= length


def test_the_head_is_drawn_as_the_recipe_says(encoder: Encoder) -> None:
    linear, tanh = head_of(encoder)
    assert isinstance(tanh, nn.Tanh)
    assert linear.weight.shape == (128, 128)
    assert linear.bias.tolist() == [0] * 128
    weight = linear.weight.detach().double().flatten()  # 16,384 draws: mean and deviation within four standard errors
    assert weight.std().item() == pytest.approx(0.02, abs=4 * 0.02 / math.sqrt(2 * 128**2))
    assert weight.mean().item() == pytest.approx(0, abs=4 * 0.02 / 128)
    kurtosis = ((weight / weight.std()) ** 4).mean().item()
    assert kurtosis == pytest.approx(3, abs=4 * math.sqrt(24 / 128**2))  # a uniform one has 1.8


def test_the_head_follows_its_generator_and_nothing_else(encoder: Encoder) -> None:
    def weight(stream: int, surroundings: int) -> torch.Tensor:
        torch.manual_seed(surroundings)
        return head_of(encoder, stream)[0].weight

    assert torch.equal(weight(2, 0), weight(2, 1))
    assert not torch.equal(weight(2, 0), weight(3, 0))


def test_targets_are_picked_by_row_and_shared_ones_handed_over_whole() -> None:
    values, shared = torch.arange(10.0).view(5, 2), torch.arange(3.0)
    found = Targets({"rows": values}, {"all": shared}).at(torch.tensor([3, 0]), torch.device("cpu"))
    assert {name: value.tolist() for name, value in found.items()} == {"rows": [[6, 7], [0, 1]], "all": [0, 1, 2]}
    assert no_targets(None, Known()) == Targets()


def test_seeds_are_stable() -> None:
    """The first 8 bytes of SHA-256 of "42/dropout/17", without the last bit."""
    assert seed_for(42, "dropout/17") == 5491613789736071143
    assert torch.rand(1, generator=generator_for(42, "modules")).item() == pytest.approx(0.162722647190094, abs=1e-7)


@given(st.integers(0, 2**31), st.sampled_from(["order/0", "dropout/1", "loss/1", "modules"]))
def test_streams_differ_by_name_and_seed(seed: int, stream: str) -> None:
    found = seed_for(seed, stream)
    assert 0 <= found < 2**63
    assert found == seed_for(seed, stream)
    others = [seed_for(seed + 1, stream), seed_for(seed, stream + "0"), seed_for(seed, "other")]
    assert found not in others
    assert torch.Generator().manual_seed(found).initial_seed() == generator_for(seed, stream).initial_seed()
