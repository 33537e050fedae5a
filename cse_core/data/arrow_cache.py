"""Arrow tables cached on disk: written once, whole, and verified when read.

A stream cut off between two batches would look like a shorter table, so each file ends with a digest (sealed.py).
"""

import os
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from filelock import FileLock

from cse_core.data.atomic_write import atomic_path
from cse_core.data.sealed import is_whole, seal, warn_of_damage

if TYPE_CHECKING:
    from datasets import Dataset

TABLE = "table.arrow"


def cache_folder() -> Path:
    """Return the folder of derived files, which can be deleted at any time: $CSE_CACHE or ~/.cache/cse-study."""
    return Path(os.environ.get("CSE_CACHE") or "~/.cache/cse-study").expanduser()


def arrow_table(folder: Path, batches: Callable[[], Iterable[pa.RecordBatch]]) -> "Dataset":
    """Return the table in `folder`, memory-mapped; if missing or damaged, first write it from `batches()`."""
    path = folder / TABLE
    if not is_whole(path):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not is_whole(path):
                warn_of_damage(path)
                _write(path, batches())
    from datasets import Dataset  # lazy: slow import

    return Dataset.from_file(str(path))


def content_of(table: "Dataset") -> str:
    """Return the hash that identifies a cached table's content: the name of its folder."""
    return Path(table.cache_files[0]["filename"]).parent.name


def _write(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    batches = iter(batches)
    first = next(batches)
    with atomic_path(path) as part:
        with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_stream(sink, first.schema) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)
        seal(part)
