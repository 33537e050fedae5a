"""The STS sets' sentences as a corpus: their counts are those that ConSERT's README states."""

import shutil
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from cse_core.data import sts_texts
from cse_core.data.corpora import lines_hash, sentences
from cse_core.data.senteval import STS_TEST, pairs
from cse_core.run import Corpus

DOWNSTREAM = "senteval/downstream"


@pytest.mark.slow
def test_it_is_both_sides_of_every_pair(real_data: Path) -> None:
    texts = sts_texts.sentences(real_data)
    assert len(texts) == 89_192  # as ConSERT's README says
    assert len(set(texts)) == 47_328
    assert sum(sts_texts.PAIRS.values()) + 8_628 + 9_927 == 44_596
    tested = set()
    for task in STS_TEST:
        table = pairs(task, real_data).table
        sides = [*table["sentence1"][:], *table["sentence2"][:]]
        tested |= set(sides)
        assert not Counter(sides) - Counter(texts), task  # as often as they are tested, at least
    assert sum(text in tested for text in texts) / len(texts) == pytest.approx(0.704, abs=5e-4)


@pytest.mark.slow
def test_a_first_part_is_a_sample_and_always_the_same(real_data: Path) -> None:
    found = sentences(Corpus("sts_texts", 16_384), real_data)["text"][:]
    whole = sts_texts.sentences(real_data)
    assert found == whole[:16_384]
    assert lines_hash(found).startswith("245f64fc9d08")
    frames = set(chain.from_iterable(pairs("sts12", real_data).table[side][:] for side in ("sentence1", "sentence2")))
    shares = [sum(text in frames for text in texts) / len(texts) for texts in (found, whole)]
    assert shares[0] == pytest.approx(shares[1], abs=4 * (shares[1] / 16_384) ** 0.5)  # four standard errors


def test_a_set_that_is_cut_short_is_refused(real_data: Path, tmp_path: Path) -> None:
    for name in ("STS", "SICK"):
        shutil.copytree(real_data / DOWNSTREAM / name, tmp_path / DOWNSTREAM / name)
    path = tmp_path / DOWNSTREAM / "STS" / "STS15-en-test" / "STS.input.belief.txt"
    path.write_text(path.read_text().partition("\n")[2])
    with pytest.raises(ValueError, match=r"STS15-en-test: 8,499 pairs, expected 8,500; get SentEval's original data"):
        sts_texts.sentences(tmp_path)
