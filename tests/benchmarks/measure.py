"""Measure how long work takes, and keep the figures in the folder CSE_BENCH if it is set (analysis/measured)."""

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import pandas as pd
import psutil
import torch
from torch.profiler import ProfilerActivity

from analysis.report.benchmark_tables import exponent
from cse_core.models.encoder import Encoder
from experiments.results.provenance import environment

LIBRARIES = ("torch", "transformers", "sentence-transformers", "numpy", "ray")


def seconds(work: Callable[[], object]) -> float:
    """Return the wall-clock seconds of some work."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def peak_while(work: Callable[[], object]) -> float:
    """Return by how many MiB this process and its children grow during some work, counting shared pages once.

    Memory is read twice a second, so a shorter peak may be missed.
    """
    me, held, ended = psutil.Process(), [], threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            held.append(sum(map(_share_of_pages, [me, *me.children(recursive=True)])))

    before = _share_of_pages(me)
    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        work()
    finally:
        ended.set()
        watcher.join()
    return (max(held) - before) / 2**20


def _share_of_pages(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.Error:  # it ended in the meantime
        return 0


def by_turns(rounds: int, **works: Callable[[], object]) -> dict[str, list[float]]:
    """Return the seconds of each work in each round; they take turns, so that a noisy machine slows all of them."""
    timed: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            timed[name].append(seconds(work))
    return timed


def quotients(top: Sequence[float], bottom: Sequence[float]) -> list[float]:
    """Return the quotients turn by turn."""
    return [a / b for a, b in zip(top, bottom, strict=True)]


def matmul_rate(dtype: torch.dtype, device: str = "cpu", size: int = 1024) -> float:
    """Return the operations per second of a large square product, the best of ten."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))

    def product() -> None:
        _ = a @ b
        if device == "cuda":
            torch.cuda.synchronize()

    return 2 * size**3 / min(seconds(product) for _ in range(10))


def operations(encoder: Encoder, tokens: int) -> float:
    """Return a step's operations on real tokens: products with the layers' weights, forward and twice as many back."""
    layers = [w for name, w in encoder.backbone.named_parameters() if w.ndim == 2 and "embeddings" not in name]
    return 3 * 2 * tokens * sum(w.numel() for w in layers)


def share(done: float, took: Sequence[float], rate: Sequence[float]) -> list[float]:
    """Return the share of the matmul rate that each turn reached."""
    return [done / t / r for t, r in zip(took, rate, strict=True)]


def record(
    what: str,
    ratios: Sequence[float],
    *,
    against: str,
    wanted: str,
    bound: str = "",
    note: str = "",
    device: str = "cpu",
    table: str = "ratios",
) -> float:
    """Print the median of a ratio with its quartiles, keep it if figures are kept, and return it.

    `wanted` is the aim, such as "at least 1.5" or "at most 1.10"; `bound` says what limits it, and `note` has the raw
    figures. The table `tried` has alternatives that were tried and are not used.
    """
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    middle = median(ratios)
    print(f"\n{what}: {middle:.3f} [{low:.3f}, {high:.3f}] of {len(ratios)}, {wanted or 'no aim'}; {against}; {note}")
    found = {"what": what, "ratio": middle, "low": low, "high": high, "turns": len(ratios), "wanted": wanted}
    _keep(table, ["what"], [found | {"against": against, "bound": bound, "note": note}], device)
    return middle


def curve(what: str, of: str, points: dict[int, float], unit: str, device: str = "cpu") -> float:
    """Keep how a figure grows; return its exponent, by least squares on both logarithms."""
    slope = exponent(pd.Series(list(points)), pd.Series(list(points.values())))
    print(f"\n{what} grows with {of} to the power {slope:.2f}: {points} {unit}")
    rows = [{"what": what, "of": of, "x": x, "value": value, "unit": unit} for x, value in points.items()]
    _keep("scaling", ["what", "of", "x"], rows, device)
    return slope


def profile(step: str, parts: dict[str, float], device: str = "cpu") -> None:
    """Keep the milliseconds of a step's parts."""
    _keep("profiles", ["step", "part"], [{"step": step, "part": p, "ms": ms} for p, ms in parts.items()], device)


def share_of_card(model: str, runs: int, speedup: float, gib: float, card: float, busy: float, device: str) -> float:
    """Keep the speedup of several runs at once on a GPU over one run, the GiB of each, and those of the card.

    `busy` is the share of its time in which a run by itself keeps the card busy.
    """
    print(f"\n{runs} runs of {model} at once: {speedup:.2f} times the work of one, {gib:.2f} of {card:.0f} GiB each")
    found = {"model": model, "runs": runs, "speedup": speedup, "gib": gib, "card_gib": card, "busy": busy}
    _keep("shares", ["machine", "model", "runs"], [found], device)
    return speedup


def kernels_of(step: Callable[[], object], steps: int, device: str) -> tuple[float, float, float]:
    """Return by torch's profiler, for each of some steps: its kernels, their seconds, and the seconds between them.

    On a CPU, operators are counted in place of kernels. The profiler lengthens the time between kernels.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(steps):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kinds = ("kernel", "gpu_memcpy", "gpu_memset") if device == "cuda" else ("cpu_op",)
    count, busy, idle = busy_time([(e["ts"], e["dur"]) for e in events if e.get("cat") in kinds and "dur" in e])
    return count / steps, busy / 1e6 / steps, idle / 1e6 / steps


def busy_time(intervals: Sequence[tuple[float, float]]) -> tuple[int, float, float]:
    """Return the number of intervals (start, length), how long at least one lasts, and how long none does between."""
    busy, idle, end = 0.0, 0.0, min((start for start, _ in intervals), default=0.0)
    for start, length in sorted(intervals):
        idle += max(0.0, start - end)
        busy += max(0.0, start + length - max(start, end))
        end = max(end, start + length)
    return len(intervals), busy, idle


def _version(library: str) -> str:
    """Return a library's name and version; empty if it is not installed, as then no benchmark has used it."""
    try:
        return f"{library} {version(library)}"
    except PackageNotFoundError:
        return ""


def _keep(name: str, identity: list[str], rows: list[dict], device: str) -> None:
    folder = os.environ.get("CSE_BENCH")
    if not folder:
        return
    path = Path(folder) / f"{name}.csv"
    about = environment(device, torch.get_num_threads())
    versions = " ".join(filter(None, map(_version, LIBRARIES)))
    where = {"on": device, "machine": about["device"], "threads": torch.get_num_threads(), "versions": versions}
    new = pd.DataFrame([row | where for row in rows])
    old = pd.read_csv(path, keep_default_na=False) if path.is_file() else new.iloc[:0]
    frame = pd.concat([old, new], ignore_index=True).drop_duplicates([*identity, "on"], keep="last")
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
