"""A checkpoint is what its run's history says, to the byte, or is not used; attempts touch nothing before their end."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.training import loop
from cse_core.training.checkpoint import MANIFEST, WEIGHTS, CheckpointError, Manifest, read_manifest, write_manifest
from cse_core.training.dev_scoring import DevSet
from cse_core.training.loop import DivergedError
from cse_core.training.run_state import HISTORY, STATE, UNFINISHED, History, adopt, finished_history, load_history
from cse_core.training.selection import SELECTION, snapshot_steps
from cse_core.training.teacher_embeddings import checkpoint_folder
from cse_core.training.train import train
from tests.support.polling import until
from tests.support.training import (
    KEEP,
    NEW,
    OLD,
    QUARTERS,
    RUN,
    TINY,
    Killed,
    Trained,
    arithmetic,
    equal,
    kill_after,
    train_noting_steps,
    weights,
)

OTHER = replace(RUN, seed=7)
RETRAIN = """
import sys, torch
from pathlib import Path
from cse_core.training.loop import Execution
from cse_core.training.train import train
from tests.support.training import NEW, RUN, OLD, arithmetic, few_dev_pairs
torch.set_num_threads(1)
def wait(step, history):
    if "dev/synthetic_dev" in history.curves:
        print("evaluated", arithmetic(), flush=True)
        sys.stdin.read()
with few_dev_pairs():
    train(RUN, Execution(Path(sys.argv[1]), save_seconds=0.0), rules=NEW, on_step=wait)
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store of two seeds finished under the old rules, and one of the first seed under the new rules."""
    old, new = tmp_path_factory.mktemp("old"), tmp_path_factory.mktemp("new")
    train(RUN, old, rules=OLD)
    train(OTHER, old, rules=OLD)
    train(RUN, new, rules=NEW)
    return old, new


@pytest.fixture
def store(stores: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the store with the old rules."""
    shutil.copytree(stores[0], tmp_path / "store")
    return tmp_path / "store"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def cut(path: Path, at: int) -> None:
    path.write_bytes(path.read_bytes()[:at])


def content(folder: Path) -> dict[str, str]:
    """Return the hash of every file but the history, whose seconds differ."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != HISTORY)
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.mark.slow
def test_train_killed_in_a_retraining_leaves_the_finished_run(stores: tuple[Path, Path], store: Path) -> None:
    before = content(store / RUN.key)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", RETRAIN, str(store)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout
        assert until(process.stdout.readline) == f"evaluated {arithmetic()}\n"
        process.send_signal(signal.SIGKILL)
    assert (store / RUN.key / UNFINISHED / "synthetic_dev" / MANIFEST).is_file()
    assert {name: data for name, data in content(store / RUN.key).items() if name in before} == before
    assert finished_history(RUN, store, OLD) == load_history(stores[0] / RUN.key)
    assert finished_history(RUN, store, NEW) is None

    student = replace(RUN, method=RankCSE(teachers=(Teacher(RUN, select="synthetic_dev"),)))
    expected = train(student, stores[0])
    assert train(student, store).curves == expected.curves

    history, steps = train_noting_steps(RUN, store, rules=NEW)
    assert steps[0] > 1  # it continued
    assert content(store / RUN.key) == content(stores[1] / RUN.key)
    assert replace(history, seconds=0.0) == replace(load_history(stores[1] / RUN.key) or History(0), seconds=0.0)


def killed_at(call: int, work: Callable[[], object]) -> bool:
    """Do some work in a process that is killed before its n-th change of a name; whether it came to that."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == signal.SIGKILL
    left = call

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*given: Any, **how: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **how)

        return change

    for name in ("rename", "replace", "unlink", "rmdir"):
        setattr(os, name, counted(getattr(os, name)))
    work()
    os._exit(0)


