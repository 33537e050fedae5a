"""Corpora, of sentences to train on and to rank, as memory-mapped Arrow tables cached by content."""

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cse_core.data import senteval, sts_texts, synthetic
from cse_core.data.arrow_cache import arrow_table, cache_folder
from cse_core.data.locate import locate_corpus, read_lines
from cse_core.run import Corpus

if TYPE_CHECKING:
    from datasets import Dataset

CHUNK = 4096  # sentences written at a time


def sentences(corpus: Corpus, folder: Path | None = None) -> "Dataset":
    """Return the corpus as a table with one column, `text`; a blank line is a single space.

    A corpus named after an evaluation set (senteval.SETS) has the first of its distinct sentences; `sts_texts` has
    those of all STS sets.
    """
    home = cache_folder() / "corpora"
    if corpus.sha256:  # a table that is cached under this hash saves reading the source
        table = arrow_table(home / corpus.sha256, lambda: _text_batches(read_source(corpus, folder)))
    else:
        lines = read_source(corpus, folder)
        table = arrow_table(home / lines_hash(lines), lambda: _text_batches(lines))
    if len(table) != corpus.lines:
        raise ValueError(f"corpus {corpus}: sha256 pins {len(table):,} lines; correct one of the two")
    return table


def corpus_of_file(path: Path, lines: int | None = None) -> Corpus:
    """Return a text file, or its first lines, as a corpus that is known by its content."""
    texts = read_lines(path, lines=lines)
    return Corpus(str(path), lines or len(texts), lines_hash(texts))


def sample(corpus: Corpus, size: int, seed: int, data: Path | None = None) -> list[str]:
    """Draw sentences from a corpus without replacement, as RankEncoder's code does: by Python's `random.sample`."""
    if size > corpus.lines:
        raise ValueError(f"cannot draw {size:,} sentences from {corpus}, which has fewer")
    rows = random.Random(seed).sample(range(corpus.lines), size)
    return sentences(corpus, data).select(rows)["text"][:]


def read_source(corpus: Corpus, folder: Path | None) -> list[str]:
    """Return the corpus's lines as in the source; refuse fewer, or another content than the pinned one."""
    if corpus.name == "synthetic":
        source, lines = "synthetic", synthetic.sentences(corpus.lines)
    elif corpus.name in senteval.SETS:
        source, lines = (
            f"evaluation set {corpus.name}",
            senteval.distinct_sentences(corpus.name, folder)[: corpus.lines],
        )
    elif corpus.name == sts_texts.NAME:
        source, lines = f"corpus {corpus.name}", sts_texts.sentences(folder)[: corpus.lines]
    else:
        source = locate_corpus(corpus.name, folder)
        lines = read_lines(source, lines=corpus.lines)
    if not lines:
        raise ValueError(f"{source}: empty, expected {corpus.lines:,} lines; copy or fetch it again")
    if len(lines) < corpus.lines:
        raise ValueError(f"{source}: {len(lines):,} lines, expected {corpus.lines:,}; ask for fewer, or get all of it")
    actual = lines_hash(lines)
    if corpus.sha256 not in ("", actual):
        raise ValueError(
            f"{source}: the first {corpus.lines:,} lines have sha256 {actual}, expected {corpus.sha256}; "
            "get the pinned file, or leave sha256 empty to use this one as another corpus"
        )
    return lines


def lines_hash(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines as a UTF-8 file with a "\\n" after each, like `head -n N file | sha256sum`."""
    return hashlib.sha256(("\n".join(lines) + "\n").encode()).hexdigest()


def _text_batches(lines: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(lines), CHUNK):
        chunk = [line if line.strip() else " " for line in lines[start : start + CHUNK]]
        yield pa.record_batch([pa.array(chunk, pa.string())], names=["text"])
