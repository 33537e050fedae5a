"""An encoder with a cache, so that each distinct sentence is embedded once; optionally on disk."""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cse_core.data.arrow_cache import cache_folder
from cse_core.data.atomic_write import atomic_path
from cse_core.data.sealed import is_whole, seal, warn_of_damage
from cse_core.models.encoder import TOKENISE_CHUNK, Encoder
from cse_core.models.foreign import ForeignEncoder
from cse_core.models.loading import UNLIMITED
from cse_core.models.word_vectors import WordVectors

FORMAT = 5  # of the vectors on disk: bump with any change of the file, or of how texts become vectors
SPECIAL_TOKENS = 4  # at most, around a sentence
Progress = Callable[[str, int, int], object]  # activity, number done, number in all


@runtime_checkable
class SentenceEncoder(Protocol):
    """Anything that embeds sentences: an Encoder, a ForeignEncoder, WordVectors, or one of them in a CachedEncoder."""

    name: str

    def encode(self, sentences: Sequence[str]) -> Float[Tensor, "n d"]:
        """Return a vector per sentence, on the CPU."""


def counting(progress: Callable[[int, int], object], of: int) -> Callable[[int], None]:
    """Return a callback that takes how many more are done, and reports how many of all are."""
    done = 0

    def report(more: int) -> None:
        nonlocal done
        done += more
        progress(done, of)

    return report


def cut_warning(name: str, encoder: SentenceEncoder, sentences: Iterable[str]) -> tuple[str, ...]:
    """Return a warning that states how many distinct sentences of a set the encoder cuts at its limit, if any."""
    if not isinstance(encoder, Encoder | ForeignEncoder):
        return ()
    distinct, around = set(sentences), len(getattr(encoder, "template", "")) + SPECIAL_TOKENS
    # Tokenise only texts that may be longer: ASCII has at most one token per character, other text 12 per byte.
    most = ((text, len(text) if text.isascii() else 12 * len(text.encode())) for text in distinct)
    long = [text for text, tokens in most if tokens + around > encoder.max_length]
    cut = sum(not isinstance(ids, str) and len(ids) > encoder.max_length for ids in encoder.tokenise(long, UNLIMITED))
    counts = f"{cut:,} of {len(distinct):,} texts"
    return (f"{name}: {counts} are longer than {encoder.max_length} tokens and were cut",) if cut else ()


class CachedEncoder:
    """An encoder that embeds new sentences and looks up those that it has embedded before.

    `content` is the hash of the encoder's weights. If it is given, vectors are also cached on disk for later processes,
    by checkpoint, pooling and text.
    """

    by_ids: ClassVar[bool] = False

    def __init__(self, encoder: SentenceEncoder, content: str = "") -> None:
        self.encoder, self.name, self.content = encoder, encoder.name, content
        self._rows: dict[bytes, int] = {}  # by hash, so that a million sentences and their vectors fit into memory
        self._vectors: Float[Tensor, "n d"] = torch.empty(0, 0)
        self._views: dict[object, CachedEncoder] = {}
        self._not_finite: set[bytes] = set()

    @classmethod
    def wrap(cls, encoder: SentenceEncoder) -> "CachedEncoder":
        """Return a cached encoder: the encoder itself if it is one."""
        return encoder if isinstance(encoder, CachedEncoder) else cls(encoder)

    def with_pooling(self, pooling: str, template: str = "", longest: int | None = None) -> "CachedEncoder":
        """Return the encoder with another pooling and template."""
        key = (pooling, template, longest)
        return self.derived(key, lambda own: own.with_pooling(*key), f"no pooling, got {pooling!r}")

    def derived(self, key: object, make: Callable[[Encoder], Encoder], lacks: str) -> "CachedEncoder":
        """Return what `make` makes of the encoder, in a cache; every call with the same key returns the same one.

        `lacks` says what an encoder of another kind does not have.
        """
        if not isinstance(self.encoder, Encoder):
            kind = "word vectors have" if isinstance(self.encoder, WordVectors) else "an encoder of another library has"
            raise ValueError(f"{self.name}: {kind} {lacks}")
        if key not in self._views:
            content = f"{self.content} {key}" if self.content else ""
            self._views[key] = CachedEncoder(make(self.encoder), content)
        return self._views[key]

    def fill(self, sentences: Iterable[str], progress: Progress | None = None) -> None:
        """Embed all new sentences in one call, since sorting them by length saves padding.

        A vector that is not finite raises no error until it is requested, so that the others can be used.
        """
        self._load_from_disk()
        new = [s for s in dict.fromkeys(sentences) if _sentence_hash(s) not in self._rows]
        if not new:
            return
        vectors = self._embed(new, progress)
        if vectors.ndim != 2 or len(vectors) != len(new):
            raise ValueError(f"{self.name}: expected {len(new):,} vectors, got the shape {tuple(vectors.shape)}")
        hashes = [_sentence_hash(s) for s in new]
        self._add(hashes, vectors)
        bad = (~vectors.isfinite().all(1)).nonzero().flatten().tolist()
        self._not_finite.update(hashes[row] for row in bad)
        if not bad:
            self._save_to_disk(hashes, vectors)

    def not_finite(self, sentences: Iterable[str]) -> str | None:
        """Return the first of these embedded sentences whose vector is not finite, if there is one."""
        return next((s for s in sentences if _sentence_hash(s) in self._not_finite), None) if self._not_finite else None

    def encode(self, sentences: Sequence[str]) -> Float[Tensor, "n d"]:
        """Return a vector per sentence, embedding new sentences first; refuse a vector that is not finite."""
        self.fill(sentences)
        if (bad := self.not_finite(sentences)) is not None:
            raise ValueError(f"{self.name}: the vector of {bad!r} is not finite")
        return self._vectors[[self._rows[_sentence_hash(s)] for s in sentences]]

    def _embed(self, new: list[str], progress: Progress | None) -> Tensor:
        if progress is None or not isinstance(self.encoder, Encoder | WordVectors):
            return self.encoder.encode(new)
        return self.encoder.encode(new, progress=counting(partial(progress, "embedding"), len(new)))

    def _add(self, hashes: Sequence[bytes], vectors: Float[Tensor, "n d"]) -> None:
        start = len(self._vectors)
        self._rows.update((sentence_hash, start + i) for i, sentence_hash in enumerate(hashes))
        self._vectors = torch.cat([self._vectors, vectors]) if start else vectors

    def _folder(self) -> Path:
        return cache_folder() / "embeddings" / hashlib.sha256(self._cache_key().encode()).hexdigest()[:24]

    def _cache_key(self) -> str:
        import transformers  # lazy: slow import

        return f"{FORMAT} {transformers.__version__} {self.content}"

    def _load_from_disk(self) -> None:
        """Load what earlier processes saved, once, before anything is embedded; delete damaged files."""
        if not self.content or len(self._vectors):
            return
        for path in sorted(self._folder().glob("*.npz")):
            if not is_whole(path, self._cache_key()):
                warn_of_damage(path)
                path.unlink(missing_ok=True)
                continue
            with suppress(FileNotFoundError), np.load(path) as arrays:  # unless another process deleted it
                self._add([row.tobytes() for row in arrays["marks"]], torch.from_numpy(arrays["vectors"]))

    def _save_to_disk(self, hashes: Sequence[bytes], vectors: Float[Tensor, "n d"]) -> None:
        """Write one call's vectors to a new file, atomically; no other process writes the same one."""
        if not self.content:
            return
        table = np.frombuffer(b"".join(hashes), np.uint8).reshape(len(hashes), -1)
        with atomic_path(self._folder() / f"{os.getpid()}-{hashes[0].hex()}.npz") as part:
            with part.open("wb") as file:
                np.savez(file, marks=table, vectors=vectors.numpy())
            seal(part, self._cache_key())


