"""What the training loop calls, in which order, under fp16; and which checkpoints it keeps."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from cse_core.data import synthetic
from cse_core.data.batches import pad
from cse_core.data.senteval import pairs
from cse_core.method import Tokens
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from cse_core.seeding import seed_for
from cse_core.training import loop as loop_module
from cse_core.training.checkpoint import read_manifest
from cse_core.training.dev_scoring import DevScore
from cse_core.training.loop import Execution, Loop
from cse_core.training.run_state import UNFINISHED
from cse_core.training.selection import SELECTION
from cse_core.training.train import MemoryExceededError, train
from tests.support.training import KEEP, TINY, Trained, starve, train_noting_steps

RUN = Run(
    method=SimCSE(),
    backbone=Pretrained("wiki-tiny"),
    corpus=Corpus("synthetic", 12),
    batch_size=4,
    learning_rate=3e-4,
    precision="fp16",
)


def loop_of(run: Run, store: Path, *keep: str) -> Loop:
    return Loop(run, Execution(store), keep or ("last",))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a real scaler, the clip and AdamW are asked for, in order."""
    found: list[str] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            found.append(name)
            return function(*args, **more)

        return call

    for name in ("scale", "unscale_", "step", "update"):
        monkeypatch.setattr(torch.amp.GradScaler, name, noted(name, getattr(torch.amp.GradScaler, name)))
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", noted("clip", nn.utils.clip_grad_norm_))
    monkeypatch.setattr(torch.optim.AdamW, "step", noted("AdamW", torch.optim.AdamW.step))
    return found


@pytest.mark.slow
def test_fp16_unscales_before_it_clips_and_steps_before_it_updates(tmp_path: Path, calls: list[str]) -> None:
    loop = loop_of(RUN, tmp_path)
    calls.clear()
    for step in range(2):
        loop.train_step(step)
    assert calls == ["scale", "unscale_", "clip", "step", "AdamW", "update"] * 2


