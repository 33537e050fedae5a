"""Facts about the real sets, compared with other code and with the papers.

They are sizes, gold scores, example rankings, halves and what figures keep.

The papers' tables are experiments/published/*.csv."""

import csv
import math
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from cse_core.data.senteval import STS_TEST, EvalDataset
from cse_core.evaluation.dataset_facts import EXAMPLES, Example, Gold, Halves, Sizes, count_shared, halves
from cse_core.evaluation.scorers import Cosine
from cse_core.evaluation.space_tasks import Projection
from cse_core.evaluation.suite import GROUPS, TASKS, complete, expand_names
from cse_core.evaluation.task import Task
from cse_core.metrics import geometry
from experiments.schema.columns import PUBLISHED_NAMES
from tests.support.encoders import Recording
from tests.support.outcomes import RANKED, columns, evaluation_of, inputs_of, scored, words_of

PUBLISHED = Path(__file__).parents[3] / "experiments/published"
# STS14 has one pair of STS-B dev with 4.2 instead of 4.4.
SHARED = {"sts12": (259, 259, 256), "sts13": (81, 81, 81), "sts14": (193, 192, 193), "sts15": (580, 580, 580)}
SHARED |= {"sts16": (22, 22, 22), "stsb": (4, 3, 3), "sickr": (10, 0, 10)}