class EncoderOfDistinctIds(CachedEncoder):
    """A cached encoder that embeds once for each distinct list of token ids, so that equal ids have equal vectors.

    Texts that differ, such as in case, can have the same ids. Embedded separately, in batches of other shapes, they
    would have vectors that differ in the last digits. Here all of them get the vector of the first.
    """

    by_ids: ClassVar[bool] = True

    def __init__(self, cached: CachedEncoder) -> None:
        super().__init__(cached.encoder)
        self.cached = cached
        self._first: dict[bytes, str] = {}
        self._representative: dict[str, str] = {}

    def derived(self, key: object, make: Callable[[Encoder], Encoder], lacks: str) -> CachedEncoder:
        """See CachedEncoder; the ids are those of the encoder that is made."""
        if key not in self._views:
            self._views[key] = EncoderOfDistinctIds(self.cached.derived(key, make, lacks))
        return self._views[key]

    def fill(self, sentences: Iterable[str], progress: Progress | None = None) -> None:
        """See CachedEncoder."""
        self.cached.fill(self.representatives(list(sentences)), progress)

    def encode(self, sentences: Sequence[str]) -> Float[Tensor, "n d"]:
        """See CachedEncoder."""
        return self.cached.encode(self.representatives(sentences))

    def not_finite(self, sentences: Iterable[str]) -> str | None:
        """See CachedEncoder."""
        return self.cached.not_finite(self.representatives(list(sentences)))

    def representatives(self, sentences: Sequence[str]) -> list[str]:
        """Return for each sentence the first one with the same ids; the sentence itself if the encoder has no ids."""
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in self._representative]
        tokenise = getattr(self.encoder, "tokenise", None)
        for start in range(0, len(new), TOKENISE_CHUNK):
            chunk = new[start : start + TOKENISE_CHUNK]
            for sentence, ids in zip(chunk, tokenise(chunk) if tokenise else chunk, strict=True):
                key = _sentence_hash(ids if isinstance(ids, str) else " ".join(map(str, ids)))
                self._representative[sentence] = self._first.setdefault(key, sentence)
        return [self._representative[sentence] for sentence in sentences]


def distinct_rows(
    view: CachedEncoder, sides: Sequence[Sequence[str]]
) -> tuple[Float[Tensor, "k d"], list[Int[Tensor, " n"]]]:
    """Return the vectors of the distinct ids of all sides, and for each side the rows of its sentences in them."""
    texts = [view.representatives(side) if isinstance(view, EncoderOfDistinctIds) else side for side in sides]
    row = {text: i for i, text in enumerate(dict.fromkeys(text for side in texts for text in side))}
    return view.encode(list(row)), [torch.tensor([row[text] for text in side], dtype=torch.long) for side in texts]


def _sentence_hash(sentence: str) -> bytes:
    return hashlib.blake2b(sentence.encode("utf-8", "surrogatepass"), digest_size=16).digest()
