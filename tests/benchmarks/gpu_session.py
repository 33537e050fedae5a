"""Run stages of work on a GPU within a time budget, and continue where the last session stopped.

    python tests/benchmarks/gpu_session.py --minutes 25 --data FOLDER --out FOLDER [--stages right backbone speed]
    python tests/benchmarks/gpu_session.py --minutes 9 --out FOLDER --device cpu --tiny

Each stage is a list of steps, and each step is a process. It is started if the seconds that it needs are left, and is
ended with the session at the latest. When a step ends, its outcome is added to FOLDER/steps.jsonl; its output is in
FOLDER/STEP.txt, and measured figures are in FOLDER/measured. A later session skips the steps that are done. A failed
step makes the exit status 1, blocks only steps that would say nothing without it, and is tried again by the next
session. Ctrl-C or SIGTERM ends the running step; finished steps are kept. No network is needed.

right      the tests on a GPU; two runs and a killed one compared bit by bit, also with deterministic algorithms
speed      steps eager, compiled and without CUDA graphs; another trainer; runs that share the card
scores     scores of SimCSE in fp32, bf16 and fp16
rehearsal  rows of the rehearsal that no GPU has measured yet
backbone   pre-training of a BERT of 12 layers of 384, over as many sessions as it takes, if FOLDER is kept between them
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro

ROOT = Path(__file__).parents[2]
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "-W", "default")
BENCHMARKS = (*PYTEST, "-s", "-o", "python_files=bench_*.py")
BENCH_GPU = "tests/benchmarks/bench_gpu.py"
UNFINISHED = 75  # exit status of a step that the next session continues
Stage = Literal["right", "speed", "scores", "rehearsal", "backbone"]
STAGES: tuple[Stage, ...] = ("right", "speed", "scores", "rehearsal", "backbone")


@dataclass(frozen=True)
class Step:
    """A Python command, the seconds that must be left to start it, and those after which it is ended.

    A step that `fills` uses whatever time it gets, keeps what it has done, and is continued by the next session;
    SECONDS in its command is replaced by its time. `after` is a step without which it would say nothing.
    """

    name: str
    command: tuple[str, ...]
    needs: float
    most: float
    fills: bool = False
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run stages on a GPU within a time budget; continue where the last session stopped."""

    minutes: float
    """Time in all. A step that needs more than is left is left for the next session."""
    out: Path
    """Folder of the outcomes."""
    data: Path | None = None
    """Folder of the data. Required without --tiny."""
    stages: tuple[Stage, ...] = STAGES
    """Stages in their order."""
    device: Literal["cuda", "cpu"] = "cuda"
    """cpu is for trying the script."""
    tiny: bool = False
    """Smallest sizes and made-up sentences, to try the script; outcomes are in OUT/tiny."""
    dry_run: bool = False
    """Print the steps that are left, and run nothing."""


def steps_of(stage: Stage, options: Options) -> list[Step]:
    """Return a stage's steps."""
    tiny = ("--tiny",) if options.tiny else ()
    data = () if options.tiny else ("--data", str(options.data))

    def place(name: str) -> tuple[str, ...]:
        return ("--out", str(options.out / name), "--device", options.device)

    if stage == "right":
        chosen = "waits_are_seen" if tiny else "test_a_step_never_waits_for_the_gpu or test_losses_on_a_gpu"
        tests = (*PYTEST, "tests/cse_core/models/test_on_gpu.py", "-k", chosen)  # the others need no GPU
        bits = ("-m", "tests.benchmarks.repeated_runs", *(("--steps", "4", "--only", "simcse") if tiny else ()))
        return [
            Step("tests", tests, 60, 240),
            Step("bits", (*bits, *place("bits")), 60, 180),
            Step("bits-deterministic", (*bits, *place("deterministic"), "--deterministic"), 60, 180),
        ]
    if stage == "backbone":
        command = ("-m", "tests.benchmarks.pretraining", *place("backbone"), *data, *tiny, "--seconds", "SECONDS")
        length = ("--minutes", "0.02" if tiny else "18")
        return [Step("pretrain", (*command, *length), 15 if tiny else 180, 1800, fills=True)]
    if stage == "scores":
        command = ("-m", "tests.benchmarks.precision_scores", *place("scores"), *data, *tiny)
        return [Step("scores", command, 60, 300, fills=True, after="tests")]
    if stage == "rehearsal":
        return [_rehearsal(options)]
    return _speed(tiny=options.tiny)


