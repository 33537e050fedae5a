"""Where a sweep's runs are trained, and with what: its options as settings of the execution and of Ray."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cse_core.data.locate import data_folder
from experiments.cli.sweep_options import Options
from experiments.execution.job import ExecutionSettings
from experiments.execution.shared_job import fetch_recorded
from experiments.results import csv_record
from experiments.schema.study import Study
from experiments.storage.retries import retry
from experiments.storage.shared_storage import Shared
from experiments.studies.own_study import loaded_files

if TYPE_CHECKING:
    from experiments.execution.ray_sweep import RayConfig


def store_of(options: Options) -> Path:
    """Return the folder of the run folders."""
    return (options.store or options.mlruns / "store").resolve()


def execution_settings(options: Options) -> ExecutionSettings:
    """Return the settings of the execution."""
    data = data_folder(options.data)  # resolved here, because Ray's workers have another current folder
    return ExecutionSettings(
        store_of(options),
        data.resolve() if data else None,
        compiled=options.compiled,
        shared=options.shared,
        share_seconds=options.share_seconds,
    )


def ray_config(options: Options) -> "RayConfig":
    """Return Ray's settings."""
    from experiments.execution.ray_sweep import RayConfig  # lazy: slow import

    return RayConfig(options.address, options.workers, options.gpus_per_run, options.device, loaded_files())


def prepare_shared(options: Options) -> None:
    """Make the shared folder if there is to be one."""
    if options.shared:
        Shared(options.shared).prepare()


def copy_arrays(studies: Sequence[Study], options: Options) -> dict[str, str]:
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
