"""Write files atomically: a crash or power cut leaves the old file or the new one, both whole."""

import errno
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

# PyTorch and safetensors don't raise OSError, and PyTorch's message gives no reason.
SAYS_FULL = ("No space left on device", "PytorchStreamWriter failed writing", "file write failed", "unexpected pos")


@contextmanager
def full_disk_named(target: Path) -> Generator[None]:
    """Turn the error of a full disk, by whichever library, into an OSError that names the file and the free space."""
    try:
        yield
    except Exception as error:
        named = isinstance(error, OSError) and error.filename and "MiB free" in str(error)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if named or not (full or any(text in str(error) for text in SAYS_FULL)):
            raise
        folder = next(path for path in (target.absolute(), *target.absolute().parents) if path.is_dir())
        free = shutil.disk_usage(folder).free / 2**20
        reason = (
            f"No space left on device ({free:.1f} MiB free on this disk); make space and run the same command again"
        )
        raise OSError(errno.ENOSPC, reason, str(target)) from error


@contextmanager
def atomic_path(target: Path) -> Generator[Path]:
    """Yield a path beside `target` to write a file to; it replaces the target when the block ends without an error.

    The temporary name is the same for every writer of a target: where there may be several, each must hold a lock.
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
    """Replace a file's content: text as UTF-8 with its line ends as they are, bytes as they are."""
    with atomic_path(target) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
