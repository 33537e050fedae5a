"""Run any command, and turn errors, interrupts and closed pipes into an exit status and one line of text."""

import gc
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from cse_core.data.atomic_write import full_disk_error
from cse_core.entry_point import raise_on_interrupt
from experiments.cli.numbers import NUMBERS
from experiments.storage.credentials import redact_credentials

INTERRUPTED = 130  # 128 plus the number of SIGINT, as in shells
RESUME = "interrupted: nothing that finished is lost; re-run the same command to resume"
USER_ERRORS = (ValueError, OSError)
AT_END: list[Callable[[], None]] = []  # called when a command ends, also after an error


def run_command(command: Callable[[], int | None], errors: tuple[type[Exception], ...] = USER_ERRORS) -> NoReturn:
    """Run a command and exit with its status (None is 0), or print one of `errors` in a line and exit with 1."""
    raise_on_interrupt()
    gc.freeze()  # imported objects live to the end: scanning them took a fifth of `sweep.py --list`
    try:
        try:
            with NUMBERS:
                status = command()
        finally:
            for act in AT_END:
                act()
        sys.stdout.flush()
    except BrokenPipeError as error:
        sys.exit(_broken_pipe(error))
    except KeyboardInterrupt:
        print(RESUME, file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Exception as error:
        full = full_disk_error(error, _fullest_folder())
        if not full and not isinstance(error, errors):
            raise
        sys.exit(f"error: {redact_credentials(full or error)}")
    sys.exit(status)


def _broken_pipe(error: BrokenPipeError) -> int | str:
    """Return 1 if the reader of our output has closed it (`| head`); otherwise the error of another pipe, as text."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard what is left to write
        return 1
    return f"error: {redact_credentials(error)}"


def _fullest_folder() -> Path:
    """Return the current folder or the folder of temporary files, whichever has less space."""
    folders = [Path(), Path(os.environ.get("TMPDIR", "/tmp"))]  # gettempdir fails on full disks
    return min((folder for folder in folders if folder.is_dir()), key=lambda folder: shutil.disk_usage(folder).free)
