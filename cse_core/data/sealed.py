"""Cached files that end with a digest of the rest, so that a damaged or altered one is never read."""

import hashlib
import logging
from functools import cache
from pathlib import Path

DIGEST_BYTES = 32
PART = 1 << 20

logger = logging.getLogger(__name__)


def seal(path: Path, about: str = "") -> None:
    """Append the digest of a file's bytes and of `about`, a text that says what the file holds."""
    digest = _digest(path, path.stat().st_size, about)
    with path.open("ab") as file:
        file.write(digest)


def is_whole(path: Path, about: str = "") -> bool:
    """Whether a file exists as it was sealed. Its bytes are read once per process, unless the file is replaced."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return _digest_matches(path, about, status.st_ino, status.st_size, status.st_mtime_ns)


def warn_of_damage(path: Path) -> None:
    """Warn that a damaged file, if there is one, is about to be replaced."""
    if path.exists():
        logger.warning("%s is not as this version wrote it (cut short, altered or older): made again", path)


@cache
def _digest_matches(path: Path, about: str, inode: int, size: int, changed: int) -> bool:
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
