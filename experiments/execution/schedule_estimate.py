"""Estimate how long runs take, choose the order in which they start, and simulate a plan on N GPUs."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from cse_core.method import EncoderRef
from cse_core.methods.simcse import SimCSE
from cse_core.run import Run
from experiments.execution.job import Job, changed_settings
from experiments.execution.plan import Plan, study_by_study
from experiments.execution.step_cost import ROWS, Size, padded_rows, size_of, step_cost
from experiments.results.provenance import is_gpu
from experiments.schema.recipes import BACKBONES, RUNS
from experiments.schema.rows import BASE
from experiments.schema.scales import SCALES
from experiments.schema.study import Published

if TYPE_CHECKING:
    import pandas as pd

PUBLISHED_LINES = 1_000_000  # sentences of the epoch whose minutes are published
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Simulated:
    """A simulated schedule: each run's end in seconds after the first start, the slots' busy seconds, their number."""

    ends: Mapping[str, float]
    worked: float
    slots: int

    @property
    def makespan(self) -> float:
        """Seconds from the first start to the last end."""
        return max(self.ends.values(), default=0.0)

    @property
    def utilisation(self) -> float:
        """The share of their time that the slots were busy."""
        return self.worked / (self.slots * self.makespan) if self.makespan else 0.0


def simulate(
    seconds: Mapping[str, float], needs: Mapping[str, Collection[str]], slots: int, order: Sequence[str]
) -> Simulated:
    """Simulate slots that each take, when free, the first run in `order` whose needs have ended.

    `needs` must have no cycle.
    """
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
    now = 0.0
    ends: dict[str, float] = {}
    while ready or working:
        while ready and len(working) < slots:
            first = heappop(ready)
            heappush(working, (now + seconds[order[first]], first))
        now, last = heappop(working)
        ends[order[last]] = now
        for key in waiting.get(order[last], ()):
            left[key].discard(order[last])
            if not left[key]:
                heappush(ready, place[key])
    if len(ends) < len(order):
        raise ValueError(f"{len(order) - len(ends)} runs need each other in a circle")
    return Simulated(ends, sum(seconds[key] for key in order), slots)


def chains(seconds: Mapping[str, float], needs: Mapping[str, Collection[str]]) -> dict[str, float]:
    """Return, for each run, the seconds of the longest chain that starts with it, each run needing the one before."""
    after: dict[str, list[str]] = {}
    for key, others in needs.items():
        for other in others:
            after.setdefault(other, []).append(key)
    lengths: dict[str, float] = {}

    def longest(key: str) -> float:
        if key not in lengths:
            lengths[key] = seconds[key] + max((longest(follower) for follower in after.get(key, ())), default=0.0)
        return lengths[key]

    return {key: longest(key) for key in seconds}


@dataclass(frozen=True)
class Forecast:
    """A plan simulated in each order of its runs, and its longest chain of runs, which takes `critical` seconds.

    `first` is when the first study is complete in each order.
    """

    ways: Mapping[str, Simulated]
    first: Mapping[str, float]
    chain: tuple[str, ...]
    critical: float


def forecast(work: Plan, seconds: Mapping[str, float], slots: int) -> Forecast:
    """Simulate a sweep in its default order and study by study."""
    needs = needs_of(work)
    lengths = chains(seconds, needs)
    longest = sorted(seconds, key=lambda key: -lengths[key])
    plans = {"default": work, "--by-study": study_by_study(work)}
    ways = {name: simulate(seconds, needs, slots, start_order(plan, seconds)) for name, plan in plans.items()}
    chain = [longest[0]] if longest else []
    while after := [key for key in seconds if chain and chain[-1] in needs[key]]:
        chain.append(max(after, key=lengths.__getitem__))
    first = {name: _first_complete(work, way) for name, way in ways.items()}
    return Forecast(ways, first, tuple(chain), lengths[chain[0]] if chain else 0.0)


def _first_complete(work: Plan, way: Simulated) -> float:
    """Return when the first study has all its runs."""
    ends: dict[str, float] = {}
    for job in work.pending:
        ends |= {study: max(ends.get(study, 0.0), way.ends[job.key]) for study in job.studies}
    return min(ends.values(), default=0.0)


def start_order(work: Plan, seconds: Mapping[str, float | None]) -> list[str]:
    """Return the pending keys, first those that start the longest chains of runs, so that no long chain starts late.

    A plan by study keeps the order of its studies. Equal runs keep the order of declaration; a run of unknown length
    counts as the longest.
    """
    at_most = {key: math.inf if length is None else length for key, length in seconds.items()}
    lengths = chains(at_most, needs_of(work))
    groups = work.levels if work.by_study else (work.pending,)
    return [job.key for group in groups for job in sorted(group, key=lambda job: -lengths[job.key])]


def needs_of(work: Plan) -> dict[str, set[str]]:
    """Return, for each pending run, the pending runs whose weights it needs."""
    keys = {job.key for job in work.pending}
    return {job.key: {run.key for run in job.encoder.nested()} & keys for job in work.pending}


def runs_at_once(gpus: int, gpus_per_run: float) -> int:
    """Return how many runs fit on GPUs; with 2/3 of a GPU for each run, a third of each GPU is idle."""
    return gpus * int(1 / gpus_per_run) if gpus_per_run <= 1 else gpus // int(gpus_per_run)


def measured_seconds_of(
    jobs: Iterable[Job], results: pd.DataFrame, *, on_gpus: bool = False
) -> dict[str, float | None]:
    """Return the recorded training seconds of each job.

    These are the job's own seconds, or otherwise the mean over other seeds of its settings. Without these, they are its
    epochs times the mean epoch of its method on its backbone. Runs on GPUs count with `on_gpus` only.
    """
    runs = results.drop_duplicates("key") if on_gpus else _runs_on_cpus(results)
    by_key = dict(zip(runs["key"], runs["seconds"], strict=True))
    kind = ["scale", "method", "backbone"]
    alike = runs.groupby([*kind, "settings"])["seconds"].mean().to_dict()
    epochs = runs["settings"].str.extract(r"\bepochs=(\d+)", expand=False).fillna("1").astype(float)
    epoch = runs.assign(seconds=runs["seconds"] / epochs).groupby(kind)["seconds"].mean().to_dict()
    return {job.key: by_key[job.key] if job.key in by_key else _mean_seconds(job, alike, epoch) for job in jobs}


def _runs_on_cpus(results: pd.DataFrame) -> pd.DataFrame:
    runs = results.drop_duplicates("key")
    return runs[~runs["device"].map(is_gpu).astype(bool)]


def _mean_seconds(
    job: Job, alike: Mapping[tuple[str, ...], float], epoch: Mapping[tuple[str, ...], float]
) -> float | None:
    run = job.encoder
    if not isinstance(run, Run):
        return 0.0
    kind = (job.scale, run.method.name, run.backbone.name)
    settings = changed_settings(run)
    if (*kind, settings) in alike:
        return alike[*kind, settings]
    return run.epochs * epoch[kind] if kind in epoch else None


def seconds_for(jobs: Iterable[Job], results: pd.DataFrame) -> float | None:
    """Return the seconds of all jobs, one at a time; an unknown one counts as the mean of the known ones.

    None if no job of their scale, method and backbone was measured.
    """
    return total_seconds(measured_seconds_of(jobs, results).values())


def total_seconds(times: Collection[float | None]) -> float | None:
    """Return the sum of times, an unknown one as the mean of the known ones; None if none is known."""
    measured_times = [seconds for seconds in times if seconds is not None]
    return len(times) * sum(measured_times) / len(measured_times) if measured_times else None if times else 0.0


def expected_seconds(jobs: Iterable[Job], results: pd.DataFrame) -> dict[str, float | None]:
    """Return each job's training seconds, measured or otherwise estimated from SimCSE's; None if neither is known.

    Those of other runs are scaled to the lines of a job's corpus.
    """
    jobs = list(jobs)
    measured, epochs, own = measured_seconds_of(jobs, results), _recorded_epochs(results), set(results["key"])
    found: dict[str, float | None] = {}
    for job in jobs:
        seconds = measured[job.key]
        if seconds is None:
            found[job.key] = _estimate(job, epochs)
        else:
            found[job.key] = seconds if job.key in own else seconds * _relative_lines(job)
    return found


def _relative_lines(job: Job) -> float:
    """Return the lines of a run's corpus relative to those of its method's runs at the scale; 1 if steps are fixed."""
    run = job.encoder
    if not isinstance(run, Run) or run.max_steps:
        return 1.0
    return run.corpus.lines / (_usual_lines(run.method.name, job.scale) or run.corpus.lines)


@cache
def _usual_lines(method: str, scale: str) -> int | None:
    usual = RUNS[method](SCALES[scale], BASE) if method in RUNS and scale in SCALES else None
    return usual.corpus.lines if usual else None


def _estimate(job: Job, epochs: Mapping[tuple[str, str], float]) -> float | None:
    run = job.encoder
    if not isinstance(run, Run):
        return 0.0
    epoch = epochs.get((job.scale, run.backbone.name))
    if epoch is None:
        epoch = _published_epoch(run)
    elif lines := _usual_lines(SimCSE.name, job.scale):
        epoch *= 1 if run.max_steps else run.corpus.lines / lines
    try:
        return None if epoch is None else epoch * epochs_of_simcse(run)
    except ValueError as error:
        logger.warning("run %s: its time can't be estimated: %s", run.key, error)
        return None


def gpu_hours(run: Run) -> float:
    """Return a run's hours on an A100, estimated from SimCSE's time per epoch on its backbone in RankCSE's Table 11."""
    epoch = _published_epoch(run)
    if epoch is None:
        raise ValueError(f"no time is published for {run.backbone.name}; there are some for {', '.join(BACKBONES)}")
    return epoch * epochs_of_simcse(run) / 3600


