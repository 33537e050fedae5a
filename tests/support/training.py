"""Tiny runs, ways to kill them, and comparisons of two runs."""

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cse_core.data import senteval, synthetic
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained, Run
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


RUN = replace(TINY, epochs=1)


OLD, NEW = ("synthetic_dev",), ("last", "synthetic_dev")
