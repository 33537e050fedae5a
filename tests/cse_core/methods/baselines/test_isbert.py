"""IS-BERT: its loss by loops, in the whole step one sentence at a time, its gradient, and its convolutions' start."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cse_core.methods.baselines.isbert import ISBERT, PUBLISHED, jsd_losses
from cse_core.methods.mlm import MLM
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.loop import Execution, Loop
from experiments.schema.recipes import RUNS
from experiments.schema.scales import SCALES
from tests.support.encoders import wiki_tiny
from tests.support.method_cases import UNSTATED
from tests.support.method_steps import TEXTS, batch_of, rows_of, seeded
from tests.support.ngram_loops import by_loops, encoder_of
from tests.support.one_by_one import perturb, states_of

SEVEN = [*TEXTS, "a dog"]
WEIGHTINGS = ("tokens", "sentences")


def sp(x: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(x, 0.0)


def losses_by_loops(rows: list[list[Tensor]], weighting: str) -> tuple[float, float]:
    """The two means over pairs of a token and a sentence, sentence by sentence."""
    sentences = [sum(tokens) / len(tokens) for tokens in rows]
    own, others = [], []  # of each sentence: the sums over its tokens
    for i, tokens in enumerate(rows):
        own.append(sum(sp(-float(c @ sentences[i])) for c in tokens))
        others.append(sum(sp(float(c @ g)) for c in tokens for j, g in enumerate(sentences) if j != i))
    n, counts = len(rows), [len(tokens) for tokens in rows]
    if weighting == "tokens":
        return sum(own) / sum(counts), sum(others) / sum(counts) / (n - 1)
    each = [(a / m, b / m / (n - 1)) for a, b, m in zip(own, others, counts, strict=True)]
    return sum(a for a, _ in each) / n, sum(b for _, b in each) / n


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=5), st.integers(0, 99), st.sampled_from([0.1, 1.0, 30.0]))
def test_the_loss_is_the_two_means(weighting: str, lengths: list[int], seed: int, size: float) -> None:
    tokens = size * torch.randn(sum(lengths), 4, generator=seeded(seed), dtype=torch.float64)
    rows = [list(part) for part in tokens.split(lengths)]
    sentences = torch.stack([part.mean(0) for part in tokens.split(lengths)])
    owners = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    found = [value.item() for value in jsd_losses(tokens, owners, sentences, weighting)]
    assert found == pytest.approx(losses_by_loops(rows, weighting), rel=1e-9, abs=1e-12)


def test_alike_sentences_cannot_be_distinguished_and_far_ones_cost_nothing() -> None:
    """T = 0: 2 log 2, the code's constant. Tokens that point at their own sentence and away from the other: 0."""
    owners = torch.tensor([0, 0, 1])
    own, others = jsd_losses(torch.zeros(3, 2), owners, torch.zeros(2, 2))
    assert (own + others).item() == pytest.approx(2 * math.log(2))
    far = torch.tensor([[30.0, -30.0], [30.0, -30.0], [-30.0, 30.0]])
    own, others = jsd_losses(far, owners, far[[0, 2]])
    assert (own + others).item() == pytest.approx(0, abs=1e-12)


def test_the_gradient_of_its_products_is_logistic() -> None:
    """d own / dT = -s(-T) / N on own pairs, d others / dT = s(T) / N(n - 1) elsewhere, passed on by products."""
    tokens = torch.randn(5, 3, generator=seeded(1), dtype=torch.float64, requires_grad=True)
    sentences = torch.randn(3, 3, generator=seeded(2), dtype=torch.float64, requires_grad=True)
    owners = torch.tensor([0, 0, 1, 2, 2])
    own, others = jsd_losses(tokens, owners, sentences)
    (own + others).backward()
    slopes = torch.zeros(5, 3, dtype=torch.float64)
    for t in range(5):
        for s in range(3):
            x = (tokens[t] @ sentences[s]).item()
            same = int(owners[t]) == s
            slopes[t, s] = -1 / (1 + math.exp(x)) / 5 if same else 1 / (1 + math.exp(-x)) / 10
    torch.testing.assert_close(tokens.grad, slopes @ sentences.detach())
    torch.testing.assert_close(sentences.grad, slopes.T @ tokens.detach())


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("pooling", ["ngrams", "ngrams_linear"])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.slow
def test_a_step_s_loss_comes_out_of_sentences_read_one_by_one(
    pooling: str, weighting: Any, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Encoder, "runs_packed", packed)
    encoder = encoder_of(pooling)
    perturb(encoder, 5)
    method, batch = ISBERT(weighting=weighting), batch_of(ISBERT(), encoder, SEVEN)
    loss = method.loss(encoder, batch, method.modules(encoder, seeded()), {})
    assert encoder.ngrams is not None
    rows = []
    for ids in rows_of(batch["text"]):
        rows.append(list(by_loops(states_of(encoder.backbone, ids)[-1], encoder.ngrams)))
    own, others = losses_by_loops(rows, weighting)
    assert (loss.terms["own"].item(), loss.terms["others"].item()) == pytest.approx((own, others), rel=1e-4)
    assert loss.total.item() == pytest.approx(own + others, rel=1e-4)


def test_its_convolutions_are_the_encoder_s_own_and_are_trained_once() -> None:
    encoder = encoder_of()
    modules = ISBERT().modules(encoder, seeded())
    assert modules["ngrams"] is encoder.ngrams
    parameters = list(torch.nn.ModuleList([encoder, modules]).parameters())
    assert len(parameters) == len({id(p) for p in parameters}) == len(list(encoder.parameters()))
    with pytest.raises(ValueError, match="IS-BERT trains the pooling ngrams or ngrams_linear, got mean"):
        ISBERT().modules(wiki_tiny(pooling="mean"), seeded())


def test_one_sentence_is_refused() -> None:
    with pytest.raises(ValueError, match="the loss of IS-BERT needs at least two sentences, got 1"):
        jsd_losses(torch.zeros(3, 2), torch.zeros(3, dtype=torch.long), torch.zeros(1, 2))


def test_seeds_draw_different_convolutions(tmp_path: Path) -> None:
    run = Run(method=ISBERT(), backbone=Pretrained("wiki-tiny"), corpus=Corpus("synthetic", 64), pooling="ngrams")
    starts: list[Any] = [Loop(replace(run, seed=seed), Execution(tmp_path)).encoder for seed in (1, 1, 2)]
    first, again, other = (encoder.ngrams.convs[1].weight for encoder in starts)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_mlm_trains_on_top() -> None:
    encoder, method = encoder_of(), MLM(inner=ISBERT())
    loss = method.loss(encoder, batch_of(method, encoder, SEVEN), method.modules(encoder, seeded()), {})
    assert loss.terms.keys() >= {"own", "others", "mlm"}


def test_the_published_settings() -> None:
    base = "bert-base-uncased"
    stated: dict[str, Any] = {"batch_size": 32, "learning_rate": 2e-6, "warmup": 0.1, "max_length": 128}
    stated |= {"eval_steps": 1000, "weight_decay": 0.01, "pooling": "ngrams"}
    assert {key: recipe.training for key, recipe in PUBLISHED.items()} == {base: UNSTATED | stated}
    assert PUBLISHED[base].method == ISBERT()
    small = RUNS["isbert"](SCALES["small"], base)
    assert small is not None
    assert (small.learning_rate, small.max_length, small.pooling) == (2e-5, 32, "ngrams")
    assert small.learning_rate == pytest.approx(3e-4 / 15)
    assert replace(small, pooling="ngrams_linear").key != small.key
