"""What the training loop calls, in which order, under fp16; and which checkpoints it keeps."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from cse_core.data.senteval import pairs
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training import loop as loop_module
from cse_core.training.checkpoint import read_manifest
from cse_core.training.dev_scoring import DevScore
from cse_core.training.loop import Loop
from cse_core.training.run_state import UNFINISHED
from cse_core.training.selection import SELECTION
from cse_core.training.train import train

RUN = Run(
    method=SimCSE(),
    backbone=Pretrained("wiki-tiny"),
    corpus=Corpus("synthetic", 12),
    batch_size=4,
    learning_rate=3e-4,
    precision="fp16",
)


def loop_of(run: Run, store: Path, *keep: str) -> Loop:
    return Loop(run, store, data=None, rules=keep or ("last",), device=torch.device("cpu"))


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
        loop.train_step(0)
    assert loop.history.skipped == 1
    assert all(torch.equal(value, before[name]) for name, value in loop.encoder.state_dict().items())
    assert loop.optimizer.param_groups[0]["lr"] == pytest.approx(RUN.learning_rate * 2 / 3)  # three steps in all
    loop.train_step(1)
    assert loop.history.skipped == 1
    assert any(not torch.equal(value, before[name]) for name, value in loop.encoder.state_dict().items())


class Scripted:
    """A dev set that has such scores, one evaluation after the other."""

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
