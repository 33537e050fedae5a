"""Weights averaged with the start, and distances from it, against a loop over the weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cse_core.evaluation.near_start import AveragedWithStart, DistanceFromStart
from cse_core.evaluation.scorers import Cosine, Scorer
from cse_core.evaluation.suite import TASKS, evaluate
from cse_core.models.embedding_cache import CachedEncoder
from cse_core.models.encoder import Encoder
from cse_core.run import Pretrained
from tests.support.encoders import TEXTS, Recording, wiki_tiny
from tests.support.outcomes import evaluation_of, inputs_of

TINY = Pretrained("wiki-tiny", "e22f4fc2dee1f7bf1ca4694ec5187f532163816ac0bfdd977629e06754efbe82")
SCORER = AveragedWithStart(start=TINY)
PAIRS = {"all": (TEXTS[:3], TEXTS[2:])}


def moved(size: float = 0.02, pooling: str = "mean") -> Encoder:
    """Return wiki-tiny with noise of this size in every weight."""
    encoder, noise = wiki_tiny(pooling=pooling).eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(torch.randn(weight.shape, generator=noise), alpha=size)
    return encoder


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_scores_and_vectors_are_those_of_the_mean_of_the_weights(share: float) -> None:
    own, start, expected = moved(), wiki_tiny(pooling="mean").eval(), wiki_tiny(pooling="mean").eval()
    before = [weight.clone() for weight in own.parameters()]
    weights, theirs = own.state_dict(), start.state_dict()
    mean = {name: (1 - share) * weight + share * theirs[name] for name, weight in weights.items()}
    expected.load_state_dict(mean)
    scorer = replace(SCORER, share=share)
    torch.testing.assert_close(scorer.vectors(own, TEXTS), expected.encode(TEXTS), atol=1e-5, rtol=0)
    found = scorer.pair_scores(own, PAIRS)["all"].scores
    np.testing.assert_allclose(found, Cosine().pair_scores(expected, PAIRS)["all"].scores, atol=1e-6)
    assert not np.allclose(found, Cosine().pair_scores(own, PAIRS)["all"].scores, atol=1e-3)
    assert all(map(torch.equal, own.parameters(), before))


def test_the_average_is_made_once_for_each_scorer() -> None:
    cached = CachedEncoder(moved())
    assert SCORER.view(cached) is SCORER.view(cached)
    assert SCORER.view(cached) is not replace(SCORER, share=0.2).view(cached)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_distances_are_those_of_the_weights_and_of_the_vectors(pooling: str) -> None:
    own, start = moved(pooling=pooling), wiki_tiny(pooling=pooling).eval()
    squares = [0.0, 0.0]
    for name, weight in own.state_dict().items():
        theirs = start.state_dict()[name].double()
        squares[0] += float(((weight.double() - theirs) ** 2).sum())
        squares[1] += float((theirs**2).sum())
    sets = {"own": evaluation_of(list(zip(TEXTS[:3], TEXTS[2:], strict=True)))}
    found = DistanceFromStart(("own",)).outcome("own", replace(inputs_of(sets, own), scorer=SCORER))
    assert found.metrics["weights"] == pytest.approx((squares[0] / squares[1]) ** 0.5, rel=1e-6)
    cosines = torch.cosine_similarity(own.encode(TEXTS).double(), start.encode(TEXTS).double())
    assert found.metrics["vectors"] == pytest.approx(1 - cosines.mean().item(), abs=1e-7)
    assert found.rows == len(set(TEXTS))


def test_an_untrained_encoder_is_at_no_distance() -> None:
    sets = {"own": evaluation_of([(TEXTS[0], TEXTS[1])])}
    encoder = wiki_tiny(pooling="mean").eval()
    found = DistanceFromStart(("own",)).outcome("own", replace(inputs_of(sets, encoder), scorer=SCORER))
    assert found.metrics["weights"] == 0
    assert found.metrics["vectors"] == pytest.approx(0, abs=1e-7)


def test_another_architecture_or_content_and_an_encoder_without_weights_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"did not begin from wiki-mini: expected weights of equal shapes, got .* for "
    ):
        AveragedWithStart(start=Pretrained("wiki-mini")).vectors(moved(), TEXTS)
    with pytest.raises(ValueError, match="expected 000000000000"):
        AveragedWithStart(start=Pretrained("wiki-tiny", "0" * 64)).vectors(moved(), TEXTS)
    with pytest.raises(ValueError, match="no weights to average"):
        SCORER.vectors(Recording(), TEXTS)


def test_the_distance_needs_a_scorer_that_names_the_start() -> None:
    with pytest.raises(ValueError, match="stsb_dev_start: expected a scorer that names the start"):
        evaluate(moved(), Cosine(), ["stsb_dev_start"])
    TASKS["stsb_dev_start"].check("stsb_dev_start", SCORER)


def test_its_text_names_both_fields_and_impossible_shares_are_refused() -> None:
    assert isinstance(SCORER, Scorer)
    assert str(SCORER) == "cosine of weights averaged with 0.5 of wiki-tiny:e22f4fc2"
    assert (
        len(
            {
                str(each)
                for each in (SCORER, replace(SCORER, share=0.25), AveragedWithStart(start=Pretrained("wiki-mini")))
            }
        )
        == 3
    )
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"share must be between 0 and 1, got {share}"):
            replace(SCORER, share=share)
