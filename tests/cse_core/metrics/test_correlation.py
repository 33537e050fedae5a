"""Correlations against ranks and sums written out, and the untrained backbones' known scores on real sets."""

import math
import warnings
from collections.abc import Sequence
from inspect import unwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from cse_core.data.senteval import PARTS, STS_TEST, pairs
from cse_core.evaluation.scorers import Cosine
from cse_core.metrics.correlation import correlations
from cse_core.training.dev_scoring import DevSet
from tests.support.encoders import wiki_tiny

AGGREGATIONS = ("all", "mean", "wmean")
PAIRS = {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186, "stsb": 1379, "sickr": 4927}


def ranks(values: Sequence[float]) -> list[float]:
    """One plus how many are less, plus half of how many others are equal: the average rank."""
    return [1 + sum(x < v for x in values) + (sum(x == v for x in values) - 1) / 2 for v in values]


def product_moment(a: Sequence[float], b: Sequence[float]) -> float:
    n = len(a)
    x, y = ([v - math.fsum(side) / n for v in side] for side in (a, b))
    spread = math.sqrt(math.fsum(v * v for v in x) * math.fsum(v * v for v in y))
    return math.fsum(v * w for v, w in zip(x, y, strict=True)) / spread if spread else math.nan


def by_hand(scores: Sequence[float], gold: Sequence[float], parts: Sequence[str]) -> dict[str, float]:
    found = {}
    for name, prepare in (("spearman", ranks), ("pearson", list)):
        found[f"{name}.all"] = product_moment(prepare(scores), prepare(gold))
        mean = weighted = 0.0
        for part in set(parts):
            rows = [i for i, p in enumerate(parts) if p == part]
            value = product_moment(*(prepare([side[i] for i in rows]) for side in (scores, gold)))
            mean += value / len(set(parts))
            weighted += value * len(rows) / len(parts)
        found |= {f"{name}.mean": mean, f"{name}.wmean": weighted}
    return found


def of(scores: Sequence[float], gold: Sequence[float], parts: Sequence[str] | None = None) -> dict[str, float]:
    return correlations(np.array(scores, float), np.array(gold, float), parts or ["one"] * len(scores))


Rows = list[tuple[int, int, str]]


def columns(rows: Rows) -> tuple[list[int], list[int], list[str]]:
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


# Few different values, so ties are many; three parts of uneven size, in any order.
lines = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 4), st.sampled_from("aabbbc")), min_size=1, max_size=40)


@given(lines)
def test_all_six_are_what_ranks_and_sums_give(rows: Rows) -> None:
    scores, gold, parts = columns(rows)
    found = of(scores, gold, parts)
    expected = by_hand(scores, gold, parts)
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_the_three_aggregations_in_closed_form() -> None:
    # Part a (2 pairs) is ordered perfectly, part b (3 pairs) backwards, and all of b lies above a in both.
    found = of([1, 2, 30, 20, 10], [1, 2, 3, 4, 5], ["a", "a", "b", "b", "b"])
    assert found["spearman.mean"] == pytest.approx(0)
    assert found["spearman.wmean"] == pytest.approx((2 - 3) / 5)
    assert found["spearman.all"] == pytest.approx(1 - 6 * (2**2 + 2**2) / (5 * 24))
    assert found["pearson.mean"] == pytest.approx(0)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 5)), min_size=2, max_size=30))
def test_one_part_makes_the_three_aggregations_equal(rows: list[tuple[int, int]]) -> None:
    found = of([row[0] for row in rows], [row[1] for row in rows])
    for name in ("spearman", "pearson"):
        values = [found[f"{name}.{how}"] for how in AGGREGATIONS]
        assert values == pytest.approx([values[0]] * 3, abs=1e-15, nan_ok=True)


