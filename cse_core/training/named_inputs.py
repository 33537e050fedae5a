"""Check that a corpus or encoder given by name still has the content that it had at its first use (data/pins.py)."""

import logging
from pathlib import Path
from typing import Any

from cse_core.data.arrow_cache import content_of
from cse_core.data.corpora import sentences
from cse_core.data.pins import enforce_pins, pin_name
from cse_core.models.pretrained import resolve_pinned
from cse_core.models.word_vectors import is_word_vectors, verify_word_vectors
from cse_core.run import Corpus, Pretrained, parts_of

logger = logging.getLogger(__name__)


def check_named_inputs(value: Any, store: Path, data: Path | None, by: str) -> None:
    """Refuse a corpus or encoder in `value` that is given by name and whose content differs from its pin in the store.

    One that can't be found only causes a warning, as a finished run does not need it any more.
    """
    for source in dict.fromkeys(source for source, _ in parts_of(value, Corpus, Pretrained) if not source.sha256):
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
