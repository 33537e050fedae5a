"""Check that a corpus or encoder given by name still has the content that it had at its first use (data/pins.py)."""

import logging
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from cse_core.data.arrow_cache import content_of
from cse_core.data.corpora import sentences
from cse_core.data.pins import enforce_pins, pin_name
from cse_core.models.pretrained import resolve_pinned
from cse_core.models.word_vectors import is_word_vectors, verify_word_vectors
from cse_core.run import Corpus, Pretrained

logger = logging.getLogger(__name__)


def check_named_inputs(value: Any, store: Path, data: Path | None, by: str) -> None:
    """Refuse a corpus or encoder in `value` that is given by name and whose content differs from its pin in the store.

    One that can't be found only causes a warning, as a finished run does not need it any more.
    """
    for source in dict.fromkeys(_named_inputs(value)):
        try:
            _check(source, store, data, by)
        except FileNotFoundError as error:
            logger.warning("%s: not compared with its first use, as it can't be found: %s", by, error)


def _check(source: Corpus | Pretrained, store: Path, data: Path | None, by: str) -> None:
    if isinstance(source, Corpus):
        enforce_pins(store, {pin_name(source): content_of(sentences(source, data))}, by)
    elif is_word_vectors(source.name):
        enforce_pins(store, {pin_name(source): verify_word_vectors(source)}, by)
    else:
        resolve_pinned(source, store)


def _named_inputs(value: Any) -> Iterator[Corpus | Pretrained]:
    """Yield the corpora and encoders without a declared hash, also those of nested runs, scorers and teachers."""
    if isinstance(value, Corpus | Pretrained):
        if not value.sha256:
            yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _named_inputs(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _named_inputs(getattr(value, field.name))
