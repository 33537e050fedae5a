"""Densities and positives: what is stored with the metrics, and what they are computed from."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from cse_core.evaluation.scorers import Cosine
from cse_core.evaluation.space_tasks import Density, Positives, Projection, SentenceSample
from cse_core.evaluation.suite import TASKS
from cse_core.evaluation.task import Outcome
from cse_core.metrics import geometry, sphere
from cse_core.models.encoder import Encoder
from tests.support.encoders import Recording, wiki_tiny
from tests.support.outcomes import RANKED, evaluation_of, inputs_of

ROWS = [(f"sentence {i}", f"sentence {i + 1}") for i in range(40)]
SET = {"own": evaluation_of(ROWS)}


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return wiki_tiny(pooling="cls", dropout=0.3)


def positives(encoder: Encoder, **changed: Any) -> Outcome:
    fields: dict[str, Any] = {"size": 20, "copies": 4} | changed
    return Positives(("own",), **fields).outcome("own", inputs_of(SET, encoder))


@pytest.mark.parametrize("name", ["stsb_dev", "stsb_sample"])
def test_a_projection_and_its_densities_are_of_one_sample(name: str) -> None:
    samples = [TASKS[f"{name}_{kind}"] for kind in ("projection", "density")]
    one, other = (task for task in samples if isinstance(task, SentenceSample))
    assert (one.pair_sets, one.size, one.seed) == (other.pair_sets, other.size, other.seed)


def test_densities_are_in_the_order_of_a_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry, "project", lambda x: x.numpy())
    inputs = inputs_of(SET)
    for size in (None, 25):
        vectors = torch.tensor(Projection(("own",), size=size).outcome("own", inputs).arrays["coordinates"])
        found = Density(("own",), size=size).outcome("own", inputs)
        assert found.rows == len(vectors) == (size or 41)
        np.testing.assert_allclose(found.arrays["log_density"], sphere.log_densities(vectors), rtol=1e-6)


def test_uniformity_can_be_read_from_the_densities_and_from_the_counted_pairs() -> None:
    found = Density(("own",)).outcome("own", inputs_of(SET))
    counts, middles = found.arrays["pairs"], (sphere.EDGES[1:] + sphere.EDGES[:-1]) / 2
    assert counts.sum() == 41 * 40 / 2
    assert found.arrays["dimensions"] == 8
    assert found.metrics["uniformity"] == pytest.approx(math.log(np.exp(found.arrays["log_density"]).mean()), abs=1e-6)
    assert found.metrics["uniformity"] == pytest.approx(
        math.log(np.average(np.exp(4 * middles - 4), weights=counts)), abs=0.01
    )
    assert found.metrics["cosine.mean"] == pytest.approx(np.average(middles, weights=counts), abs=0.005)
    sd = math.sqrt(np.average((middles - found.metrics["cosine.mean"]) ** 2, weights=counts))
    assert found.metrics["cosine.sd"] == pytest.approx(sd, abs=0.005)


def test_whitening_one_pass_spreads_little_where_dropout_spreads_much(encoder: Encoder) -> None:
    found = positives(encoder)
    assert set(found.metrics) == set(Positives.metrics)
    assert 0 < found.metrics["spread.whitened"] < 0.1 < found.metrics["spread.dropout"]
    assert found.metrics["spread.both"] > 0.1
    assert {kind: array.shape for kind, array in found.arrays.items()} == dict.fromkeys(
        ("dropout", "whitened", "both"), (20, 4, 2)
    )
    moved = np.ptp(found.arrays["whitened"], axis=1).mean() / np.ptp(found.arrays["dropout"], axis=1).mean()
    assert moved < 0.5


def test_without_dropout_only_whitening_makes_positives_differ() -> None:
    still = positives(wiki_tiny(pooling="cls", dropout=0.0))
    assert still.metrics["spread.dropout"] == pytest.approx(0, abs=1e-6)
    assert still.metrics["spread.both"] == pytest.approx(still.metrics["spread.whitened"], rel=0.5) != 0


def test_groups_of_one_channel_make_no_difference_by_their_order(encoder: Encoder) -> None:
    assert positives(encoder, channels=1).metrics["spread.whitened"] == pytest.approx(0, abs=1e-6)


def test_positives_depend_only_on_the_seed(encoder: Encoder) -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = positives(encoder.eval())
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not encoder.training
    torch.manual_seed(2)
    assert positives(encoder).metrics == first.metrics != positives(encoder, seed=1).metrics


def test_positives_require_an_encoder_and_its_own_vectors(encoder: Encoder) -> None:
    task = TASKS["stsb_dev_positives"]
    task.check("name", Cosine("mean"))
    with pytest.raises(ValueError, match=r"^name: positives require an encoder's own vectors, got the scorer rank"):
        task.check("name", RANKED)
    with pytest.raises(ValueError, match=r"^own: expected an encoder with dropout, got recording"):
        Positives(("own",), size=20).outcome("own", inputs_of(SET, Recording()))
    with pytest.raises(ValueError, match="divisor of the width, got groups=42 for width 128"):
        positives(encoder, channels=3)
