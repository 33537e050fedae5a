"""Corpora: sentences to train on and to rank, as memory-mapped Arrow tables cached by content."""

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from datasets import Dataset

from cse_core.data import senteval, sts_texts, synthetic
from cse_core.data.arrow_cache import arrow_table, cache_folder, content_of
from cse_core.data.locate import locate_corpus, read_lines
from cse_core.data.pins import hold, name_of
from cse_core.run import Corpus

CHUNK = 4096  # sentences written at a time


def sentences(corpus: Corpus, folder: Path | None = None) -> Dataset:
    """The corpus as a table with one column, `text`; a blank line is a single space.

    The name of an evaluation set (senteval.SETS) stands for the first of its distinct sentences, `sts_texts` for those
    of all STS sets.
    """
    home = cache_folder() / "corpora"
    if corpus.sha256:  # found by its hash, a cached table spares reading the source
        table = arrow_table(home / corpus.sha256, lambda: _text_batches(read_source(corpus, folder)))
    else:
        lines = read_source(corpus, folder)
        table = arrow_table(home / content_hash(lines), lambda: _text_batches(lines))
    if len(table) != corpus.lines:
        raise ValueError(f"corpus {corpus}: sha256 pins {len(table):,} lines; correct one of the two")
    return table


def sample(corpus: Corpus, size: int, seed: int, data: Path | None = None) -> list[str]:
    """Sentences drawn from a corpus without replacement, as RankEncoder's code draws them: Python's `random.sample`."""
    if size > corpus.lines:
        raise ValueError(f"{size:,} sentences wanted from {corpus}, which has fewer")
    rows = random.Random(seed).sample(range(corpus.lines), size)
    return sentences(corpus, data).select(rows)["text"][:]


def hold_corpus(corpus: Corpus | None, store: Path, data: Path | None, by: str) -> None:
    """Hold a corpus that scores are made with to the pins."""
    if corpus and not corpus.sha256:
        hold(store, {name_of(corpus): content_of(sentences(corpus, data))}, by)


def read_source(corpus: Corpus, folder: Path | None) -> list[str]:
    """The corpus's lines as they stand in the source: as many as asked, with the pinned content."""
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
    found = content_hash(lines)
    if corpus.sha256 not in ("", found):
        raise ValueError(
            f"{source}: the first {corpus.lines:,} lines have sha256 {found}, expected {corpus.sha256}; "
            "get the pinned file, or leave sha256 empty to use this one as another corpus"
        )
    return lines


def content_hash(lines: Iterable[str]) -> str:
    """SHA-256 of the lines as a UTF-8 file with one "\\n" after each: what `head -n N file | sha256sum` prints."""
    return hashlib.sha256(("\n".join(lines) + "\n").encode()).hexdigest()


def _text_batches(lines: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(lines), CHUNK):
        chunk = [line if line.strip() else " " for line in lines[start : start + CHUNK]]
        yield pa.record_batch([pa.array(chunk, pa.string())], names=["text"])
