"""Write files atomically: a crash or power cut leaves the old file or the new one, both whole."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(target: Path) -> Generator[Path]:
    """Yield a path beside `target` to write a file to; it replaces the target when the block ends without an error.

    The temporary name is the same for every writer of a target: where there may be several, each must hold a lock.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    try:
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
