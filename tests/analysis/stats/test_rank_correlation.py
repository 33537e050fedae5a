"""Rank correlations of many resamples against scipy's of each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from analysis.stats.rank_correlation import resampled_spearman, tau_b

WHOLE = st.integers(0, 3)  # few values: many ties


def constant(*arrays):
    return any(np.ptp(array) == 0 for array in arrays)


@given(st.lists(st.tuples(WHOLE, WHOLE, WHOLE, st.integers(0, 3)), min_size=4, max_size=12))
def test_spearman_of_a_resample_is_scipys_of_the_pairs_written_out(rows):
    first, second, gold, counts = np.array(rows, dtype=float).T
    counts = np.stack([counts, np.ones(len(counts)), counts[::-1]], axis=1).astype(int)
    found = resampled_spearman(np.stack([first, second]), gold, counts)
    for draw in range(3):
        picks = np.repeat(np.arange(len(gold)), counts[:, draw])
        for encoder, scores in enumerate((first, second)):
            if len(picks) < 2 or constant(scores[picks], gold[picks]):
                assert np.isnan(found[encoder, draw])
            else:
                expected = reference.spearmanr(scores[picks], gold[picks]).statistic
                assert found[encoder, draw] == pytest.approx(expected, abs=1e-12)


def test_spearman_stays_exact_in_narrow_counts():
    """Counts come as 32-bit numbers; the sums of products of 5,000 ranks are far beyond those."""
    random = np.random.default_rng(0)
    gold = random.normal(size=5000)
    scores = gold + random.normal(size=5000)
    found = resampled_spearman(scores[None], gold, np.ones((5000, 1), dtype=np.int32))
    assert found[0, 0] == pytest.approx(reference.spearmanr(scores, gold).statistic, abs=1e-13)


@given(st.lists(st.tuples(WHOLE, WHOLE), min_size=2, max_size=9))
def test_tau_is_scipys_for_every_draw(rows):
    a, b = np.array(rows, dtype=float).T
    a, b = np.stack([a, a[::-1]]), np.stack([b, b])
    for found, x, y in zip(tau_b(a, b), a, b, strict=True):
        if constant(x) or constant(y):
            assert np.isnan(found)
        else:
            assert found == pytest.approx(reference.kendalltau(x, y).statistic)


def test_tau_ties_what_was_summed_in_another_order():
    a, b = np.array([[0.1 + 0.2, 0.3, 1.0]]), np.array([[2.0, 1.0, 3.0]])
    assert tau_b(a, b)[0] == pytest.approx(reference.kendalltau([0.3, 0.3, 1.0], b[0]).statistic)
    assert tau_b(100 * a, b)[0] == pytest.approx(tau_b(a, b)[0])
