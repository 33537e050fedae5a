"""DiffCSE's terms by loops and formulas, its frozen generator, where the condition stands, its null settings."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from cse_core.data.batches import pad
from cse_core.method import Batch, Loss, Tokens
from cse_core.methods.diffcse import PUBLISHED, DiffCSE, Discriminator, Generator, detection_loss
from cse_core.methods.mlm import MLM
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import resolve
from cse_core.run import Pretrained
from tests.support.encoders import wiki_tiny
from tests.support.method_steps import batch_of, loss_under, refuses, seeded, step_of, views_of

TEXTS = ["a cat sat on a mat", "the river rose", "snow fell", "two old men argued about fish", "no ☃ x", "x y"]
MINI = DiffCSE(generator=Pretrained("wiki-mini"))


def tokens_of(encoder: Encoder, times: int = 1) -> Tokens:
    tokens = pad(SimCSE().examples(TEXTS, encoder.tokenizer, 9)["text"], encoder.pad_id)
    return Tokens(torch.cat([tokens.ids] * times), torch.cat([tokens.mask] * times))


def loss_of(method: Any, encoder: Encoder, modules: nn.ModuleDict) -> Loss:
    return loss_under(method, encoder, batch_of(SimCSE(), encoder, TEXTS, length=9), modules)


@pytest.fixture(scope="module")
def modules(encoder: Encoder) -> nn.ModuleDict:
    return MINI.modules(encoder, seeded(2))


@given(st.integers(1, 5), st.integers(2, 7), st.integers(0, 10_000))
def test_detection_is_the_mean_surprise_over_real_tokens_but_the_first(n: int, t: int, seed: int) -> None:
    scores = 2 * torch.randn(n, t, 2, generator=seeded(seed), dtype=torch.float64)
    lengths = torch.randint(2, t + 1, (n,), generator=seeded(seed)).tolist()
    mask = torch.arange(t) < torch.tensor(lengths).unsqueeze(1)
    replaced = torch.rand(n, t, generator=seeded(seed)) < 0.5
    surprises = []
    for i, length in enumerate(lengths):
        for j in range(1, length):
            chances = [math.exp(x) for x in scores[i, j].tolist()]
            surprises.append(-math.log(chances[int(replaced[i, j])] / sum(chances)))
    found = detection_loss(scores, replaced, mask).item()
    assert found == pytest.approx(sum(surprises) / len(surprises), rel=1e-9)
    scores[:, 0], scores[~mask] = 99.0, -99.0
    assert detection_loss(scores, replaced, mask).item() == found


def test_the_head_is_two_normalised_layers_over_both_views(encoder: Encoder) -> None:
    """By the formula in double precision, the batch's moments over all 2n rows."""
    method = DiffCSE(detection_weight=0.0)
    modules = method.modules(encoder, seeded()).double()
    views = [3 * torch.randn(len(TEXTS), 128, generator=seeded(i), dtype=torch.float64) + i for i in (1, 2)]
    encode: Any = lambda *tokens: tuple(views) if len(tokens) == 2 else ()  # noqa: E731 - it needs an attribute
    encode.states = encode.without_dropout = len
    batch = Batch(torch.arange(len(TEXTS)), {"text": tokens_of(encoder)}, seeded(1))
    weights = {name: value.numpy().copy() for name, value in modules["head"].state_dict().items()}
    loss = method.loss(encode, batch, modules, {})

    def normalised(x: np.ndarray) -> np.ndarray:
        return (x - x.mean(0)) / np.sqrt(((x - x.mean(0)) ** 2).mean(0) + 1e-5)

    inside = normalised(torch.cat(views).numpy() @ weights["0.weight"].T) * weights["1.weight"] + weights["1.bias"]
    z = normalised(np.maximum(inside, 0) @ weights["3.weight"].T)
    np.testing.assert_allclose(torch.cat(views_of(loss)).detach().numpy(), z, atol=1e-9)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    chances = np.exp(z[:6] @ z[6:].T / 0.05)
    expected = -np.log(np.diag(chances) / chances.sum(1)).mean()
    assert loss.total.item() == pytest.approx(expected, rel=1e-9)
    shapes = {name: tuple(p.shape) for name, p in modules["head"].named_parameters()}
    assert shapes == {"0.weight": (256, 128), "1.weight": (256,), "1.bias": (256,), "3.weight": (128, 256)}
    for name in ("0.weight", "3.weight"):  # 32,768 draws: the deviation within four standard errors
        assert weights[name].std() == pytest.approx(0.02, abs=4 * 0.02 / math.sqrt(2 * 2**15))


