"""Forty-eight runs in one sweep, compared with the same runs started one by one; and the time of the quickstart.

    pytest tests/benchmarks/bench_sweep.py -o python_files="bench_*.py" -o addopts= -s

SimCSE, RankCSE with both losses and RankEncoder, twelve seeds each, 4,096 synthetic sentences (64 steps). A single run
is a fresh process with two threads and its own caches, and trains its teachers or base first. Every third single run is
timed.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import cloudpickle, tune

from cse_core.run import Corpus, Pretrained, Run
from experiments.cli.console import Bar
from experiments.execution import ray_sweep
from experiments.execution.job import ExecutionSettings, Job, execute
from experiments.execution.plan import jobs_of, make_plan, scored_cells
from experiments.execution.ray_sweep import RayConfig, run_jobs, run_plan
from experiments.execution.tune_hooks import SweepCallback
from experiments.results import csv_record as csv
from experiments.schema.recipes import rankcse_run, rankencoder_run, simcse_run
from experiments.schema.scales import SCALES
from experiments.schema.study import Row, Scale, Study
from experiments.tracking.mlflow_log import Tracker
from tests.benchmarks.measure import curve, peak_while, record, seconds

BASE = "bert-base-uncased"
SEEDS = tuple(range(12))


def study(seeds: tuple[int, ...] = SEEDS) -> Study:
    quick = SCALES["quickstart"]
    scale: Scale = replace(quick, corpus=Corpus("synthetic", 4096), seeds=seeds)
    made = {
        "SimCSE": simcse_run(scale, BASE),
        "ListNet": rankcse_run(scale, BASE),
        "ListMLE": rankcse_run(scale, BASE, "list_mle"),
        "RankEncoder": rankencoder_run(scale, BASE, corpus_size=2048),
    }
    rows = tuple(
        Row(label=label, encoder=one, backbone=BASE, seeds=seeds, select=scale.dev) for label, one in made.items()
    )
    return Study(name="bench", source="", question="", scale=scale, rows=rows, columns=("synthetic",))


def sweep(studied: Study, folder: Path) -> float:
    nothing = csv.read_results(studied.scale.name, folder)
    work = make_plan(jobs_of([studied]), scored_cells(nothing), folder / "store")

    def all_of_it() -> None:
        failed, ended = run_plan(work, nothing, ExecutionSettings(folder / "store"), RayConfig(), Tracker(folder), {})
        assert ended
        assert not failed

    try:
        return seconds(all_of_it)
    finally:
        ray.shutdown()  # the next sweep starts its own Ray, as it would in a new process


def train_one(key: str, folder: Path) -> None:
    """Train one run and the runs that it needs; called by `by_itself` in a new process."""
    jobs = jobs_of([study()])
    job: Job = jobs[key]
    nested = job.encoder.nested() if isinstance(job.encoder, Run) else ()
    for one in (*(jobs[other.key] for other in nested), job):
        execute(one, ExecutionSettings(folder / "store", threads=2))


def by_itself(key: str, folder: Path) -> float:
    code = "import sys; from pathlib import Path; from tests.benchmarks.bench_sweep import train_one; "
    command = [sys.executable, "-c", f"{code}train_one(sys.argv[1], Path(sys.argv[2]))", key, str(folder)]
    own = os.environ | {"CSE_CACHE": str(folder / "cache")}
    return seconds(lambda: subprocess.run(command, check=True, env=own, capture_output=True))


def test_a_sweep_against_runs_started_one_by_one(cache: Path, tmp_path: Path) -> None:
    studied = study()
    runs = [one for row in studied.rows for one in row.runs()]
    assert len(runs) == 48
    took = sweep(studied, tmp_path / "sweep")
    single = [by_itself(one.key, tmp_path / one.key) for one in runs[::3]]
    whole = sum(single) * len(runs) / len(single)
    note = f"{took:.0f} s against {whole:.0f} s ({len(single)} of them timed, {median(single):.1f} s each)"
    what, against = "48 runs in one sweep", "times as fast as one by one in fresh processes, with caches of their own"
    bound = "training on two cores, one run each; the start of Ray and two workers"
    assert record(what, [whole / took], against=against, wanted="at least 1.5", bound=bound, note=note) > 1.2


def test_how_a_sweep_grows_with_its_runs(cache: Path, tmp_path: Path) -> None:
    times, held = {}, {}

    def grown(n: int) -> None:
        times[4 * n] = sweep(study(tuple(range(100, 100 + n))), tmp_path / str(n))

    for n in (1, 3, 6):
        held[4 * n] = peak_while(partial(grown, n))
    assert curve("time of a sweep", "runs", times, "s") < 1.2
    assert curve("memory of a sweep, two at a time", "runs", held, "MiB") < 0.5


NO_LOGBOOK = SimpleNamespace(add=lambda key: None)


def nothing_done(config: Mapping[str, Any], jobs: object, execution: object) -> None:
    tune.report({"fraction": 1.0, "failed": ""})


def test_what_ray_tune_takes_for_runs_that_do_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_sweep, "run_job", nothing_done)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers can't import this module
    times, held = {}, {}

    def empty(n: int) -> None:
        jobs = [Job(Pretrained(str(i)), "quickstart", str(i), (), ()) for i in range(n)]
        counted = SweepCallback(NO_LOGBOOK, Bar({job.key: job.name for job in jobs}))  # ty: ignore[invalid-argument-type]
        place = ExecutionSettings(tmp_path / str(n) / "store")
        times[n] = seconds(lambda: run_jobs(jobs, place, cluster, counted, lambda key: ""))
        assert len(counted.finished) == n

    cluster = RayConfig()
    cluster.start()
    try:
        empty(50)  # starts the first workers
        for n in (250, 500, 1000, 2000):
            held[n] = peak_while(partial(empty, n))
    finally:
        ray.shutdown()
    times.pop(50)
    assert curve("time of a sweep of empty runs", "runs", times, "s") < 1.3
    curve("memory of a sweep of empty runs", "runs", held, "MiB")


def test_quickstart_by_the_stopwatch(tmp_path: Path) -> None:
    own = os.environ | {"CSE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "experiments/sweep.py", "quickstart", "--mlruns", str(tmp_path / "mlruns")]
    took = seconds(lambda: subprocess.run(command, check=True, env=own, capture_output=True))
    against, bound = "minutes by the stopwatch", "training seven runs; the start of Ray and two workers"
    assert record("quickstart", [took / 60], against=against, wanted="at most 3", bound=bound, note=f"{took:.0f} s") < 4
