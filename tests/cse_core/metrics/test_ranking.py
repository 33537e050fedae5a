"""Kendall's tau-b and NDCG against their definitions counted out, and the groups that the paper's sets have."""

import math
import time
import warnings
from collections.abc import Sequence
from inspect import unwrap
from itertools import combinations, pairwise, permutations
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from cse_core.data.senteval import pairs
from cse_core.metrics.ranking import Ranking, groups, kendall, ndcg, summary

GAINS = {"linear": lambda g: g, "exponential": lambda g: 2**g - 1}
gains = pytest.mark.parametrize("gain", GAINS)


def tau_by_hand(scores: Sequence[float], gold: Sequence[float]) -> float:
    """Pairs of items in the same order less those in opposite ones, over the untied pairs of either list."""
    signs = [(np.sign(scores[i] - scores[j]), np.sign(gold[i] - gold[j])) for i, j in combinations(range(len(gold)), 2)]
    untied = [sum(sign[side] != 0 for sign in signs) for side in (0, 1)]
    return sum(a * b for a, b in signs) / math.sqrt(untied[0] * untied[1]) if all(untied) else 0.0


def dcg(listed: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(listed, start=1))


def ndcg_by_hand(scores: Sequence[float], gold: Sequence[float], gain: str) -> float:
    """The average over every order of the items in which the scores do not rise."""
    worth = [GAINS[gain](g) for g in gold]
    orders = [o for o in permutations(range(len(gold))) if all(scores[a] >= scores[b] for a, b in pairwise(o))]
    return fmean(dcg([worth[i] for i in order]) for order in orders) / dcg(sorted(worth, reverse=True))


def of(measure, scores: Sequence[float], gold: Sequence[float], *members: Sequence[int], **settings: str) -> Ranking:
    """The measure over groups given by their indices; one group of all pairs if none is given."""
    held = {f"sentence {i}": np.array(m) for i, m in enumerate(members or [range(len(gold))])}
    return measure(np.array(scores, float), np.array(gold, float), held, **settings)


# Few different values, so ties are many; up to six items, so that all 720 orders can be tried.
items = st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 3)), min_size=2, max_size=6)
Items = list[tuple[int, int]]
longer = st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 5)), min_size=4, max_size=40)


def columns(rows: Items) -> tuple[list[int], list[int]]:
    return [row[0] for row in rows], [row[1] for row in rows]


@given(longer)
def test_kendall_is_pairs_of_items_counted(rows: Items) -> None:
    scores, gold = columns(rows)
    found = of(kendall, scores, gold)
    if len(set(gold)) == 1:
        assert (found.groups, found.dropped) == (0, 1)
        assert math.isnan(found.score)
    else:
        assert found == pytest.approx((tau_by_hand(scores, gold), 1, 0, 0), abs=1e-12)


def test_kendall_in_closed_form() -> None:
    # Four of six pairs of items are in order and one is tied in only the scores; one is in opposite orders.
    assert of(kendall, [1, 1, 3, 2], [1, 2, 3, 4]).score == pytest.approx((4 - 1) / math.sqrt(5 * 6))


@gains
@given(items)
def test_ndcg_is_the_average_over_all_orders_of_the_tied(gain: str, rows: Items) -> None:
    scores, gold = columns(rows)
    found = of(ndcg, scores, gold, gain=gain)
    if not any(gold):
        assert (found.groups, found.dropped) == (0, 1)
        assert math.isnan(found.score)
        assert math.isnan(found.random)
    else:
        chance = ndcg_by_hand([0] * len(gold), gold, gain)  # all tied: the average over all orders there are
        assert found == pytest.approx((ndcg_by_hand(scores, gold, gain), 1, 0, chance), abs=1e-12)


