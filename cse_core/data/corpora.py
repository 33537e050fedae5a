"""Corpora of sentences to train on or to rank, as memory-mapped Arrow tables cached by content.

If a corpus has several columns, each row is an example: a sentence, its positive, and possibly a hard negative.
"""

import hashlib
import json
import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cse_core.data import senteval, sts_texts, synthetic
from cse_core.data.arrow_cache import arrow_table, cache_folder
from cse_core.data.locate import locate_corpus, read_lines
from cse_core.data.text_files import (
    FORMATS,
    NEGATIVES,
    PACKED,
    SCORES,
    TEXTS,
    Table,
    check_first,
    check_text,
    checked_lines,
    format_of,
    normal,
    read_table,
    summary,
)
from cse_core.method import COLUMNS
from cse_core.run import Corpus

if TYPE_CHECKING:
    from datasets import Dataset

CHUNK = 4096  # sentences written at a time
EMPTY = "no sentences in it; expected one a line, or rows of columns"
REMEDY = "name one to three with --columns (from Python: columns=): a sentence, its positive, a hard negative"
Texts = Sequence[str] | Sequence[tuple[str, ...]]  # of one column, or of several
logger = logging.getLogger(__name__)


def sentences(corpus: Corpus, folder: Path | None = None) -> "Dataset":
    """Return the corpus as a table with the column `text`, and maybe others of COLUMNS; a blank text is one space.

    A corpus named after an evaluation set (senteval.SETS) has the set's first distinct sentences. `sts_texts` has the
    sentences of all STS sets, with duplicates.
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


def corpus_of_file(path: Path, lines: int | None = None, columns: Sequence[str] = ()) -> Corpus:
    """Return a file, or its first rows, as a corpus with the hash of its content; log what was read and left out.

    A .txt has one sentence per line. Other files have `columns` (see Corpus), by default those with known names.
    """
    texts, used, what = _read_file(path, columns, lines)
    logger.warning("%s", what)
    if not texts:
        raise ValueError(f"{path}: {EMPTY}")
    if lines and lines > len(texts):
        raise ValueError(f"{path}: {len(texts):,} sentences, expected {lines:,}; ask for fewer, or get all of it")
    return Corpus(str(path), lines or len(texts), lines_hash(texts), used)


def _read_file(path: Path, columns: Sequence[str], lines: int | None = None) -> tuple[Texts, tuple[str, ...], str]:
    """Return a file's first texts, the columns they come from, and a one-line summary of what was read."""
    if format_of(path) == ".txt":
        if tuple(columns) not in ((), COLUMNS[:1]):
            raise ValueError(
                f"{path}: a .txt has a sentence a line, got the columns {', '.join(columns)}; rename it to .tsv"
            )
        raw = checked_lines(path)
        texts = [line for line in raw if line.strip()]
        used = texts[:lines]
        check_first(path, used[0] if used else "")
        inside = sum("\r" in line for line in used)
        how = [f"{inside:,} with a carriage return inside, which ends no line"] if inside else []
        left_out = {"blank line": len(raw) - len(texts)}
        return used, COLUMNS[:1], summary(path, "sentences, one a line", used, left_out, how)
    table = read_table(path, columns)
    if not table.rows:
        raise ValueError(f"{path}: {EMPTY}")
    names = tuple(columns) or _choose(table)
    places = table.pick(names)
    rows = [tuple(table.text(row, place) for place in places) for row in table.rows]
    full = [row for row in rows if all(row)]
    chosen = [row[0] for row in full[:lines]] if len(names) == 1 else full[:lines]
    kind = "sentences" if len(names) == 1 else "examples"
    return chosen, names, table.summary(kind, names, chosen, len(rows) - len(full))


def _choose(table: Table) -> tuple[str, ...]:
    """Return the columns with known names: one of sentences, or a sentence, its positive and a hard negative."""
    if table.width <= 1:
        return table.header or ("1",)
    scores = table.matching(SCORES)
    negatives = [name for name in table.header if normal(name).startswith(NEGATIVES)]  # also negative_1
    candidates = [*((name,) for name in table.matching(TEXTS)), *((*pair, *negatives) for pair in table.pairs())]
    if len(candidates) == 1 and len(negatives) <= 1 and not (scores and len(candidates[0]) > 1):
        return candidates[0]
    names = f"the columns {', '.join(table.header)}" if table.header else f"{table.width} columns without known names"
    scored = f" (pairs with a {scores[0]} are no positives)" if scores and candidates else ""
    raise ValueError(f"{table.path}: expected sentences, got {names}{scored}; {REMEDY}")


