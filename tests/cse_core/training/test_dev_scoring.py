"""Dev scores in training, against the suite's own measures of the same set."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from datasets import Dataset
from scipy.stats import spearmanr

from cse_core.data.senteval import EvalDataset
from cse_core.metrics import geometry
from cse_core.models.encoder import Encoder
from cse_core.training.dev_scoring import DevScore, DevSet
from tests.support.encoders import wiki_tiny

# One sentence stands in four slots and another in two; two pairs are above 4, and one is exactly 4.
PAIRS = (
    ("a man plays a guitar", "a man is playing guitar", 4.8),
    ("a man plays a guitar", "a woman slices an onion", 0.4),
    ("a dog runs in the snow", "a man plays a guitar", 1.0),
    ("the markets fell on monday", "the markets fell on monday", 5.0),
    ("a man plays a guitar", "a boy sings", 2.2),
    ("stocks rose sharply", "prices fell", 4.0),
)


def evaluation(rows: Sequence[tuple[str, str, float]]) -> EvalDataset:
    first, second, gold = (list(column) for column in zip(*rows, strict=True))
    table = Dataset.from_dict({"part": ["all"] * len(rows), "sentence1": first, "sentence2": second, "score": gold})
    return EvalDataset("stsb_dev", table, {})


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return wiki_tiny(pooling="cls")


def by_hand(x: np.ndarray, y: np.ndarray, gold: np.ndarray) -> DevScore:
    """SimCSE's definitions over single slots."""
    x, y = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, y))
    aligned = [((a - b) ** 2).sum() for a, b, score in zip(x, y, gold, strict=True) if score > 4]
    slots = np.concatenate([x, y])
    kernel = [math.exp(-2 * ((a - b) ** 2).sum()) for i, a in enumerate(slots) for b in slots[i + 1 :]]
    score = spearmanr((x * y).sum(1), gold).statistic
    return DevScore(float(score), float(np.mean(aligned)), math.log(np.mean(kernel)))


def test_dev_figures_are_the_suites_over_all_slots_repeated_sentences_included(encoder: Encoder) -> None:
    found = DevSet(encoder, evaluation(PAIRS)).measure(encoder)
    first, second, gold = zip(*PAIRS, strict=True)
    x, y = encoder.encode(first), encoder.encode(second)
    suite = geometry.summary(x, y, np.array(gold), first, second)
    assert found.alignment == pytest.approx(suite["alignment"], rel=1e-6)
    assert found.uniformity == pytest.approx(suite["uniformity"], rel=1e-6)
    assert abs(suite["uniformity"] - suite["uniformity.unique"]) > 0.05  # else the repeats would show nothing
    expected = by_hand(x.double().numpy(), y.double().numpy(), np.array(gold))
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_dev_score_is_over_all_parts_at_once(encoder: Encoder) -> None:
    """Not the mean of parts: a set's two parts, each in perfect order of its own, are not in order together."""
    one = DevSet(encoder, evaluation(PAIRS)).measure(encoder).score
    parts = evaluation(PAIRS).table.remove_columns("part").add_column("part", ["x"] * 3 + ["y"] * 3)
    assert DevSet(encoder, EvalDataset("stsb_dev", parts, {})).measure(encoder).score == one


def test_dropout_is_off_and_training_continues_as_it_was(encoder: Encoder) -> None:
    noisy = wiki_tiny(pooling="cls", dropout=0.3)
    noisy.train()
    dev = DevSet(noisy, evaluation(PAIRS))
    state = torch.random.get_rng_state()
    assert dev.measure(noisy) == dev.measure(noisy) == DevSet(encoder, evaluation(PAIRS)).measure(encoder)
    assert noisy.training
    assert noisy.backbone.training
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_set_without_positives_has_a_score_and_no_space(encoder: Encoder) -> None:
    low = [(a, b, min(score, 4.0) - i / 10) for i, (a, b, score) in enumerate(PAIRS)]
    found = DevSet(encoder, evaluation(low)).measure(encoder)
    assert math.isfinite(found.score)
    assert math.isnan(found.alignment)
    assert math.isnan(found.uniformity)
