"""Checkpoints after a quarter, a half and three quarters of a run's steps, kept whatever the dev scores."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_core.training import loop
from cse_core.training.checkpoint import Manifest, read_manifest
from cse_core.training.dev_scoring import DevSet
from cse_core.training.loop import DivergedError
from cse_core.training.run_state import UNFINISHED, History, finished_history
from cse_core.training.selection import SELECTION, snapshot_steps
from cse_core.training.train import train
from tests.support.training import KEEP, QUARTERS, TINY, Killed, Trained, equal, stop_at, weights

STEPS = {"quarter_1": 4, "quarter_2": 7, "quarter_3": 10}  # of 14: 3.5 and 10.5 are rounded to even


def same(store: Path, history: History, expected: Trained) -> None:
    assert (history.curves, history.kept) == (expected.history.curves, expected.history.kept)
    for rule in (*KEEP, *QUARTERS):
        assert equal(weights(store, TINY, rule), weights(expected.store, TINY, rule))


@given(st.integers(3, 10**6))
def test_quarters_are_within_half_a_step_and_before_the_end(steps: int) -> None:
    found = snapshot_steps(("last", *QUARTERS, "stsb_dev"), steps)
    assert [*found] == [*QUARTERS]
    assert all(abs(step - steps * q / 4) <= 0.5 for q, step in enumerate(found.values(), 1))
    assert 1 <= found["quarter_1"] <= found["quarter_2"] <= found["quarter_3"] < steps


def test_quarters_of_a_small_studys_run_and_of_too_few_steps() -> None:
    assert snapshot_steps(QUARTERS, 256) == {"quarter_1": 64, "quarter_2": 128, "quarter_3": 192}
    assert snapshot_steps(("last", "stsb_dev"), 1) == {}
    with pytest.raises(ValueError, match="rule quarter_1: expected a quarter of at least one step, got 2 steps"):
        snapshot_steps(QUARTERS, 2)
    assert {rule: SELECTION[rule] for rule in ("last", *QUARTERS)} == dict.fromkeys(("last", *QUARTERS), ())


@pytest.mark.slow
def test_the_quarters_change_nothing_else(undisturbed: Trained, quartered: Trained) -> None:
    assert quartered.history.curves == undisturbed.history.curves
    assert {rule: kept for rule, kept in quartered.history.kept.items() if rule in KEEP} == undisturbed.history.kept
    assert {rule: (kept.step, kept.score) for rule, kept in quartered.history.kept.items() if rule in QUARTERS} == {
        rule: (step, None) for rule, step in STEPS.items()
    }
    for rule in KEEP:
        assert equal(weights(quartered.store, TINY, rule), weights(undisturbed.store, TINY, rule))


@pytest.mark.slow
def test_a_quarter_holds_the_weights_after_its_step(tmp_path: Path, quartered: Trained) -> None:
    states = {}

    def read_state(step: int, history: History) -> None:
        if step in STEPS.values():
            states[step] = torch.load(tmp_path / TINY.key / "state.pt", weights_only=True)["encoder"]
        stop_at(STEPS["quarter_3"])(step, history)

    with pytest.raises(Killed):
        train(TINY, tmp_path, rules=KEEP, save_seconds=0.0, on_step=read_state)
    for rule, step in STEPS.items():
        kept = weights(quartered.store, TINY, rule)
        shared = {name: value for name, value in states[step].items() if name.removeprefix("backbone.") in kept}
        assert len(shared) > 20
        assert all(torch.equal(value, kept[name.removeprefix("backbone.")]) for name, value in shared.items())
        assert read_manifest(quartered.store / TINY.key / rule).step == step


@pytest.mark.slow
@pytest.mark.parametrize("at", [3, 4, 8])
def test_a_run_stopped_around_a_quarter_ends_with_the_same_bits(at: int, tmp_path: Path, quartered: Trained) -> None:
    rules = (*KEEP, *QUARTERS)
    quartered.leave(at, tmp_path)  # without a state at every step: a quarter must leave one of its own
    resumed: list[int] = []
    history = train(TINY, tmp_path, rules=rules, on_step=lambda step, history: resumed.append(step))
    assert resumed[0] == {3: 1, 4: 5, 8: 9}[at]
    same(tmp_path, history, quartered)


@pytest.mark.slow
def test_a_kill_between_a_quarter_and_its_state_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quartered: Trained
) -> None:
    rules, real = (*KEEP, *QUARTERS), loop.export

    def killed(encoder: Any, folder: Path, **about: Any) -> Manifest:
        manifest = real(encoder, folder, **about)
        if folder.name == "quarter_2":
            raise Killed
        return manifest

    monkeypatch.setattr(loop, "export", killed)
    with pytest.raises(Killed):
        train(TINY, tmp_path, rules=rules)
    monkeypatch.undo()
    assert (tmp_path / TINY.key / UNFINISHED / "quarter_2").is_dir()
    same(tmp_path, train(TINY, tmp_path, rules=rules), quartered)


def test_quarters_ask_for_no_dev_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> None:
        raise AssertionError("a dev set was read")

    monkeypatch.setattr(DevSet, "__init__", never)
    history = train(replace(TINY, epochs=1), tmp_path, rules=(*QUARTERS, "last"))
    assert set(history.curves) == {"loss", "loss/contrastive"}
    assert {rule: kept.step for rule, kept in history.kept.items()} == dict(zip(QUARTERS, (2, 4, 5), strict=True)) | {
        "last": 7
    }
    assert set(history.data) == {"backbone", "corpus"}


@pytest.mark.slow
def test_a_dev_rule_that_no_evaluation_reached_is_kept_at_the_end_beside_quarters(tmp_path: Path) -> None:
    history = train(replace(TINY, epochs=1, eval_steps=100), tmp_path, rules=(*KEEP, "quarter_1"))
    assert {rule: kept.step for rule, kept in history.kept.items()} == {"quarter_1": 2, "synthetic_dev": 7, "last": 7}


@pytest.mark.slow
def test_a_run_trained_again_for_more_rules_is_not_finished_halfway(tmp_path: Path) -> None:
    run, rules = replace(TINY, epochs=1), ("last", "quarter_1")
    train(run, tmp_path, rules=("last",))
    with pytest.raises(Killed):
        train(run, tmp_path, rules=rules, on_step=stop_at(3))
    assert (tmp_path / run.key / UNFINISHED / "quarter_1/config.json").is_file()
    assert finished_history(run, tmp_path, rules) is None
    assert finished_history(run, tmp_path, ("last",)) is not None
    assert train(run, tmp_path, rules=rules).kept["quarter_1"].step == 2


def test_a_run_that_has_diverged_keeps_no_quarter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = type(TINY.method).loss

    def broken(self: Any, encode: Any, batch: Any, modules: Any, targets: Any) -> Any:
        return replace(real(self, encode, batch, modules, targets), terms={"contrastive": torch.tensor(float("nan"))})

    monkeypatch.setattr(type(TINY.method), "loss", broken)
    with pytest.raises(DivergedError):
        train(TINY, tmp_path, rules=QUARTERS)
    assert not list((tmp_path / TINY.key).glob("quarter_*"))