def test_ndcg_in_closed_form() -> None:
    ideal = 3 + 1 / math.log2(3)
    assert of(ndcg, [5, 9, 1], [3, 1, 0]).score == pytest.approx((1 + 3 / math.log2(3)) / ideal)
    assert of(ndcg, [5, 5, 1], [3, 1, 0]).score == pytest.approx(2 * (1 + 1 / math.log2(3)) / ideal)
    assert of(ndcg, [5, 9, 1], [3, 1, 0]).random == pytest.approx(4 / 3 * (1 + 1 / math.log2(3) + 1 / 2) / ideal)
    exponential = of(ndcg, [5, 9, 1], [3, 1, 0], gain="exponential").score
    assert exponential == pytest.approx((1 + 7 / math.log2(3)) / (7 + 1 / math.log2(3)))
    assert of(ndcg, [5, 9, 1], [3, 1, 0], gain="linear") == of(ndcg, [5, 9, 1], [3, 1, 0])


@gains
@given(longer)
def test_ndcg_is_what_scikit_learn_finds(gain: str, rows: Items) -> None:
    scores, gold = columns(rows)
    if any(gold):
        expected = ndcg_score([[GAINS[gain](g) for g in gold]], [scores])
        assert of(ndcg, scores, gold, gain=gain).score == pytest.approx(expected, abs=1e-12)


@given(longer, st.randoms(use_true_random=False))
def test_only_the_order_of_the_scores_matters_and_not_that_of_the_pairs(rows: Items, random) -> None:
    scores, gold = columns(rows)
    shuffled = random.sample(rows, len(rows))
    for measure in (kendall, ndcg):
        found = of(measure, scores, gold)
        for same in (of(measure, [math.exp(s) - 4 for s in scores], gold), of(measure, *columns(shuffled))):
            assert same == pytest.approx(found, abs=1e-12, nan_ok=True)


@given(longer)
def test_reversed_scores_give_minus_tau_and_gold_itself_gives_one(rows: Items) -> None:
    scores, gold = columns(rows)
    tau = of(kendall, scores, gold).score
    assert of(kendall, [-s for s in scores], gold).score == pytest.approx(-tau, abs=1e-12, nan_ok=True)
    if len(set(gold)) > 1:
        assert of(kendall, gold, gold).score == pytest.approx(1)
        for gain in GAINS:
            found, backwards = (of(ndcg, order, gold, gain=gain) for order in (gold, [-g for g in gold]))
            assert backwards.score < found.random < found.score == pytest.approx(1)


def test_a_score_is_the_mean_over_the_groups_where_it_is_defined() -> None:
    # In order; backwards; constant gold above zero; only zeros. The first two share a pair.
    scores, gold = [1, 2, 3, 2, 1, 5, 6, 7, 5, 6], [1, 2, 3, 4, 5, 2, 2, 2, 0, 0]
    members = [0, 1, 2], [2, 3, 4], [5, 6, 7], [8, 9]
    found = of(kendall, scores, gold, *members)
    assert found == pytest.approx((0, 2, 2, 0))
    found = of(ndcg, scores, gold, *members)
    each = [of(ndcg, [scores[i] for i in m], [gold[i] for i in m]) for m in members[:3]]
    assert found == pytest.approx((fmean(e.score for e in each), 3, 1, fmean(e.random for e in each)))
    assert (each[0].score, each[2].score, each[2].random) == pytest.approx((1, 1, 1))
    assert each[1].score < each[1].random < 1


def test_a_collapsed_encoder_counts_as_no_order_at_all() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        half = of(kendall, [1, 2, 3, 7, 7, 7], [1, 2, 3, 1, 2, 3], [0, 1, 2], [3, 4, 5])
        flat = of(ndcg, [7, 7, 7], [1, 2, 4])
        nothing = summary(np.array([]), np.array([]), [])
    assert [str(warning.message) for warning in caught] == []
    assert half == pytest.approx((0.5, 2, 0, 0))
    assert flat.score == pytest.approx(flat.random)
    assert math.isnan(nothing["kendall"])
    assert math.isnan(nothing["ndcg.linear.random"])


