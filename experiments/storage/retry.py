"""Try again while storage or a server can't be reached."""

import errno
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from experiments.storage.credentials import redact_credentials

T = TypeVar("T")
PATIENCE, PAUSE = 600.0, 5.0  # seconds: how long storage or a server may be unreachable, and between two tries
logger = logging.getLogger(__name__)


def patiently(act: Callable[[], T]) -> T:
    """Return what an operation returns, tried again while storage can't be reached."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return act()
        except (PermissionError, FileNotFoundError, FileExistsError):  # waiting would not help
            raise
        except OSError as error:
            if time.monotonic() > until or error.errno == errno.ENOSPC:
                raise
            logger.warning("%s; tried again", redact_credentials(error))
            time.sleep(PAUSE)
