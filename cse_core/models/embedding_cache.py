"""Each distinct sentence is embedded once: an encoder with a memory, on request kept on disk."""

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable
from zipfile import BadZipFile

import numpy as np
import torch
import transformers
from jaxtyping import Float
from torch import Tensor

from cse_core.data.arrow_cache import cache_folder
from cse_core.data.atomic_write import atomic_path
from cse_core.models.encoder import Encoder
from cse_core.models.word_vectors import WordVectors

FORMAT = 3  # of the vectors on disk: bump with any change of the file, or of how texts become vectors
Progress = Callable[[str, int, int], object]  # what is under way, done, of


logger = logging.getLogger(__name__)


@runtime_checkable
class SentenceEncoder(Protocol):
    """What has vectors for sentences: an Encoder, WordVectors, or either with a Memory."""

    name: str

    def encode(self, sentences: Sequence[str]) -> Float[Tensor, "n d"]:
        """A vector a sentence, on the CPU."""
        ...


class CachedEncoder:
    """An encoder that embeds what it has not seen and looks up what it has.

    `content` names the encoder's weights by their hash; with it, vectors are also kept on disk, by checkpoint, pooling
    and text, and found again by later processes.
    """

    def __init__(self, encoder: SentenceEncoder, content: str = "") -> None:
        self.encoder, self.name, self.content = encoder, encoder.name, content
        self._rows: dict[bytes, int] = {}  # by a hash: a million sentences and their vectors fit side by side
        self._vectors: Float[Tensor, "n d"] = torch.empty(0, 0)
        self._views: dict[tuple, CachedEncoder] = {}

    @classmethod
    def wrap(cls, encoder: SentenceEncoder) -> "CachedEncoder":
        """The encoder itself, if it has a memory already."""
        return encoder if isinstance(encoder, CachedEncoder) else cls(encoder)

    def with_pooling(self, pooling: str, template: str = "", longest: int | None = None) -> "CachedEncoder":
        """The encoder under another pooling and template, with a memory that all who ask for this view share."""
        if not isinstance(self.encoder, Encoder):
            kind = "word vectors have no pooling" if isinstance(self.encoder, WordVectors) else "not an Encoder"
            raise ValueError(f"{self.name}: {kind}, got {pooling!r}")
        key = (pooling, template, longest)
        if key not in self._views:
            content = f"{self.content} {key}" if self.content else ""
            self._views[key] = CachedEncoder(self.encoder.with_pooling(*key), content)
        return self._views[key]

    def fill(self, sentences: Iterable[str], progress: Progress | None = None) -> None:
        """Embed the sentences that are new, all in one go: sorted by length, little of it is padding."""
        self._recall()
        new = [s for s in dict.fromkeys(sentences) if _mark(s) not in self._rows]
        if not new:
            return
        vectors = self._embedded(new, progress)
        if vectors.ndim != 2 or len(vectors) != len(new):
            raise ValueError(f"{self.name}: wants {len(new):,} vectors, got the shape {tuple(vectors.shape)}")
        marks = [_mark(s) for s in new]
        self._add(marks, vectors)
        self._keep(marks, vectors)

    def encode(self, sentences: Sequence[str]) -> Float[Tensor, "n d"]:
        """See Embeds."""
        self.fill(sentences)
        return self._vectors[[self._rows[_mark(s)] for s in sentences]]

    def _embedded(self, new: list[str], progress: Progress | None) -> Tensor:
        if progress is None or not isinstance(self.encoder, Encoder | WordVectors):
            return self.encoder.encode(new)
        done = 0

        def tell(more: int) -> None:
            nonlocal done
            done += more
            progress("embedding", done, len(new))

        return self.encoder.encode(new, progress=tell)

    def _add(self, marks: Sequence[bytes], vectors: Float[Tensor, "n d"]) -> None:
        start = len(self._vectors)
        self._rows.update((mark, start + i) for i, mark in enumerate(marks))
        self._vectors = torch.cat([self._vectors, vectors]) if start else vectors

    def _folder(self) -> Path:
        return cache_folder() / "embeddings" / hashlib.sha256(self._about().encode()).hexdigest()[:24]

    def _about(self) -> str:
        return f"{FORMAT} {transformers.__version__} {self.content}"

    def _recall(self) -> None:
        """What earlier processes have kept; read once, before anything is embedded. Damaged files are thrown away."""
        if not self.content or len(self._vectors):
            return
        for path in sorted(self._folder().glob("*.npz")):
            try:
                marks, vectors = self._opened(path)
            except FileNotFoundError:  # another process has thrown it away
                continue
            except (BadZipFile, EOFError, KeyError, ValueError) as error:
                logger.warning("%s: damaged embeddings (%s): thrown away, and made again", path, error)
                path.unlink(missing_ok=True)
            else:
                self._add(marks, vectors)

    def _opened(self, path: Path) -> tuple[list[bytes], Float[Tensor, "n d"]]:
        with path.open("rb") as file, np.load(file) as kept:
            marks, vectors, digest = kept["marks"], kept["vectors"], kept["digest"].tobytes()
        if digest != self._digest(marks, vectors):
            raise ValueError("other content than was written")
        width = getattr(self.encoder, "width", vectors.shape[-1])
        if vectors.ndim != 2 or vectors.shape != (len(marks), width):
            raise ValueError(f"shape {vectors.shape}, expected {(len(marks), width)}")
        return [row.tobytes() for row in marks], torch.from_numpy(vectors)

    def _digest(self, marks: np.ndarray, vectors: np.ndarray) -> bytes:
        """What binds vectors to their sentences and to this encoder."""
        digest = hashlib.blake2b(f"{self._about()} {vectors.shape} {vectors.dtype}".encode(), digest_size=32)
        for part in (marks, vectors):
            digest.update(np.ascontiguousarray(part).data)
        return digest.digest()

    def _keep(self, marks: Sequence[bytes], vectors: Float[Tensor, "n d"]) -> None:
        """A file of its own for each filling: written whole or not at all, and no other process writes the same."""
        if not self.content:
            return
        table, rows = np.frombuffer(b"".join(marks), np.uint8).reshape(len(marks), -1), vectors.numpy()
        digest = np.frombuffer(self._digest(table, rows), np.uint8)
        with atomic_path(self._folder() / f"{os.getpid()}-{marks[0].hex()}.npz") as part, part.open("wb") as file:
            np.savez(file, marks=table, vectors=rows, digest=digest)


def _mark(sentence: str) -> bytes:
    return hashlib.blake2b(sentence.encode("utf-8", "surrogatepass"), digest_size=16).digest()