class Scale:
    """A loss scale of a fixed size, as plain arithmetic: a power of two changes no bit."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def scale(self, loss: Tensor) -> Tensor:
        return loss * self.factor

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        for parameter in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            parameter.grad /= self.factor

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    def update(self) -> None: ...

    def is_enabled(self) -> bool:
        return True

    def get_scale(self) -> float:
        return self.factor


@pytest.mark.slow
def test_a_loss_scale_changes_nothing(tmp_path: Path) -> None:
    """The clip sees gradients, not scaled ones: gradients 1,024 times as large end at the same weights."""
    ends = []
    for factor in (1.0, 1024.0):
        loop = loop_of(replace(RUN, precision="fp32"), tmp_path)
        loop.scaler = Scale(factor)  # ty: ignore[invalid-assignment]
        for step in range(3):
            loop.train_step(step)
        ends.append([p.detach().clone() for p in (*loop.encoder.parameters(), *loop.modules.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_an_overflowed_step_is_skipped_and_counted_and_the_rate_continues(tmp_path: Path) -> None:
    loop = loop_of(replace(RUN, warmup=0.0), tmp_path)
    real = type(loop.run.method).loss
    before = {name: value.clone() for name, value in loop.encoder.state_dict().items()}

    def endless(self: SimCSE, *args: Any) -> Any:
        found = real(self, *args)
        return replace(found, total=found.total * float("inf"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimCSE, "loss", endless)
        for step in range(2):
            loop.train_step(step)
    loop._pending.clear()  # `flush` refuses the endless loss, which stands in for an overflow of fp16
    loop.flush()
    assert loop.history.skipped == 2
    assert all(torch.equal(value, before[name]) for name, value in loop.encoder.state_dict().items())
    assert loop.optimizer.param_groups[0]["lr"] == pytest.approx(RUN.learning_rate / 3)  # three steps in all
    loop.train_step(2)
    loop.flush()
    assert loop.history.skipped == 2
    assert any(not torch.equal(value, before[name]) for name, value in loop.encoder.state_dict().items())


class Scripted:
    """A dev set whose evaluations give these scores, one after the other."""

    def __init__(self, scores: Sequence[float]) -> None:
        self.scores = iter(scores)

    def measure(self, encoder: object) -> DevScore:
        score = next(self.scores)
        return DevScore(score, 10 + score, 20 + score)


NAN = float("nan")


def selected(
    store: Path, monkeypatch: pytest.MonkeyPatch, keep: Sequence[str], **scores: Sequence[float]
) -> tuple[Loop, list[bool]]:
    """A loop whose dev sets score so at steps 1, 2, ...; the weights of step n are all n."""
    monkeypatch.setattr(loop_module, "pairs", lambda task, data: pairs("synthetic_dev"))
    loop = loop_of(replace(RUN, precision="fp32"), store, *keep)
    assert loop.dev.keys() == scores.keys()
    loop.dev = {task: Scripted(found) for task, found in scores.items()}  # ty: ignore[invalid-assignment]
    kept = []
    for step in range(1, 1 + len(next(iter(scores.values())))):
        with torch.no_grad():
            for parameter in loop.encoder.parameters():
                parameter.fill_(float(step))
        kept.append(loop.select(store / "folder", step))
    return loop, kept


def kept_of(loop: Loop) -> dict[str, tuple[int, float | None]]:
    return {rule: (kept.step, kept.score) for rule, kept in loop.history.kept.items()}


def saved_step(store: Path, rule: str) -> int:
    return read_manifest(store / "folder" / UNFINISHED / rule).step


def weight(store: Path, rule: str) -> float:
    values = {
        value.mean().item() for value in load_file(store / "folder" / UNFINISHED / rule / "model.safetensors").values()
    }
    assert len(values) == 1
    return values.pop()


@pytest.mark.slow
def test_each_rule_keeps_the_best_of_the_mean_of_its_own_dev_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STS-B's dev set is for the second step, SICK-R's for the first, their mean for the third."""
    assert SELECTION["avg_sts"] == ("stsb_dev", "sickr_dev")
    stsb, sickr = (0.5, 0.875, 0.75, 0.8125), (0.875, 0.25, 0.75, 0.5)
    loop, kept = selected(tmp_path, monkeypatch, ("avg_sts", "stsb_dev"), stsb_dev=stsb, sickr_dev=sickr)
    assert kept_of(loop) == {"avg_sts": (3, 0.75), "stsb_dev": (2, 0.875)}
    assert {rule: saved_step(tmp_path, rule) for rule in loop.rules} == {"avg_sts": 3, "stsb_dev": 2}
    assert {rule: weight(tmp_path, rule) for rule in loop.rules} == {"avg_sts": 3.0, "stsb_dev": 2.0}
    assert kept == [True, True, True, False]
    assert loop.history.curves["dev/stsb_dev"] == list(enumerate(stsb, 1))
    assert loop.history.curves["dev/sickr_dev"] == list(enumerate(sickr, 1))
    assert loop.history.curves["alignment/sickr_dev"] == [(i, 10 + x) for i, x in enumerate(sickr, 1)]
    assert loop.history.curves["uniformity/stsb_dev"] == [(i, 20 + x) for i, x in enumerate(stsb, 1)]


def test_an_equal_score_keeps_the_first_and_a_strictly_better_one_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = (0.5, 0.5, 0.4, 0.5 + 1e-12, 0.5 + 1e-12)
    loop, kept = selected(tmp_path, monkeypatch, ("stsb_dev",), stsb_dev=scores)
    assert kept == [True, False, False, True, False]
    assert kept_of(loop) == {"stsb_dev": (4, 0.5 + 1e-12)}
    assert (saved_step(tmp_path, "stsb_dev"), weight(tmp_path, "stsb_dev")) == (4, 4.0)


def test_any_score_is_better_than_an_undefined_one_and_none_replaces_a_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, kept = selected(tmp_path, monkeypatch, ("stsb_dev",), stsb_dev=(NAN, -0.9, NAN, -0.95))
    assert kept == [True, True, False, False]
    assert kept_of(loop) == {"stsb_dev": (2, -0.9)}
    assert [step for step, _ in loop.history.curves["dev/stsb_dev"]] == [2, 4]
    assert [warning.split(":")[0] for warning in loop.history.warnings] == [
        "stsb_dev undefined at step 1",
        "stsb_dev undefined at step 3",
    ]


