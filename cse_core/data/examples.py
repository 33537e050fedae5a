"""A method's training examples: sentences as token ids, in Arrow tables cached by content."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cse_core.data.arrow_cache import arrow_table, cache_folder
from cse_core.data.batches import by_size
from cse_core.data.corpora import lines_hash, read_source, sentences
from cse_core.method import Method, innermost, single_column, text_columns
from cse_core.run import Corpus, canonical, key_of

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

EXAMPLES_FORMAT = 1  # of the tables: bump with any change of single_column or of what is stored
CHUNK = 4096  # sentences tokenised and written at a time


def examples(
    corpus: Corpus,
    method: Method,
    tokenizer: "PreTrainedTokenizerBase",
    max_length: int,
    folder: Path | None = None,
    progress: Callable[[str, int, int], object] | None = None,
) -> "Dataset":
    """Return the method's training examples as a table: a column of int32 lists for each column of token ids.

    `progress` gets an activity, the number of sentences done, and of all.
    """
    maker = innermost(method)
    key = key_of(
        {
            "format": EXAMPLES_FORMAT,
            "corpus": corpus.sha256 or lines_hash(read_source(corpus, folder)),
            "lines": corpus.lines,
            "tokenizer": _tokenizer_hash(tokenizer),
            "max_length": max_length,
            "examples": "single_column" if type(maker).examples in (single_column, text_columns) else canonical(maker),
        }
    )

    def batches() -> Iterator[pa.RecordBatch]:
        texts = sentences(corpus, folder)
        for start in range(0, len(texts), CHUNK):
            columns = list(texts[start : start + CHUNK].values())
            rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
            for chunk in by_size(rows):
                yield _ids_batch(method, method.examples(chunk, tokenizer, max_length))
            if progress:
                progress("tokenising", start + len(rows), len(texts))

    table = arrow_table(cache_folder() / "examples" / key, batches)
    if not len(table):
        raise ValueError(f"method {method.name}: no example from {corpus}, expected at least one")
    return table


def _ids_batch(method: Method, columns: dict[str, list[list[int]]]) -> pa.RecordBatch:
    lengths = {name: len(ids) for name, ids in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"method {method.name}: columns of token ids must be equally long, got {lengths}")
    return pa.record_batch([pa.array(ids, pa.list_(pa.int32())) for ids in columns.values()], names=list(columns))


def _tokenizer_hash(tokenizer: "PreTrainedTokenizerBase") -> str:
    """Return the hash of everything that decides a text's ids; the last call's truncation and padding do not."""
    content = [_tokenizer_state(tokenizer), tokenizer.special_tokens_map, tokenizer.truncation_side]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _tokenizer_state(tokenizer: Any) -> Any:
    """Return a fast tokenizer's definition as JSON, or the files that a tokenizer written in Python saves."""
    if tokenizer.is_fast:
        return json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return [type(tokenizer).__name__, *([path.name, path.read_bytes().hex()] for path in files)]
