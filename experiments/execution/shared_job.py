"""A job with run folders on shared storage (shared_storage.py): fetched before it, published after it."""

import logging
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cse_core.run import Run
from cse_core.training.run_state import History
from experiments.execution.job import ExecutionSettings, FailedTasksError, Job, execute
from experiments.results.run_result import read_result
from experiments.storage.credentials import redact_credentials
from experiments.storage.retries import retry
from experiments.storage.shared_storage import Shared

logger = logging.getLogger(__name__)


def fetch_recorded(key: str, place: ExecutionSettings) -> None:
    """Bring what the record needs of a run that may have been trained on another machine."""
    if place.shared:
        Shared(place.shared).fetch(key, place.store, weights=False)


def execute_shared(
    job: Job, place: ExecutionSettings, *, on_step: Callable[[int, History], object] | None = None
) -> dict[str, Any]:
    """`execute`; where there is shared storage, folders are fetched from there before, and what is new is published."""
    if not place.shared:
        return execute(job, place, on_step=on_step)
    shared, folder = Shared(place.shared), place.store / job.key
    retry(partial(shared.exchange_pins, place.store))
    nested = job.encoder.nested() if isinstance(job.encoder, Run) else ()
    for run in nested:
        retry(partial(shared.fetch, run.key, place.store))
    last = retry(partial(shared.fetch, job.key, place.store, rules=job.rules))
    sent = time.monotonic()

    def share(step: int, history: History) -> None:
        nonlocal sent
        if time.monotonic() - sent > place.share_seconds and (folder / "state.pt").is_file():
            try:
                shared.share_state(folder, job.rules)
            except OSError as error:  # the run has its state here; the next one may get through
                logger.warning("run %s: its state could not be shared (%s)", job.key, redact_credentials(error))
            sent = time.monotonic()  # after it, or a slow store would be written to all the time
        if on_step:
            on_step(step, history)

    before = _content(folder) if last else None
    try:
        result = execute(job, place, on_step=share)
    except FailedTasksError:
        if _content(folder) != before:
            retry(partial(shared.exchange_pins, place.store))
            retry(partial(shared.publish, folder, last))  # what the other tasks found is not lost
        _drop_weights(folder)
        raise
    # Two machines may have used a name for the first time at once: the one that comes second publishes nothing.
    retry(partial(shared.exchange_pins, place.store))
    if _content(folder) != before and not retry(partial(shared.publish, folder, last)):
        return execute_shared(job, place, on_step=on_step)  # another was first: its folder, and what that still lacks
    _drop_weights(folder)
    return result


def _content(folder: Path) -> dict[str, Any]:
    """What a run's folder says, but for when and how long."""
    result = read_result(folder)
    return {name: result[name] for name in ("cells", "studies", "kept")} if result else {}


def _drop_weights(folder: Path) -> None:
    """Of a run that is published: thousands of runs would fill the disk, and who needs them fetches them."""
    (folder / "shared").unlink(missing_ok=True)
    for checkpoint in folder.glob("*/model.safetensors"):
        shutil.rmtree(checkpoint.parent)
