"""The pre-training loop: packing, masking, the step as one graph, the learning rate, and calls that continue others."""

import math
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from cse_core.models.encoder import Encoder
from tests.benchmarks import pretraining
from tests.benchmarks.pretraining import (
    Options,
    Pretraining,
    Rows,
    kept_rows,
    learning_rate,
    main,
    masked_loss,
    pack,
    pretrain,
)

SENTENCES = [[2, 11, 12, 3], [2, 13, 14, 15, 3], [2, 16, 3]]


def small_model() -> BertForMaskedLM:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    return BertForMaskedLM(config).eval()


def parts_of(rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    return rows.ids.long(), rows.sentence.long(), rows.position.long()


def test_sentences_are_packed_whole() -> None:
    texts = [[2, *range(10, 10 + n), 3] for n in (3, 7, 1, 30, 12, 5, 9, 2)]
    rows = pack(texts, width=16, longest=12, pad_id=0, seed=1)
    found = []
    for ids, sentence, position in zip(rows.ids, rows.sentence, rows.position, strict=True):
        assert torch.equal(sentence > 0, ids != 0)
        for place in range(1, int(sentence.max()) + 1):
            chosen = sentence == place
            assert position[chosen].tolist() == list(range(int(chosen.sum())))
            found.append(ids[chosen].tolist())
    assert sorted(found) == sorted(text[:12] for text in texts)
    assert len(rows.ids) <= 5  # 66 tokens


def test_the_loss_is_that_of_each_sentence_alone() -> None:
    """With every place shown as it is, a loss by a loop: each sentence through the model by itself."""
    model, rows = small_model(), pack(SENTENCES, width=9, longest=9, pad_id=0, seed=0)
    lots = torch.rand(2, *rows.ids.shape, generator=torch.Generator().manual_seed(3))
    lots[1] = 0.95
    parts = parts_of(rows)
    found = masked_loss(model, *parts, lots, torch.zeros_like(parts[0]), 4, 2)
    losses = []
    for i, (ids, sentence, position) in enumerate(zip(*parts, strict=True)):
        real = [j for j in range(9) if sentence[j] > 0 and position[j] > 0]
        for j in sorted(real, key=lambda j: float(lots[0, i, j]))[:2]:
            own = ids[sentence == sentence[j]]
            logits = model(own[None]).logits[0, int(position[j])]
            losses.append(F.cross_entropy(logits, ids[j]))
    assert torch.allclose(found, torch.stack(losses).mean(), atol=1e-5)


def test_of_ten_chosen_tokens_eight_are_masked_and_one_is_another_word() -> None:
    """A model whose logit is s for the token it is shown: its loss is log(e^s + 49) - s if that is the target.

    The other twelve tokens are shown as they are and have no loss.
    """
    shown: list[Tensor] = []

    def embeddings(input_ids: Tensor, position_ids: Tensor) -> Tensor:
        shown.append(input_ids)
        return 3 * F.one_hot(input_ids, 50).float()

    model: Any = SimpleNamespace(
        bert=SimpleNamespace(embeddings=embeddings, encoder=SimpleNamespace(layer=[])), cls=lambda state: state
    )
    rows = pack([[2, *range(5, 27)]], width=25, longest=25, pad_id=0, seed=0)
    ids, sentence, position = parts_of(rows)
    lots = torch.full((2, 1, 25), 0.99)
    chosen = torch.arange(2, 22, 2)
    lots[0, 0, chosen] = 0.1
    lots[0, 0, [0, 23, 24]] = 0.0  # [CLS] and padding: never chosen
    lots[1, 0, chosen] = torch.tensor([0.85, 0.05, 0.15, 0.25, 0.35, 0.95, 0.45, 0.55, 0.65, 0.79])
    words = torch.full_like(ids, 49)
    found = masked_loss(model, ids, sentence, position, lots, words, 4, 10)
    expected = ids.clone()
    expected[0, chosen] = 4
    expected[0, chosen[0]], expected[0, chosen[5]] = 49, ids[0, chosen[5]]
    assert torch.equal(shown[0], expected)
    assert float(found) == pytest.approx(math.log(math.exp(3) + 49) - 3 / 10)


def test_a_row_of_few_tokens_has_a_loss_for_each_once() -> None:
    model, rows = small_model(), pack([[2, 16, 3]], width=9, longest=9, pad_id=0, seed=0)
    parts = parts_of(rows)
    lots = torch.full((2, 1, 9), 0.5)
    two, seven = (masked_loss(model, *parts, lots, torch.zeros_like(parts[0]), 4, count) for count in (2, 7))
    assert torch.allclose(two, seven)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the compiler itself
def test_a_step_is_one_graph_with_the_same_loss_and_gradients() -> None:
    model, rows = small_model(), pack(SENTENCES * 3, width=16, longest=9, pad_id=0, seed=0)
    parts = parts_of(rows)
    lots = torch.rand(2, *rows.ids.shape, generator=torch.Generator().manual_seed(3))
    graph = torch.compile(masked_loss, fullgraph=True, dynamic=False, backend="aot_eager")
    found = []
    for loss_of in (masked_loss, graph):
        model.zero_grad()
        loss = loss_of(model, *parts, lots, torch.full_like(parts[0], 7), 4, 3)
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(found[0]) > 30
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found, strict=True))


