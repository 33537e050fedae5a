"""Choose the recorded runs to train again: by their keys, or at random."""

import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from cse_core.lookup import unknown
from cse_core.run import Pretrained, Run
from experiments.audits.agreement import Recorded, keys_elsewhere
from experiments.execution.job import Job
from experiments.execution.plan import jobs_of, merge_jobs
from experiments.results import csv_record
from experiments.schema.study import Study
from experiments.schema.study_parts import Parts, choose_parts


@dataclass(frozen=True)
class Draw:
    """The runs to retrain: their keys, and their `jobs`, after the jobs of the runs that they need.

    `seed` is None if they were named.
    """

    seed: int | None
    drawn: tuple[str, ...]
    jobs: tuple[Job, ...]
    candidates: int
    undeclared: int  # recorded runs that no chosen study or comparison declares, so nothing says how to train them
    elsewhere: int = 0  # recorded runs that were trained, or need one that was, on another kind of device


def draw(studies: Sequence[Study], recorded: Recorded, count: int, seed: int, device: str = "cpu") -> Draw:
    """Draw from the recorded runs of studies and comparisons. With the same seed, a larger count draws more.

    Runs of a kind of device other than `device` are not drawn.
    """
    declared, cells = merge_jobs([jobs_of(studies), recorded.compared]), recorded.cells()
    trained = sorted(key for key in declared if key in cells and isinstance(declared[key].encoder, Run))
    elsewhere = keys_elsewhere(recorded, device)
    candidates = [key for key in trained if not needs_any(declared[key], elsewhere)]
    if not candidates:
        left = f", but for {len(trained)} of another kind of device than {device}" if trained else ""
        raise ValueError(f"nothing to audit: the record has no trained run of the chosen studies{left}")
    shuffled = list(candidates)
    random.Random(seed).shuffle(shuffled)
    drawn = tuple(shuffled[:count])
    undeclared = set(recorded.runs["key"]) - set(declared)
    jobs = jobs_for(drawn, declared, recorded, studies[0].scale.dev)
    return Draw(seed, drawn, jobs, len(candidates), len(undeclared), len(trained) - len(candidates))


def needs_any(job: Job, keys: Set[str]) -> bool:
    """Return whether the job's run, or one that it needs, has one of these keys."""
    return not keys.isdisjoint(run.key for run in _with_nested(job.encoder))


def jobs_for(keys: Sequence[str], declared: Mapping[str, Job], recorded: Recorded, dev: str) -> tuple[Job, ...]:
    """Return the recorded parts of jobs, after those of the jobs that they need, which are scored on dev only."""
    cells = recorded.cells()
    needed = dict.fromkeys(run.key for key in keys for run in _with_nested(declared[key].encoder))
    return tuple(_recorded_part(declared[key], cells.get(key, set()), "" if key in keys else dev) for key in needed)


def _with_nested(encoder: Run | Pretrained) -> tuple[Run, ...]:
    return (*encoder.required_checkpoints(), encoder) if isinstance(encoder, Run) else ()


def _recorded_part(job: Job, cells: set[tuple[str, str, str]], only: str) -> Job:
    """Drop tasks that are not recorded and, if `only` is given, all other tasks; keep every selection rule."""
    scorings = []
    for scoring in job.scorings:
        checkpoint = (scoring.select, str(scoring.scorer))
        tasks = (task for task in scoring.tasks if (*checkpoint, task) in cells and only in ("", task))
        scorings.append(replace(scoring, tasks=tuple(tasks)))
    return replace(job, scorings=tuple(scorings))


def named(keys: Sequence[str], studies: Sequence[Study], recorded: Recorded, mlruns: Path, device: str) -> Draw:
    """Return a draw of these keys; refuse keys that are not recorded or can't be trained again here."""
    scale, keys = studies[0].scale, tuple(dict.fromkeys(keys))
    runs = csv_record.read_runs(scale.name, mlruns)
    scales = dict(zip(runs["key"], runs["scale"], strict=True))
    for key in keys:
        if key not in scales:
            hint = str(unknown("run", key, scales)).partition("; known")[0]
            lists = f"{mlruns / 'runs.csv'} lists the recorded runs, and each table's CSV those of its rows"
            raise ValueError(f"{hint}; {lists}")
        if scales[key] != scale.name:
            raise ValueError(
                f"run {key} is recorded at scale {scales[key]}, not {scale.name}: add --scale {scales[key]}"
            )
    declared, elsewhere = declared_jobs(keys, studies, recorded), keys_elsewhere(recorded, device)
    if lost := [key for key in keys if needs_any(declared[key], elsewhere)]:
        raise ValueError(
            f"run {lost[0]}: it, or a run that it needs, was recorded on another kind of device than {device}, whose "
            "random numbers are others, so that no score would agree; expected --device of the other kind"
        )
    return Draw(None, keys, jobs_for(keys, declared, recorded, scale.dev), len(recorded.runs), undeclared=0)


def declared_jobs(keys: Sequence[str], studies: Sequence[Study], recorded: Recorded) -> dict[str, Job]:
    """Return all jobs, those of studies also with seeds that only the record has; refuse a key that no job has."""
    seeds = dict(zip(recorded.runs["key"], recorded.runs["seed"], strict=True))
    jobs = merge_jobs([jobs_of(studies), recorded.compared])
    for seed in {int(seeds[key]) for key in keys if key not in jobs}:
        jobs = jobs_of(_with_seed(studies, seed)) | jobs
    for key in keys:
        if key not in jobs:
            raise ValueError(
                f"run {key}: no chosen study declares it, so its settings are unknown here; expected a run of these "
                f"studies, or --study with the study that it belongs to"
            )
        if not isinstance(jobs[key].encoder, Run):
            raise ValueError(f"run {key}: {jobs[key].name} is an encoder that was not trained here; expected a run")
    return jobs


def _with_seed(studies: Sequence[Study], seed: int) -> list[Study]:
    """Return the studies in which a seed is allowed, with only that seed."""
    possible = []
    for study in studies:
        try:
            possible += choose_parts([study], Parts(seeds=(seed, seed)))
        except ValueError:  # the seed is reserved for other studies
            continue
    return possible
