"""Tiny runs, how they are killed, and what of two runs must be equal."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file

from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus, Pretrained, Run

pass

KEEP = ("synthetic_dev", "last")


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


def weights(store: Path, run: Run, rule: str) -> dict[str, torch.Tensor]:
    return load_file(store / run.key / rule / "model.safetensors")


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class Killed(Exception):  # noqa: N818 - it simulates a kill, it is no error
    pass


def stop_at(last: int) -> Callable[[int, object], None]:
    def stop(step: int, history: object) -> None:
        if step == last:
            raise Killed

    return stop


RUN = replace(TINY, epochs=1)


OLD, NEW = ("synthetic_dev",), ("last", "synthetic_dev")
