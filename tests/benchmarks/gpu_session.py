"""Run stages of work on a GPU within a time budget, and continue where the last session stopped.

    python tests/benchmarks/gpu_session.py --minutes 25 --out FOLDER [--stages right backbone speed]
    python tests/benchmarks/gpu_session.py --minutes 2 --out FOLDER --device cpu --tiny

Each stage is a list of steps, and each step is a process with a time limit. When a step ends, its outcome is added to
FOLDER/steps.jsonl; its output is in FOLDER/NAME.txt. A later session skips the steps that are done. Ctrl-C or SIGTERM
ends the running step; finished steps are kept. No network is needed.

right      the tests on a GPU; bits of two runs and of a resumed one; the cost of deterministic algorithms
backbone   pre-training of a BERT of 12 layers of 384 (wiki-large), in the time that is left for it
speed      steps eager and compiled, as shares of the matmul rate; runs that share the card; batches of 64 and 512
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

ROOT = Path(__file__).parents[2]
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=")
BENCHMARK = (*PYTEST, "-s", "-o", "python_files=bench_*.py", "tests/benchmarks/bench_gpu.py")
LEAST = 10.0  # seconds; with less left, no step is started
Stage = Literal["right", "backbone", "speed"]


@dataclass(frozen=True)
class Step:
    """A Python command, its time limit in seconds, and whether it uses all of that time on purpose."""

    name: str
    command: tuple[str, ...]
    seconds: float
    fills: bool = False


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run stages on a GPU within a time budget; continue where the last session stopped."""

    minutes: float
    """Time in all; a step that does not fit any more is left for the next session."""
    out: Path
    """Folder of the outcomes."""
    stages: tuple[Stage, ...] = ("right", "backbone", "speed")
    """Stages in their order."""
    device: Literal["cuda", "cpu"] = "cuda"
    """cpu is for trying the script."""
    tiny: bool = False
    """Smallest sizes, to try the script."""
    data: Path | None = None
    """Folder of the data, for the sentences to pre-train on; without it synthetic ones."""


def steps_of(stage: Stage, options: Options) -> list[Step]:
    """Return a stage's steps."""
    this = str(Path(__file__).relative_to(ROOT))
    if stage == "right":
        bits_of = (this, "bits", options.device, str(options.out))
        tests = "tests/cse_core/models/test_on_gpu.py"
        return [
            Step("tests", (*PYTEST, tests, "-k", "state or waits" if options.tiny else ""), 300),
            *(Step(f"bits-{kind}", (*bits_of, kind), 120) for kind in ("first", "second", "resumed", "deterministic")),
        ]
    if stage == "backbone":
        command = (this, "pretrain", options.device, str(options.out), "tiny" if options.tiny else "large")
        return [Step("pretrain", (*command, str(options.data or "")), 20 if options.tiny else 18 * 60, fills=True)]
    if options.tiny:
        return [Step("speed-64", (*BENCHMARK, "-k", "rate and 64"), 60)]
    return [Step(f"speed-{batch}", (*BENCHMARK, "-k", batch), 240) for batch in ("64", "512")]


class StoppedError(Exception):
    """The session was asked to end."""