def test_a_mean_with_an_undefined_part_is_undefined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, _ = selected(tmp_path, monkeypatch, ("avg_sts",), stsb_dev=(0.9, 0.2, 0.3), sickr_dev=(NAN, 0.2, NAN))
    assert kept_of(loop) == {"avg_sts": (2, 0.2)}


@pytest.mark.slow
def test_quarters_and_the_end_are_kept_at_their_steps(tmp_path: Path) -> None:
    """With ten steps: after 2 (2.5, to the even one), 5, 8 (7.5, to the even one) and 10."""
    run = replace(RUN, corpus=Corpus("synthetic", 40), precision="fp32")
    rules = {"quarter_1": 2, "quarter_2": 5, "quarter_3": 8, "last": 10}
    seen: dict[int, dict[str, Tensor]] = {}
    real = Loop.train_step

    def spied(self: Loop, step: int) -> None:
        real(self, step)
        seen[step + 1] = {name: value.clone() for name, value in self.encoder.backbone.state_dict().items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "train_step", spied)
        history = train(run, tmp_path, rules=tuple(rules))
    assert {rule: kept.step for rule, kept in history.kept.items()} == rules
    for rule, step in rules.items():
        found = load_file(tmp_path / run.key / rule / "model.safetensors")
        assert found
        assert all(torch.equal(value, seen[step][name]) for name, value in found.items()), rule
    written = json.loads((tmp_path / run.key / "history.json").read_text())
    assert {rule: kept["step"] for rule, kept in written["kept"].items()} == rules


SENTENCES, BATCH, EPOCHS = 20, 8, 2
STEPS = EPOCHS * 3  # batches of 8, 8 and 4: the last one is smaller, and of more than two
REFERENCE = Run(
    method=SimCSE(),
    backbone=Pretrained("wiki-tiny"),
    corpus=Corpus("synthetic", SENTENCES),
    seed=7,
    epochs=EPOCHS,
    batch_size=BATCH,
    learning_rate=3e-4,
    warmup=0.45,
    dropout=0.3,
    max_length=16,  # cuts some of the sentences
)


def trained_by_the_loop(run: Run, store: Path) -> Loop:
    loop = Loop(run, Execution(store))
    assert loop.history.steps == STEPS
    for step in range(STEPS):
        loop.train_step(step)
    loop.flush()
    return loop