def epochs_of_simcse(run: Run) -> float:
    """Return a run's work in epochs of SimCSE on its backbone, including what its teachers embed before training."""
    cost, lines, size = step_cost(run), run.corpus.lines, size_of(run.backbone.name)
    simcse = step_cost(replace(run, method=SimCSE(), pooling="cls", template=""))
    work = run.epochs * cost.at(size) * lines * padded_rows(run.max_length)
    work += sum(simcse.at(_size(encoder) or size) / ROWS * examples * lines for encoder, examples in cost.embedded)
    work += sum(simcse.at(_size(encoder) or size) / ROWS * sentences for encoder, sentences in cost.sampled)
    return work / (lines * simcse.at(size))


def _size(encoder: EncoderRef) -> Size | None:
    return size_of(encoder.backbone.name if isinstance(encoder, Run) else getattr(encoder, "name", ""))


def _recorded_epochs(results: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return the mean seconds of SimCSE's one-epoch runs on CPUs, by scale and backbone."""
    runs = _runs_on_cpus(results)
    runs = runs[(runs["method"] == "simcse") & ~runs["settings"].str.contains("epochs=")]
    return runs.groupby(["scale", "backbone"])["seconds"].mean().to_dict()


def _published_epoch(run: Run) -> float | None:
    """Return the seconds of an epoch of SimCSE on the run's backbone and sentences, as far as they are published."""
    size = BACKBONES.get(run.backbone.name, "").partition("-")[2]
    minutes = Published("rankcse_table11", size, "SimCSE").value("time_per_epoch_min") if size else None
    return None if minutes is None else 60 * minutes * run.corpus.lines / PUBLISHED_LINES
