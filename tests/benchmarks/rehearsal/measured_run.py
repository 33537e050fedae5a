"""Run one job in new processes: kill it after a step whose state is saved, then resume, measure and score it."""

import multiprocessing
import os
import signal
import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from cse_core.training.run_state import History
from experiments.execution.job import ExecutionSettings, Job, execute

STATUS = Path("/proc/self/status")
KILLED_AFTER = 1  # steps
NEVER = 1e9  # seconds between saved states


@dataclass(frozen=True)
class Measured:
    """What one process did: its steps, the peak growth of its memory (bytes), and the seconds of its fastest step.

    Seconds are processor time on a CPU, which other processes do not lengthen, and wall-clock time on a GPU. They are
    None for a run of one step and for an encoder that is not trained.
    """

    steps: tuple[int, ...]
    peak: int
    seconds: float | None
    scores: dict[str, float]
    device: str
    threads: int
    versions: str


class Meter:
    """Record the time and the memory after each step."""

    def __init__(self, device: str, killed_after: int = 0) -> None:
        self.device, self.killed_after = device, killed_after
        self.at: dict[int, float] = {}
        self.before, self.peak = _memory("VmRSS", device), 0

    def step(self, step: int, history: History) -> None:
        """Record a step; after step `killed_after`, kill this process."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        self.at[step] = time.perf_counter() if self.device == "cuda" else time.process_time()
        self.peak = _memory("VmHWM", self.device) - self.before
        if step == self.killed_after:
            os.kill(os.getpid(), signal.SIGKILL)

    @property
    def seconds(self) -> float | None:
        """The shortest time of a step that follows another one."""
        return min((self.at[step] - self.at[step - 1] for step in self.at if step - 1 in self.at), default=None)


def _memory(what: str, device: str) -> int:
    """Return the bytes of memory of this process, or of its GPU: now (VmRSS) or at the peak (VmHWM)."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() if what == "VmHWM" else torch.cuda.memory_allocated()
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{what}:"))
    return 1024 * int(line.split()[1])


def rehearse(job: Job, execution: ExecutionSettings, *, kill: bool = True) -> Measured:
    """Train and score a job; with `kill`, in two processes: the second must resume after the first one's step.

    An error of the job is raised again here.
    """
    if kill:
        ended = _in_process(job, replace(execution, save_seconds=0.0), KILLED_AFTER)
        if ended is not None:
            raise RuntimeError(f"run {job.key}: its process ended before it was killed, at step {KILLED_AFTER}")
    measured = _in_process(job, replace(execution, save_seconds=NEVER))
    if measured is None:
        raise RuntimeError(f"run {job.key}: its process was killed; it may have taken too much memory")
    if kill and measured.steps[:1] != (KILLED_AFTER + 1,):
        raise RuntimeError(f"run {job.key}: expected to resume at step {KILLED_AFTER + 1}, found {measured.steps}")
    return measured


def _in_process(job: Job, execution: ExecutionSettings, killed_after: int = 0) -> Measured | None:
    """Do a job in a new process; return None if it was killed."""
    context = multiprocessing.get_context("forkserver")  # children start with the libraries, without a GPU in use
    context.set_forkserver_preload(["datasets", "transformers", __name__])
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, execution, killed_after, writer))
    process.start()
    writer.close()
    try:
        outcome = reader.recv()
    except EOFError:
        outcome = None
    process.join()
    if outcome is None and process.exitcode != -signal.SIGKILL:
        raise RuntimeError(f"run {job.key}: its process ended with status {process.exitcode}")
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _work(job: Job, execution: ExecutionSettings, killed_after: int, results: Connection) -> None:
    """Do a job and send what was measured, or the error."""
    try:
        meter = Meter(execution.device, killed_after)
        result = execute(job, execution, on_step=meter.step)
    except Exception as error:  # noqa: BLE001 - any error is the row's result
        results.send(RuntimeError(f"{type(error).__name__}: {error}"))
        return
    results.send(_describe(meter, result, execution))


def _describe(meter: Meter, result: dict[str, Any], execution: ExecutionSettings) -> Measured:
    scores = {f"{cell['task']} {cell['metric']}": cell["score"] for cell in result["cells"]}
    about = result["environment"]
    versions = f"torch {about['torch']} transformers {about['transformers']}"
    return Measured(tuple(meter.at), meter.peak, meter.seconds, scores, about["device"], execution.threads, versions)