@given(lines)
def test_monotone_maps_leave_spearman_and_straight_ones_pearson(rows: Rows) -> None:
    scores, gold, parts = columns(rows)
    found = of(scores, gold, parts)
    curved = of([math.exp(s) for s in scores], [g**3 for g in gold], parts)
    straight = of([0.1 * s - 4 for s in scores], [7 * g + 1 for g in gold], parts)
    backwards = of([-s for s in scores], gold, parts)
    for how in AGGREGATIONS:
        assert curved[f"spearman.{how}"] == pytest.approx(found[f"spearman.{how}"], abs=1e-15, nan_ok=True)
        for name in ("spearman", "pearson"):
            value = found[f"{name}.{how}"]
            assert straight[f"{name}.{how}"] == pytest.approx(value, abs=1e-12, nan_ok=True)
            assert backwards[f"{name}.{how}"] == pytest.approx(-value, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("size", [2, 3, 5, 100, 1379, 5000])
@pytest.mark.slow
def test_spearman_has_the_bits_of_scipy_and_pearson_is_its_but_for_rounding(size: int) -> None:
    random = np.random.default_rng(size)
    for trial in range(20):
        scores, gold = random.normal(size=(2, size))
        gold = np.round(gold, trial % 3) if size > 3 else gold  # tied or not
        found = correlations(scores, gold + scores * (trial % 2), ["all"] * size)
        expected = [kind(scores, gold + scores * (trial % 2)).statistic for kind in (spearmanr, pearsonr)]
        assert found["spearman.all"] == expected[0]
        assert found["pearson.all"] == pytest.approx(expected[1], abs=1e-14)


def test_the_order_of_pairs_and_the_names_of_parts_do_not_matter() -> None:
    random = np.random.default_rng(0)
    scores, gold, parts = random.normal(size=60), random.integers(0, 5, 60).astype(float), ["x", "yy", "z"] * 20
    shuffle = random.permutation(60)
    moved = correlations(scores[shuffle], gold[shuffle], [parts[i].upper() for i in shuffle])
    assert moved == pytest.approx(correlations(scores, gold, parts), abs=1e-12)


def test_an_undefined_correlation_is_nan_and_not_zero() -> None:
    constant = of([0.5] * 4, [1, 2, 3, 4], ["a", "a", "b", "b"])
    assert all(math.isnan(value) for value in constant.values())
    one_part = of([0.5, 0.5, 1, 2], [1, 2, 3, 4], ["a", "a", "b", "b"])
    assert [math.isnan(one_part[f"spearman.{how}"]) for how in AGGREGATIONS] == [False, True, True]
    lonely = of([1, 2, 3], [1, 2, 3], ["a", "a", "b"])
    assert lonely["spearman.all"] == pytest.approx(1)
    assert math.isnan(lonely["spearman.mean"])
    assert math.isnan(of([math.nan, 1, 2], [1, 2, 3])["spearman.all"])


@pytest.mark.parametrize("scores", [[0.5] * 4, [1.0, 1.0 + 2.3e-16, 1.0, 1.0]])
def test_a_collapsed_encoder_raises_no_warning(scores: list[float]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        of(scores, [1, 2, 3, 4])
    assert [str(warning.message) for warning in caught] == []


def test_other_lengths_are_refused() -> None:
    unchecked = unwrap(correlations)  # without the test session's own check of shapes
    for scores, gold, parts in ((3, 3, 2), (2, 3, 3), (3, 2, 3), (0, 0, 0)):
        message = f"expected one score, gold and part a pair, got {scores}, {gold} and {parts}"
        with pytest.raises(ValueError, match=message):
            unchecked(np.arange(float(scores)), np.arange(float(gold)), ["a"] * parts)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_dev_score_is_spearman_of_the_cosines(pooling: str) -> None:
    encoder = wiki_tiny(pooling=pooling)
    evaluation = pairs("synthetic_dev")
    table = evaluation.table[:80]
    short = type(evaluation)(**vars(evaluation) | {"table": evaluation.table.select(range(80))})
    development = DevSet(encoder, short)
    index = {sentence: i for i, sentence in enumerate(dict.fromkeys([*table["sentence1"][:], *table["sentence2"][:]]))}
    vectors = encoder.embed(encoder.tokenise(list(index))).double().tolist()
    scores = []
    for first, second in zip(table["sentence1"][:], table["sentence2"][:], strict=True):
        a, b = vectors[index[first]], vectors[index[second]]
        dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
        scores.append(dot / math.sqrt(math.fsum(x * x for x in a) * math.fsum(x * x for x in b)))
    expected = product_moment(ranks([round(score, 12) for score in scores]), ranks(table["score"][:]))
    assert development.measure(encoder).score == pytest.approx(expected, abs=1e-9)
    assert 0.05 < expected < 0.999


@pytest.mark.slow
def test_a_dev_score_follows_the_encoder_that_is_scored() -> None:
    encoder = wiki_tiny()
    development = DevSet(encoder, pairs("synthetic_dev"))
    before = development.measure(encoder).score
    encoder.pooling = "mean"
    assert development.measure(encoder).score != before
    with torch.no_grad():
        for parameter in encoder.backbone.parameters():
            parameter.zero_()
    assert math.isnan(development.measure(encoder).score)


@pytest.mark.slow
def test_the_untrained_backbone_scores_what_its_card_says(real_data: Path) -> None:
    evaluation = pairs("stsb_dev", real_data)
    assert len(evaluation.table) == 1500
    for pooling, points in (("cls", 57.6), ("mean", 64.1)):
        encoder = wiki_tiny(pooling=pooling)
        assert 100 * DevSet(encoder, evaluation).measure(encoder).score == pytest.approx(points, abs=0.1)


@pytest.mark.slow
def test_the_seven_sets_average_is_what_the_card_says(real_data: Path) -> None:
    tables = {task: pairs(task, real_data).table for task in STS_TEST}
    assert {task: len(table) for task, table in tables.items()} == PAIRS
    encoder = wiki_tiny(pooling="mean")
    texts = {task: (list(table["sentence1"][:]), list(table["sentence2"][:])) for task, table in tables.items()}
    found = {}
    for task, scored in Cosine().pair_scores(encoder, texts).items():
        table = tables[task]
        assert set(table["part"][:]) == set(PARTS.get(task, {task: 0}))
        found[task] = correlations(scored.scores, np.asarray(table["score"][:]), list(table["part"][:]))
    assert 100 * np.mean([scores["spearman.all"] for scores in found.values()]) == pytest.approx(52.4, abs=0.1)
    for task in ("stsb", "sickr"):
        assert found[task]["spearman.mean"] == found[task]["spearman.all"]
    assert found["sts12"]["spearman.mean"] != pytest.approx(found["sts12"]["spearman.all"], abs=0.005)
