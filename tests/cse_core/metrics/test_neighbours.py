"""Shared neighbours against sets by brute force, and bins of similarity by their rules."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cse_core.metrics.neighbours import bins, gain_trend, gains, overlap
from tests.support.vectors import normal


def nearest(vector: list[float], corpus: list[list[float]], k: int) -> set[int]:
    def cosine(other: list[float]) -> float:
        product = math.fsum(a * b for a, b in zip(vector, other, strict=True))
        return round(product / math.hypot(*vector) / math.hypot(*other), 9)

    return set(sorted(range(len(corpus)), key=lambda i: (-cosine(corpus[i]), i))[:k])


def by_hand(x: Tensor, y: Tensor, corpus: Tensor, k: int) -> list[int]:
    rows, others, sentences = (side.double().tolist() for side in (x, y, corpus))
    return [len(nearest(a, sentences, k) & nearest(b, sentences, k)) for a, b in zip(rows, others, strict=True)]


@pytest.mark.parametrize("k", [1, 7, 60])
def test_the_overlap_is_that_of_the_sets_of_nearest(k: int) -> None:
    x, corpus = normal(25, 4), normal(60, 4, seed=1) * torch.logspace(-2, 2, 60)[:, None]
    y = x + 0.7 * normal(25, 4, seed=2)
    expected = by_hand(x, y, corpus, k)
    assert overlap(x, y, corpus, k, block=10).tolist() == expected
    assert k == 60 or 0 < sum(expected) < 25 * k


def test_the_paper_counts_one_hundred() -> None:
    x, y, corpus = normal(3, 4), normal(3, 4, seed=1), normal(300, 4, seed=2)
    np.testing.assert_array_equal(overlap(x, y, corpus), by_hand(x, y, corpus, 100))


def test_a_sentence_shares_all_with_itself_and_nothing_with_its_opposite() -> None:
    x, corpus = normal(9, 5), normal(80, 5, seed=1)
    assert overlap(x, 3 * x, corpus, 20).tolist() == [20] * 9
    assert overlap(x, -x, corpus, 40).tolist() == [0] * 9
    assert overlap(x, -x, corpus, 60).tolist() == [40] * 9
    assert overlap(x[:0], x[:0], corpus, 5).tolist() == []


def test_lengths_and_sides_do_not_matter() -> None:
    x, y, corpus = normal(40, 6), normal(40, 6, seed=1), normal(200, 6, seed=2)
    found = overlap(x, y, corpus, 30)
    np.testing.assert_array_equal(overlap(y, x, corpus, 30), found)
    scaled = corpus * torch.logspace(-3, 3, 200)[:, None]
    np.testing.assert_array_equal(overlap(1e-3 * x, 1e3 * y, scaled, 30), found)


@pytest.mark.parametrize("block", [1, 2, 7, 64, 65, 300])
def test_the_block_does_not_matter_even_where_neighbours_tie(block: int) -> None:
    # Every corpus sentence four times, at other lengths, and k amid a group of four.
    few = normal(60, 8, seed=1)
    corpus = torch.cat([few, 3 * few, few / 7, few]).contiguous()
    x, y = normal(65, 8), normal(65, 8, seed=2)
    np.testing.assert_array_equal(overlap(x, y, corpus, 50, block), overlap(x, y, corpus, 50))


def test_of_equal_neighbours_the_earlier_is_nearer() -> None:
    right, up, other = [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]
    corpus = torch.tensor([up, other, other, other, right])
    x, y = torch.tensor([right]), torch.tensor([up])
    # {4, 1} and {0, 1}; a later one of the equals on only one side would leave nothing in common.
    assert overlap(x, y, corpus, 2).tolist() == [1]
    # From [1, 1] all three tie first and `up` and `right` next: {1, 2, 3, 0} against {0, 1, 2, 3} of `up`.
    assert overlap(torch.tensor([other]), y, corpus, 4).tolist() == [4]
    assert overlap(torch.tensor([other]), x, corpus, 4).tolist() == [3]


class Held(TorchDispatchMode):
    """The largest tensor that any operation made."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return made


@pytest.mark.parametrize("block", [1, 8, 64])
def test_no_more_than_a_block_of_similarities_is_held(block: int) -> None:
    x, corpus = normal(64, 1).abs(), normal(500, 1, seed=1).abs()
    with Held() as held:
        overlap(x, x, corpus, 5, block)
    assert held.largest == block * 500


@pytest.mark.parametrize("value", [0.0, math.nan, -math.inf])
def test_a_vector_without_direction_is_refused_with_side_and_row(value: float) -> None:
    sides = {"x": normal(9, 3), "y": normal(9, 3), "corpus": normal(20, 3)}
    for name, side in sides.items():
        broken = side.clone()
        broken[6] = value
        with pytest.raises(ValueError, match=f"^{name}, row 6: expected a finite vector other than zero"):
            overlap(*(sides | {name: broken}).values(), k=3)


