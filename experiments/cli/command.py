"""End every command alike: exit status, errors in one line, interrupts, closed pipes."""

import gc
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from experiments.storage.credentials import redact_credentials

INTERRUPTED = 130  # 128 plus the number of SIGINT, as in shells
RESUME = "interrupted: nothing that finished is lost; re-run the same command to resume"
USER_ERRORS = (ValueError, OSError)


def run_command(command: Callable[[], int | None], errors: tuple[type[Exception], ...] = USER_ERRORS) -> NoReturn:
    """Run a command and exit with its status (None is 0), or print one of `errors` in a line and exit with 1."""
    gc.freeze()  # what the imports made stays to the end: scanning it again took a fifth of `sweep.py --list`
    try:
        status = command()
        sys.stdout.flush()
    except BrokenPipeError as error:
        sys.exit(_broken_pipe(error))
    except errors as error:
        sys.exit(f"error: {redact_credentials(error)}")
    except KeyboardInterrupt:
        print(RESUME, file=sys.stderr)
        sys.exit(INTERRUPTED)
    sys.exit(status)


def _broken_pipe(error: BrokenPipeError) -> int | str:
    """Return 1 if the reader of our output has closed it (`| head`); else the error, of another pipe."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard what is left to write
        return 1
    return f"error: {redact_credentials(error)}"