def sample(corpus: Corpus, size: int, seed: int, data: Path | None = None) -> list[str]:
    """Draw sentences from a corpus without replacement, with `random.sample` as in RankEncoder's code."""
    if size > corpus.lines:
        raise ValueError(f"cannot draw {size:,} sentences from {corpus}, which has fewer")
    rows = random.Random(seed).sample(range(corpus.lines), size)
    return sentences(corpus, data).select(rows)["text"][:]


def read_source(corpus: Corpus, folder: Path | None) -> Texts:
    """Return the corpus's texts unchanged; refuse a source with fewer, or with another hash than the pinned one."""
    if corpus.name in ("synthetic", synthetic.TRIPLES) and corpus.lines > synthetic.MOST_LINES:
        raise ValueError(f"{corpus.name}: expected at most {synthetic.MOST_LINES:,} lines, got {corpus.lines:,}")
    if corpus.columns and (corpus.name in ("synthetic", sts_texts.NAME) or corpus.name in senteval.SETS):
        raise ValueError(f"corpus {corpus.name}: is of single sentences, got the columns {', '.join(corpus.columns)}")
    if corpus.name == "synthetic":
        source, lines = "synthetic", synthetic.sentences(corpus.lines)
    elif corpus.name == synthetic.TRIPLES:
        source, lines = corpus.name, _pick(corpus, synthetic.triples(corpus.lines))
    elif corpus.name in senteval.SETS:
        source = f"evaluation set {corpus.name}"
        lines = senteval.distinct_sentences(corpus.name, folder)[: corpus.lines]
    elif corpus.name == sts_texts.NAME:
        source, lines = f"corpus {corpus.name}", sts_texts.sentences(folder)[: corpus.lines]
    else:
        source = locate_corpus(corpus.name, folder)
        lines = _read_located(source, corpus)
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


def _pick(corpus: Corpus, rows: Sequence[tuple[str, ...]]) -> Texts:
    """Return the corpus's columns (by default the first) of rows that have COLUMNS."""
    if unknown := sorted(set(corpus.columns) - set(COLUMNS)):
        raise ValueError(f"corpus {corpus.name}: has the columns {', '.join(COLUMNS)}, got {', '.join(unknown)}")
    places = [COLUMNS.index(name) for name in corpus.columns or COLUMNS[:1]]
    if len(places) == 1:
        return [row[places[0]] for row in rows]
    return [tuple(row[place] for place in places) for row in rows]


def _read_located(source: Path, corpus: Corpus) -> Texts:
    """Return the corpus's columns of a file or, if it names none, the file's lines unchanged."""
    if corpus.columns:
        return _read_file(source, corpus.columns, corpus.lines)[0]
    packed = source.suffix.lower() in PACKED
    if (source.with_suffix("") if packed else source).suffix.lower() in FORMATS[1:]:
        raise ValueError(f"corpus {source}: its rows have columns; {REMEDY}")
    lines = read_lines(source, lines=corpus.lines)
    check_first(source, lines[0] if lines else "")
    for number, line in enumerate(lines, 1):
        check_text(line, f"{source}, line {number}")
    return lines


def lines_hash(texts: Iterable[str | tuple[str, ...]]) -> str:
    """Return the SHA-256 of lines as a UTF-8 file with a "\\n" after each, like `head -n N file | sha256sum`.

    Rows of several columns, and texts with line breaks, are hashed as JSON, so that no lines have the same hash.
    """
    rows = list(texts)
    lines = [text for text in rows if isinstance(text, str) and "\n" not in text]
    content = "\n".join(lines) + "\n" if len(lines) == len(rows) else json.dumps(rows, ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()


def _text_batches(texts: Texts) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(texts), CHUNK):
        rows = [(text,) if isinstance(text, str) else text for text in texts[start : start + CHUNK]]
        columns = [[text if text.strip() else " " for text in column] for column in zip(*rows, strict=True)]
        arrays = [pa.array(column, pa.string()) for column in columns]
        yield pa.record_batch(arrays, names=list(COLUMNS[: len(columns)]))