class Reference:
    """What the documentation says of a SimCSE run. `warmup` is a number of steps."""

    def __init__(self, run: Run, warmup: int) -> None:
        self.run, self.warmup = run, warmup
        self.encoder = Encoder.from_pretrained(run.backbone.name, pooling="cls", dropout=run.dropout)
        self.head = nn.Linear(self.encoder.width, self.encoder.width)  # tanh(W h + b), W normal(0.02), b zero
        generator = torch.Generator().manual_seed(seed_for(run.seed, "modules"))
        nn.init.normal_(self.head.weight, std=0.02, generator=generator)
        nn.init.zeros_(self.head.bias)
        ids = self.encoder.tokenizer(synthetic.sentences(SENTENCES), truncation=True, max_length=run.max_length)
        self.ids: list[list[int]] = ids["input_ids"]
        self.parameters = [*self.encoder.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=1.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, fused=True
        )
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.encoder.train()

    def rate(self, step: int) -> float:
        """Up from 0 over the warm-up, then down to 0 at the last step."""
        if step < self.warmup:
            return self.run.learning_rate * step / self.warmup
        return self.run.learning_rate * (STEPS - step) / (STEPS - self.warmup)

    def rows(self, step: int) -> list[int]:
        """Each epoch has an order of its own, from the run's seed."""
        epoch, position = divmod(step, STEPS // EPOCHS)
        order = np.random.default_rng(seed_for(self.run.seed, f"order/{epoch}")).permutation(SENTENCES)
        return order[position * BATCH : (position + 1) * BATCH].tolist()

    def batch(self, rows: list[int]) -> Tokens:
        """Filled on the right to the longest of the batch."""
        texts = [self.ids[row] for row in rows]
        longest = max(map(len, texts))
        ids = torch.tensor([text + [self.encoder.pad_id] * (longest - len(text)) for text in texts])
        mask = torch.tensor([[True] * len(text) + [False] * (longest - len(text)) for text in texts])
        return Tokens(ids, mask)

    def loss(self, step: int) -> Tensor:
        """InfoNCE of two dropout views of the same ids, from the first to the second, at temperature 0.05."""
        torch.manual_seed(seed_for(self.run.seed, f"dropout/{step}"))
        tokens = self.batch(self.rows(step))
        first, second = (self.head(vectors).tanh() for vectors in self.encoder(tokens, tokens))
        cosines = nn.functional.normalize(first, dim=-1) @ nn.functional.normalize(second, dim=-1).T
        return nn.functional.cross_entropy(cosines / 0.05, torch.arange(len(first)))

    def train(self) -> None:
        for step in range(STEPS):
            loss = self.loss(step)
            self.losses.append(loss.item())
            loss.backward()
            self.clip()
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate(step)
            self.optimizer.step()
            self.optimizer.zero_grad()

    def clip(self) -> None:
        """The gradient of backbone and head, as one vector, is cut to a norm of 1."""
        self.norms.append(torch.stack([p.grad.norm() for p in self.parameters if p.grad is not None]).norm().item())
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)


def difference(loop: Loop, reference: Reference) -> tuple[float, float]:
    """The largest of any weight: of the backbone, of the head."""
    theirs = dict(reference.encoder.named_parameters())
    mine = dict(loop.encoder.named_parameters())
    assert mine.keys() == theirs.keys()
    backbone = max((mine[name] - theirs[name]).abs().max().item() for name in mine)
    heads = list(loop.modules.parameters())
    assert len(heads) == 2
    pairs = zip(heads, reference.head.parameters(), strict=True)
    return backbone, max((a - b).abs().max().item() for a, b in pairs)


