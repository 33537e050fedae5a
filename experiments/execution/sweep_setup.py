"""Before runs start, determine their settings and Ray's, and check their inputs and the disk space."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cse_core.data.locate import data_folder
from cse_core.models.loading import positions_in
from cse_core.models.pretrained import resolve
from cse_core.models.sentence_transformers_format import describe_trainable
from cse_core.run import Pretrained, Run
from cse_core.training.loop import check_length
from cse_core.training.run_state import finished_history
from experiments.cli.sweep_options import RayOptions, SharedOptions, StudyOptions
from experiments.execution.job import ExecutionSettings, Job
from experiments.execution.plan import Plan
from experiments.execution.shared_job import fetch_recorded
from experiments.results import csv_record
from experiments.schema.study import Study
from experiments.schema.study_parts import choose_parts
from experiments.storage.needed_inputs import Input, Writes, inputs_of_scoring, inputs_of_training, missing, refusal
from experiments.storage.retries import retry
from experiments.storage.shared_storage import Shared
from experiments.studies.catalogue import choose_studies
from experiments.studies.own_study import loaded_files

if TYPE_CHECKING:
    from experiments.execution.ray_sweep import RayConfig


def chosen(names: Sequence[str], options: StudyOptions) -> list[Study]:
    """Return the chosen parts of the named studies; refuse studies of several scales."""
    studies = choose_parts(choose_studies(list(names), options.scale), options.parts)
    scales = {study.scale.name for study in studies}
    if len(scales) > 1:
        raise ValueError(f"these studies have the scales {', '.join(sorted(scales))}; run those of each scale apart")
    return studies


def store_of(options: SharedOptions) -> Path:
    """Return the folder of the run folders."""
    return (options.store or options.mlruns / "store").resolve()


def execution_settings(options: RayOptions) -> ExecutionSettings:
    """Return the settings of the execution."""
    data = data_folder(options.data)  # resolved here, because Ray's workers have another current folder
    return ExecutionSettings(
        store_of(options),
        data.resolve() if data else None,
        compiled=options.compiled,
        shared=options.shared,
        share_seconds=options.share_seconds,
    )


def ray_config(options: RayOptions) -> "RayConfig":
    """Return Ray's settings."""
    from experiments.execution.ray_sweep import RayConfig  # lazy: slow import

    return RayConfig(options.address, options.workers, options.gpus_per_run, options.device, loaded_files())


def lost_inputs(
    jobs: Collection[Job], untrained: Collection[str], data: Path | None
) -> dict[str, dict[Input, Exception]]:
    """Return, by key, what a job can't read, and why; runs with keys in `untrained` also read what training needs.

    Raise ValueError at once if a run's `max_length` exceeds the positions of its backbone.
    """
    needed = {job.key: _inputs(job, job.key in untrained) for job in jobs}
    errors = missing({each for inputs in needed.values() for each in inputs}, data)
    runs = [job.encoder for job in jobs if job.key in untrained and isinstance(job.encoder, Run)]
    _check_lengths(run for run in runs if run.backbone not in errors)
    return {
        key: lost for key, inputs in needed.items() if (lost := {each: errors[each] for each in inputs & {*errors}})
    }


def _check_lengths(runs: Iterable[Run]) -> None:
    for run in {(run.backbone, run.max_length): run for run in runs}.values():
        folder = resolve(run.backbone.name, only_tokenizer=True)
        check_length(run, positions_in(folder / describe_trainable(folder).transformer))


def _inputs(job: Job, trains: bool) -> set[Input]:
    read = {each for scoring in job.scorings for each in inputs_of_scoring(scoring.scorer, scoring.tasks)}
    if isinstance(job.encoder, Pretrained):
        return read | {job.encoder}
    return read | (inputs_of_training(job.encoder, job.rules) if trains else set())


def untrained_keys(jobs: Iterable[Job], store: Path) -> frozenset[str]:
    """Return the keys of the jobs whose runs have not finished training in the store."""
    runs = ((job.encoder, job.rules) for job in jobs)
    return frozenset(
        run.key for run, rules in runs if isinstance(run, Run) and finished_history(run, store, rules) is None
    )


def require_inputs(jobs: Collection[Job], untrained: Collection[str], data: Path | None) -> None:
    """Refuse jobs with inputs that can't be read, in one error that names them all."""
    if lost := lost_inputs(jobs, untrained, data):
        raise refusal(_merged(lost))


def look_for_inputs(work: Plan, data: Path | None) -> dict[str, str]:
    """Refuse a plan with inputs that can't be read; return, by key, why pretrained encoders can't be scored.

    An unavailable encoder that is only scored costs its own row alone, unless the studies have nothing else.
    """
    lost = lost_inputs(work.pending, work.untrained, data)
    encoders = {job.key: job.encoder for job in work.pending if isinstance(job.encoder, Pretrained)}
    alone = {key: errors[encoders[key]] for key, errors in lost.items() if errors.keys() == {encoders.get(key)}}
    if len(alone) < len(lost) or (alone and len(alone) == len(work.declared)):
        raise refusal(_merged(lost))
    return {key: f"{type(error).__name__}: {error}" for key, error in alone.items()}


def _merged(lost: Mapping[str, Mapping[Input, Exception]]) -> dict[Input, Exception]:
    return {each: error for errors in lost.values() for each, error in errors.items()}


def check_room(jobs: Iterable[Job], untrained: Collection[str], execution: ExecutionSettings, at_once: int) -> None:
    """Refuse runs whose checkpoints don't fit on the disk of the store."""
    trained = [(job.encoder, job.rules) for job in jobs if job.key in untrained and isinstance(job.encoder, Run)]
    if trained and not execution.shared:  # otherwise each machine deletes what it has uploaded
        checkpoints = [(run.backbone, len(rules)) for run, rules in trained]
        Writes.of(checkpoints, at_once or os.cpu_count() or 1).check_room(execution.store)


def prepare_shared(options: RayOptions) -> None:
    """Make the shared folder if there is to be one."""
    if options.shared:
        Shared(options.shared).prepare()


def copy_arrays(studies: Sequence[Study], options: RayOptions) -> dict[str, str]:
    """Copy the arrays of figures into the record, from local and shared run folders; return failures."""
    missing, execution = csv_record.missing_arrays(studies, options.mlruns), execution_settings(options)
    try:
        local = partial(csv_record.arrays_in_run_folder, execution.store)
        for key in dict.fromkeys(key for key, target in missing if not local(key, target).is_file()):
            retry(partial(fetch_recorded, key, execution))
    except OSError as error:
        return {"figure_data": f"not up to date ({error}): re-run the same command"}
    csv_record.copy_arrays(missing, execution.store)
    return {}
