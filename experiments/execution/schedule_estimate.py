"""How long runs take, and how long a plan of them takes on N GPUs: handed out one by one, nested ones first."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import pandas as pd

from cse_core.run import Run
from experiments.execution.job import Job
from experiments.execution.plan import Plan
from experiments.schema.study import Published

# What an epoch takes beside SimCSE's: encoder rows of a step, and other encoders' passes.
PASSES = {
    "rankcse": 1.5,
    "whitenedcse": 1.5,
    "compcse": 1.3,
    "rankencoder": 3.0,
    "diffcse": 3.0,
    "mlm": 2.0,
    "sncse": 1.5,
    "pcl": 10.0,
    "arccse": 2.5,
    "l2pcsr": 5.0,
}


def gpu_hours(run: Run) -> float:
    """An estimate for the papers' scale: what RankCSE's Table 11 gives for an epoch of SimCSE, times the passes."""
    size = "large" if "large" in run.backbone.name else "base"
    epoch = Published("rankcse_table11", size, "SimCSE").value("time_per_epoch_min")
    inner = getattr(run.method, "inner", None)
    passes = PASSES.get(run.method.name, 1.0) * (PASSES.get(inner.name, 1.0) if inner else 1.0)
    return run.epochs * passes * (epoch or 0.0) / 60


@dataclass(frozen=True)
class Simulated:
    """Seconds from the first start to the last end, seconds that slots worked, and how many slots there were."""

    makespan: float
    worked: float
    slots: int

    @property
    def used(self) -> float:
        """The share of the slots' time in which they worked."""
        return self.worked / (self.slots * self.makespan) if self.makespan else 0.0


def simulate(
    seconds: Mapping[str, float], needs: Mapping[str, Collection[str]], slots: int, order: Sequence[str]
) -> Simulated:
    """Whenever a slot is free it takes the first run in `order` whose needs have ended; `needs` must have no cycle."""
    if slots < 1:
        raise ValueError(f"slots must be at least 1, got {slots}")
    place = {key: i for i, key in enumerate(order)}
    left = {key: set(needs.get(key, ())) & place.keys() for key in order}
    waiting: dict[str, list[str]] = {}
    for key, others in left.items():
        for other in others:
            waiting.setdefault(other, []).append(key)
    ready = [place[key] for key in order if not left[key]]  # ascending, so a heap already
    working: list[tuple[float, int]] = []
    now, ended = 0.0, 0
    while ready or working:
        while ready and len(working) < slots:
            first = heappop(ready)
            heappush(working, (now + seconds[order[first]], first))
        now, last = heappop(working)
        ended += 1
        for key in waiting.get(order[last], ()):
            left[key].discard(order[last])
            if not left[key]:
                heappush(ready, place[key])
    if ended < len(order):
        raise ValueError(f"{len(order) - ended} runs need each other in a circle")
    return Simulated(now, sum(seconds[key] for key in order), slots)


def chains(seconds: Mapping[str, float], needs: Mapping[str, Collection[str]]) -> dict[str, float]:
    """Of each run, the seconds of the longest chain of runs that starts with it, each needing the one before."""
    after: dict[str, list[str]] = {}
    for key, others in needs.items():
        for other in others:
            after.setdefault(other, []).append(key)
    found: dict[str, float] = {}

    def longest(key: str) -> float:
        if key not in found:
            found[key] = seconds[key] + max((longest(one) for one in after.get(key, ())), default=0.0)
        return found[key]

    return {key: longest(key) for key in seconds}


@dataclass(frozen=True)
class Forecast:
    """A plan on `slots` runs at a time, as a sweep runs it and otherwise, and its longest chain of runs in seconds."""

    ways: Mapping[str, Simulated]
    chain: tuple[str, ...]
    critical: float


def forecast(work: Plan, seconds: Mapping[str, float], slots: int) -> Forecast:
    """Level by level, which is how a sweep runs, and without waiting for a level's end; as declared, longest first."""
    needs = needs_of(work)
    levels: dict[str, set[str]] = {}
    for before, level in zip(((), *work.levels), work.levels, strict=False):
        levels |= {job.key: {one.key for one in before} for job in level}
    lengths = chains(seconds, needs)
    longest = sorted(seconds, key=lambda key: -lengths[key])
    ways = {
        "level by level, as declared": simulate(seconds, levels, slots, list(seconds)),
        "level by level, longest first": simulate(seconds, levels, slots, longest_first(seconds)),
        "each as soon as it can, longest chain first": simulate(seconds, needs, slots, longest),
    }
    chain = [longest[0]] if longest else []
    while after := [key for key in seconds if chain and chain[-1] in needs[key]]:
        chain.append(max(after, key=lengths.__getitem__))
    return Forecast(ways, tuple(chain), lengths[chain[0]] if chain else 0.0)


def longest_first(seconds: Mapping[str, float]) -> list[str]:
    """So that no long run starts when the others are about to end; runs of one length as they were declared."""
    return sorted(seconds, key=lambda key: -seconds[key])


def needs_of(work: Plan) -> dict[str, set[str]]:
    """The pending runs that each pending run needs the weights of."""
    keys = {job.key for job in work.pending}
    nested = {job.key: job.encoder.nested() if isinstance(job.encoder, Run) else () for job in work.pending}
    return {key: {run.key for run in runs} & keys for key, runs in nested.items()}


def measured(jobs: Iterable[Job], results: pd.DataFrame) -> dict[str, float | None]:
    """Training seconds of each job from the record: its own, else the mean of its scale, method and backbone."""
    runs = results.drop_duplicates("key")
    own = dict(zip(runs["key"], runs["seconds"], strict=True))
    alike = runs.groupby(["scale", "method", "backbone"])["seconds"].mean().to_dict()
    found: dict[str, float | None] = {}
    for job in jobs:
        encoder = job.encoder
        kind = (encoder.method.name, encoder.backbone.name) if isinstance(encoder, Run) else ("none", encoder.name)
        found[job.key] = own.get(job.key, alike.get((job.scale, *kind)))
    return found


def seconds_for(jobs: Iterable[Job], results: pd.DataFrame) -> float | None:
    """All jobs one after the other, the unknown as the mean of the known; None if nothing alike was measured."""
    found = measured(jobs, results).values()
    known = [seconds for seconds in found if seconds is not None]
    return len(found) * sum(known) / len(known) if known else None if found else 0.0


def expected(jobs: Iterable[Job], results: pd.DataFrame) -> dict[str, float]:
    """Training seconds of each job: measured, else the estimate for the papers' scale."""
    jobs = list(jobs)
    known = measured(jobs, results)
    return {job.key: _estimate(job) if (seconds := known[job.key]) is None else seconds for job in jobs}


def _estimate(job: Job) -> float:
    return 3600 * gpu_hours(job.encoder) if isinstance(job.encoder, Run) else 0.0