# 2.7 steps are three (cut off they would be two), and 2.4 are two (rounded up they would be three).
@pytest.mark.parametrize(("share", "warmup"), [(0.45, 3), (0.4, 2)])
@pytest.mark.slow
def test_a_run_is_the_documented_loop_bit_for_bit(tmp_path: Path, share: float, warmup: int) -> None:
    """Two epochs with dropout and a warm-up that is no whole number of steps, gradients above the clip and below it."""
    run = replace(REFERENCE, warmup=share)
    loop, reference = trained_by_the_loop(run, tmp_path), Reference(run, warmup)
    reference.train()
    assert [value for _, value in loop.history.curves["loss"]] == reference.losses
    assert difference(loop, reference) == (0.0, 0.0)
    assert max(reference.norms) > 1  # else the clip was never at work
    fresh = Reference(run, warmup)
    moved = [(a - b).abs().max().item() for a, b in zip(reference.parameters, fresh.parameters, strict=True)]
    assert min(moved) > 0  # backbone and head, every one
    assert reference.rows(0) != reference.rows(STEPS // EPOCHS)  # the second epoch has another order
    assert len({len(ids) for ids in reference.ids}) > 2  # there is something to fill


@pytest.mark.slow
def test_a_batch_is_taught_by_its_own_sentences_vectors(tmp_path: Path) -> None:
    """RankCSE's first epoch: a teacher reads the batch's truncated sentences without dropout."""
    shares = {"wiki-mini": 1 / 4, "wiki-tiny": 3 / 4}
    teachers = tuple(Teacher(Pretrained(name), share) for name, share in shares.items())
    run = replace(REFERENCE, method=RankCSE(teachers=teachers, contrastive_weight=0.0, consistency_weight=0.0))
    loop, reference = trained_by_the_loop(run, tmp_path), Reference(run, 3)
    encoders = {name: Encoder.from_pretrained(name, pooling="cls") for name in shares}

    def loss(step: int) -> Tensor:
        rows = reference.rows(step)
        tokens = reference.batch(rows)
        mixed = torch.zeros(len(rows), len(rows))
        for name, encoder in encoders.items():
            unit = nn.functional.normalize(encoder.embed([reference.ids[row] for row in rows]), dim=-1)
            mixed += shares[name] * unit @ unit.T
        torch.manual_seed(seed_for(run.seed, f"dropout/{step}"))
        first, second = (reference.head(v).tanh() for v in reference.encoder(tokens, tokens))
        student = nn.functional.normalize(first, dim=-1) @ nn.functional.normalize(second, dim=-1).T
        total = torch.zeros(())
        for i in range(len(rows)):  # ListNet, the positive left out
            others = [j for j in range(len(rows)) if j != i]
            target = (mixed[i, others] / 0.0125).softmax(0)
            total = total - (target * (student[i, others] / 0.025).log_softmax(0)).sum() / len(rows)
        return total

    reference.loss = loss
    reference.train()
    # Teachers embed all sentences in batches of their own: another padding, another last bit.
    assert [value for _, value in loop.history.curves["loss"]] == pytest.approx(reference.losses, rel=1e-4)


@pytest.mark.slow
def test_a_step_too_large_for_memory_is_taken_with_less_and_gives_the_same_bits(
    tmp_path: Path, undisturbed: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    starve(monkeypatch, TINY.method, "loss/5")
    history, steps = train_noting_steps(TINY, tmp_path, rules=KEEP)
    assert steps == [1, 2, 3, 4, 5, *range(5, 15)]  # from the state of step 4
    assert history.warnings == ["activations were computed twice, as a step did not fit into memory"]
    undisturbed.assert_same(tmp_path, history)


@pytest.mark.slow
def test_a_run_too_large_for_memory_in_any_case_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starve(monkeypatch, TINY.method, "loss/5", fits_twice=False)
    with pytest.raises(MemoryExceededError, match=rf"run {TINY.key}: a step of 16 .*tried to allocate 20 MiB.*share"):
        train(TINY, tmp_path, rules=KEEP)


def test_bf16_on_a_gpu_without_it_says_what_else_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Said before anything is loaded or computed."""

    def supported(*, including_emulation: bool) -> bool:
        return including_emulation

    def load(*_: object) -> Encoder:
        raise InterruptedError

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    monkeypatch.setattr(loop_module, "_starting_encoder", load)
    for device, precision in (("cuda", "bf16"), ("cuda", "fp16"), ("cuda", "fp32"), ("cpu", "bf16"), ("cpu", "fp32")):
        run = replace(RUN, precision=precision)
        with pytest.raises(InterruptedError):
            Loop(run, Execution(tmp_path, device=device))
        said = f"run {run.key}: precision bf16 is slow on this GPU, which has no bf16; with fp16 it is faster"
        assert (said in caplog.text) == ((device, precision) == ("cuda", "bf16"))
        caplog.clear()


def test_computing_activations_twice_keeps_less_of_them() -> None:
    encoder = Encoder.from_pretrained("wiki-mini").train()
    tokens = pad(encoder.tokenise([f"sentence number {i} of a few" for i in range(16)]), encoder.pad_id)
    kept = []
    for _ in range(2):
        sizes: dict[int, int] = {}

        def remember(found: torch.Tensor, sizes: dict[int, int] = sizes) -> torch.Tensor:
            sizes[found.data_ptr()] = found.numel() * found.element_size()
            return found

        with torch.autograd.graph.saved_tensors_hooks(remember, lambda found: found):
            encoder(tokens)
        weights = {parameter.data_ptr() for parameter in encoder.parameters()}
        kept.append(sum(size for place, size in sizes.items() if place not in weights))
        encoder.backbone.activation_checkpointing_enable()
    assert kept[1] < 0.2 * kept[0]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_encoder_computes_in_the_runs_precision(precision: str, tmp_path: Path) -> None:
    assert loop_of(replace(RUN, precision=precision), tmp_path).encoder.precision == precision
