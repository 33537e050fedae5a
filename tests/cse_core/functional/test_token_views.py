"""Shuffles and cutoffs: permutations, exact counts, padding untouched, by loops over rows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cse_core.functional.token_views import (
    cut_count,
    entry_cutoff,
    feature_cutoff,
    random_order,
    shuffled_positions,
    token_cutoff,
)

RATES = st.sampled_from([0.05, 0.1, 0.2, 0.29, 0.5, 0.75, 0.99])
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def mask_of(lengths: list[int], width: int = 9) -> Tensor:
    return torch.arange(width) < torch.tensor(lengths)[:, None]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("size", "rate", "count"), [(100, 0.29, 28), (768, 0.2, 153), (5, 0.2, 1), (4, 0.2, 0)])
def test_counts_are_pythons_own(size: int, rate: float, count: int) -> None:
    assert cut_count(size, rate) == count


@given(LENGTHS, st.integers(0, 1000))
def test_an_order_is_of_the_eligible_first(lengths: list[int], seed: int) -> None:
    mask = mask_of(lengths)
    orders = random_order(mask, seeded(seed))
    for length, order in zip(lengths, orders.tolist(), strict=True):
        assert sorted(order[:length]) == list(range(length))
        assert order[length:] == list(range(length, 9))
    assert torch.equal(random_order(mask, seeded(seed)), orders)
    assert shuffled_positions(mask, orders).tolist() == orders.tolist()
    kept = torch.where(mask, shuffled_positions(mask, orders.flip(1)), 0)
    assert torch.equal(kept, torch.where(mask, orders.flip(1), 0))


def test_sentences_and_seeds_have_orders_of_their_own_and_all_are_as_likely() -> None:
    mask = torch.ones(6000, 3, dtype=torch.bool)
    orders = random_order(mask, seeded(1))
    codes = (orders * torch.tensor([9, 3, 1])).sum(1).unique(return_counts=True)[1]
    assert len(codes) == 6
    assert codes.double().sub(1000).square().sum() / 1000 < 25.7  # chi-square, five degrees of freedom, p = 1e-4
    long = torch.ones(2, 20, dtype=torch.bool)
    assert not torch.equal(*random_order(long, seeded(1)))
    assert not torch.equal(random_order(long, seeded(1)), random_order(long, seeded(2)))


@given(LENGTHS, RATES, st.integers(0, 1000))
def test_tokens_are_cut_by_the_order(lengths: list[int], rate: float, seed: int) -> None:
    mask = mask_of(lengths)
    order = random_order(mask, seeded(seed))
    kept = token_cutoff(mask, order, rate)
    assert kept.shape == (len(lengths), 9, 1)
    for row, length in enumerate(lengths):
        cut = set(order[row].tolist()[: int(length * rate)])
        assert [not k for k in kept[row, :, 0].tolist()] == [place in cut for place in range(9)]
        assert kept[row, length:].all()


@given(st.integers(1, 4), st.integers(1, 12), RATES, st.integers(0, 1000))
def test_features_are_cut_by_the_order(n: int, width: int, rate: float, seed: int) -> None:
    order = random_order(torch.ones(n, width, dtype=torch.bool), seeded(seed))
    kept = feature_cutoff(order, rate)
    assert kept.shape == (n, 1, width)
    for row in range(n):
        cut = set(order[row].tolist()[: int(width * rate)])
        assert [not k for k in kept[row, 0].tolist()] == [feature in cut for feature in range(width)]


@given(LENGTHS, st.integers(1, 5), RATES, st.integers(0, 1000))
def test_entries_are_cut_by_the_order(lengths: list[int], width: int, rate: float, seed: int) -> None:
    mask = mask_of(lengths)
    order = random_order(mask[..., None].expand(-1, -1, width).flatten(1), seeded(seed))
    kept = entry_cutoff(mask, order, rate)
    assert kept.shape == (len(lengths), 9, width)
    for row, length in enumerate(lengths):
        cut = {(entry // width, entry % width) for entry in order[row].tolist()[: int(length * width * rate)]}
        found = {(i, j) for i in range(9) for j in range(width) if not kept[row, i, j]}
        assert found == cut
        assert kept[row, length:].all()
