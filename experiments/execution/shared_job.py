"""Execute a job with run folders on shared storage (shared_storage.py): download before it, upload after it."""

import logging
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from cse_core.models.embedding_cache import Progress
from cse_core.run import Run
from cse_core.training.run_state import STATE, History, finished_history
from cse_core.training.train import OnStep
from experiments.execution.job import ExecutionSettings, FailedTasksError, Job, execute
from experiments.results.run_result import read_result
from experiments.storage.credentials import redact_credentials
from experiments.storage.retries import retry
from experiments.storage.shared_files import AHEAD, FETCHED
from experiments.storage.shared_storage import Shared

TRIES = 5  # to upload a run; each one that fails means that another attempt was first, or a stale listing
logger = logging.getLogger(__name__)


def fetch_recorded(key: str, execution: ExecutionSettings) -> None:
    """Download the recorded files of a run that may have been trained on another machine."""
    if execution.shared:
        Shared(execution.shared).fetch(key, execution.store, weights=False)


def execute_shared(
    job: Job,
    execution: ExecutionSettings,
    *,
    on_step: OnStep | None = None,
    progress: Progress | None = None,
    tries: int = TRIES,
) -> dict[str, Any]:
    """Execute a job; with shared storage, download its folders first and upload what is new."""
    folder = execution.store / job.key
    if not execution.shared:
        result = execute(job, execution, on_step=on_step, progress=progress)
        if not job.keeps_weights:
            _drop_weights(folder)
        return result
    shared = Shared(execution.shared)
    retry(partial(shared.exchange_pins, execution.store))
    if isinstance(job.encoder, Run):
        _fetch_nested(job.encoder, shared, execution.store)
    last = retry(partial(shared.fetch, job.key, execution.store, rules=job.rules))
    last_upload = time.monotonic()

    def share(step: int, history: History) -> None:
        nonlocal last_upload
        if time.monotonic() - last_upload > execution.share_seconds and (folder / STATE).is_file():
            try:
                shared.share_state(folder, job.rules)
            except OSError as error:  # the run still has its state here; the next upload may succeed
                logger.warning("run %s: its state could not be shared (%s)", job.key, redact_credentials(error))
            last_upload = time.monotonic()  # its end: otherwise uploads to slow storage would never pause
        if on_step:
            on_step(step, history)

    # Storage has this folder's content, unless an earlier call ended before its upload.
    fetched = (folder / FETCHED).is_file() and not (folder / AHEAD).exists()
    before = _content(folder) if fetched else None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / AHEAD).touch()
    failed: FailedTasksError | None = None
    try:
        result = execute(job, execution, on_step=share, progress=progress)
    except FailedTasksError as error:  # the other tasks' scores are uploaded
        failed, result = error, error.result
    # Two machines may have used a name for the first time at once; the second one must publish nothing.
    retry(partial(shared.exchange_pins, execution.store))
    if _content(folder) != before and not retry(partial(shared.publish, folder, last)):
        # Another attempt was first: use its folder, add what is missing there.
        if tries <= 1:
            raise OSError(
                f"{redact_credentials(execution.shared)}: after {TRIES} tries its listing still does not show the "
                f"uploads of run {job.key} that it says are there; try again later, or use other storage"
            )
        return execute_shared(job, execution, on_step=on_step, progress=progress, tries=tries - 1)
    _drop_weights(folder)
    if failed:
        raise failed
    return result


def _fetch_nested(run: Run, shared: Shared, store: Path) -> None:
    for nested, rule in run.nested_checkpoints:
        retry(partial(shared.fetch, nested.key, store))
        if not finished_history(nested, store, (rule,)):
            url = redact_credentials(shared.url)
            raise ValueError(f"run {nested.key}, which it needs, is damaged on {url}: the same command trains it again")


def _content(folder: Path) -> dict[str, Any]:
    """Return the content of a run's result without times."""
    result = read_result(folder)
    return {name: result[name] for name in ("cells", "studies", "kept")} if result else {}


def _drop_weights(folder: Path) -> None:
    """Delete the weights of a run to save disk space: they are uploaded, or only its scores are needed."""
    for mark in (FETCHED, AHEAD):
        (folder / mark).unlink(missing_ok=True)
    for checkpoint in folder.glob("*/model.safetensors"):
        shutil.rmtree(checkpoint.parent)