def test_the_rate_rises_then_falls_with_the_clock() -> None:
    settings = Pretraining(learning_rate=1e-3)
    assert learning_rate(settings, 0, 0.0) == pytest.approx(1e-3 / 500)
    assert learning_rate(settings, 500, 0.25) == pytest.approx(7.5e-4)
    assert learning_rate(settings, 500, 1.0) == 0


TINY = Pretraining(layers=1, hidden=16, rows=4, width=32, compiled=False, warmup=1, learning_rate=1e-2)


def trained(out: Path, steps: int, *calls: float) -> list[dict[str, Any] | None]:
    """Train for about `steps` steps in calls of some steps each, on a clock that moves by a second when it is read."""
    tokenizer = Encoder.from_pretrained("wiki-tiny").tokenizer
    texts = [tokenizer(f"the {colour} house is old")["input_ids"] for colour in ("red", "green", "white")] * 40
    rows = pack(texts, TINY.width, TINY.longest, 0, TINY.seed)

    def call(seconds: float) -> dict[str, Any] | None:
        clock = count(0.0, 1.0).__next__
        return pretrain(TINY, rows, tokenizer, minutes=steps / 60, device="cpu", out=out, seconds=seconds, clock=clock)

    return [call(seconds) for seconds in calls]


@pytest.mark.slow
def test_calls_that_continue_others_end_with_the_weights_of_one_call(tmp_path: Path) -> None:
    (whole,) = trained(tmp_path / "whole", 60, math.inf)
    *unfinished, resumed = trained(tmp_path / "resumed", 60, 10, 10, math.inf)
    assert unfinished == [None, None]
    assert whole
    assert whole == resumed
    assert 50 < whole["steps"] <= 60
    assert whole["steps"] * 4 * 32 > whole["tokens"] > 0
    assert whole["loss"] < 9.3  # of 16,384 words, 9.7 at the start
    first, second = (Encoder.from_pretrained(tmp_path / name, pooling="mean") for name in ("whole", "resumed"))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert first.encode(["the red house"]).shape == (1, 16)
    assert not (tmp_path / "resumed/state.pt").exists()


@pytest.mark.slow
def test_a_killed_call_loses_the_steps_since_the_last_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining, "SAVE_EVERY", 15)
    save = pretraining.Training.save

    def killed_at_40(training: pretraining.Training, path: Path, spent: float) -> None:
        if training.step == 40:
            raise KeyboardInterrupt
        save(training, path, spent)

    with monkeypatch.context() as patch:
        patch.setattr(pretraining.Training, "save", killed_at_40)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path, 60, math.inf)
    assert torch.load(tmp_path / "state.pt")["step"] == 20
    assert trained(tmp_path, 60, math.inf)[0]


def test_a_state_of_other_settings_is_refused(tmp_path: Path) -> None:
    torch.save({"settings": {}}, tmp_path / "state.pt")
    training: Any = SimpleNamespace(settings=TINY)
    with pytest.raises(ValueError, match="its settings are"):
        pretraining.Training.resume(training, tmp_path / "state.pt")


def test_a_loss_that_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    training: Any = SimpleNamespace(mean=torch.tensor(float("nan")), step=20, settings=TINY)
    with pytest.raises(ArithmeticError, match="diverged by step 20"):
        pretraining.Training.save(training, tmp_path / "state.pt", 1.0)
    assert not (tmp_path / "state.pt").exists()


def test_tokenised_text_is_kept(tmp_path: Path) -> None:
    rows = pack(SENTENCES, width=9, longest=9, pad_id=0, seed=0)
    kept_rows(tmp_path / "rows.pt", lambda: rows)
    again = kept_rows(tmp_path / "rows.pt", lambda: pytest.fail("tokenised again"))
    assert all(torch.equal(a, b) for a, b in zip(parts_of(again), parts_of(rows), strict=True))


def test_without_data_only_a_trial_starts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--data"):
        main(Options(out=tmp_path, device="cpu"))
