"""Embeddings of training examples and corpora by finished encoders, computed once per checkpoint for all runs."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Float
from torch import Tensor

from cse_core.data.arrow_cache import cache_folder, content_of
from cse_core.data.atomic_write import atomic_path
from cse_core.data.batches import Column
from cse_core.data.corpora import sample, sentences
from cse_core.data.sealed import is_whole, seal, warn_of_damage
from cse_core.method import EncoderRef, Method, VectorScorer, starting_encoder
from cse_core.models.embedding_cache import CachedEncoder, Progress, counting
from cse_core.models.encoder import Encoder
from cse_core.models.foreign import ForeignEncoder, open_encoder
from cse_core.models.pretrained import encoder_hash, resolve_pinned
from cse_core.models.word_vectors import WordVectors, is_word_vectors, verify_word_vectors
from cse_core.run import TRAIN_VERSION, Corpus, Pretrained, canonical, key_of
from cse_core.training.checkpoint import CheckpointError, check_content, read_manifest
from cse_core.training.run_state import check_manifest, load_history

if TYPE_CHECKING:
    from datasets import Dataset

MOST_BYTES = 16 << 30  # of one teacher's vectors, on disk
MIXED = "A Mixed Text, Ünïcödé"  # tokenizers with the same vocabulary may split it differently


def checkpoint_folder(store: Path, encoder: EncoderRef, select: str) -> Path:
    """Return the folder of a pre-trained encoder, or of a run's checkpoint after checking every byte of it."""
    if isinstance(encoder, Pretrained):
        return resolve_pinned(encoder, store)
    folder = store / encoder.identity / select
    history = load_history(store / encoder.identity)
    if not history or not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no {select} checkpoint of run {encoder.identity}; train that run first")
    try:
        check_content(folder, check_manifest(read_manifest(folder), encoder.identity, select, history))
    except CheckpointError as error:
        raise CheckpointError(f"{error}; delete {store / encoder.identity} to have the run trained again") from error
    return folder


def load_starting_weights(encoder: Encoder, method: Method, store: Path) -> None:
    """Load the weights that the method starts from; pooling, template and dropout of the encoder do not change."""
    if (reference := starting_encoder(method)) is None:
        return
    folder = checkpoint_folder(store, *reference)
    start = Encoder.from_pretrained(folder, pooling=encoder.pooling, template=encoder.template)
    weights, present = start.state_dict(), encoder.state_dict()
    if {name: value.shape for name, value in weights.items()} != {name: value.shape for name, value in present.items()}:
        raise ValueError(f"{folder}: weights of other shapes than those of {encoder.name}; start from one of its kind")
    encoder.load_state_dict(weights)


def load_finished(
    store: Path, encoder: EncoderRef, select: str, device: str | torch.device = "cpu"
) -> Encoder | ForeignEncoder | WordVectors:
    """Load a run's checkpoint, a pre-trained encoder or word vectors."""
    if isinstance(encoder, Pretrained) and is_word_vectors(encoder.name):
        verify_word_vectors(encoder)
        return WordVectors.load(encoder.name)
    folder = checkpoint_folder(store, encoder, select)
    if isinstance(encoder, Pretrained):
        return open_encoder(folder, device)
    return Encoder.from_pretrained(folder).to(device)


def content_of_finished(store: Path, encoder: EncoderRef, select: str) -> str:
    """Return a hash that identifies a finished encoder's vectors, without loading it."""
    if isinstance(encoder, Pretrained) and is_word_vectors(encoder.name):
        return verify_word_vectors(encoder)
    return encoder_hash(checkpoint_folder(store, encoder, select))


