"""Pre-train a BERT of any size with masked words on one device, as fast as possible, in as many calls as it takes.

    python -m tests.benchmarks.pretraining --data FOLDER --out FOLDER --minutes 18

Sentences are packed into rows of one width, and each attends only to itself. All rows are on the device. A step always
has the same shape and reads no value back, so torch.compile makes one graph of it; the CPU waits for the device every
20 steps. The learning rate follows the clock: warm-up, then linear decay to zero at the end of the given minutes.

The state is saved every minute. The same command continues from it, without tokenising again, until the minutes of all
calls together are spent; a call that ends before exits with 75. Minutes do not include tokenising and compiling.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
import tyro
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerBase

from cse_core.data.atomic_write import atomic_path, atomic_write
from cse_core.data.corpora import sentences
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus

UNFINISHED = 75  # exit status of a call that leaves work for the next one
SAVE_EVERY = 60.0  # seconds
CHECK_EVERY = 20  # steps
ENDING = 30.0  # seconds that a call keeps for its start, its last steps and saving


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
    seen = real.gather(1, chosen)  # a row may have fewer such places than `count`
    shown = torch.where(lot < 0.8, mask_id, torch.where(lot < 0.9, words.gather(1, chosen), targets))
    shown = torch.where(seen, shown, targets)
    state = model.bert.embeddings(input_ids=ids.scatter(1, chosen, shown), position_ids=position)
    mask = (sentence[:, :, None] == sentence[:, None, :])[:, None]
    for layer in model.bert.encoder.layer:
        state = layer(state, mask)
    picked = state.gather(1, chosen[:, :, None].expand(-1, -1, state.shape[2]))
    losses = F.cross_entropy(model.cls(picked).float().flatten(0, 1), targets.flatten(), reduction="none")
    return (losses * seen.flatten()).sum() / seen.sum().clamp(min=1)


def learning_rate(settings: Pretraining, step: int, elapsed: float) -> float:
    """Return the rate at a step, after a share `elapsed` of the time."""
    return settings.learning_rate * min(1.0, (step + 1) / settings.warmup) * max(0.0, 1 - elapsed)


def kept_rows(path: Path, make: Callable[[], Rows]) -> Rows:
    """Return the rows in a file, which the first call writes."""
    if not path.is_file():
        with atomic_path(path) as part:
            torch.save(vars(make()), part)
    return Rows(**torch.load(path))


class Training:
    """A model, its optimizer and its random numbers, on a device."""

    def __init__(self, settings: Pretraining, rows: Rows, tokenizer: PreTrainedTokenizerBase, device: str) -> None:
        torch.manual_seed(settings.seed)
        self.settings, self.rows, self.device = settings, rows.to(device), device
        self.words, self.mask_id = len(tokenizer), int(tokenizer.mask_token_id or 0)
        self.batch, self.count = min(settings.rows, len(rows.ids)), round(settings.masked * settings.width)
        self.model = _new_model(settings, self.words).to(device).train()
        groups = [
            {"params": [p for p in self.model.parameters() if p.ndim > 1], "weight_decay": 0.01},
            {"params": [p for p in self.model.parameters() if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.98), fused=True)
        self.loss_of = torch.compile(masked_loss, fullgraph=True, dynamic=False) if settings.compiled else masked_loss
        self.generator = torch.Generator(device)
        self.dropout = torch.cuda if device == "cuda" else torch.random
        self.step, self.mean = 0, torch.zeros((), device=device)
        self.next_loss().backward()  # compiles
        self.optimizer.zero_grad(set_to_none=True)
        self.generator.manual_seed(settings.seed)
        torch.manual_seed(settings.seed)

    def next_loss(self) -> Tensor:
        """Return the loss of a random batch."""
        on: dict[str, Any] = {"generator": self.generator, "device": self.device}
        picked = torch.randint(len(self.rows.ids), (self.batch,), **on)
        lots = torch.rand(2, self.batch, self.settings.width, **on)
        words = torch.randint(self.words, lots.shape[1:], **on)
        parts = (part[picked].long() for part in (self.rows.ids, self.rows.sentence, self.rows.position))
        with torch.autocast(self.device, dtype=torch.bfloat16):
            return self.loss_of(self.model, *parts, lots, words, self.mask_id, self.count)

    def take_step(self, elapsed: float) -> None:
        """Take a step after a share `elapsed` of the time; the mean of the last hundred losses or so moves with it."""
        loss = self.next_loss()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, self.step, elapsed)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.mean = loss.detach() if self.step == 1 else self.mean.lerp(loss.detach(), 0.01)

    def save(self, path: Path, spent: float) -> None:
        """Save the state after some seconds of training; raise if the loss is not finite."""
        if not self.mean.isfinite():
            raise ArithmeticError(f"diverged by step {self.step:,}: try a rate below {self.settings.learning_rate}")
        state = {"settings": asdict(self.settings), "spent": spent, "step": self.step, "mean": self.mean}
        state |= {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        state |= {"generator": self.generator.get_state(), "dropout": self.dropout.get_rng_state()}
        with atomic_path(path) as part:
            torch.save(state, part)

    def resume(self, path: Path) -> float:
        """Load the state, if there is one, and return the seconds of training that it has."""
        if not path.is_file():
            return 0.0
        state = torch.load(path, map_location="cpu")
        if state["settings"] != asdict(self.settings):
            raise ValueError(f"{path}: its settings are {state['settings']}; expected {asdict(self.settings)}")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.dropout.set_rng_state(state["dropout"])
        self.step, self.mean = state["step"], state["mean"].to(self.device)
        return state["spent"]


def pretrain(
    settings: Pretraining,
    rows: Rows,
    tokenizer: PreTrainedTokenizerBase,
    *,
    minutes: float,
    device: str,
    out: Path,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any] | None:
    """Train until the minutes of all calls are spent, write the folder `out`, and return what was reached.

    After `seconds` of this call, save the state and return None.
    """
    end, path = clock() + seconds, out / "state.pt"
    training = Training(settings, rows, tokenizer, device)
    spent = training.resume(path)
    _wait(device)
    saved = clock()
    started = saved - spent
    while (spent := clock() - started) < 60 * minutes:
        training.take_step(spent / 60 / minutes)
        if training.step % CHECK_EVERY == 0:
            _wait(device)  # otherwise the clock runs ahead of the device
            now = clock()
            if now > min(end, saved + SAVE_EVERY):
                training.save(path, now - started)
                saved = now
                share = (now - started) / 60 / minutes
                print(f"step {training.step:,}, loss {float(training.mean):.3f}, {share:.0%} of the time", flush=True)
            if now > end:
                return None
    training.save(path, spent)
    reached = _reached(training, spent)
    training.model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)
    atomic_write(out / "pretraining.json", json.dumps(reached | {"settings": asdict(settings)}, indent=1))
    path.unlink()
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


def _reached(training: Training, seconds: float) -> dict[str, Any]:
    named = dict(training.model.named_parameters())
    places = training.step * training.batch * training.settings.width
    tokens = places * float((training.rows.sentence > 0).float().mean())
    # Operations of products with weights, forward and twice as many back, as in `measure.operations`.
    layers = sum(w.numel() for name, w in named.items() if w.ndim == 2 and "embeddings" not in name)
    return {
        "steps": training.step,
        "tokens": round(tokens),
        "tokens_per_second": round(tokens / seconds),
        "loss": round(float(training.mean), 4),
        "parameters": sum(w.numel() for w in named.values()),
        "tflops": round(6 * layers * places / seconds / 1e12, 3),
    }


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True, kw_only=True)
class Options:
    """Pre-train the backbone of the settings above, in as many calls as it takes."""

    out: Path
    """Folder of the tokenised sentences, of the state, and at the end of the backbone."""
    data: Path | None = None
    """Folder of the data. Required without --tiny."""
    minutes: float = 18
    """Minutes of training, all calls together."""
    seconds: float = math.inf
    """Seconds of this call."""
    device: Literal["cuda", "cpu"] = "cuda"
    """cpu is for trying it."""
    tiny: bool = False
    """Two layers and made-up sentences, to try it."""


def main(options: Options) -> int:
    """Start or continue; return 0 once all minutes are spent, and UNFINISHED before."""
    started = time.monotonic()
    if (options.out / "pretraining.json").is_file():
        print(f"{options.out}: done before")
        return 0
    if not (options.data or options.tiny):
        raise ValueError("--data: expected the folder that has wiki_sentences_1m; only --tiny takes made-up sentences")
    settings = Pretraining(layers=2, hidden=64, rows=8, compiled=False) if options.tiny else Pretraining()
    corpus = Corpus("synthetic", 2_000) if options.tiny else Corpus("wiki_sentences_1m", 1_000_000)
    encoder = Encoder.from_pretrained("wiki-mini")

    def tokenised() -> Rows:
        ids = encoder.tokenise(sentences(corpus, options.data)["text"][:])
        return pack(ids, settings.width, settings.longest, encoder.pad_id, settings.seed)

    rows = kept_rows(options.out / f"rows of {corpus.lines} lines of {corpus.name}.pt", tokenised)
    left = options.seconds - (time.monotonic() - started) - (2 if options.tiny else ENDING)
    reached = pretrain(
        settings,
        rows,
        encoder.tokenizer,
        minutes=options.minutes,
        device=options.device,
        out=options.out,
        seconds=left,
    )
    print(json.dumps(reached or "unfinished"))
    return UNFINISHED if reached is None else 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