def _speed(*, tiny: bool) -> list[Step]:
    batches = ["8"] if tiny else ["64", "512"]
    precisions = ["fp32"] if tiny else ["bf16", "fp32"]
    tests = [("eager", 40, [f"test_share_of_the_matmul_rate[{batch}-eager]" for batch in batches])]
    for way in () if tiny else ("compiled", "without-cuda-graphs"):
        tests += [(f"{way}-{batch}", 120, [f"test_share_of_the_matmul_rate[{batch}-{way}]"]) for batch in batches]
    tests += [("peer", 60, [f"test_against_another_trainer[{b}-{p}]" for b in batches for p in precisions])]
    tests += [("rankcse", 40, [f"test_rankcse_against_simcse[{batch}]" for batch in batches])]
    models = ["6 layers of 256", "12 layers of 768"][: 1 if tiny else 2]
    tests += [(f"share-{m.replace(' ', '-')}", 120, [f"test_runs_that_share_the_card[{m}]"]) for m in models]
    return [
        Step(name, (*BENCHMARKS, *(f"{BENCH_GPU}::{test}" for test in chosen)), 20 if tiny else needs, 300)
        for name, needs, chosen in tests
    ]


def _rehearsal(options: Options) -> Step:
    """Return the step of the rehearsal; stopped at its limit, it keeps the rows that it has measured."""
    command = ("-m", "tests.benchmarks.bench_published_scale", "--missing", "--device", options.device)
    folder = ("--encoders", str(options.out / "rehearsal"), "--task", "synthetic_dev")
    if options.tiny:
        size = ("--layers", "1", "--batch-size", "4", "--only", "simcse", "--backbones", "bert-base-uncased")
        return Step("rehearsal", (*command, *folder, "--corpus", "synthetic", *size), 60, 240, fills=True)
    corpus = ("--corpus", "wiki_sentences_1m", "--data", str(options.data))
    return Step("rehearsal", (*command, *folder, *corpus), 150, 1800, fills=True)


class StoppedError(Exception):
    """The session was asked to end."""


def run_step(step: Step, limit: float, options: Options) -> str:
    """Run a step for at most `limit` seconds, end its whole process group with it, and return its outcome."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "CSE_TINY": str(int(options.tiny))}
    environment["CSE_BENCH"] = str((options.out / "measured").resolve())
    command = [word.replace("SECONDS", f"{limit:.0f}") for word in step.command]
    said = options.out / f"{step.name}.txt"
    with said.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):  # none is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code == 0 and "pytest" in command and not re.search(r"\b\d+ passed", said.read_text(errors="replace")):
        return "failed: all of its tests were skipped"
    if step.fills and code in (None, UNFINISHED):
        return "unfinished"
    return {0: "done", None: "failed: out of time"}.get(code, f"failed with {code}")


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
    """Run the remaining steps of the stages, and say how each ended; return 1 if one failed, 130 if interrupted."""
    if options.tiny:
        options = replace(options, out=options.out / "tiny")
    elif not options.data:
        raise ValueError("--data: expected the folder of the data; only --tiny takes made-up sentences")
    if not options.dry_run:
        options = replace(options, out=options.out.resolve(), data=options.data and options.data.resolve())
    steps = [step for stage in options.stages for step in steps_of(stage, options)]
    if options.dry_run:
        print_steps(step for step in steps if step.name not in finished(options.out))
        return 0
    if options.device == "cuda":
        import torch  # lazy: slow import

        if not torch.cuda.is_available():
            raise ValueError("--device cuda: torch finds no GPU here")
    options.out.mkdir(parents=True, exist_ok=True)

    def stop(*_: object) -> None:
        raise StoppedError

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    end, outcomes = time.monotonic() + 60 * options.minutes, {}
    for step in steps:
        try:
            outcomes[step.name] = _run_in_time(step, end, outcomes, options)
        except StoppedError:
            print(f"{step.name}: interrupted", flush=True)
            return 130
    failed = [name for name, outcome in outcomes.items() if outcome.startswith(("failed", "blocked"))]
    left = [name for name, outcome in outcomes.items() if outcome.startswith(("left", "unfinished"))]
    print(f"failed: {', '.join(failed) or 'none'}; for the next session: {', '.join(left) or 'none'}")
    return int(bool(failed))


def print_steps(steps: Iterable[Step]) -> None:
    """Print the seconds that each step needs and may take, and its command without what all have."""
    print(f"{'step':24} needs  most  command")
    for step in steps:
        words = [word.removeprefix("tests.benchmarks.") for word in step.command if word not in BENCHMARKS]
        shown = " ".join(word.removeprefix(f"{BENCH_GPU}::") for word in words)
        print(f"{step.name:24} {step.needs:5g} {step.most:5g}  {shown}")


def _run_in_time(step: Step, end: float, outcomes: dict[str, str], options: Options) -> str:
    left, done = end - time.monotonic(), finished(options.out)
    if step.name in done:
        outcome = "done before"
    elif left < step.needs:
        outcome = f"left for the next session: needs {step.needs:g} s, {max(0, left):.0f} s are left"
    elif step.after not in done and step.after in outcomes:
        outcome = f"blocked: {step.after} is not done"
    else:
        started = time.monotonic()
        outcome = run_step(step, min(left, step.most), options)
        entry = {"step": step.name, "outcome": outcome, "seconds": round(time.monotonic() - started, 1)}
        with (options.out / "steps.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")
    print(f"{step.name}: {outcome}", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
