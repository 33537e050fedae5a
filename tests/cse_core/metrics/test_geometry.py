"""Geometry against double loops of the definitions, closed forms and STS-B's known counts."""

import math
import subprocess
import sys
from collections.abc import Iterable, Sequence
from inspect import unwrap
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group
from torch import Tensor

from cse_core.data.senteval import pairs
from cse_core.metrics import geometry
from cse_core.metrics.geometry import alignment, cosine_bins, length_shortcut, positives, project, summary, uniformity
from tests.support.vectors import normal, squared_distance

GROUPS = {"0-1": 389, "1-2": 258, "2-3": 310, "3-4": 335, "4-5": 208}


def uniformity_by_hand(x: Tensor) -> float:
    terms = [math.expm1(-2 * squared_distance(a, b)) for a, b in combinations(x.double().tolist(), 2)]
    return math.log1p(math.fsum(terms) / len(terms))


def test_alignment_is_the_mean_squared_distance_of_directions() -> None:
    x, y = normal(30, 7), normal(30, 7, seed=1)
    distances = [squared_distance(a, b) for a, b in zip(x.double().tolist(), y.double().tolist(), strict=True)]
    assert alignment(x, y) == pytest.approx(math.fsum(distances) / 30, rel=1e-12)


def test_alignment_in_closed_form() -> None:
    x = normal(5, 3)
    assert alignment(x, x) == 0
    assert alignment(x, 7 * x) == pytest.approx(0, abs=1e-12)
    assert alignment(x, -x) == pytest.approx(4)
    right, up = torch.tensor([[3.0, 0.0]] * 2), torch.tensor([[0.0, 1.0], [3.0, 0.0]])
    assert alignment(right, up) == pytest.approx((2 + 0) / 2)


@pytest.mark.parametrize("n", [2, 40, geometry.BLOCK + 1, 2 * geometry.BLOCK])
@pytest.mark.slow
def test_uniformity_is_the_log_of_the_mean_over_all_pairs(n: int) -> None:
    x = normal(n, 5, seed=n)
    expected = uniformity_by_hand(x)
    assert uniformity(x.double()) == pytest.approx(expected, abs=1e-12)
    assert uniformity(x) == pytest.approx(expected, abs=1e-6)


def test_uniformity_in_closed_form() -> None:
    assert uniformity(5 * torch.eye(9)) == pytest.approx(math.log(math.exp(-4)), abs=1e-6)
    assert uniformity(torch.tensor([[1.0, 2.0], [10.0, 20.0]])) == pytest.approx(0, abs=1e-12)
    assert uniformity(torch.tensor([[1.0, 2.0], [-1.0, -2.0]])) == pytest.approx(-8, abs=1e-6)
    # A line of three: distances 2, 2 and 4 squared.
    line = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert uniformity(line) == pytest.approx(math.log((2 * math.exp(-4) + math.exp(-8)) / 3), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1e-2, 1e-3, 1e-4])
def test_nearly_identical_vectors_keep_their_digits(spread: float) -> None:
    # In float32 the cosines of such vectors all round to 1.
    x = normal(1, 16).double() + spread * normal(300, 16, seed=1).double()
    expected = uniformity_by_hand(x)
    assert -1 < expected < 0
    assert uniformity(x) == pytest.approx(expected, rel=1e-6)
    assert uniformity(x.float()) == pytest.approx(uniformity_by_hand(x.float()), rel=1e-4)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12).filter(lambda c: sum(c) > 1), st.integers(0, 99))
def test_counts_are_the_rows_repeated(counts: list[int], seed: int) -> None:
    x, times = normal(len(counts), 4, seed=seed).double(), torch.tensor(counts)
    repeated = x.repeat_interleave(times, dim=0)
    assert uniformity(x, times) == pytest.approx(uniformity_by_hand(repeated), abs=1e-12)


def test_counts_reach_over_blocks() -> None:
    n = geometry.BLOCK + 44
    x, times = normal(n, 6).double(), torch.randint(1, 4, (n,), generator=torch.Generator().manual_seed(0))
    assert uniformity(x, times) == pytest.approx(uniformity(x.repeat_interleave(times, dim=0)), abs=1e-12)
    assert uniformity(x, times) != pytest.approx(uniformity(x), abs=1e-6)
    assert uniformity(x, torch.ones(n, dtype=torch.int32)) == uniformity(x)


def test_lengths_rotations_and_order_do_not_matter() -> None:
    x, y = normal(300, 6).double(), normal(300, 6, seed=1).double()
    lengths = torch.logspace(-6, 6, 300, dtype=torch.double)[:, None]
    rotation = torch.from_numpy(ortho_group.rvs(6, random_state=0))
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    for change in (lambda v: v * lengths, lambda v: v @ rotation, lambda v: v[order]):
        assert alignment(change(x), change(y)) == pytest.approx(alignment(x, y), abs=1e-12)
        assert uniformity(change(x)) == pytest.approx(uniformity(x), abs=1e-12)


