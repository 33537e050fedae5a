"""Retry operations while storage or a server is unreachable."""

import logging
from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_fixed

from cse_core.data.atomic_write import NO_ROOM
from experiments.storage.credentials import redact_credentials

T = TypeVar("T")
RETRY_TIMEOUT_SECONDS, RETRY_INTERVAL_SECONDS = 600.0, 5.0
SHARE_SECONDS = 600.0  # between uploads of a run's state: one of BERT-large is five gigabytes
PERMANENT = (PermissionError, FileNotFoundError, FileExistsError)

logger = logging.getLogger(__name__)


def retry(operation: Callable[[], T]) -> T:
    """Return the result of an operation; repeat it while storage is unreachable, until the timeout."""
    retrying = Retrying(
        retry=retry_if_exception(is_temporary),
        stop=stop_after_delay(RETRY_TIMEOUT_SECONDS),
        wait=wait_fixed(RETRY_INTERVAL_SECONDS),
        before_sleep=_warn,
        reraise=True,
    )
    return retrying(operation)


def is_temporary(error: BaseException) -> bool:
    """Return whether an error may disappear when storage can be reached again."""
    return isinstance(error, OSError) and not isinstance(error, PERMANENT) and error.errno not in NO_ROOM


def _warn(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    logger.warning("%s; retrying", redact_credentials(error))
