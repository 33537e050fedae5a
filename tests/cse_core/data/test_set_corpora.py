"""Corpora made of an evaluation set's sentences."""

from pathlib import Path

import pytest

from cse_core.data.arrow_cache import content_of
from cse_core.data.corpora import lines_hash, sentences
from cse_core.data.senteval import SETS, distinct_sentences, labelled_sentences, pairs
from cse_core.run import Corpus


@pytest.mark.parametrize(("task", "count"), [("stsb_train", 5749), ("sickr_dev", 500), ("sts13", 1500)])
def test_sentences_of_pairs_come_once_and_in_file_order(task: str, count: int, real_data: Path) -> None:
    table = pairs(task, real_data).table
    assert len(table) == count
    seen: list[str] = []
    for row in table.to_list():
        seen += [s for s in (row["sentence1"], row["sentence2"]) if s and s not in seen[-400:]]
    assert distinct_sentences(task, real_data) == list(dict.fromkeys(seen))


def test_sentences_of_labels_are_those_of_all_splits(real_data: Path) -> None:
    lines = (real_data / "senteval/downstream/SUBJ/subj.objective").read_text("latin-1").split("\n")
    assert distinct_sentences("subj", real_data)[:50] == list(dict.fromkeys(" ".join(s.split()) for s in lines))[:50]
    assert "" not in distinct_sentences("trec", real_data)
    both = labelled_sentences("mrpc", real_data).table
    assert set(distinct_sentences("mrpc", real_data)) == set(both["sentence1"]) | set(both["sentence2"])


@pytest.mark.slow
def test_the_set_is_a_corpus_under_its_name(cache: Path) -> None:
    expected = distinct_sentences("synthetic_dev")
    table = sentences(Corpus("synthetic_dev", 30))
    assert table["text"][:] == expected[:30]
    assert content_of(table) == lines_hash(expected[:30])
    pinned = Corpus("synthetic_dev", 30, lines_hash(expected[:30]))
    assert sentences(pinned)["text"][:] == expected[:30]
    with pytest.raises(ValueError, match="evaluation set synthetic_dev: the first 31 lines have sha256"):
        sentences(Corpus("synthetic_dev", 31, "0" * 64))


def test_fewer_sentences_than_asked_for_are_an_error(cache: Path) -> None:
    count = len(distinct_sentences("synthetic_dev"))
    with pytest.raises(ValueError, match=f"evaluation set synthetic_dev: {count:,} lines, expected {count + 1:,}; ask"):
        sentences(Corpus("synthetic_dev", count + 1))


def test_the_training_corpus_keeps_its_name(cache: Path) -> None:
    from cse_core.data import synthetic

    assert "synthetic" not in SETS
    assert sentences(Corpus("synthetic", 20))["text"][:] == synthetic.sentences(20)
