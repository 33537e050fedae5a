"""Write files atomically: a crash or power cut leaves the old file or the new one, both whole."""

import errno
import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

FREE = "MiB free on this file's disk"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# PyTorch (without a reason), safetensors, NumPy and SQLite raise another error than OSError, or one without errno.
SAYS_NO_ROOM = re.compile(
    r"PytorchStreamWriter failed writing|unexpected pos \d+ vs \d+|No space left on device|os error (27|28|122)\b"
    r"|\d+ requested and \d+ written|database or disk is full"
)


def full_disk_error(error: BaseException, target: Path) -> OSError | None:
    """Return an error that names the file and its disk's free space, or None if the given one is not of a full disk."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and not isinstance(error, ValueError) and (said := SAYS_NO_ROOM.search(str(error))):
        number = int(said[1] or errno.ENOSPC)
    if number not in NO_ROOM:
        return None
    if FREE in str(error) and isinstance(error, OSError):
        return error
    path = Path(getattr(error, "filename", None) or target).absolute()
    folder = next(folder for folder in (path, *path.parents) if folder.is_dir())
    free = f"({shutil.disk_usage(folder).free / 2**20:,.1f} {FREE})"
    return OSError(number, f"{os.strerror(number)} {free}; make room there, then run the same command again", f"{path}")


@contextmanager
def full_disk_named(target: Path) -> Generator[None]:
    """Turn any library's error of a full disk into one that names the file and the disk's free space."""
    try:
        yield
    except Exception as error:
        named = full_disk_error(error, target)
        if named in (None, error):
            raise
        raise named from error


@contextmanager
def atomic_path(target: Path) -> Generator[Path]:
    """Yield a path next to `target` to write a file to; it replaces the target when the block ends without an error.

    The temporary name is the same for every writer of a target, so concurrent writers must hold a lock.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    try:
        with full_disk_named(target):
            yield part
            sync(part)
            part.replace(target)
            sync(target.parent)
    finally:
        part.unlink(missing_ok=True)


def atomic_write(target: Path, content: str | bytes) -> None:
    """Replace a file's content with bytes, or with text as UTF-8 and its line ends unchanged."""
    with atomic_path(target) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
