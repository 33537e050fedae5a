"""Train a few steps twice, and once killed and resumed, and compare all weights bit by bit.

    python -m tests.benchmarks.repeated_runs --out FOLDER --device cuda [--deterministic]

SimCSE in fp32 and bf16, and the four papers' methods in bf16, on wiki-tiny. A second process saves each run's state
half-way, takes two more steps, and kills itself; this one resumes. The exit status is 1 if any weight differs.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro
from torch import Tensor

from cse_core.run import Corpus, Run
from cse_core.training.loop import Execution, Loop
from cse_core.training.run_state import STATE
from tests.support.padded_loops import METHODS, OTHERS, TINY

PAPERS = ("simcse", "rankcse", "rankencoder", "whitenedcse", "compcse")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Compare the weights of two runs, and those of a run that was killed and resumed."""

    out: Path
    """Folder of the states and runs."""
    device: Literal["cuda", "cpu"] = "cuda"
    """Where to train."""
    deterministic: bool = False
    """Use torch's deterministic algorithms; the printed seconds show what they cost."""
    steps: int = 12
    """Steps of each run; the state is saved half-way."""
    only: tuple[str, ...] = PAPERS
    """Methods."""
    killed: bool = False
    """Train each run up to its state and beyond, then kill this process: used by the command itself."""


def runs_of(options: Options) -> dict[str, Run]:
    """Return the runs by what they are called."""
    named = {f"{name} bf16": (name, "bf16") for name in options.only}
    if "simcse" in options.only:
        named = {"simcse fp32": ("simcse", "fp32"), **named}
    corpus = Corpus("synthetic", 2048)
    return {
        name: Run(method=(METHODS | OTHERS)[method], backbone=TINY, corpus=corpus, precision=precision)  # ty: ignore
        for name, (method, precision) in named.items()
    }


def train(run: Run, options: Options, state: Path, *, resumed: bool = False) -> tuple[Tensor, float]:
    """Train a run from its start or its state, and return all weights and the seconds of its later half."""
    loop = Loop(run, Execution(options.out / "runs", device=options.device))
    if resumed:
        loop.resume(state)
        assert loop.step == options.steps // 2, f"{state}: expected a state of step {options.steps // 2}"
    started = 0.0
    for step in range(loop.step, options.steps):
        if step == options.steps // 2:
            loop.flush()  # waits for the device
            started = time.monotonic()
        loop.train_step(step)
    loop.flush()
    seconds = time.monotonic() - started
    return torch.cat([p.detach().flatten().cpu() for p in loop.trained]), seconds


def killed_half_way(options: Options) -> None:
    """Save each run's state half-way, take two more steps of it, and kill this process."""
    for name, run in runs_of(options).items():
        loop = Loop(run, Execution(options.out / "runs", device=options.device))
        for step in range(options.steps // 2 + 2):
            if step == options.steps // 2:
                folder = options.out / "states" / name
                folder.mkdir(parents=True, exist_ok=True)
                loop.save(folder / STATE)
            loop.train_step(step)
        loop.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def difference(weights: Tensor, other: Tensor) -> str:
    """Say in how many weights two runs differ; return nothing if in none."""
    differ = int((weights != other).sum())
    return f"{differ:,} of {len(weights):,} weights, by up to {(weights - other).abs().max():.2g}" if differ else ""


def main(options: Options) -> int:
    """Train all runs and print a line for each; return 1 if any weight differs."""
    if options.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when CUDA starts
    torch.use_deterministic_algorithms(options.deterministic, warn_only=True)
    if options.killed:
        killed_half_way(options)
    command = [sys.executable, "-m", "tests.benchmarks.repeated_runs", *sys.argv[1:], "--killed"]
    status = subprocess.run(command, check=False).returncode
    if status != -signal.SIGKILL:
        raise RuntimeError(f"the process that was to be killed ended with status {status}")
    failed = 0
    for name, run in runs_of(options).items():
        state = options.out / "states" / name
        (first, _), (second, seconds) = (train(run, options, state) for _ in range(2))
        resumed, _ = train(run, options, state, resumed=True)
        line = {"two runs": difference(first, second), "resumed": difference(first, resumed)}
        failed += any(line.values())
        shown = {what: differs or "same bits" for what, differs in line.items()}
        print(json.dumps({"run": name, **shown, "seconds": round(seconds, 3)}), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