def run_step(step: Step, limit: float, out: Path) -> dict[str, Any]:
    """Run a step for at most `limit` seconds, and end its whole process group with it."""
    started = time.monotonic()
    environment = os.environ | {"CSE_SECONDS": str(limit), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    with (out / f"{step.name}.txt").open("w") as output:
        command = [sys.executable, *step.command]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code: int | None = process.wait(limit + (30 if step.fills else 0))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    outcome = {0: "done", None: "out of time"}.get(code, f"failed with {code}")
    return {"step": step.name, "outcome": outcome, "seconds": round(time.monotonic() - started, 1)}


def finished(out: Path) -> set[str]:
    """Return the steps that are done; ignore a line that a session was killed while writing."""
    names = set()
    for line in (out / "steps.jsonl").read_text().splitlines() if (out / "steps.jsonl").exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry["outcome"] == "done":
            names.add(entry["step"])
    return names


def main(options: Options) -> int:
    """Run the remaining steps of the stages; return how many failed."""
    options.out.mkdir(parents=True, exist_ok=True)
    end, done, failed = time.monotonic() + 60 * options.minutes, finished(options.out), 0

    def stop(*_: object) -> None:
        raise StoppedError

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    for step in (step for stage in options.stages for step in steps_of(stage, options)):
        left = end - time.monotonic()
        if step.name in done:
            print(f"{step.name}: done before", flush=True)
        elif left < LEAST:
            print(f"{step.name}: left for the next session, {max(0, left):.0f} s are too few", flush=True)
        else:
            entry = _run_and_keep(step, min(left, step.seconds), options.out)
            failed += entry["outcome"] != "done"
    return failed


def _run_and_keep(step: Step, limit: float, out: Path) -> dict[str, Any]:
    try:
        entry = run_step(step, limit, out)
    except StoppedError:
        print(f"{step.name}: interrupted", flush=True)
        raise SystemExit(130) from None
    with (out / "steps.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")
    print(f"{step.name}: {entry['outcome']}, {entry['seconds']:g} s, {out / step.name}.txt", flush=True)
    return entry


def bits(device: str, out: str, kind: str) -> None:
    """Train twelve steps, if "resumed" with a state saved and loaded half-way; compare weights with the first run's."""
    import torch

    from cse_core.methods.simcse import SimCSE
    from cse_core.run import Corpus, Pretrained, Run
    from cse_core.training.loop import Execution, Loop

    torch.use_deterministic_algorithms(kind == "deterministic", warn_only=True)
    run = Run(method=SimCSE(), backbone=Pretrained("wiki-tiny"), corpus=Corpus("synthetic", 2048))

    def begin() -> Loop:
        return Loop(run, Execution(Path(out) / "runs", device=device))

    loop, started = begin(), time.monotonic()
    for step in range(12):
        if kind == "resumed" and step == 6:
            folder = Path(out) / "resumed"
            folder.mkdir(exist_ok=True)
            loop.save(folder / "state.pt")
            loop = begin()
            loop.resume(folder)
        loop.train_step(step)
    loop.flush()
    weights = torch.cat([p.detach().flatten().cpu() for p in loop.trained])
    print(json.dumps({"kind": kind, "seconds": round(time.monotonic() - started, 2)}))
    if kind == "first":
        torch.save(weights, Path(out) / "first.pt")
    elif kind != "deterministic":
        first = torch.load(Path(out) / "first.pt")
        print(f"{int((weights != first).sum())} of {len(first)} weights differ, by at most", end=" ")
        print(f"{float((weights - first).abs().max()):.3g}")


def pretrain_stage(device: str, out: str, size: str, data: str) -> None:
    """Pre-train for the seconds that are left, minus the time for saving."""
    from cse_core.data.corpora import sentences
    from cse_core.models.encoder import Encoder
    from cse_core.run import Corpus
    from tests.benchmarks.pretraining import Pretraining, pretrain

    started = time.monotonic()
    encoder = Encoder.from_pretrained("wiki-mini")
    corpus = Corpus("wiki_sentences_1m", 1_000_000) if data and size == "large" else Corpus("synthetic", 2_000)
    texts = sentences(corpus, Path(data) if data else None)["text"][:]
    small = Pretraining(layers=2, hidden=64, rows=8, compiled=False)
    left = float(os.environ["CSE_SECONDS"]) - (time.monotonic() - started)
    reached = pretrain(
        small if size == "tiny" else Pretraining(),
        encoder.tokenise(texts),
        encoder.tokenizer,
        minutes=max(left - (60 if size == "large" else 8), 2) / 60,
        device=device,
        out=Path(out) / "backbone",
    )
    print(json.dumps(reached))


if __name__ == "__main__":
    if sys.argv[1:2] == ["bits"]:
        bits(*sys.argv[2:])
    elif sys.argv[1:2] == ["pretrain"]:
        pretrain_stage(*sys.argv[2:])
    else:
        sys.exit(min(1, main(tyro.cli(Options))))