@pytest.mark.slow
def test_adopt_killed_before_any_change_of_a_name_is_completed(stores: tuple[Path, Path], tmp_path: Path) -> None:
    old, new, call = stores[0] / RUN.key, stores[1] / RUN.key, 0
    while True:
        call += 1
        folder = tmp_path / str(call) / RUN.key
        shutil.copytree(old, folder)
        shutil.copytree(new, folder / UNFINISHED)
        (folder / STATE).write_bytes(b"state")
        if not killed_at(call, lambda folder=folder: adopt(folder)):
            break
        seen = finished_history(RUN, folder.parent, OLD, content=True)
        assert seen in (None, load_history(old), load_history(new))
        adopt(folder)
        assert content(folder) == content(new)
        assert load_history(folder) == load_history(new)
    assert call > 12  # every removed and renamed file was a moment
    assert content(folder) == content(new)


@pytest.mark.slow
def test_weights_of_another_seed_are_refused(store: Path) -> None:
    mine, other = (store / run.key / "synthetic_dev" for run in (RUN, OTHER))
    shutil.copyfile(other / WEIGHTS, mine / WEIGHTS)  # of the same size
    with pytest.raises(CheckpointError, match=f"{WEIGHTS}: SHA-256 .* its manifest says .* trained again"):
        checkpoint_folder(store, RUN, "synthetic_dev")
    shutil.rmtree(mine)
    shutil.copytree(other, mine)
    with pytest.raises(CheckpointError, match=f"holds run {OTHER.key}, .*; the run's history says step"):
        checkpoint_folder(store, RUN, "synthetic_dev")
    assert finished_history(RUN, store, OLD) is None


