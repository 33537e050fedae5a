"""Train named recorded runs again, in a new folder, and compare them with the record."""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from cse_core.lookup import unknown
from cse_core.run import Run
from experiments.audits.agreement import Recorded, keys_elsewhere
from experiments.audits.audit import Draw, jobs_for, needs_any, prepare, retrain
from experiments.execution.job import ExecutionSettings, Job
from experiments.execution.plan import jobs_of
from experiments.results import csv_record
from experiments.schema.study import Study
from experiments.schema.study_parts import Parts, choose_parts
from experiments.storage.record_folders import RERUN


def rerun(
    keys: Sequence[str],
    studies: Sequence[Study],
    *,
    mlruns: Path,
    store: Path | None = None,
    data: Path | None = None,
    device: str = "cpu",
) -> int:
    """Train, compare and print; return 0, 1 if a run differs or failed, or 130 if interrupted.

    Without a store, the runs are in a new folder of the record, and stay there.
    """
    scale = studies[0].scale
    recorded = Recorded.read(scale.name, mlruns)
    keys = tuple(dict.fromkeys(keys))
    for key in keys:
        _require_recorded(key, recorded, scale.name, mlruns)
    declared = declared_jobs(keys, studies, recorded)
    elsewhere = keys_elsewhere(recorded, device)
    for key in keys:
        if needs_any(declared[key], elsewhere):
            raise ValueError(
                f"run {key}: it, or a run that it needs, was recorded on another kind of device than {device}, whose "
                "random numbers are others, so that no score would agree; expected --device of the other kind"
            )
    jobs = jobs_for(keys, declared, recorded, scale.dev)
    sample = Draw(None, keys, jobs, len(recorded.runs), undeclared=0)
    execution = ExecutionSettings(prepare(store or _new_folder(mlruns)), data, device=device)
    return retrain(sample, recorded, execution, scale.name)


def declared_jobs(keys: Sequence[str], studies: Sequence[Study], recorded: Recorded) -> Mapping[str, Job]:
    """Return the jobs of the studies, also with seeds that only the record has; refuse a key that none of them has."""
    seeds = dict(zip(recorded.runs["key"], recorded.runs["seed"], strict=True))
    jobs = jobs_of(studies)
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
    """Return the studies that may have a seed with only this one."""
    possible = []
    for study in studies:
        try:
            possible += choose_parts([study], Parts(seeds=(seed, seed)))
        except ValueError:  # a seed that is kept for other studies
            continue
    return possible


def _require_recorded(key: str, recorded: Recorded, scale: str, mlruns: Path) -> None:
    if key in set(recorded.runs["key"]):
        return
    runs = csv_record.read_runs(scale, mlruns)
    elsewhere = dict(zip(runs["key"], runs["scale"], strict=True))
    if key in elsewhere:
        raise ValueError(f"run {key} is recorded at scale {elsewhere[key]}, not {scale}: add --scale {elsewhere[key]}")
    raise _unknown_key(key, recorded.runs["key"], mlruns)


def _unknown_key(key: str, keys: Sequence[str], mlruns: Path) -> ValueError:
    hint = str(unknown("run", key, keys)).partition("; known")[0]
    return ValueError(f"{hint}; {mlruns / 'runs.csv'} lists the recorded runs, and each table's CSV those of its rows")


def _new_folder(mlruns: Path) -> Path:
    return next(folder for number in count(1) if not (folder := mlruns / RERUN / str(number)).exists())
