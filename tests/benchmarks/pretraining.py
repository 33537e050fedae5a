"""Pre-train a BERT of any size with masked words on one device, as fast as possible: the loop of `gpu_session.py`.

Sentences are packed into rows of one width, and each attends only to itself. All rows are on the device. A step always
has the same shape and reads no value back, so torch.compile makes one graph of it and the CPU never waits. The learning
rate follows the clock: warm-up, then linear decay to zero at the end of the given minutes.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerBase


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """Sizes and settings. A row has whole sentences of at most `longest` tokens; `masked` is a share of its places."""

    layers: int = 12
    hidden: int = 384
    width: int = 128
    longest: int = 48
    rows: int = 512
    masked: float = 0.15
    learning_rate: float = 1e-3
    warmup: int = 500  # steps
    seed: int = 0
    compiled: bool = True


@dataclass(frozen=True)
class Rows:
    """Packed sentences on a device: token ids, each token's sentence in its row (0 is padding), and its position."""

    ids: Tensor
    sentence: Tensor
    position: Tensor

    def to(self, device: str) -> "Rows":
        return Rows(self.ids.to(device), self.sentence.to(device), self.position.to(device))


def pack(sentences: Sequence[Sequence[int]], width: int, longest: int, pad_id: int, seed: int) -> Rows:
    """Fill rows with whole sentences in a random order; a sentence that no longer fits begins the next row."""
    order = np.random.default_rng(seed).permutation(len(sentences))
    lengths = [min(len(sentences[i]), longest) for i in order]
    starts, rows, row, filled = [], [], 0, 0
    for length in lengths:
        if filled + length > width:
            row, filled = row + 1, 0
        rows.append(row)
        starts.append(filled)
        filled += length
    shape = row + 1, width
    ids, sentence, position = np.full(shape, pad_id, np.int32), np.zeros(shape, np.int16), np.zeros(shape, np.int16)
    known, place = -1, 0
    for i, at, start, length in zip(order, rows, starts, lengths, strict=True):
        place = place + 1 if at == known else 1
        known = at
        ids[at, start : start + length] = sentences[i][:longest]
        sentence[at, start : start + length] = place
        position[at, start : start + length] = np.arange(length)
    return Rows(torch.from_numpy(ids), torch.from_numpy(sentence), torch.from_numpy(position))


def masked_loss(
    model: Any, ids: Tensor, sentence: Tensor, position: Tensor, lots: Tensor, words: Tensor, mask_id: int, count: int
) -> Tensor:
    """Return the mean cross-entropy in nats of `count` places per row, 80 % of them masked, 10 % with another word.

    `lots` are two uniform numbers per place: the first chooses the places, the second what the model sees there.
    """
    real = (sentence > 0) & (position > 0)  # not [CLS]; the last token of a sentence may be chosen
    chosen = lots[0].masked_fill(~real, 2.0).topk(count, dim=1, largest=False).indices
    targets = ids.gather(1, chosen)
    lot = lots[1].gather(1, chosen)
    shown = torch.where(lot < 0.8, mask_id, torch.where(lot < 0.9, words.gather(1, chosen), targets))
    state = model.bert.embeddings(input_ids=ids.scatter(1, chosen, shown), position_ids=position)
    mask = (sentence[:, :, None] == sentence[:, None, :])[:, None]
    for layer in model.bert.encoder.layer:
        state = layer(state, mask)
    picked = state.gather(1, chosen[:, :, None].expand(-1, -1, state.shape[2]))
    losses = F.cross_entropy(model.cls(picked).float().flatten(0, 1), targets.flatten(), reduction="none")
    weights = real.gather(1, chosen).flatten()  # a row may have fewer real places than `count`
    return (losses * weights).sum() / weights.sum().clamp(min=1)


def learning_rate(settings: Pretraining, step: int, elapsed: float) -> float:
    """Return the rate at a step, after a share `elapsed` of the time."""
    return settings.learning_rate * min(1.0, (step + 1) / settings.warmup) * max(0.0, 1 - elapsed)


def pretrain(
    settings: Pretraining,
    sentences: Sequence[Sequence[int]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    minutes: float,
    device: str,
    out: Path,
    report: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Train for the given minutes, write the folder `out` and return the steps, tokens per second, loss and so on."""
    torch.manual_seed(settings.seed)
    rows = pack(sentences, settings.width, settings.longest, int(tokenizer.pad_token_id or 0), settings.seed).to(device)
    model = _new_model(settings, len(tokenizer)).to(device).train()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.98), fused=True)
    loss_of = torch.compile(masked_loss, fullgraph=True, dynamic=False) if settings.compiled else masked_loss
    count = round(settings.masked * settings.width)
    batch = min(settings.rows, len(rows.ids))
    generator = torch.Generator(device).manual_seed(settings.seed)
    real = float((rows.sentence > 0).float().mean())
    mean = torch.zeros((), device=device)
    started, step, said = time.monotonic(), 0, time.monotonic()
    while (elapsed := (time.monotonic() - started) / (60 * minutes)) < 1:
        picked = torch.randint(len(rows.ids), (batch,), generator=generator, device=device)
        shape = batch, settings.width
        lots = torch.rand(2, *shape, generator=generator, device=device)
        words = torch.randint(len(tokenizer), shape, generator=generator, device=device)
        parts = (part[picked].long() for part in (rows.ids, rows.sentence, rows.position))
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = loss_of(model, *parts, lots, words, int(tokenizer.mask_token_id or 0), count)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings, step, elapsed)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        mean = loss.detach() if step == 1 else mean.lerp(loss.detach(), 0.01)
        if step % 20 == 0:
            _wait(device)  # otherwise the clock runs ahead of the device
            if time.monotonic() - said > 30:
                said = time.monotonic()
                report(f"step {step:,}, loss {float(mean):.3f}, {elapsed:.0%} of the time")
    _wait(device)
    reached = _reached(settings, model, step, batch, real, float(mean), time.monotonic() - started)
    if not math.isfinite(reached["loss"]):
        raise ArithmeticError(f"pre-training diverged after {step:,} steps: a lower rate than {settings.learning_rate}")
    model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / "pretraining.json").write_text(json.dumps(reached | {"settings": asdict(settings)}, indent=1))
    return reached


def _new_model(settings: Pretraining, words: int) -> Any:
    config = BertConfig(
        vocab_size=words,
        hidden_size=settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=max(2, settings.hidden // 64),
        intermediate_size=4 * settings.hidden,
        max_position_embeddings=settings.longest,
    )
    return BertForMaskedLM(config)


def _reached(
    settings: Pretraining, model: nn.Module, steps: int, batch: int, real: float, loss: float, seconds: float
) -> dict[str, Any]:
    places = steps * batch * settings.width
    # Operations of products with weights, forward and twice as many back, as in `measure.operations`.
    layers = sum(w.numel() for name, w in model.named_parameters() if w.ndim == 2 and "embeddings" not in name)
    return {
        "steps": steps,
        "tokens": round(places * real),
        "tokens_per_second": round(places * real / seconds),
        "loss": round(loss, 4),
        "parameters": sum(p.numel() for p in model.parameters()),
        "tflops": round(6 * layers * places / seconds / 1e12, 3),
    }


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
