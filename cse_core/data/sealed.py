"""Files of the cache that end with a digest of what stands before it, so that none is read but as it was written."""

import hashlib
import logging
from functools import cache
from pathlib import Path

DIGEST_BYTES = 32
PART = 1 << 20

logger = logging.getLogger(__name__)


def seal(path: Path, about: str = "") -> None:
    """Append the digest of a file's bytes, and of what the file is about."""
    digest = _digest(path, path.stat().st_size, about)
    with path.open("ab") as file:
        file.write(digest)


def is_whole(path: Path, about: str = "") -> bool:
    """Whether a file is there, and as it was sealed. Content is read once a process, unless the file is replaced."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return _holds(path, about, found.st_ino, found.st_size, found.st_mtime_ns)


def warn_of_damage(path: Path) -> None:
    """Name a file that is there and not whole, as it is about to be replaced."""
    if path.exists():
        logger.warning("%s is not as this version wrote it (cut short, altered or older): made again", path)


@cache
def _holds(path: Path, about: str, inode: int, size: int, changed: int) -> bool:
    if size <= DIGEST_BYTES:
        return False
    with path.open("rb") as file:
        file.seek(-DIGEST_BYTES, 2)
        expected = file.read()
    return _digest(path, size - DIGEST_BYTES, about) == expected


def _digest(path: Path, length: int, about: str) -> bytes:
    digest = hashlib.blake2b(about.encode(), digest_size=DIGEST_BYTES)
    with path.open("rb") as file:
        while length > 0 and (part := file.read(min(PART, length))):
            digest.update(part)
            length -= len(part)
    return digest.digest()
