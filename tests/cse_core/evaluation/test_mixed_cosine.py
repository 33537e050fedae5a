"""The mix of two encoders' cosines is what RankCSE mixes of the two as teachers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cse_core.evaluation.mixed_cosine import MixedCosine
from cse_core.evaluation.scorers import Pairs, Scorer
from cse_core.functional.contrastive import cosine_matrix
from cse_core.methods.rankcse import mix_teachers
from cse_core.run import Pretrained
from tests.support.encoders import TEXTS, Recording, wiki_tiny

TINY = Pretrained("wiki-tiny", "e22f4fc2dee1f7bf1ca4694ec5187f532163816ac0bfdd977629e06754efbe82")
TASKS: dict[str, Pairs] = {"all": (TEXTS[:3], TEXTS[2:]), "none": ([], [])}


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_scores_and_vectors_are_what_rankcse_mixes_of_the_two_as_teachers(share: float) -> None:
    own, scorer = Recording(), MixedCosine(other=TINY, share=share)
    other = wiki_tiny().eval()
    of_teachers = mix_teachers(
        [cosine_matrix(x, x) for x in (own.encode(TEXTS), other.encode(TEXTS))], [1 - share, share]
    )
    expected = [of_teachers[i, i + 2].item() for i in range(3)]
    found = scorer.pair_scores(own, TASKS)
    assert found["all"].scores == pytest.approx(expected, abs=1e-6)
    assert (found["all"].undefined, len(found["none"].scores)) == (0, 0)
    vectors = scorer.vectors(own, TEXTS)
    torch.testing.assert_close(cosine_matrix(vectors, vectors), of_teachers.float(), atol=1e-6, rtol=0)


def test_a_pair_without_a_vector_has_the_other_encoders_share() -> None:
    blank = Recording(dict.fromkeys(TEXTS, [0.0] * 8))
    found = MixedCosine(other=TINY).pair_scores(blank, TASKS)["all"]
    assert found.undefined == 3
    assert np.all(np.abs(found.scores) <= 0.5 + 1e-6)
    assert np.all(found.scores != 0)


def test_its_text_names_both_fields_and_impossible_shares_are_refused() -> None:
    mixed = MixedCosine(other=TINY)
    assert isinstance(mixed, Scorer)
    assert str(mixed) == "cosine mixed with 0.5 of wiki-tiny:e22f4fc2"
    changed = (mixed, replace(mixed, share=0.25), replace(mixed, other=Pretrained("wiki-mini")))
    assert len({str(scorer) for scorer in changed}) == 3
    for share in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match=f"share must be between 0 and 1, got {share}"):
            replace(mixed, share=share)


def test_another_content_than_the_named_one_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 000000000000"):
        MixedCosine(other=Pretrained("wiki-tiny", "0" * 64)).pair_scores(Recording(), TASKS)
