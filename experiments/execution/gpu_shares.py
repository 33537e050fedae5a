"""How many runs at a time pay off on one GPU, by the measurements of `bench_gpu.py`."""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

MEASURED = Path(__file__).parents[2] / "analysis/measured/shares.csv"
WORTH = 1.05  # a larger number of runs must do at least this many times the work of a smaller one


def read_shares(path: Path = MEASURED) -> list[dict[str, str]]:
    """Return the measured rows; none if no GPU was measured yet."""
    return list(csv.DictReader(path.read_text().splitlines())) if path.is_file() else []


def best_shares(rows: Iterable[Mapping[str, str]]) -> dict[tuple[str, str], tuple[int, float, float]]:
    """Return, by GPU and model, how many runs pay off, how many times the work of one they do, and the GiB of each."""
    groups: dict[tuple[str, str], list[tuple[int, float, float]]] = defaultdict(list)
    for row in rows:
        groups[row["machine"], row["model"]].append((int(row["runs"]), float(row["speedup"]), float(row["gib"])))
    best = {}
    for name, points in groups.items():
        chosen, *more = sorted(points)
        for point in more:
            chosen = point if point[1] >= WORTH * chosen[1] else chosen
        best[name] = chosen
    return best


def describe_shares(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """Return a line for each measured model, or one that says that nothing is measured."""
    best = best_shares(rows)
    if not best:
        return ["How many runs pay on one GPU is not measured yet: tests/benchmarks/gpu_session.py does it."]
    return [
        f"On {machine}, {runs} runs of {model} at once do {speedup:.1f} times the work of one, "
        f"{gib:.1f} GiB each: --gpus-per-run {1 / runs:g}"
        for (machine, model), (runs, speedup, gib) in best.items()
    ]