def test_groups_hold_every_pair_of_a_frequent_sentence_in_either_position() -> None:
    listed = [("b", "x"), ("a", "b"), ("b", "a"), ("b", "b"), ("a", "b"), ("a", "y"), ("a ", "y"), ("A", "y")]
    found = groups(listed)
    assert {sentence: list(held) for sentence, held in found.items()} == {"b": [0, 1, 2, 3, 4], "a": [1, 2, 4, 5]}
    assert list(found) == ["b", "a"]
    assert all(np.issubdtype(held.dtype, np.integer) for held in found.values())
    assert list(groups(listed, more_than=4)) == ["b"]
    assert list(groups(listed, more_than=2)) == ["b", "a", "y"]
    assert groups([]) == {}


def test_a_summary_names_every_number() -> None:
    # Two hubs of four pairs: one ordered but for a tie, one of zeros only.
    listed = [("hub", str(i)) for i in range(4)] + [(str(i), "nil") for i in range(4, 8)]
    scores, gold = np.array([0.1, 0.2, 0.3, 0.3, 0.1, 0.2, 0.3, 0.4]), np.array([1.0, 2, 3, 5, 0, 0, 0, 0])
    first = scores[:4].tolist(), gold[:4].tolist()
    expected = {"kendall": tau_by_hand(*first), "kendall.dropped": 1, "ndcg.dropped": 1, "groups": 2}
    for gain in GAINS:
        expected[f"ndcg.{gain}"] = ndcg_by_hand(*first, gain)
        expected[f"ndcg.{gain}.random"] = ndcg_by_hand([0] * 4, first[1], gain)
    assert summary(scores, gold, listed) == pytest.approx(expected, abs=1e-12)
    constant = summary(scores, np.full(8, 3.0), listed)
    assert (constant["kendall.dropped"], constant["ndcg.dropped"]) == (2, 0)


@pytest.mark.parametrize("measure", [kendall, ndcg])
def test_wrong_arrays_are_refused(measure) -> None:
    unchecked = unwrap(measure)  # without the test session's own check of shapes
    with pytest.raises(ValueError, match="expected one score and gold a pair, got 3 and 4"):
        of(unchecked, [1, 2, 3], [1, 2, 3, 4], [0, 1])
    with pytest.raises(ValueError, match="expected finite scores, 2 of 4 are not, first at 1"):
        of(measure, [1, math.nan, 3, math.inf], [1, 2, 3, 4])
    with pytest.raises(ValueError, match="expected finite gold, 1 of 2 are not, first at 0"):
        of(measure, [1, 2], [-math.inf, 2])
    with pytest.raises(ValueError, match="expected groups of pairs below 3, got pair 3: they belong to another set"):
        of(measure, [1, 2, 3], [1, 2, 3], [0, 1], [2, 3])


def test_other_wrong_values_are_refused() -> None:
    with pytest.raises(ValueError, match="expected gold of at least 0, 2 of 3 are less, first at 1"):
        of(ndcg, [1, 2, 3], [1, -1, -2])
    with pytest.raises(ValueError, match="gain 'square': not among linear, exponential"):
        of(ndcg, [1, 2, 3], [1, 2, 3], gain="square")
    with pytest.raises(ValueError, match="expected one score a pair, got 2 scores and 3 pairs"):
        summary(np.zeros(2), np.zeros(2), [("a", "b")] * 3)


# Sets as the paper merges them: groups, of constant gold, of zeros only, and what chance gets in NDCG (points).
SETS = {
    ("sts12",): (119, 14, 0, 94.92, 90.61),
    ("sts13",): (32, 0, 0, 76.81, 72.85),
    ("sts14",): (79, 5, 0, 87.62, 82.66),
    ("sts15",): (84, 0, 0, 89.34, 79.87),
    ("sts16",): (55, 9, 9, 83.17, 76.34),
    ("stsb_train", "stsb_dev", "stsb"): (116, 1, 1, 84.68, 76.96),
    ("sickr_train", "sickr_dev", "sickr"): (1946, 0, 0, 92.59, 83.19),
    ("stsb",): (19, 1, 1, 83.80, 76.27),
    ("stsb_dev",): (5, 0, 0, 82.90, 75.03),
    ("sickr",): (565, 0, 0, 93.41, 85.33),
}


