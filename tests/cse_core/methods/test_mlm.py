"""Masking by its statistics, the extra loss by loops over the head's weights as the file holds them."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from cse_core.data.batches import pad, stack
from cse_core.method import Batch, Loss, Tokens
from cse_core.methods.mlm import MLM, Masking, MLMHead, mask_tokens, masked_loss
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import resolve
from cse_core.run import Pretrained
from tests.support.encoders import wiki_tiny
from tests.support.method_steps import batch_of, loss_under, refuses, seeded, views_of

TEXTS = ["a cat sat on a mat", "the river rose", "snow fell", "two old men argued about fish", "no ☃ x", "x y"]
MASK = 3


def loss_of(method: Any, encoder: Encoder, modules: nn.ModuleDict, targets: dict | None = None) -> Loss:
    return loss_under(method, encoder, batch_of(method, encoder, TEXTS, length=9), modules, targets)


class Recorded:
    """An encoder whose states are drawn here, in double precision; keeps what it was asked for."""

    seen: Tokens
    given: torch.Tensor

    def __call__(self, *tokens: Tokens) -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(len(t.ids), 128, generator=seeded(i)).double() for i, t in enumerate(tokens))

    without_dropout = __call__

    def states(self, tokens: Tokens) -> torch.Tensor:
        self.seen, self.given = tokens, torch.randn(*tokens.ids.shape, 128, generator=seeded(9)).double()
        return self.given


class Columns(SimCSE):
    """A method with several columns of different widths and no loss to speak of."""

    count: ClassVar[int]

    def examples(self, texts: Any, tokenizer: Any, max_length: int) -> dict[str, list[list[int]]]:
        return {
            f"c{i}": [ids[: max_length - 2 * i] for ids in tokenizer(texts)["input_ids"]] for i in range(self.count)
        }

    def loss(self, encode: Any, batch: Batch, modules: nn.ModuleDict, targets: Any) -> Loss:
        return Loss(torch.zeros((), dtype=torch.float64), {})


def within(count: float, trials: int, chance: float) -> bool:
    """Whether a count of successes lies within four standard errors."""
    return abs(count - trials * chance) <= 4 * math.sqrt(trials * chance * (1 - chance))


@pytest.mark.parametrize(("share", "keep", "random"), [(0.15, 0.1, 0.1), (0.4, 0.3, 0.05), (0.3, 0.0, 0.0)])
def test_masking_has_the_shares_that_it_says(share: float, keep: float, random: float) -> None:
    size = 10_000
    ids = torch.randint(10, size, (500, 100), generator=seeded(5))
    maskable = torch.rand(ids.shape, generator=seeded(6)) < 0.7
    masked, chosen = mask_tokens(ids, maskable, share, size, MASK, seeded(), keep=keep, random=random)
    n, picked = int(maskable.sum()), int(chosen.sum())
    assert within(picked, n, share)
    assert within(int((masked[chosen] == MASK).sum()), picked, 1 - keep - random)
    assert within(int((masked == ids)[chosen].sum()), picked, keep)
    words = masked[chosen & (masked != MASK) & (masked != ids)].double()
    assert within(len(words), picked, random)
    if random:  # uniform over all words: mean and deviation within four standard errors
        assert abs(words.mean().item() - (size - 1) / 2) < 4 * size / math.sqrt(12 * len(words))
        assert words.std().item() == pytest.approx(size / math.sqrt(12), rel=4 * math.sqrt(0.2 / len(words)))
    # Neighbours and rows are chosen independently of each other.
    both = maskable[:, 1:] & maskable[:, :-1]
    assert within(int((chosen[:, 1:] & chosen[:, :-1])[both].sum()), int(both.sum()), share**2)


@given(st.integers(0, 10_000), st.floats(0.05, 1.0))
def test_only_maskable_tokens_change_and_only_chosen_ones(seed: int, share: float) -> None:
    ids = torch.randint(10, 50, (4, 7), generator=seeded(seed))
    maskable, before = torch.rand(ids.shape, generator=seeded(seed + 1)) < 0.5, ids.clone()
    masked, chosen = mask_tokens(ids, maskable, share, 50, MASK, seeded(seed))
    assert torch.equal(ids, before)
    assert not (chosen & ~maskable).any()
    assert torch.equal(masked[~chosen], ids[~chosen])
    again = mask_tokens(ids, maskable, share, 50, MASK, seeded(seed))
    assert all(torch.equal(a, b) for a, b in zip((masked, chosen), again, strict=True))


@given(st.integers(1, 6), st.integers(0, 10_000))
def test_the_masked_loss_is_the_mean_surprise(m: int, seed: int) -> None:
    scores = 3 * torch.randn(m, 11, generator=seeded(seed), dtype=torch.float64)
    ids = torch.randint(11, (m,), generator=seeded(seed))
    expected = 0.0
    for row, right in zip(scores.tolist(), ids.tolist(), strict=True):
        expected -= math.log(math.exp(row[right]) / sum(map(math.exp, row))) / m
    assert masked_loss(scores, ids).item() == pytest.approx(expected, rel=1e-9)


def test_nothing_chosen_is_a_loss_of_zero_with_a_gradient_of_zero(encoder: Encoder) -> None:
    method = MLM(mlm_share=1e-9)
    modules = method.modules(encoder, seeded())
    encoder.zero_grad()
    loss = loss_of(method, encoder, modules)
    assert loss.terms["mlm"].item() == 0
    loss.terms["mlm"].backward()
    grads = [p.grad for p in [*modules["mlm_head"].parameters(), *encoder.parameters()] if p.grad is not None]
    assert len(grads) > 30
    assert all((grad == 0).all() for grad in grads)


def test_special_words_are_never_chosen(encoder: Encoder) -> None:
    tokenizer = encoder.tokenizer
    tokens = pad(tokenizer([*TEXTS, "a [MASK] b [UNK] [PAD]"])["input_ids"], encoder.pad_id)
    tokens.mask[0, 2] = False  # a word that is no text, as padding is none
    masked, chosen = Masking(tokenizer, "x").mask(tokens, 1.0, seeded(), keep=0.0, random=0.0)
    special = {tokenizer.convert_tokens_to_ids(t) for t in ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]")}
    assert special <= set(tokens.ids.flatten().tolist())
    for ids, real, now, picked in zip(tokens.ids.tolist(), tokens.mask, masked.ids, chosen, strict=True):
        for j, token in enumerate(ids):
            word = token not in special and bool(real[j])
            assert picked[j] == word
            assert now[j] == (tokenizer.mask_token_id if word else token)
    assert torch.equal(masked.mask, tokens.mask)
    assert Masking(tokenizer, "x").size == 16_384
    no_mask = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer)
    with pytest.raises(ValueError, match="backbone some: its tokenizer has no mask token"):
        Masking(no_mask, "some")


def surprise(states: torch.Tensor, ids: torch.Tensor) -> float:
    """Mean cross-entropy under BERT's head by its formula, with the weights that wiki-tiny's file holds."""
    file = {name: w.double().numpy() for name, w in load_file(resolve("wiki-tiny") / "model.safetensors").items()}
    dense, norm, words = "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "bert.embeddings"
    total = 0.0
    for state, right in zip(states.numpy(), ids.tolist(), strict=True):
        x = file[f"{dense}.weight"] @ state + file[f"{dense}.bias"]
        x = np.array([v / 2 * (1 + math.erf(v / math.sqrt(2))) for v in x])
        x = (x - x.mean()) / math.sqrt(x.var() + 1e-12) * file[f"{norm}.weight"] + file[f"{norm}.bias"]
        scores = file[f"{words}.word_embeddings.weight"] @ x + file["cls.predictions.bias"]
        total += math.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[right]
    return total / len(ids)


def test_the_loss_is_the_inner_one_and_the_weighted_surprise_of_the_masked_words(encoder: Encoder) -> None:
    """Both views are masked, each anew, and only chosen words count."""
    method = MLM(mlm_weight=0.7, mlm_share=0.5)
    modules, encode = method.modules(encoder, seeded(2)).double(), Recorded()
    batch, inner_batch = batch_of(method, encoder, TEXTS, length=9), batch_of(method, encoder, TEXTS, length=9)
    loss = method.loss(encode, batch, modules, {})
    inner = SimCSE().loss(encode, inner_batch, modules, {})
    seen, text = encode.seen, batch["text"]
    assert torch.equal(seen.mask, text.mask.repeat(2, 1))
    twice = text.ids.repeat(2, 1)
    expected, chosen = Masking(encoder.tokenizer, "x").mask(Tokens(twice, seen.mask), 0.5, seeded(1))
    assert torch.equal(seen.ids, expected.ids)
    assert not torch.equal(*seen.ids.chunk(2))
    mlm = surprise(encode.given[chosen], twice[chosen])
    assert loss.terms["mlm"].item() == pytest.approx(mlm, rel=1e-9)
    assert loss.total.item() == pytest.approx(inner.total.item() + 0.7 * mlm, rel=1e-9)
    assert list(loss.terms) == ["contrastive", "mlm"]
    assert loss.terms["contrastive"].item() == inner.total.item()
    assert all(torch.equal(a, b) for a, b in zip(views_of(loss), views_of(inner), strict=True))


@pytest.mark.parametrize(("count", "read"), [(1, (0, 0)), (2, (0, 1)), (3, (0, 1))])
def test_two_columns_are_masked_or_the_only_one_twice(count: int, read: tuple, encoder: Encoder) -> None:
    inner: Any = type("Counted", (Columns,), {"count": count})()
    method = MLM(inner=inner, mlm_share=1e-9)
    encode, batch = Recorded(), batch_of(method, encoder, TEXTS, length=9)
    method.loss(encode, batch, method.modules(encoder, seeded()).double(), {})
    expected = stack([batch[f"c{i}"] for i in read], encoder.pad_id)
    assert torch.equal(encode.seen.ids, expected.ids)
    assert torch.equal(encode.seen.mask, expected.mask)


def test_it_delegates_to_the_method_within(encoder: Encoder) -> None:
    inner = RankCSE(teachers=(Teacher(Pretrained("a")),), rank="list_mle")
    method, vectors = MLM(inner=inner), torch.randn(len(TEXTS), 5, generator=seeded())
    source: Any = SimpleNamespace(vectors=lambda encoder, *, select, scorer: vectors, sample=len)
    targets = dict(method.targets(source).rows)
    assert list(targets) == ["teacher_0"]
    assert method.examples(TEXTS, encoder.tokenizer, 5) == inner.examples(TEXTS, encoder.tokenizer, 5)
    modules, alone = method.modules(encoder, seeded(2)), inner.modules(encoder, seeded(2))
    assert set(modules) - set(alone) == {"mlm_head"}
    for name, value in alone.state_dict().items():
        assert torch.equal(modules.state_dict()[name], value)
    found, expected = loss_of(method, encoder, modules, targets), loss_of(inner, encoder, alone, targets)
    assert list(found.terms) == ["contrastive", "consistency", "rank", "mlm"]
    for name, term in expected.terms.items():  # ListMLE draws from the batch's generator: it does so first
        assert torch.equal(found.terms[name], term)
    assert torch.equal(found.total, expected.total + 0.1 * found.terms["mlm"])


def test_the_head_is_a_copy_of_its_own(encoder: Encoder) -> None:
    head: Any = MLM().modules(encoder, seeded())["mlm_head"]
    embeddings: Any = encoder.backbone.get_input_embeddings()
    assert torch.equal(head.head.decoder.weight, embeddings.weight)
    assert head.head.decoder.weight.data_ptr() != embeddings.weight.data_ptr()


def test_a_backbone_without_a_head_is_refused(tmp_path: Path, encoder: Encoder) -> None:
    bare, distil = tmp_path / "bare", tmp_path / "distil"
    encoder.save_pretrained(bare)
    with pytest.raises(ValueError, match=rf"backbone {bare}: holds no masked-language-model head.* missing cls\."):
        MLM().modules(Encoder.from_pretrained(bare), seeded())
    assert list(MLM(mlm_weight=0.0).modules(Encoder.from_pretrained(bare), seeded())) == ["head"]
    config = transformers.DistilBertConfig(vocab_size=20, dim=8, n_layers=1, n_heads=2, hidden_dim=8)
    transformers.DistilBertForMaskedLM(config).save_pretrained(distil)
    encoder = wiki_tiny()
    encoder.name = str(distil)
    with pytest.raises(ValueError, match="model type must be one of bert, roberta, got distilbert"):
        MLMHead(encoder)


test_impossible_settings_are_refused = refuses(
    MLM,
    ({"mlm_weight": -0.1}, r"mlm_weight must be zero or positive, got -0\.1"),
    ({"mlm_weight": math.nan}, "mlm_weight must be zero or positive, got nan"),
    ({"mlm_share": 0.0}, r"mlm_share must be in \(0, 1\], got 0\.0"),
    ({"mlm_share": 1.5}, r"mlm_share must be in \(0, 1\], got 1\.5"),
)
