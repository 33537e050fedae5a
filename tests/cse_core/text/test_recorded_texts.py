"""The texts that recorded runs of SNCSE and CompCSE were trained on. Who changes them raises the method's version."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from cse_core.data.corpora import sentences
from cse_core.methods import METHODS
from cse_core.run import Corpus
from cse_core.text.clauses import clauses
from cse_core.text.negation import negations


@pytest.fixture(scope="module")
def corpus(real_data: Path) -> list[str]:
    """The sentences that scale `small` trains on."""
    return list(sentences(Corpus("wiki_sentences_1m", 16_384), real_data)["text"])


def digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def test_negations_are_those_of_the_record(corpus: list[str]) -> None:
    assert (METHODS["sncse"].version, digest(negations(corpus))) == (1, "0dd542cfea609d3d")


def test_clauses_are_those_of_the_record(corpus: list[str]) -> None:
    assert (METHODS["compcse"].version, digest("|".join(clauses(text)) for text in corpus)) == (1, "1a79da6bfb58ade0")