@pytest.mark.slow
def test_other_weights_of_the_same_step_are_refused(store: Path) -> None:
    """A second attempt elsewhere leaves whole weights with a manifest, but the history names others."""
    folder = store / RUN.key / "synthetic_dev"
    step = read_manifest(folder).step
    flip(folder / WEIGHTS, -1)
    (folder / MANIFEST).unlink()
    other = write_manifest(folder, key=RUN.key, rule="synthetic_dev", step=step)
    with pytest.raises(CheckpointError, match=f"weights {other.weights[:12]}; the run's history says step {step}"):
        checkpoint_folder(store, RUN, "synthetic_dev")
    assert finished_history(RUN, store, OLD) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [HISTORY, *(f"synthetic_dev/{n}" for n in ("config.json", "tokenizer.json", MANIFEST, WEIGHTS))]
)
@pytest.mark.parametrize("left", [0, 40])
def test_train_replaces_a_torn_file_of_a_finished_run(
    name: str, left: int, store: Path, stores: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = store / RUN.key / name
    cut(path, left)
    assert finished_history(RUN, store, OLD) is None
    said, remedy = (" can't be read", "written") if name == HISTORY else (": ", "trained")
    assert f"{path}{said}" in caplog.text
    assert f"{remedy} again" in caplog.text
    if left:
        train(RUN, store, rules=OLD)
        assert content(store / RUN.key) == content(stores[0] / RUN.key)
        assert finished_history(RUN, store, OLD)


@pytest.mark.slow
def test_train_replaces_weights_of_which_a_bit_flipped(store: Path, stores: tuple[Path, Path]) -> None:
    flip(store / RUN.key / "synthetic_dev" / WEIGHTS, -100)
    train(RUN, store, rules=OLD)
    assert content(store / RUN.key) == content(stores[0] / RUN.key)


@pytest.mark.parametrize(
    "text",
    [
        *("[1]", '"x"', "{}", '{"steps": "7"}', '{"steps": 7, "kept": {}, "curves": {}, "seconds": NaN}'),
        '{"steps": 7, "kept": {"last": {"step": -3, "score": null}}, "curves": {}}',
        '{"steps": 7, "kept": {}, "curves": {"loss": [[1, NaN]]}}',
        '{"steps": 7, "kept": {"last": {"step": 3, "score": NaN}}, "curves": {}}',
        '{"steps": 7, "kept": {}, "curves": {}, "more": 1}',
    ],
)
def test_a_history_of_a_wrong_form_is_none(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / HISTORY).write_text(text)
    assert load_history(tmp_path) is None
    assert str(tmp_path / HISTORY) in caplog.text


def test_a_history_comes_back_as_it_was_written(stores: tuple[Path, Path]) -> None:
    history = load_history(stores[1] / RUN.key)
    assert history
    assert set(history.kept) == set(NEW)
    assert history.kept["last"].weights == read_manifest(stores[1] / RUN.key / "last").weights
    assert History.of(json.loads((stores[1] / RUN.key / HISTORY).read_text())) == history


@pytest.mark.parametrize(("damage", "share"), [(flip, 0.2), (flip, 0.5), (flip, 0.8), (cut, 0.5)])
@pytest.mark.slow
def test_a_damaged_state_starts_the_run_again(
    damage: Callable[[Path, int], None],
    share: float,
    stores: tuple[Path, Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kill_after(5, RUN, tmp_path, rules=NEW)
    state = tmp_path / RUN.key / STATE
    damage(state, int(share * state.stat().st_size))
    _, steps = train_noting_steps(RUN, tmp_path, rules=NEW)
    assert steps[0] == 1
    assert f"{state} can't be read" in caplog.text
    assert content(tmp_path / RUN.key) == content(stores[1] / RUN.key)


def test_train_refuses_a_batch_larger_than_the_examples(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch_size must be at most the number of training examples, 100, got 101"):
        train(replace(RUN, batch_size=101), tmp_path)


def test_train_names_weights_that_are_not_finite(tmp_path: Path) -> None:
    """A rate that no Run accepts makes one step's weights infinite while its loss is not."""
    run = replace(RUN, batch_size=100, warmup=0.0)
    object.__setattr__(run, "learning_rate", 1e39)
    with pytest.raises(DivergedError, match=f"run {run.key}: weights are not finite after step 1 of 1"):
        train(run, tmp_path, rules=("last",))
    assert not (tmp_path / run.key / "last").exists()


@pytest.mark.slow
def test_train_says_that_fp16_is_slow_on_a_cpu(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = train(replace(RUN, precision="fp16", batch_size=50), tmp_path)
    assert any("fp16 is slow on a CPU" in warning for warning in history.warnings)
    assert "fp16 is slow on a CPU" in caplog.text


STEPS = {"quarter_1": 4, "quarter_2": 7, "quarter_3": 10}  # of 14: 3.5 and 10.5 are rounded to even


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
@pytest.mark.parametrize("at", [3, 4, 8])
def test_a_run_stopped_around_a_quarter_ends_with_the_same_bits(at: int, tmp_path: Path, quartered: Trained) -> None:
    quartered.leave(at, tmp_path)  # without a state at every step: a quarter must leave one of its own
    history, steps = train_noting_steps(TINY, tmp_path, rules=(*KEEP, *QUARTERS))
    assert steps[0] == {3: 1, 4: 5, 8: 9}[at]
    quartered.assert_same(tmp_path, history)


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
    quartered.assert_same(tmp_path, train(TINY, tmp_path, rules=rules))


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
def test_without_any_evaluation_a_dev_rule_keeps_the_end_and_quarters_their_steps(tmp_path: Path) -> None:
    history = train(replace(TINY, epochs=1, eval_steps=100), tmp_path, rules=(*KEEP, "quarter_1"))
    assert {rule: kept.step for rule, kept in history.kept.items()} == {"quarter_1": 2, "synthetic_dev": 7, "last": 7}


def test_a_run_that_has_diverged_keeps_no_quarter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = type(TINY.method).loss

    def broken(self: Any, encode: Any, batch: Any, modules: Any, targets: Any) -> Any:
        return replace(real(self, encode, batch, modules, targets), terms={"contrastive": torch.tensor(float("nan"))})

    monkeypatch.setattr(type(TINY.method), "loss", broken)
    with pytest.raises(DivergedError):
        train(TINY, tmp_path, rules=QUARTERS)
    assert not list((tmp_path / TINY.key).rglob("quarter_*"))
