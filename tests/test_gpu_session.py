"""A session on a GPU, tried on a CPU: its time budget, interruption, resumption, and its pre-training loop."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from transformers import BertConfig, BertForMaskedLM

from cse_core.models.encoder import Encoder
from tests.benchmarks import gpu_session
from tests.benchmarks.gpu_session import Options, Step, finished, main
from tests.benchmarks.pretraining import Pretraining, learning_rate, masked_loss, pack, pretrain


def sleeping(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    steps = [Step(f"sleep-{i}", ("-c", f"import time; time.sleep({s})"), 3) for i, s in enumerate(seconds)]
    monkeypatch.setattr(gpu_session, "steps_of", lambda stage, options: steps)
    monkeypatch.setattr(gpu_session, "LEAST", 0.5)
    monkeypatch.setattr(signal, "signal", lambda *_: None)


def outcomes(folder: Path) -> list[tuple[str, str]]:
    entries = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    return [(entry["step"], entry["outcome"]) for entry in entries]


@pytest.mark.slow
def test_a_step_that_takes_too_long_is_ended_and_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeping(monkeypatch, 0, 60, 0)
    options = Options(minutes=1, out=tmp_path, stages=("right",))
    assert main(options) == 1
    expected = [("sleep-0", "done"), ("sleep-1", "out of time"), ("sleep-2", "done")]
    assert outcomes(tmp_path) == expected
    assert finished(tmp_path) == {"sleep-0", "sleep-2"}
    main(options)
    assert outcomes(tmp_path) == [*expected, ("sleep-1", "out of time")]  # only that one was tried again


@pytest.mark.slow
def test_what_does_not_fit_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeping(monkeypatch, 60, 0)
    started = time.monotonic()
    main(Options(minutes=1.2 / 60, out=tmp_path, stages=("right",)))
    assert time.monotonic() - started < 3
    assert "sleep-1: left for the next session" in capsys.readouterr().out


def test_half_a_line_is_no_finished_step(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step": "a", "outcome": "done"}\n{"step": "b", "outc')
    assert finished(tmp_path) == {"a"}


@pytest.mark.slow
def test_an_interrupted_session_keeps_what_is_done(tmp_path: Path) -> None:
    """A real process, ended by SIGTERM in its pre-training, which takes ten seconds and more."""
    (tmp_path / "steps.jsonl").write_text('{"step": "tests", "outcome": "done"}\n')
    command = [sys.executable, gpu_session.__file__, "--minutes", "2", "--out", str(tmp_path), "--device", "cpu"]
    session = subprocess.Popen(
        [*command, "--tiny", "--stages", "backbone"], cwd=gpu_session.ROOT, stdout=subprocess.PIPE, text=True
    )
    while not (tmp_path / "pretrain.txt").exists():
        time.sleep(0.1)
    session.send_signal(signal.SIGTERM)
    assert "pretrain: interrupted" in session.communicate(timeout=30)[0]
    assert session.returncode == 130
    assert finished(tmp_path) == {"tests"}


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
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    model = BertForMaskedLM(config).eval()
    rows = pack([[2, 11, 12, 3], [2, 13, 14, 15, 3], [2, 16, 3]], width=9, longest=9, pad_id=0, seed=0)
    lots = torch.rand(2, *rows.ids.shape, generator=torch.Generator().manual_seed(3))
    lots[1] = 0.95
    parts = (rows.ids.long(), rows.sentence.long(), rows.position.long())
    found = masked_loss(model, *parts, lots, torch.zeros_like(parts[0]), 4, 2)
    losses = []
    for i, (ids, sentence, position) in enumerate(zip(*parts, strict=True)):
        real = [j for j in range(9) if sentence[j] > 0 and position[j] > 0]
        for j in sorted(real, key=lambda j: float(lots[0, i, j]))[:2]:
            own = ids[sentence == sentence[j]]
            logits = model(own[None]).logits[0, int(position[j])]
            losses.append(F.cross_entropy(logits, ids[j]))
    assert torch.allclose(found, torch.stack(losses).mean(), atol=1e-5)


def test_the_rate_rises_then_falls_with_the_clock() -> None:
    settings = Pretraining(learning_rate=1e-3)
    assert learning_rate(settings, 0, 0.0) == pytest.approx(1e-3 / 500)
    assert learning_rate(settings, 500, 0.25) == pytest.approx(7.5e-4)
    assert learning_rate(settings, 500, 1.0) == 0


@pytest.mark.slow
def test_pre_training_lowers_the_loss_and_leaves_an_encoder(tmp_path: Path) -> None:
    tokenizer = Encoder.from_pretrained("wiki-tiny").tokenizer
    texts = [tokenizer(f"the {colour} house is old")["input_ids"] for colour in ("red", "green", "white")] * 40
    settings = Pretraining(layers=1, hidden=64, rows=8, width=32, compiled=False, warmup=1, learning_rate=1e-2)
    reached = pretrain(settings, texts, tokenizer, minutes=8 / 60, device="cpu", out=tmp_path)
    assert reached["loss"] < 9  # a mean over about 100 steps; of 16,384 words 9.7 at the start
    assert reached["steps"] * 8 * 32 > reached["tokens"] > 0
    assert Encoder.from_pretrained(tmp_path, pooling="mean").encode(["the red house"]).shape == (1, 64)
