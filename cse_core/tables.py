"""Arrow tables kept on disk: written once, whole, and read only as they were written.

After the Arrow stream stands the digest of its bytes. A stream that ends between two of its batches would pass for a
shorter table, so a table is opened only if the digest holds; any other file is passed over and the table made again.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from pathlib import Path

import pyarrow as pa
from datasets import Dataset
from filelock import FileLock

from cse_core.atomic import atomic_path

TABLE = "table.arrow"
DIGEST_BYTES = 32
PART = 1 << 20

logger = logging.getLogger(__name__)


def arrow_table(folder: Path, batches: Callable[[], Iterable[pa.RecordBatch]]) -> Dataset:
    """The table kept in `folder`, memory-mapped. If missing or damaged, written from `batches()`: once, and whole."""
    path = folder / TABLE
    if not _is_whole(path):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not _is_whole(path):
                if path.exists():
                    logger.warning("%s is not as this version wrote it (cut short, altered or older): made again", path)
                _write(path, batches())
    return Dataset.from_file(str(path))


def _write(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    batches = iter(batches)
    first = next(batches)
    with atomic_path(path) as part:
        with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_stream(sink, first.schema) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)
        digest = _digest(part, part.stat().st_size)
        with part.open("ab") as file:
            file.write(digest)


def _is_whole(path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return _holds(path, found.st_ino, found.st_size, found.st_mtime_ns)


@cache
def _holds(path: Path, inode: int, size: int, changed: int) -> bool:
    """Whether a file's digest is that of its content; read once a process, unless the file is replaced."""
    if size <= DIGEST_BYTES:
        return False
    with path.open("rb") as file:
        file.seek(-DIGEST_BYTES, 2)
        expected = file.read()
    return _digest(path, size - DIGEST_BYTES) == expected


def _digest(path: Path, length: int) -> bytes:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with path.open("rb") as file:
        while length > 0 and (part := file.read(min(PART, length))):
            digest.update(part)
            length -= len(part)
    return digest.digest()
