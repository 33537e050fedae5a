"""CompCSE's controls: parts that are windows anywhere in the sentence, and parts of a shuffled sentence."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_core.data import examples
from cse_core.methods.compcse import CompCSE, compose, crops, shuffled_parts, split
from cse_core.methods.simcse import SimCSE
from cse_core.run import Corpus
from tests.support.encoders import wiki_tiny

TEXTS = ["a cat sat on a mat", "unconscionable", "two old men argued about fish because the price rose", " ", "no"]
sequences = st.lists(st.integers(), max_size=40)
parts_of = st.integers(2, 6)


@pytest.mark.slow
@given(sequences, parts_of, st.text())
def test_a_crop_is_a_window_as_long_as_a_share(ids: list[int], parts: int, text: str) -> None:
    found, size = crops(ids, parts, text), math.ceil(len(ids) / parts)
    windows = [ids[start : start + size] for start in range(len(ids) - size + 1)]
    assert len(found) == parts
    assert all(part in windows for part in found)
    assert found == crops(ids, parts, text)


@given(sequences, parts_of, st.text())
def test_shuffled_parts_hold_every_id_once_cut_as_usual(ids: list[int], parts: int, text: str) -> None:
    found, usual = shuffled_parts(ids, parts, text), split(ids, parts)
    assert [len(part) for part in found] == [len(part) for part in usual]
    filled = min(parts, len(ids))
    assert Counter(i for part in found[:filled] for i in part) == Counter(ids)
    assert found == shuffled_parts(ids, parts, text)


def test_the_first_part_without_the_second_is_no_composition() -> None:
    first, second = torch.tensor([[1.0, 2.0]]), torch.tensor([[5.0, 7.0]])
    assert torch.equal(compose([first, second], "first"), first)
    assert torch.equal(compose([first, first], "average"), first)


def test_every_window_and_every_order_is_as_likely() -> None:
    """Seven ids have four windows of four and, of three, six orders; sentences, and parts, draw independently."""
    texts, ids = [f"sentence {i}" for i in range(4_000)], list(range(7))
    starts = Counter(tuple(part[0] for part in crops(ids, 2, text)) for text in texts)
    assert len(starts) == 16  # of the two parts together: windows may be the same, overlap, or leave ids out
    assert all(abs(count / 4_000 - 1 / 16) < 5 * math.sqrt(15 / 256 / 4_000) for count in starts.values())
    orders = Counter(tuple(i for part in shuffled_parts(ids[:3], 2, text) for i in part) for text in texts)
    assert len(orders) == 6
    assert all(abs(count / 4_000 - 1 / 6) < 5 * math.sqrt(5 / 36 / 4_000) for count in orders.values())


def test_draws_do_not_move_with_versions_or_processes() -> None:
    assert crops(range(20), 2, "a cat sat")[0] == [*range(6, 16)]
    assert shuffled_parts(range(6), 2, "a cat sat") == [[5, 1, 0], [3, 2, 4]]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return wiki_tiny().tokenizer


@pytest.mark.parametrize(("length", "parts"), [(3, 2), (8, 3), (32, 2)])
@pytest.mark.parametrize(("split_on", "drawn"), [("crops", crops), ("shuffled", shuffled_parts)])
def test_examples_are_the_sentence_and_its_drawn_parts(
    split_on: str, drawn: Any, length: int, parts: int, tokenizer: Any
) -> None:
    """The sentence is split before it is cut to the length; only then is a part cut to the length itself."""
    found = CompCSE(split_on=split_on, parts=parts).examples(TEXTS, tokenizer, length)
    assert found.pop("anchor") == SimCSE().examples(TEXTS, tokenizer, length)["text"]
    first, last, room = tokenizer.cls_token_id, tokenizer.sep_token_id, length - 2
    for text, own in zip(TEXTS, zip(*found.values(), strict=True), strict=True):
        pieces = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
        assert list(own) == [[first, *ids[:room], last] for ids in drawn(pieces, parts, text)]


@pytest.mark.parametrize("split_on", ["crops", "shuffled"])
def test_a_sentence_has_the_same_parts_wherever_it_stands(split_on: str, tokenizer: Any) -> None:
    method = CompCSE(split_on=split_on)
    whole, turned = (method.examples(texts, tokenizer, 32) for texts in (TEXTS, TEXTS[::-1]))
    assert all(whole[name] == turned[name][::-1] for name in whole)
    usual = CompCSE().examples(TEXTS, tokenizer, 32)
    assert whole["anchor"] == usual["anchor"]
    assert whole["part1"] != usual["part1"]


@pytest.mark.slow
@pytest.mark.parametrize("split_on", ["crops", "shuffled"])
def test_real_sentences_are_cached_apart_and_as_long(
    split_on: str, real_data: Path, cache: Path, tokenizer: Any
) -> None:
    corpus = Corpus("wiki_sentences_1m", 2000)
    usual, drawn = (
        examples.examples(corpus, CompCSE(split_on=on), tokenizer, 512, real_data) for on in ("wordpieces", split_on)
    )
    alike = 0
    for row, other in zip(usual.to_list(), drawn.to_list(), strict=True):
        assert row["anchor"] == other["anchor"]
        assert len(row["part1"]) == len(other["part1"])  # what is controlled for: the length
        alike += row["part1"] == other["part1"]
    assert alike < 0.2 * len(usual)