def test_more_neighbours_than_the_corpus_has_are_refused() -> None:
    x, corpus = normal(2, 3), normal(20, 3)
    for k in (21, 0):
        with pytest.raises(ValueError, match=f"expected k from 1 to 20, got {k}"):
            overlap(x, x, corpus, k)
    with pytest.raises(ValueError, match="block must be at least 1, got 0"):
        overlap(x, x, corpus, 5, block=0)


def sizes(groups: list[np.ndarray]) -> list[int]:
    return [len(group) for group in groups]


def at(*counts: int) -> np.ndarray:
    """Make counts[b] pairs in each of `len(counts)` bins over [0, 1]; the first and the last must not be empty."""
    middles = (np.arange(len(counts)) + 0.5) / len(counts)
    middles[0], middles[-1] = 0, 1
    return np.random.default_rng(0).permutation(np.repeat(middles, counts))


def test_full_bins_are_of_equal_width() -> None:
    similarity = np.random.default_rng(0).uniform(-0.3, 0.9, 1000)
    groups = bins(similarity)
    counts, edges = np.histogram(similarity, bins=10)
    assert sizes(groups) == counts.tolist()
    for group, (low, high) in zip(groups, pairwise(edges), strict=True):
        assert ((similarity[group] >= low) & (similarity[group] <= high)).all()
        assert (np.diff(group) > 0).all()


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((20, 20, 20), [20, 20, 20]),
        ((19, 20, 30), [39, 30]),  # the lowest has one neighbour
        ((30, 20, 19), [30, 39]),
        ((30, 5, 25), [30, 30]),  # the smaller neighbour is above
        ((25, 5, 30), [30, 30]),
        ((40, 5, 40), [45, 40]),  # of equals the lower
        ((30, 8, 3, 9, 40), [30, 20, 40]),  # merged until there are enough
        ((50, 0, 0, 0, 50), [50, 50]),  # empty ones vanish
        ((50, 12, 10, 50), [50, 22, 50]),
        ((18, 19, 5, 30), [42, 30]),  # the smallest goes first
        ((3, 2, 4), [9]),
        ((1, 1), [2]),
    ],
)
def test_a_small_bin_joins_its_smaller_neighbour(counts: tuple[int, ...], expected: list[int]) -> None:
    found = sizes(bins(at(*counts), count=len(counts)))
    assert found == expected


values = st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=1, max_size=80)


@given(values, st.integers(1, 12), st.integers(1, 30))
def test_every_pair_is_in_one_bin_and_the_bins_ascend(similarity: list[float], count: int, least: int) -> None:
    scores = np.array(similarity)
    groups = bins(scores, count, least)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(scores)))
    assert min(sizes(groups)) >= min(least, len(scores))
    assert len(groups) <= count
    for lower, upper in pairwise(groups):
        assert scores[lower].max() < scores[upper].min()


def test_equal_similarities_are_one_bin() -> None:
    assert [group.tolist() for group in bins(np.full(4, 0.3), least=1)] == [[0, 1, 2, 3]]


def test_what_has_no_bins_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one pair, got 0"):
        bins(np.zeros(0))
    with pytest.raises(ValueError, match="pair 1: expected a finite similarity, got nan"):
        bins(np.array([0.1, math.nan]))
    for count, least in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match=f"count and least must be at least 1, got {count} and {least}"):
            bins(np.zeros(3), count, least)


def test_a_bins_gain_is_the_difference_of_two_spearmans_and_the_trend_is_over_bins():
    random = np.random.default_rng(3)
    cosines, gold = random.uniform(0, 1, 300), random.uniform(0, 5, 300)
    scores, shared = random.uniform(0, 1, 300), random.integers(0, 100, 300)
    table = gains(cosines, scores, gold, shared)
    rows = bins(cosines)
    assert len(table) == len(rows) > 3
    for (mean, gain), chosen in zip(table, rows, strict=True):
        ours, plain = (spearmanr(x[chosen], gold[chosen]).statistic for x in (scores, cosines))
        assert mean == pytest.approx(shared[chosen].mean())
        assert gain == pytest.approx(ours - plain)
    assert gain_trend(table) == pytest.approx(spearmanr(table[:, 0], table[:, 1]).statistic)


def test_a_bin_without_a_correlation_is_left_out_and_two_bins_have_no_trend():
    cosines = np.concatenate([np.linspace(0, 0.2, 30), np.linspace(0.8, 1, 30)])
    gold = np.concatenate([np.zeros(30), np.linspace(0, 5, 30)])
    table = gains(cosines, cosines[::-1].copy(), gold, np.arange(60))
    assert len(table) == 1
    assert table[0].tolist() == pytest.approx([np.arange(30, 60).mean(), -2.0])
    assert np.isnan(gain_trend(table))