def published(number: int) -> list[dict[str, str]]:
    with (PUBLISHED / f"rankcse_table{number}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_new_evaluation_is_a_task_that_says_its_metrics() -> None:
    assert [len(GROUPS[name]) for name in ("sizes", "gold", "examples")] == [14, 7, 4]
    new = [*expand_names(["sizes", "gold", "examples"]), "stsb_sample_projection", "stsb_dev_halves"]
    assert [name for name in new if not isinstance(TASKS[name], Task) or not TASKS[name].metrics] == []
    assert complete("stsb_sizes", 1, ["train", "dev", "test"])
    assert not complete("stsb_sizes", 1, ["test"])
    assert complete("sts12_sizes", 1, ["test"])


@pytest.mark.slow
def test_the_sizes_are_the_papers(real_data: Path) -> None:
    expected: dict[str, dict[str, float]] = {}
    for row in [*published(7), *published(8)]:
        expected.setdefault(row["task"], {})[row["variant"]] = float(row["value"])
    assert len(expected) == 14
    found = scored(["sizes"], real_data, scorer=RANKED)
    assert {PUBLISHED_NAMES[name]: outcome.metrics for name, outcome in found.items()} == expected
    assert {name: TASKS[name].metrics for name in found} == {name: tuple(o.metrics) for name, o in found.items()}
    assert [outcome.rows for outcome in found.values()] == [sum(o.metrics.values()) for o in found.values()]


@pytest.mark.slow
def test_sizes_and_gold_embed_nothing_not_even_a_corpus(real_data: Path) -> None:
    fake = Recording()
    assert len(scored(["sizes", "gold"], real_data, fake, RANKED)) == 21
    assert fake.calls == []


def test_sizes_count_splits_and_take_all_of_a_set_without_them_for_training() -> None:
    def sized(*names: str, **sets: Any) -> Any:
        return Sizes.of(*names).outcome("", inputs_of(sets))

    three = EvalDataset("trec", Dataset.from_dict({"split": ["test", "train", "test"]}), {})
    assert sized("trec", trec=three).metrics == {"train": 1, "test": 2}
    whole = EvalDataset("mr", Dataset.from_dict({"split": ["all"] * 5}), {})
    assert (sized("mr", mr=whole).metrics, sized("mr", mr=whole).rows) == ({"train": 5}, 5)
    dev, test = evaluation_of([("a", "b")] * 2), evaluation_of([("a", "b")] * 3)
    assert sized("stsb_dev", "stsb", stsb_dev=dev, stsb=test).metrics == {"dev": 2, "test": 3}


@cache
def in_words(name: str, data: Path) -> list[tuple[str, str, float]]:
    """A set's pairs, the sentence first in the alphabet first, with their scores."""
    rows = zip(*columns(name, data=data), strict=True)
    in_order = ((sorted((words_of(first), words_of(second))), score) for first, second, score in rows)
    return [(first, second, score) for (first, second), score in in_order]


@pytest.mark.slow
@pytest.mark.parametrize("name", STS_TEST)
def test_shared_pairs_are_those_counted_by_other_code(name: str, real_data: Path) -> None:
    found = scored([f"{name}_gold"], real_data)[f"{name}_gold"]
    own, gold = in_words(name, real_data), columns(name, data=real_data)[-1]
    for split in ("dev", "train"):
        known = in_words(f"stsb_{split}", real_data)
        pairs_known, pairs_own, whole = {row[:2] for row in known}, {row[:2] for row in own}, set(known)
        counts = [
            sum(row[:2] in pairs_known for row in own),
            sum(row in whole for row in own),
            sum(row[:2] in pairs_own for row in known),
        ]
        shared_metrics = (f"shared_{split}{what}" for what in ("", ".same_gold", ".other_way"))
        assert [found.metrics[metric] for metric in shared_metrics] == counts
        if split == "dev":
            assert tuple(counts) == SHARED[name]
    similar = sum(score / 5 >= 0.67 for score in gold)
    assert found.metrics["similar"] == similar / len(gold)
    assert name != "stsb" or similar == 534
    assert found.arrays["gold"].dtype == np.float32
    np.testing.assert_allclose(found.arrays["gold"] * 5, gold, atol=1e-6)
    assert tuple(found.metrics) == TASKS[f"{name}_gold"].metrics


def test_a_pair_is_shared_in_either_order_and_each_way_counts_its_own_repeats() -> None:
    own = [("A dog.", "a cat"), ("a CAT", "a dog"), ("one", "two"), ("three", "four"), ("a dog", "a dog")]
    other = [("a dog", "a cat"), ("two", "One!"), ("one", "two"), ("TWO", "one"), ("five", "six")]
    found = count_shared(evaluation_of(own, [1, 2, 3, 4, 5]), evaluation_of(other, [2, 1, 3, 4, 5]))
    assert found == {"": 3, ".same_gold": 2, ".other_way": 4}
    sets = {"sts12": evaluation_of(own, [3.35, 3.34, 5, 0, 1]), "dev": evaluation_of([]), "x_train": evaluation_of(own)}
    outcome = Gold(read_sets=tuple(sets)).outcome("", inputs_of(sets))
    assert (outcome.metrics["similar"], outcome.rows) == (0.4, 5)
    assert outcome.metrics["shared_train"] == 5


def recovered(text: str) -> str:
    """A query or target, without what the table says about how it was found."""
    return re.sub(r"^\[.* lost in extraction; [^:]*: (.*)\]$", r"\1", text.removeprefix("query: "))


def test_the_examples_are_the_papers() -> None:
    expected: dict[str, dict[str, float]] = {}
    for row in [*published(1), *published(12)]:
        if row["method"] == "human label":
            expected.setdefault(recovered(row["variant"]), {})[recovered(row["task"])] = float(row["value"])
    assert dict(EXAMPLES.values()) == expected
    assert [list(targets) for _, targets in EXAMPLES.values()] == [list(targets) for targets in expected.values()]
    assert expand_names(["examples"]) == tuple(f"examples_{name}" for name in EXAMPLES)


@pytest.mark.parametrize("scorer", [Cosine(), RANKED])
@pytest.mark.slow
def test_an_example_has_the_scorers_score_of_each_target_in_order(scorer: Any, cache: Path) -> None:
    for name, outcome in scored(["examples"], scorer=scorer).items():
        query, targets = EXAMPLES[name.removeprefix("examples_")]
        own = ([query] * len(targets), list(targets))
        scores = scorer.pair_scores(Recording(), {"own": own})["own"].scores
        assert list(outcome.metrics) == [*(f"cosine.{i + 1}" for i in range(len(targets))), "spearman"]
        assert list(outcome.metrics.values())[:-1] == pytest.approx(list(scores), abs=1e-6)
        sides = (list(scores), list(targets.values()))
        ranks = [[sum(v < x for v in side) + sum(v == x for v in side) / 2 for x in side] for side in sides]
        assert outcome.metrics["spearman"] == pytest.approx(np.corrcoef(ranks)[0, 1], abs=1e-9)
        assert (outcome.rows, tuple(outcome.metrics)) == (len(targets), TASKS[name].metrics)


def test_a_perfect_ranking_has_spearman_one_and_equal_scores_none() -> None:
    query, targets = EXAMPLES["eggs"]
    angles = {text: (5 - label) / 2 for text, label in targets.items()}
    turned = {text: [math.cos(angle), math.sin(angle)] for text, angle in angles.items()}
    good = scored(["examples_eggs"], encoder=Recording({query: [1.0, 0.0]} | turned))["examples_eggs"]
    assert good.metrics["spearman"] == pytest.approx(1, abs=1e-12)
    assert good.metrics["cosine.5"] == pytest.approx(math.cos(2.0))
    with pytest.raises(ValueError, match=r"^examples_eggs by cosine: spearman undefined"):
        scored(["examples_eggs"], encoder=Recording({text: [1.0, 2.0] for text in (query, *targets)}))
    with pytest.raises(ValueError, match="examples_eggs: the vector of 'A man is cracking eggs' is zero"):
        scored(["examples_eggs"], encoder=Recording({query: [1.0, 0.0]} | turned | {"A man is cracking eggs": [0, 0]}))


def test_an_example_with_other_labels_than_targets_is_refused() -> None:
    with pytest.raises(ValueError, match="at least two targets with a label each, got 3 sentences and 3 labels"):
        Example(sentences=("a", "b", "c"), human=(1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match="got 2 sentences and 1 labels"):
        Example.of("a", {"b": 1.0})


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=2))
def test_halves_are_the_sentence_cut_in_the_middle_the_left_one_longer(words: list[str]) -> None:
    left, right = halves("  ".join(words) + "\t")
    assert [*left.split(), *right.split()] == words
    assert len(left.split()) - len(right.split()) == len(words) % 2


