"""How many runs at a time pay off on one GPU, and how much longer each takes, by the figures of `bench_gpu.py`."""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MEASURED = Path(__file__).parents[2] / "analysis/measured/shares.csv"
WORTH = 1.05  # a larger number of runs must do at least this many times the work of a smaller one


@dataclass(frozen=True)
class Share:
    """What some runs at a time did on one GPU: `speedup` times the work of one, with the GiB of each and of the card.

    `busy` is the share of its time in which a run by itself keeps the card busy.
    """

    runs: int
    speedup: float
    gib: float
    card_gib: float
    busy: float

    @property
    def fits(self) -> bool:
        """Whether the card has the memory of all runs."""
        return self.runs * self.gib <= self.card_gib

    @property
    def slowdown(self) -> float:
        """How many times as long as by itself a run takes."""
        return self.runs / self.speedup


Shares = Mapping[tuple[str, str], list[Share]]  # by GPU and model, such as "6 layers of 256"; from few runs to many


def read_shares(path: Path | None = None) -> dict[tuple[str, str], list[Share]]:
    """Return what was measured; nothing if no GPU was measured yet."""
    path = path or MEASURED
    groups: dict[tuple[str, str], list[Share]] = defaultdict(list)
    for row in csv.DictReader(path.read_text().splitlines()) if path.is_file() else ():
        numbers = (float(row[name]) for name in ("speedup", "gib", "card_gib", "busy"))
        groups[row["machine"], row["model"]].append(Share(int(row["runs"]), *numbers))
    return {name: sorted(shares, key=lambda share: share.runs) for name, shares in groups.items()}


def best_share(shares: Iterable[Share]) -> Share:
    """Return the largest number of runs that fits and does enough more than smaller numbers do."""
    chosen, *more = shares
    for share in more:
        chosen = share if share.fits and share.speedup >= WORTH * chosen.speedup else chosen
    return chosen


def slowdown(measured: Shares, model: str, runs: int) -> float | None:
    """Return how many times as long a run takes with others on its GPU, on the slowest GPU that was measured.

    Between measured numbers of runs the line between them counts. None beyond them, or if the model was not measured.
    """
    if runs <= 1:
        return 1.0
    found = [
        float(np.interp(runs, [share.runs for share in shares], [share.slowdown for share in shares]))
        for (_, name), shares in measured.items()
        if name == model and shares[0].runs <= runs <= shares[-1].runs
    ]
    return max(found, default=None)


def describe_shares(measured: Shares) -> list[str]:
    """Return a line for each measured model, or one that says that nothing is measured."""
    if not measured:
        return ["How many runs pay on one GPU is not measured yet: tests/benchmarks/gpu_session.py does it."]
    return [
        f"On {machine}, {best.runs} runs of {model} at once do {best.speedup:.1f} times the work of one, with "
        f"{best.runs * best.gib:.1f} of {best.card_gib:.0f} GiB (one by itself keeps the GPU busy "
        f"{best.busy:.0%} of the time): --gpus-per-run {1 / best.runs:g}"
        for (machine, model), best in ((name, best_share(shares)) for name, shares in measured.items())
    ]