def read(tasks: Sequence[str], folder: Path) -> tuple[list[tuple[str, str]], np.ndarray]:
    tables = [pairs(task, folder).table for task in tasks]
    listed = [pair for t in tables for pair in zip(t["sentence1"][:], t["sentence2"][:], strict=True)]
    return listed, np.concatenate([np.asarray(t["score"][:]) for t in tables])


@pytest.mark.slow
@pytest.mark.parametrize("tasks", SETS, ids=" ".join)
def test_the_real_sets_have_these_groups_and_this_level_of_chance(tasks: tuple[str, ...], real_data: Path) -> None:
    listed, gold = read(tasks, real_data)
    number, constant, zero, linear, exponential = SETS[tasks]
    chance = {"ndcg.linear": linear / 100, "ndcg.exponential": exponential / 100}
    counts = {"groups": number, "kendall.dropped": constant, "ndcg.dropped": zero}
    chance |= {f"{name}.random": level for name, level in chance.items()}
    # One score for all pairs leaves every group's order to chance.
    assert summary(np.zeros(len(gold)), gold, listed) == pytest.approx({"kendall": 0} | counts | chance, abs=6e-5)
    perfect = dict.fromkeys(["kendall", "ndcg.linear", "ndcg.exponential"], 1)
    assert summary(gold, gold, listed) == pytest.approx(chance | perfect | counts, abs=6e-5)


@pytest.mark.slow
def test_random_scores_of_a_real_set_get_what_chance_is_said_to(real_data: Path) -> None:
    listed, gold = read(("sts13",), real_data)
    random, members = np.random.default_rng(0), groups(listed)
    for gain in GAINS:
        drawn = [ndcg(random.permutation(len(gold)).astype(float), gold, members, gain) for _ in range(200)]
        scores = [d.score for d in drawn]
        error = float(np.std(scores)) / math.sqrt(len(scores))
        assert fmean(scores) == pytest.approx(drawn[0].random, abs=4 * error)


def test_only_counting_both_positions_gives_sts15_any_group(real_data: Path) -> None:
    listed, _ = read(("sts15",), real_data)
    assert groups([(first, f"{i}") for i, (first, _) in enumerate(listed)]) == {}
    assert len(groups(listed)) == 84


def test_the_paper_s_example_query_mixes_the_splits_of_sick(real_data: Path) -> None:
    found = {}
    for task in ("sickr_train", "sickr_dev", "sickr"):
        listed, gold = read((task,), real_data)
        held = groups(listed, more_than=0).get("A woman is cutting broccoli", [])
        found[task] = sorted((float(gold[i]) for i in held), reverse=True)
    assert set(found["sickr_train"]) >= {4.8, 3.5, 3.4, 2.6, 2.4}
    assert set(found["sickr"]) >= {4.2, 2.865}
    listed, gold = read(("sickr_train", "sickr_dev", "sickr"), real_data)
    merged = gold[groups(listed)["A woman is cutting broccoli"]]
    assert sorted(merged.tolist()) == sorted(score for scores in found.values() for score in scores)


@pytest.mark.slow
def test_all_sets_together_take_seconds(real_data: Path) -> None:
    sets = [read(tasks, real_data) for tasks in list(SETS)[:7]]
    random = np.random.default_rng(0)
    start = time.process_time()
    for listed, gold in sets:
        summary(random.normal(size=len(gold)), gold, listed)
    assert time.process_time() - start < 6  # about one, uncontended; a quadratic loop takes minutes