class TargetEncoder:
    """A Source (method.py) over the tokenised examples of one run, cached on disk.

    An encoder with the student's vocabulary reads the student's token ids, truncated as the student sees them. Any
    other (another tokenizer, a lower limit, word vectors) reads the sentences themselves, up to its own length limit.
    """

    def __init__(
        self,
        table: "Dataset",
        student: Encoder,
        store: Path,
        *,
        corpus: Corpus,
        data: Path | None,
        device: torch.device,
        report: Progress | None = None,
    ) -> None:
        self.table, self.student, self.store, self.device = table, student, store, device
        self.corpus, self.data, self.report = corpus, data, report

    def vectors(
        self, encoder: EncoderRef, *, select: str, column: str | None = None, scorer: VectorScorer | None = None
    ) -> Float[Tensor, "examples d"]:
        """Return embeddings of a column (by default the first): eval mode, fp32, the encoder's own pooling, no head.

        With a scorer, return its vectors of the sentences instead.
        """
        column = column or self.table.column_names[0]

        def compute() -> Float[Tensor, "examples d"]:
            teacher = self._load(encoder, select)
            if scorer:
                self._check_width(scorer)
                texts = self._sentences(column, teacher.name)
                return scorer.vectors(CachedEncoder(teacher), texts, data=self.data).float()
            if isinstance(teacher, Encoder) and self._shares_vocabulary(teacher):
                ids = Column(self.table, column)
                rows = [ids[row] for row in range(len(ids))]
                if max(map(len, rows)) <= teacher.max_length:
                    return teacher.embed(rows, progress=self._counter(len(ids)))
            texts = self._sentences(column, teacher.name)
            return teacher.encode(texts, progress=self._counter(len(set(texts))))

        corpus = content_of(sentences(self.corpus, self.data))
        content = content_of_finished(self.store, encoder, select)
        by = f" {key_of({'scorer': canonical(scorer)})}" if scorer else ""
        return self._load_or_compute(f"{content} {content_of(self.table)} {column} {corpus}{by}", compute)

    def _check_width(self, scorer: VectorScorer) -> None:
        """Refuse rank vectors of too many examples: each is as wide as its corpus."""
        taken = 4 * len(self.table) * getattr(scorer, "size", 0)
        if taken > MOST_BYTES:
            raise ValueError(
                f"teacher by {scorer}: its vectors of {len(self.table):,} examples take {taken / 2**30:.0f} GiB, "
                f"expected at most {MOST_BYTES / 2**30:.0f}; rank in fewer sentences"
            )

    def _counter(self, of: int) -> Callable[[int], object] | None:
        """Return a callback that takes batch sizes and reports how many vectors are finished."""
        return counting(partial(self.report, "embedding for teachers"), of) if self.report else None

    def _load(self, encoder: EncoderRef, select: str) -> Encoder | ForeignEncoder | WordVectors:
        finished = load_finished(self.store, encoder, select, self.device)
        if isinstance(finished, Encoder):
            finished.normalises = False  # only cosines of its vectors are used, and recorded runs had these bits
        return finished

    def _shares_vocabulary(self, encoder: Encoder) -> bool:
        teacher, student = encoder.tokenizer, self.student.tokenizer
        same = teacher.get_vocab() == student.get_vocab()
        return same and teacher(MIXED)["input_ids"] == student(MIXED)["input_ids"]  # one may lower-case

    def _sentences(self, column: str, name: str) -> list[str]:
        """Return each example's sentence; refuse a table whose examples aren't the corpus's sentences one by one."""
        texts = sentences(self.corpus, self.data)
        if self.table.column_names != ["text"] or len(texts) != len(self.table):
            raise ValueError(
                f"{name} must read sentences (it has another vocabulary than {self.student.name}, or a scorer), but "
                f"the examples' column {column!r} is not the corpus's sentences one by one; use a teacher with the "
                "same tokenizer and without a scorer"
            )
        return texts["text"][:]

    def sample(self, encoder: EncoderRef, *, select: str, size: int, seed: int) -> Float[Tensor, "size d"]:
        """Return embeddings of sentences drawn from the run's corpus (see `sample`), cut only at the encoder's limit.

        Most are training examples too, so only sentences whose full ids match no example are embedded here.
        """
        examples = self.table.column_names[0]

        def compute() -> Float[Tensor, "size d"]:
            base, drawn = self._load(encoder, select), sample(self.corpus, size, seed, self.data)
            if not isinstance(base, Encoder) or not self._shares_vocabulary(base):
                return base.encode(drawn, progress=self._counter(len(set(drawn))))
            ids = [tuple(row) for row in base.tokenise(drawn)]
            distinct, column = set(ids), Column(self.table, examples)
            embedded = {key: row for row in range(len(column)) if (key := tuple(column[row].tolist())) in distinct}
            new = list(dict.fromkeys(key for key in ids if key not in embedded))
            shared = self.vectors(encoder, select=select, column=examples)[list(embedded.values())]
            index = {key: i for i, key in enumerate([*embedded, *new])}
            return torch.cat([shared, base.embed(new, progress=self._counter(len(new)))])[[index[key] for key in ids]]

        # The table is part of the name, as a vector is rounded differently with other sentences in its batch.
        what = f"{content_of(sentences(self.corpus, self.data))} {content_of(self.table)} {examples}"
        content = content_of_finished(self.store, encoder, select)
        return self._load_or_compute(f"{content} {what} sample {size} {seed}", compute)

    def _load_or_compute(self, what: str, compute: Callable[[], Float[Tensor, "n d"]]) -> Float[Tensor, "n d"]:
        threads = f" {torch.get_num_threads()}" if self.device.type == "cpu" else ""  # their number changes rounding
        what = f"{what} {TRAIN_VERSION} {self.device.type}{threads}"
        path = cache_folder() / "vectors" / f"{hashlib.sha256(what.encode()).hexdigest()[:24]}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):  # if several runs need the same teacher at once, one computes it
            if not is_whole(path, what):
                warn_of_damage(path)
                with atomic_path(path) as part:
                    vectors = compute().numpy()
                    if not np.isfinite(vectors).all():
                        row = int(np.flatnonzero(~np.isfinite(vectors).all(1))[0])
                        raise ValueError(f"a teacher's vector of example {row} is not finite")
                    with part.open("wb") as file:
                        np.save(file, vectors)
                    seal(part, what)
        return torch.from_numpy(np.load(path, mmap_mode="c"))