@pytest.mark.parametrize(("value", "norm"), [(0.0, "0"), (math.nan, "nan"), (math.inf, "inf")])
def test_a_vector_without_direction_is_refused_with_its_row(value: float, norm: str) -> None:
    x, y = normal(20, 3), normal(20, 3)
    y[17] = value
    message = rf"row 17: expected a finite vector other than zero, got norm {norm}"
    for call in (lambda: alignment(x, y), lambda: uniformity(y), lambda: project(y)):
        with pytest.raises(ValueError, match=message):
            call()


def test_too_few_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one positive pair, got 0"):
        alignment(normal(0, 3), normal(0, 3))
    for n in (0, 1):
        with pytest.raises(ValueError, match=f"at least two vectors, got {n}"):
            uniformity(normal(n, 3))
    with pytest.raises(ValueError, match="counts must be at least 1, got 0 for row 1"):
        uniformity(normal(3, 3), torch.tensor([2, 0, 2]))
    assert uniformity(normal(1, 3), torch.tensor([2])) == 0


def test_the_groups_of_the_real_dev_set(real_data: Path) -> None:
    table = pairs("stsb_dev", real_data).table
    gold = np.asarray(table["score"][:])
    assert len(positives(gold)) == 208
    assert len(positives(gold, np.nextafter(4.0, 0).item())) == 264
    found = cosine_bins(np.arange(1500.0), gold)
    assert {name: len(scores) for name, scores in found.items()} == GROUPS
    np.testing.assert_array_equal(found["4-5"].astype(int), positives(gold))
    rows, counts = geometry._distinct_rows([*table["sentence1"][:], *table["sentence2"][:]], torch.ones(3000, 1))
    assert (len(rows), int(counts.sum())) == (2909, 3000)


def test_a_group_holds_its_upper_edge() -> None:
    gold = np.array([5.0, 0.0, 1.0, 1.01, 2.0, 4.0, 4.2, 3.0])
    found = cosine_bins(np.arange(8.0), gold)
    expected = {"0-1": [1, 2], "1-2": [3, 4], "2-3": [7], "3-4": [5], "4-5": [0, 6]}
    assert {name: scores.tolist() for name, scores in found.items()} == expected
    assert positives(gold).tolist() == [0, 6]
    assert positives(gold, above=3.9).tolist() == [0, 5, 6]


@pytest.mark.parametrize("wrong", [-0.1, 5.01, math.nan])
def test_gold_off_the_scale_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match=f"from 0 to 5, got {wrong:g} for pair 2"):
        cosine_bins(np.zeros(3), np.array([1.0, 2.0, wrong]))


def by_ranks(scores: Sequence[float], gold: Sequence[float], unequal: Sequence[int]) -> float:
    def ranks(values: Sequence[float]) -> list[float]:
        return [sum(x < v for x in values) + (sum(x == v for x in values) - 1) / 2 for v in values]

    error = [a - b for a, b in zip(ranks(scores), ranks(gold), strict=True)]
    return float(np.corrcoef(ranks(error), ranks(unequal))[0, 1])


def texts_of(lengths: Iterable[int]) -> list[str]:
    return [" ".join("a" * n) for n in lengths]


def test_the_length_shortcut_is_spearman_of_length_gap_and_rank_error() -> None:
    random = np.random.default_rng(0)
    scores, gold = random.integers(0, 9, 40) / 10, random.integers(0, 6, 40).astype(float)
    first, second = random.integers(1, 9, 40), random.integers(1, 9, 40)
    found = length_shortcut(scores, gold, texts_of(first), texts_of(second))
    assert found == pytest.approx(by_ranks(list(scores), list(gold), list(abs(first - second))), abs=1e-12)
    assert length_shortcut(np.exp(9 * scores), gold**3, texts_of(second), texts_of(first)) == found


def test_an_encoder_that_reads_length_has_a_negative_shortcut() -> None:
    random = np.random.default_rng(0)
    gold, gap = random.permutation(50) / 10, random.permutation(50)
    first, second = texts_of([1] * 50), texts_of(gap + 1)
    assert length_shortcut(gold - gap / 5, gold, first, second) < -0.5
    assert length_shortcut(gold + gap / 5, gold, first, second) > 0.5
    assert math.isnan(length_shortcut(gold, gold, first, second))
    assert math.isnan(length_shortcut(-gold, gold, first, first))


def test_words_lie_between_any_white_space() -> None:
    scores, gold = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])  # errors -2, 0, 2
    found = length_shortcut(scores, gold, ["one-word, two", "x", " a\t b \n"], ["one two", "x y", "a b c  d"])
    assert found == pytest.approx(1)