def test_halves_are_compared_for_each_distinct_long_sentence(real_data: Path) -> None:
    fake = Recording()
    found = scored(["stsb_dev_halves"], real_data, fake)["stsb_dev_halves"]
    gaps = []
    first, second, _ = columns("stsb_dev", data=real_data)
    for sentence in {*first, *second}:
        words = sentence.split(" ")
        if len(words) >= 4:
            cut = math.ceil(len(words) / 2)
            x, y, z = (np.array(fake.vector(s)) for s in (sentence, " ".join(words[:cut]), " ".join(words[cut:])))
            gaps.append((x @ y / np.linalg.norm(y) - x @ z / np.linalg.norm(z)) / np.linalg.norm(x))
    assert found.rows == len(gaps)
    expected = {"imbalance": np.mean(np.abs(gaps)), "left": np.mean(np.array(gaps) > 0)}
    assert found.metrics == pytest.approx(expected, abs=1e-6)
    assert max(Counter(fake.passed).values()) == 1


def test_the_nearer_half_and_by_how_much() -> None:
    east, north = [1.0, 0.0], [0.0, 1.0]
    known = {"a b c d": east, "a b": east, "c d": north, "e f g h i": north, "e f g": [1.0, 1.0], "h i": north}
    sets = {"own": evaluation_of([("a b c d", "e f g h i"), ("a b c d", "too short here")])}
    outcome = Halves(read_sets=("own",)).outcome("own", inputs_of(sets, Recording(known)))
    assert outcome.metrics == pytest.approx({"imbalance": (1 + 1 - math.sqrt(0.5)) / 2, "left": 0.5}, abs=1e-7)
    assert outcome.rows == 2


def test_halves_require_long_sentences_and_plain_vectors(real_data: Path) -> None:
    sets = {"own": evaluation_of([("one two three", "four")])}
    with pytest.raises(ValueError, match=r"^own: expected sentences of at least 4 words, got none among 2"):
        Halves(read_sets=("own",)).outcome("own", inputs_of(sets))
    with pytest.raises(ValueError, match=r"stsb_dev_halves: .* own vectors, got the scorer rank 0.1 of 400"):
        scored(["stsb_dev_halves"], real_data, scorer=RANKED)
    assert scored(["stsb_dev_halves"], real_data, scorer=Cosine())


