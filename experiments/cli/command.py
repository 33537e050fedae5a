"""What every command does at its end: the exit status, an error in one line, an interrupt, a reader that has gone."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from experiments.storage.credentials import redact_credentials

INTERRUPTED = 130  # as shells have it: 128 and the number of SIGINT
RESUME = "interrupted: nothing that finished is lost; re-run the same command to resume"
MENDABLE = (ValueError, OSError)


def run_command(command: Callable[[], int | None], errors: tuple[type[Exception], ...] = MENDABLE) -> NoReturn:
    """Exit with the status that the command returns, none being 0, or with 1 and one line for `errors`."""
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
    """Quietly 1 where `| head` has read enough; an error where the pipe was another one, of a server say."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left unwritten goes nowhere
        return 1
    return f"error: {redact_credentials(error)}"
