"""Edits of token ids against list operations, sentence by sentence; what they keep, and what draws depend on."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from cse_core.data.batches import pad
from cse_core.method import Tokens
from cse_core.methods.baselines.augmentation import (
    EDITS,
    augment,
    delete,
    edit_count,
    first_occurrences,
    insert_copies,
    invert,
    shuffle,
    wordpieces,
)
from tests.support.method_steps import seeded

CLS, SEP, PAD = 2, 3, 0
lists = st.lists(st.lists(st.integers(10, 14), max_size=9), min_size=1, max_size=5)  # of few values: many repeat
seeds = st.integers(0, 10_000)


def tokens_of(sentences: list[list[int]], width: int = 0) -> Tokens:
    return pad([[CLS, *words, SEP] for words in sentences], PAD, width)


def real(tokens: Tokens) -> list[list[int]]:
    """The real ids; refuses what is not between the special two, or not padded on the right."""
    rows = []
    for ids, mask in zip(tokens.ids.tolist(), tokens.mask.tolist(), strict=True):
        length = sum(mask)
        assert mask == [True] * length + [False] * (len(mask) - length)
        assert (ids[0], ids[length - 1]) == (CLS, SEP)
        rows.append(ids[1 : length - 1])
    return rows


@given(lists)
def test_wordpieces_are_between_the_first_and_the_last_token(sentences: list[list[int]]) -> None:
    tokens = tokens_of(sentences, 12)
    for row, words in zip(wordpieces(tokens).tolist(), sentences, strict=True):
        assert row == [False] + [True] * len(words) + [False] * (len(row) - 1 - len(words))


@given(lists, seeds)
def test_shuffling_orders_wordpieces_by_their_keys(sentences: list[list[int]], seed: int) -> None:
    tokens = tokens_of(sentences)
    keys = torch.randint(-3, 4, tokens.ids.shape, generator=seeded(seed)).double()
    before = keys.clone()
    found = real(shuffle(tokens, keys))
    for words, row, key in zip(sentences, found, before.tolist(), strict=True):
        order = sorted(range(len(words)), key=lambda j: key[1 + j])  # stable, as the function is
        assert row == [words[j] for j in order]
    assert torch.equal(keys, before)


@given(lists)
def test_inversion_is_its_own_inverse(sentences: list[list[int]]) -> None:
    tokens = tokens_of(sentences, 12)
    found = invert(tokens)
    assert real(found) == [words[::-1] for words in sentences]
    assert torch.equal(invert(found).ids, tokens.ids)


@given(lists, seeds)
def test_deletion_by_place_removes_the_chosen(sentences: list[list[int]], seed: int) -> None:
    tokens = tokens_of(sentences)
    chosen = (torch.rand(tokens.ids.shape, generator=seeded(seed)) < 0.4) & wordpieces(tokens)
    for words, row, gone in zip(sentences, real(delete(tokens, chosen)), chosen.tolist(), strict=True):
        assert row == [word for j, word in enumerate(words) if not gone[1 + j]]


@given(lists, seeds)
def test_deletion_by_value_removes_the_first_of_each_drawn_value(sentences: list[list[int]], seed: int) -> None:
    """As list.remove does, one drawn value after the other."""
    tokens = tokens_of(sentences)
    chosen = (torch.rand(tokens.ids.shape, generator=seeded(seed)) < 0.4) & wordpieces(tokens)
    found = real(delete(tokens, first_occurrences(tokens, chosen)))
    for words, row, drawn in zip(sentences, found, chosen.tolist(), strict=True):
        left = list(words)
        for word in [word for j, word in enumerate(words) if drawn[1 + j]]:
            left.remove(word)
        assert row == left


@given(lists, seeds)
def test_repetition_inserts_copies_one_after_the_other(sentences: list[list[int]], seed: int) -> None:
    generator, most = seeded(seed), 4
    counts = [int(torch.randint(0, most + 1, (1,), generator=generator)) if words else 0 for words in sentences]
    pairs, expected = [], []
    for words, count in zip(sentences, counts, strict=True):
        text, row = list(words), []
        for k in range(most):
            draw = torch.rand(2, generator=generator).tolist()
            source, place = int(draw[0] * (len(words) + k)), int(draw[1] * (len(words) + k + 1))
            row.append((source, place))
            if k < count:
                text.insert(place, text[source])
        pairs.append(row)
        expected.append(text)
    sources, places = torch.tensor(pairs).unbind(2)
    tokens = tokens_of(sentences)
    assert real(insert_copies(tokens, sources, places, torch.tensor(counts))) == expected
    width = max(len(text) + 2 for text in expected)
    cut = insert_copies(tokens, sources, places, torch.tensor(counts), width)
    assert (real(cut), cut.ids.shape[1]) == (expected, width)


@example(2, 0.6, 32)  # of so few none, although it would round to 1
@example(5, 0.5, 32)  # 2.5: halves to even
@example(26, 0.2, 32)  # as long as it may be
@example(40, 0.2, 32)  # longer than that already
@given(st.integers(0, 60), st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.5]), st.integers(3, 64))
def test_counts_are_pythons_rounding(words: int, share: float, longest: int) -> None:
    count = round(share * words) if words > 2 else 0
    found = [edit_count(torch.tensor([words]), kind, share, longest).item() for kind in ("deletion", "repetition")]
    assert found == [count, max(0, min(count, longest - words - 2))]


@given(lists, seeds, st.sampled_from(EDITS), st.sampled_from(["place", "value"]))
def test_edits_keep_specials_mask_and_counts(sentences: list[list[int]], seed: int, kind: str, deletion: str) -> None:
    tokens = tokens_of(sentences)
    found = augment(tokens, kind, seeded(seed), share=0.4, max_length=10, deletion=deletion)
    for before, after in zip(sentences, real(found), strict=True):
        count = edit_count(torch.tensor([len(before)]), kind, 0.4, 10).item()
        if kind in ("shuffle", "inverse"):
            assert Counter(before) == Counter(after)
        elif kind == "deletion":
            assert len(after) == len(before) - count
            assert not Counter(after) - Counter(before)
        else:
            assert len(after) == len(before) + count
            assert not Counter(before) - Counter(after)
            assert set(after) == set(before)


@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("deletion", ["place", "value"])
def test_padding_never_enters(kind: str, deletion: str) -> None:
    """Whatever stands behind the masks, the real ids are the same."""
    tokens = tokens_of([[10, 11, 12, 13, 11], [10, 10], [], [14]], 12)
    noise = torch.where(tokens.mask, tokens.ids, torch.randint(10, 15, (4, 12), generator=seeded(1)))
    pair = [
        augment(part, kind, seeded(2), share=0.5, deletion=deletion) for part in (tokens, replace(tokens, ids=noise))
    ]
    assert torch.equal(pair[0].mask, pair[1].mask)
    assert torch.equal(pair[0].ids[pair[0].mask], pair[1].ids[pair[1].mask])


def ids_of(kind: str, seed: int, surroundings: int) -> Tensor:
    torch.manual_seed(surroundings)
    words = [list(range(10, 30))] * 3
    return augment(tokens_of(words), kind, seeded(seed), share=0.2).ids


@pytest.mark.parametrize("kind", ["shuffle", "deletion", "repetition"])
def test_draws_depend_only_on_the_generator_and_differ_between_sentences(kind: str) -> None:
    first = ids_of(kind, 1, 1)
    assert torch.equal(first, ids_of(kind, 1, 2))
    assert not torch.equal(first, ids_of(kind, 2, 1))
    assert len({tuple(row) for row in first.tolist()}) == 3


def test_draws_are_uniform() -> None:
    """Over 6,000 sentences of five different words; bounds of five standard errors."""
    n = 6_000
    tokens, bound = tokens_of([[10, 11, 12, 13, 14]] * n), 5 * (0.2 * 0.8 / n) ** 0.5
    places = augment(tokens, "shuffle", seeded(1)).ids[:, 1:6] - 10
    shares = torch.nn.functional.one_hot(places, 5).double().mean(0)
    assert (shares - 0.2).abs().max() < bound
    kept = torch.tensor(real(augment(tokens, "deletion", seeded(2)))) - 10
    assert (torch.nn.functional.one_hot(kept, 5).sum(1).double().mean(0) - 0.8).abs().max() < bound
    longer = torch.tensor(real(augment(tokens, "repetition", seeded(3)))) - 10
    assert (torch.nn.functional.one_hot(longer, 5).sum(1).double().mean(0) - 1.2).abs().max() < bound
    # A copy of word j goes to one of six places; on either side of its original the result is the same.
    beside = (longer[:, 1:] == longer[:, :-1]).any(1).double().mean().item()
    assert beside == pytest.approx(2 / 6, abs=5 * (2 / 9 / n) ** 0.5)


def test_an_edit_keeps_the_batchs_width_where_it_can() -> None:
    words = [list(range(10, 40)), list(range(10, 20))]
    assert augment(tokens_of(words), "repetition", seeded(1)).ids.shape == (2, 32)
    assert augment(tokens_of(words[1:]), "repetition", seeded(1)).ids.shape == (1, 14)