def test_the_generator_fills_masks_and_nothing_else(encoder: Encoder, modules: nn.ModuleDict) -> None:
    """Each sentence by itself through the model as transformers loads it, its likeliest word at each mask."""
    generator: Any = modules["generator"]
    tokens, share = tokens_of(encoder, 2), 0.5
    edited = generator(tokens, share, seeded(5))
    masked, chosen = generator.masking.mask(tokens, share, seeded(5), keep=0.0, random=0.0)
    assert 10 < chosen.sum() < 40
    assert not torch.equal(*chosen.chunk(2))  # each view by itself
    model = AutoModelForMaskedLM.from_pretrained(resolve("wiki-mini"), dtype=torch.float32).eval()
    for ids, real, row, found, picked in zip(tokens.ids, tokens.mask, masked.ids, edited, chosen, strict=True):
        assert torch.equal(row == encoder.tokenizer.mask_token_id, picked)
        scores = model(input_ids=row[real].unsqueeze(0)).logits[0]
        for j, token in enumerate(ids.tolist()):
            assert found[j].item() == (scores[j].argmax().item() if picked[j] else token)


def test_the_generators_dropout_stays_off_and_the_discriminators_is_the_runs() -> None:
    encoder = wiki_tiny(dropout=0.25)
    modules = MINI.modules(encoder, seeded(2))
    assert not any((encoder.backbone.training, modules["generator"].training))
    for holder in (modules["generator"], modules, nn.ModuleList([encoder, modules])):
        holder.train()
        assert not any(part.training for part in modules["generator"].modules())
        assert all(part.training for name in ("head", "discriminator") for part in modules[name].modules())
    for name, rate in (("generator", 0.1), ("discriminator", 0.25)):
        assert {part.p for part in modules[name].modules() if isinstance(part, nn.Dropout)} == {rate}


def test_the_discriminator_starts_as_a_second_backbone(encoder: Encoder) -> None:
    discriminator = Discriminator(encoder, seeded())
    own, theirs = discriminator.backbone.state_dict(), encoder.backbone.state_dict()
    assert all(torch.equal(own[name], theirs[name]) for name in theirs)
    assert {w.data_ptr() for w in own.values()}.isdisjoint({w.data_ptr() for w in theirs.values()})
    weight = discriminator.classifier.weight.detach()
    assert weight.abs().max() <= 1 / math.sqrt(128)
    assert weight.std().item() == pytest.approx(1 / math.sqrt(3 * 128), rel=0.1)
    assert torch.equal(Discriminator(encoder, seeded()).classifier.weight, weight)


def test_the_condition_stands_at_the_first_position_only(encoder: Encoder, modules: nn.ModuleDict) -> None:
    """Scores by another way: embeddings, their first row exchanged, layers, classifier; no hook is left behind."""
    discriminator: Any = copy.deepcopy(modules["discriminator"]).double().eval()
    tokens, condition = tokens_of(encoder), torch.randn(len(TEXTS), 128, generator=seeded(4), dtype=torch.float64)
    found = discriminator(tokens, condition)
    embedded = discriminator.backbone.embeddings(input_ids=tokens.ids)
    plain = embedded.clone()
    embedded[:, 0] = condition
    masking = torch.zeros(tokens.mask.shape, dtype=torch.float64).masked_fill(~tokens.mask, -1e30)[:, None, None]
    layers = discriminator.backbone.encoder
    scores = [discriminator.classifier(layers(x, attention_mask=masking).last_hidden_state) for x in (embedded, plain)]
    assert torch.allclose(found[tokens.mask], scores[0][tokens.mask], atol=1e-9)
    assert (found - scores[1])[tokens.mask].abs().min() > 1e-6
    assert torch.equal(discriminator.backbone.embeddings(input_ids=tokens.ids), plain)


