"""Tiny runs, ways to kill them, and comparisons of two runs."""

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cse_core.data import senteval, synthetic
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained, Run
from cse_core.seeding import seed_for
from cse_core.training.loop import Execution
from cse_core.training.run_state import History
from cse_core.training.train import train

KEEP = ("synthetic_dev", "last")
QUARTERS = ("quarter_1", "quarter_2", "quarter_3")


TINY = Run(
    method=SimCSE(),
    backbone=Pretrained("wiki-tiny"),
    corpus=Corpus("synthetic", 100),
    batch_size=16,
    learning_rate=3e-4,
    dropout=0.3,
    warmup=0.2,
    epochs=2,
    eval_steps=4,
)


@contextmanager
def few_dev_pairs() -> Generator[None]:
    """Cut `synthetic_dev` to its first 60 pairs: scoring all 500 takes longer than the steps of a tiny run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(synthetic.SIZES, "dev", 60)
        senteval._synthetic_rows.cache_clear()
        yield
    senteval._synthetic_rows.cache_clear()


@dataclass(frozen=True)
class Trained:
    """A finished TINY, and copies of its folder after some of its steps, as a kill would leave it."""

    store: Path
    history: History

    @classmethod
    def of(cls, store: Path, *left: int, rules: tuple[str, ...], save_seconds: float) -> "Trained":
        def copy(step: int, history: History) -> None:
            if step in left:
                shutil.copytree(store / TINY.key, store / "left" / str(step))

        return cls(store, train(TINY, Execution(store, save_seconds=save_seconds), rules=rules, on_step=copy))

    def leave(self, step: int, store: Path) -> None:
        """Put the folder as it was after the step into another store."""
        shutil.copytree(self.store / "left" / str(step), store / TINY.key)

    def assert_same(self, store: Path, history: History) -> None:
        """TINY was trained with the same losses in another store, and the same weights were kept."""
        assert (history.curves, history.kept) == (self.history.curves, self.history.kept)
        for rule in self.history.kept:
            assert equal(weights(store, TINY, rule), weights(self.store, TINY, rule))


def weights(store: Path, run: Run, rule: str) -> dict[str, torch.Tensor]:
    return load_file(store / run.key / rule / "model.safetensors")


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def arithmetic() -> str:
    """Return what the exact bits of a training run depend on in this process."""
    kernels = "with" if torch.backends.mkldnn.enabled else "without"
    return f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, {kernels} oneDNN"


class Killed(Exception):  # noqa: N818 - it simulates a kill and is not an error
    pass


def stop_at(last: int) -> Callable[[int, object], None]:
    def stop(step: int, history: object) -> None:
        if step == last:
            raise Killed

    return stop


def kill_after(step: int, run: Run, store: Path, **settings: Any) -> None:
    """Train a run, or resume it, with a state after every step; kill it after the given one."""
    with pytest.raises(Killed):
        train(run, Execution(store, save_seconds=0.0), on_step=stop_at(step), **settings)


def train_noting_steps(run: Run, place: Execution | Path, **settings: Any) -> tuple[History, list[int]]:
    """Train a run, or resume it; return its history and the steps that it took."""
    steps: list[int] = []
    return train(run, place, on_step=lambda step, history: steps.append(step), **settings), steps


def starve(patch: pytest.MonkeyPatch, method: Any, seed: str, *, fits_twice: bool = True) -> None:
    """Let the step of a seed not fit into memory, unless activations are computed twice and that helps."""
    real = type(method).loss

    def loss(self: Any, encode: Any, batch: Any, modules: Any, targets: Any) -> Any:
        twice = encode.backbone.is_activation_checkpointing
        if "first" in modules:  # the second encoder that CT trains
            assert modules["first"].backbone.is_activation_checkpointing == twice
        if batch.generator.initial_seed() == seed_for(TINY.seed, seed) and not (twice and fits_twice):
            raise torch.OutOfMemoryError("tried to allocate 20 MiB")
        return real(self, encode, batch, modules, targets)

    patch.setattr(type(method), "loss", loss)


RUN = replace(TINY, epochs=1)


OLD, NEW = ("synthetic_dev",), ("last", "synthetic_dev")