def test_columns_of_other_lengths_are_refused() -> None:
    unchecked = unwrap(length_shortcut)
    with pytest.raises(ValueError, match="'scores': 3, 'gold': 3, 'first': 3, 'second': 2"):
        unchecked(np.zeros(3), np.zeros(3), ["a"] * 3, ["a"] * 2)
    with pytest.raises(ValueError, match="at least one pair"):
        length_shortcut(np.zeros(0), np.zeros(0), [], [])


def scored_set(n: int = 60) -> tuple[Tensor, Tensor, np.ndarray, list[str], list[str]]:
    """Different pairs of 40 strings, each with one vector and a length of its own."""
    random = np.random.default_rng(0)
    vectors, texts = normal(40, 6), texts_of(range(1, 41))
    a, b = random.permutation(list(combinations(range(40), 2)))[:n].T
    gold = random.permutation(n) * 5 / (n - 1)
    return vectors[a], vectors[b], gold, [texts[i] for i in a], [texts[i] for i in b]


def test_the_summary_is_its_parts() -> None:
    x, y, gold, first, second = scored_set()
    found = summary(x, y, gold, first, second)
    cosines = np.array([1 - squared_distance(a, b) / 2 for a, b in zip(x.tolist(), y.tolist(), strict=True)])
    vector = dict(zip(first + second, [*x, *y], strict=True))
    assert 30 < len(vector) < 120
    assert found == pytest.approx(
        {
            "alignment": np.mean(2 - 2 * cosines[gold > 4]),
            "uniformity": uniformity_by_hand(torch.cat([x, y])),
            "uniformity.unique": uniformity_by_hand(torch.stack(list(vector.values()))),
            "length_shortcut": length_shortcut(cosines, gold, first, second),
            **{f"cosine.{low}-{low + 1}": np.mean(cosines[(gold > low) & (gold <= low + 1)]) for low in range(1, 5)},
            "cosine.0-1": np.mean(cosines[gold <= 1]),
        },
        abs=1e-6,
    )


def test_a_summary_without_some_group_has_no_mean_there() -> None:
    x, y, gold, first, second = scored_set()
    found = summary(x, y, np.where(gold <= 1, 1.5, gold), first, second)
    assert [name for name, value in found.items() if math.isnan(value)] == ["cosine.0-1"]
    with pytest.raises(ValueError, match="positive pair"):
        summary(x, y, np.minimum(gold, 4), first, second)


def test_a_summary_names_the_side_and_the_string_that_are_wrong() -> None:
    x, y, gold, first, second = scored_set()
    broken = y.clone()
    broken[7] = 0
    with pytest.raises(ValueError, match="second sentences, row 7"):
        summary(x, broken, gold, first, second)
    twice = ["again", *first[1:-1], "again"]
    with pytest.raises(ValueError, match=r"expected one vector a string, got two at distance .* for 'again'"):
        summary(x, y, gold, twice, second)
    with pytest.raises(ValueError, match="from 0 to 5"):
        summary(x, y, 20 * gold, first, second)


TWO_CLOUDS = """
import numpy as np, torch
generator = torch.Generator().manual_seed(0)
x = torch.randn(80, 10, generator=generator)
x[:40, :3] += 8
x[40:, :3] -= 8
"""
HALVES = slice(40), slice(40, 80)


def two_clouds() -> Tensor:
    names: dict[str, Tensor] = {}
    exec(TWO_CLOUDS, names)
    return names["x"]


@pytest.mark.slow
@pytest.mark.nightly  # numba compiles UMAP in each process
def test_a_projection_is_the_same_in_another_process() -> None:
    script = f"{TWO_CLOUDS}\nfrom cse_core.metrics.geometry import project\nprint(project(x).tobytes().hex())"
    other = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    assert other.stdout.strip() == project(two_clouds()).tobytes().hex()


@pytest.mark.slow  # numba compiles UMAP
def test_a_projection_separates_clouds_and_depends_on_its_settings() -> None:
    x = two_clouds()
    found = project(x)
    assert found.shape == (80, 2)
    centres = [found[half].mean(0) for half in HALVES]
    widest = max(
        np.linalg.norm(found - centre, axis=1)[half].max() for centre, half in zip(centres, HALVES, strict=True)
    )
    assert np.linalg.norm(centres[0] - centres[1]) > 2 * widest
    scaled = x * 2.0 ** torch.arange(80)[:, None].remainder(5)
    np.testing.assert_array_equal(project(scaled), found)  # cosine knows no length
    assert not np.array_equal(project(x, seed=1), found)
    assert not np.array_equal(project(x, min_dist=0.5), found)
    assert not np.array_equal(project(x, neighbours=5), found)


def test_a_projection_of_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="UMAP with 15 neighbours needs at least 16 vectors, got 15"):
        project(normal(15, 3))
    with pytest.raises(ValueError, match="at least 4 vectors, got 3"):
        project(normal(3, 3), neighbours=2)