@pytest.fixture
def flat(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """A projection that costs nothing, the last eight dimensions, which no two sentences share; shapes it was given."""
    shapes: list[tuple[int, ...]] = []
    monkeypatch.setattr(geometry, "project", lambda x: shapes.append(tuple(x.shape)) or x[:, -8:].numpy())
    return shapes


def trustworthiness(vectors: np.ndarray, coordinates: np.ndarray, k: int = 5) -> float:
    """Venna and Kaski's measure: how far down the true ranking the k nearest of a projection are, beyond place k."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    apart = np.linalg.norm(coordinates[:, None] - coordinates, axis=2)
    itself = np.diag(np.full(len(units), np.inf))
    places = np.argsort(np.argsort(itself - units @ units.T)) + 1
    nearest = np.argsort(itself + apart)[:, :k]
    too_far = np.maximum(np.take_along_axis(places, nearest, axis=1) - k, 0).sum()
    return 1 - 2 * too_far / (len(units) * k * (2 * len(units) - 3 * k - 1))


@pytest.mark.parametrize(("scorer", "width"), [(Cosine(), 8), (RANKED, 408)])
@pytest.mark.slow
def test_a_sample_is_projected_with_the_pairs_that_are_whole_in_it(
    scorer: Any, width: int, flat: list[tuple[int, ...]], real_data: Path
) -> None:
    found = scored(["stsb_sample_projection"], real_data, scorer=scorer)["stsb_sample_projection"]
    first, second, gold = columns("stsb", data=real_data)
    assert flat == [(1000, width)]
    arrays, fake = found.arrays, Recording()
    assert (found.rows, len(arrays["coordinates"])) == (1000, 1000)
    vectors = scorer.vectors(fake, distinct := sorted({*first, *second}), data=real_data)
    texts = {tuple(row[-8:].tolist()): text for row, text in zip(vectors, distinct, strict=True)}
    shown = [texts[tuple(place)] for place in arrays["coordinates"].tolist()]
    assert len({*shown}) == 1000
    own = vectors[[distinct.index(text) for text in shown]].numpy()
    expected = trustworthiness(own, arrays["coordinates"])
    assert 0.5 < expected < 1
    assert found.metrics["trustworthiness"] == pytest.approx(expected, abs=1e-4)
    assert arrays["words"].tolist() == [len(text.split()) for text in shown]
    whole = [(a, b, g) for a, b, g in zip(first, second, gold, strict=True) if {a, b} <= {*shown}]
    assert 150 < len(whole) < 300  # of 1,379 pairs of about 2,550 sentences
    assert [(shown[a], shown[b]) for a, b in zip(arrays["first"], arrays["second"], strict=True)] == [
        (a, b) for a, b, _ in whole
    ]
    np.testing.assert_allclose(arrays["gold"], [g for *_, g in whole], atol=1e-6)


def test_a_sample_depends_on_its_size_and_seed_and_all_sentences_need_neither(flat: list) -> None:
    rows = [(f"sentence {i}", f"sentence {i + 1}") for i in range(40)]
    gold = [i % 6 for i in range(40)]
    inputs = inputs_of({"own": evaluation_of(rows, gold)})

    def drawn(size: int | None = None, seed: int = 42) -> list[list[float]]:
        return Projection(("own",), size=size, seed=seed).outcome("own", inputs).arrays["coordinates"].tolist()

    assert drawn(size=20) == drawn(size=20) != drawn(size=20, seed=1)
    assert (len(drawn(size=20)), len(drawn(size=21)), len(drawn())) == (20, 21, 41)
    assert drawn(size=41) == drawn()
    arrays = Projection(("own",)).outcome("own", inputs).arrays
    assert (arrays["first"].tolist(), arrays["gold"].tolist()) == (list(range(40)), gold)
    with pytest.raises(ValueError, match=r"^own: expected at least 42 distinct sentences, got 41"):
        drawn(size=42)
