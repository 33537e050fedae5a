"""Encoders for tests: one that records its calls, and copies of a small one."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cse_core.models.encoder import Encoder

TEXTS = ("a cat sat", "the river", "a dog", "snow fell on the hills", "no")


class Recording:
    """An encoder without weights: a text's vector is eight numbers from its hash, or a given one. It records calls."""

    name = "recording"

    def __init__(self, known: Mapping[str, Sequence[float]] | None = None) -> None:
        self.known, self.calls = known or {}, list[list[str]]()

    def encode(self, sentences: Sequence[str], *args: Any, **kwargs: Any) -> Tensor:
        self.calls.append(list(sentences))
        return torch.tensor(np.array([self.vector(sentence) for sentence in sentences])).float()

    def vector(self, sentence: str) -> Sequence[float] | np.ndarray:
        if sentence in self.known:
            return self.known[sentence]
        digest = hashlib.sha256(sentence.encode("utf-8", "surrogatepass")).digest()
        return np.frombuffer(digest, np.uint32) / 2**32 - 0.5

    @property
    def passed(self) -> list[str]:
        return [sentence for call in self.calls for sentence in call]


def same(a: Tensor, b: Tensor) -> bool:
    return a.numpy().tobytes() == b.numpy().tobytes() and a.shape == b.shape


def wiki_tiny(**settings: str | float) -> Encoder:
    """A new copy of `Encoder.from_pretrained("wiki-tiny", **settings)`, whose files are read once per process.

    Copies share their tokenizer: a test that changes it must load its own encoder.
    """
    return _wiki_tiny(**settings).clone()


@cache
def _wiki_tiny(**settings: Any) -> Encoder:
    return Encoder.from_pretrained("wiki-tiny", **settings)