def test_the_loss_is_contrast_and_weighted_detection(encoder: Encoder, modules: nn.ModuleDict) -> None:
    """What the parts were given and gave, put together by hand."""
    method = replace(MINI, detection_weight=0.4)
    given: list[Any] = []
    hook = modules["discriminator"].register_forward_hook(lambda _, inputs, scores: given.append((*inputs, scores)))
    loss = loss_of(method, encoder, copy.copy(modules))
    hook.remove()
    ((edited, condition, scores),), tokens = given, tokens_of(encoder, 2)
    assert torch.equal(edited.mask, tokens.mask)
    generator: Any = modules["generator"]
    assert torch.equal(edited.ids, generator(tokens, 0.3, seeded(1)))
    assert torch.equal(condition, torch.cat(views_of(loss)))
    replaced = edited.ids != tokens.ids
    _, chosen = generator.masking.mask(tokens, 0.3, seeded(1), keep=0.0, random=0.0)
    assert 0 < replaced.sum() < chosen.sum()  # a fill that finds the word back counts as kept
    detection = detection_loss(scores, replaced, tokens.mask)
    assert list(loss.terms) == ["contrastive", "detection", "share_replaced"]
    assert loss.terms["detection"].item() == detection.item()
    words = int(tokens.mask.sum()) - len(tokens.ids)
    assert loss.terms["share_replaced"].item() == pytest.approx(int(replaced.sum()) / words, rel=1e-6)
    assert loss.total.item() == pytest.approx(loss.terms["contrastive"].item() + 0.4 * detection.item(), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["batch_norm", "tanh"])
def test_detection_without_other_losses_teaches_all_but_the_generator(head: str) -> None:
    """The condition carries the gradient to head and encoder; the generator stays as it was, byte for byte."""
    encoder, method = wiki_tiny(dropout=0.1), replace(MINI, head=head)
    modules: Any = method.modules(encoder, seeded(2))
    before = copy.deepcopy(modules["generator"].state_dict())
    trained = [p for p in nn.ModuleList([encoder, modules]).parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.1)
    start = [p.detach().clone() for p in trained]
    loss_of(method, encoder, modules).terms["detection"].backward()
    assert [name for name, p in modules["generator"].named_parameters() if p.requires_grad or p.grad is not None] == []
    # The same to all keys of a query, or to all rows of a batch: softmax and normalisation take it out.
    nothing = ("key.bias", "backbone.encoder.layer.1.output.LayerNorm.bias" if head == "batch_norm" else "key.bias")
    for part in (encoder, modules["head"], modules["discriminator"].classifier, modules["discriminator"].backbone):
        for name, parameter in part.named_parameters():
            assert parameter.grad is not None, name
            assert name.endswith(nothing) or parameter.grad.abs().max() > 1e-4, name
    optimizer.step()
    assert all(not torch.equal(p, q) for p, q in zip(trained, start, strict=True))
    assert all(torch.equal(w, before[name]) for name, w in modules["generator"].state_dict().items())


def test_detection_leaves_the_contrast_as_it_is() -> None:
    found = step_of(replace(MINI, head="tanh")).loss.terms["contrastive"]
    assert torch.equal(found, step_of(SimCSE()).loss.total)


def test_a_roberta_trains_with_both_extra_losses(tmp_path: Path, roberta: Path, encoder: Encoder) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(roberta)
    tokenizer.save_pretrained(tmp_path)
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(roberta)).save_pretrained(tmp_path)
    student, name = Encoder.from_pretrained(tmp_path, dropout=0.1), Pretrained(str(tmp_path))
    method = MLM(inner=DiffCSE(generator=name, detection_weight=1.0))
    modules = method.modules(student, seeded())
    loss = loss_of(method, student, modules)
    assert loss.terms["mlm"].item() == pytest.approx(math.log(len(tokenizer)), rel=0.1)  # random weights
    loss.total.backward()
    trained = [p for p in nn.ModuleList([student, modules]).parameters() if p.requires_grad]
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in trained if p.ndim > 1)
    with pytest.raises(ValueError, match=r"needs the vocabulary of wiki-tiny with its 16384 words, got another .* 600"):
        Generator(name, encoder)
    with pytest.raises(ValueError, match="holds no masked-language-model head"):
        Generator(Pretrained(str(roberta)), student)
    with pytest.raises(ValueError, match="expected aaaaaaaaaaaa; "):
        Generator(Pretrained("wiki-mini", "a" * 64), encoder)


def test_the_published_settings() -> None:
    found = {key: (r.learning_rate, r.batch_size, r.epochs, r.method) for key, r in PUBLISHED.items()}
    assert found == {
        "bert-base-uncased": (7e-6, 64, 2, DiffCSE()),
        "roberta-base": (7e-6, 64, 2, DiffCSE(generator=Pretrained("distilroberta-base"))),
        ("transfer", "bert-base-uncased"): (2e-6, 64, 2, DiffCSE(mask_share=0.15, detection_weight=0.05)),
    }


test_impossible_settings_are_refused = refuses(
    DiffCSE,
    ({"mask_share": 1.1}, r"mask_share must be in \(0, 1\], got 1\.1"),
    ({"detection_weight": -1.0}, r"detection_weight must be zero or positive, got -1\.0"),
)
