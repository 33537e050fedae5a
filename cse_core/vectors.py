"""The training examples as finished encoders see them: computed once per checkpoint and corpus, shared by all runs."""

import hashlib
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from filelock import FileLock
from jaxtyping import Float
from torch import Tensor

from cse_core.batches import Column
from cse_core.data import cache_folder
from cse_core.encoder import Encoder, identity, resolve_pinned
from cse_core.run import TRAIN_VERSION, Pretrained, Run


def checkpoint(store: Path, run: Run, select: str) -> Path:
    """The folder of a run's kept checkpoint."""
    return store / run.key / select


class Examples:
    """A Source (method.py) over the tokenised examples of one run."""

    def __init__(self, table: Dataset, student: Encoder, store: Path, *, device: torch.device) -> None:
        self.table, self.student, self.store, self.device = table, student, store, device

    def vectors(self, encoder: Run | Pretrained, *, select: str) -> Float[Tensor, "examples d"]:
        """Embeddings of the first column's ids: eval mode, no gradient, fp32, the encoder's own pooling, no head."""
        folder = self._folder(encoder, select)
        column = self.table.column_names[0]
        table = Path(self.table.cache_files[0]["filename"]).parent.name  # its folder is named by its content
        what = f"{identity(folder)} {table} {column} {TRAIN_VERSION} {self.device.type}"
        path = cache_folder() / "vectors" / f"{hashlib.sha256(what.encode()).hexdigest()[:24]}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):  # several runs want the same teacher at once: one computes it
            if not path.is_file():
                part = path.with_suffix(".part")
                with part.open("wb") as file:
                    np.save(file, self._compute(folder, column).numpy())
                part.replace(path)
        return torch.from_numpy(np.load(path, mmap_mode="c"))

    def _folder(self, encoder: Run | Pretrained, select: str) -> Path:
        if isinstance(encoder, Pretrained):
            return resolve_pinned(encoder)
        folder = checkpoint(self.store, encoder, select)
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"{folder}: no {select} checkpoint of run {encoder.key}; train that run first")
        return folder

    def _compute(self, folder: Path, column: str) -> Float[Tensor, "examples d"]:
        encoder = Encoder.from_pretrained(folder).to(self.device)
        if encoder.tokenizer.get_vocab() != self.student.tokenizer.get_vocab():
            raise ValueError(
                f"{encoder.name} and {self.student.name} have different vocabularies; a teacher reads the student's ids"
            )
        ids = Column(self.table, column)
        return encoder.embed([ids[row] for row in range(len(ids))])
