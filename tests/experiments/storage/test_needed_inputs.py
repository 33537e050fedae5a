"""The inputs of runs are found in their declarations; missing ones are named; checkpoints must fit on the disk."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cse_core.evaluation.scorers import Cosine, Flowed, Ranked, Whitened
from cse_core.methods.diffcse import DiffCSE
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.models.pretrained import ASSETS
from cse_core.run import Corpus, Pretrained
from experiments.storage.needed_inputs import (
    STATE_SIZES,
    Writes,
    inputs_of_scoring,
    inputs_of_training,
    missing,
    refusal,
    weight_bytes,
)
from tests.support.plans import BASE

TINY, GONE = Pretrained("wiki-tiny"), Pretrained("nobody/nothing")
OTHER = Corpus("other", 3)


def test_a_run_reads_its_own_inputs_and_the_encoders_and_corpora_of_its_method_but_no_nested_runs() -> None:
    nested = replace(BASE, backbone=GONE)
    teachers = (Teacher(TINY, 0.5, scorer=Whitened(corpus=OTHER)), Teacher(nested, 0.5, "last"))
    run = replace(BASE, method=RankCSE(teachers=teachers), backbone=Pretrained("wiki-mini"))
    own = {Pretrained("wiki-mini"), run.corpus, "stsb_dev", "sickr_dev"}
    assert inputs_of_training(run, ("avg_sts", "last")) == own | {TINY, OTHER}
    generator = replace(BASE, method=DiffCSE(generator=GONE))
    assert GONE in inputs_of_training(generator, ("last",))


def test_a_scoring_reads_the_sets_of_its_tasks_and_what_its_scorer_is_fitted_on() -> None:
    assert inputs_of_scoring(Cosine(), ("sts12_disjoint", "mr")) == {"sts12", "stsb_dev", "stsb_train", "mr"}
    assert inputs_of_scoring(Ranked(corpus=OTHER, size=2), ("sts13",)) == {"sts13", OTHER}
    assert inputs_of_scoring(Flowed(), ("stsb",)) == {"stsb", "stsb_dev", "stsb_train"}  # it has no corpus
    assert inputs_of_scoring(Whitened(corpus=OTHER), ("sts12_gold",)).isdisjoint({OTHER})  # nothing is embedded


def test_all_that_is_missing_is_one_error_and_each_reason_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("One.\nTwo.\n")
    empty = tmp_path / "encoder"
    empty.mkdir()
    shutil.copy(ASSETS / "wiki-tiny" / "config.json", empty)
    short, lost, bare = Corpus("short", 3), Corpus("lost", 3), Pretrained(str(empty))
    other = Pretrained("wiki-tiny", "0" * 64)
    there = {TINY, Corpus("synthetic", 64), "synthetic_dev", "synthetic"}
    found = missing({*there, "stsb", "trec", short, lost, bare, other, GONE}, tmp_path)
    assert found.keys() == {"stsb", "trec", short, lost, bare, other, GONE}
    first, *lines = str(refusal(found)).splitlines()
    assert first == "nothing was started: not all that the runs read is there"
    assert len(lines) == 6
    for part in (
        "stsb, trec: senteval.tar: not among",
        "short.txt: 2 lines, expected 3",
        "corpus lost: no such file",
        f"backbone {str(empty)!r}: {empty} holds no weights",
        "backbone wiki-tiny: content",
        "backbone 'nobody/nothing': neither embedded",
    ):
        assert len([line for line in lines if part in line]) == 1


def test_a_damaged_set_is_missing_too(tmp_path: Path) -> None:
    (tmp_path / "STS" / "STSBenchmark").mkdir(parents=True)
    (tmp_path / "STS" / "STSBenchmark" / "sts-dev.csv").write_text("a\tb\n")
    (error,) = missing({"stsb_dev"}, tmp_path).values()
    assert "1 pairs, expected 1,500" in str(error)


def test_the_room_that_checkpoints_take(tmp_path: Path) -> None:
    size = weight_bytes(TINY)
    assert size == (ASSETS / "wiki-tiny" / "model.safetensors").stat().st_size
    mini = weight_bytes(Pretrained("wiki-mini"))
    assert mini > size
    needs = Writes.of([(TINY, 2), (Pretrained("wiki-mini"), 3), (TINY, 1)], at_once=2)
    assert needs == Writes(kept=3 * size + 3 * mini, meanwhile=STATE_SIZES * (mini + size))
    needs.check_room(tmp_path / "not" / "there" / "yet")
    total = needs.kept + needs.meanwhile
    needs.check_room(tmp_path, free=total)
    with pytest.raises(OSError, match=r"checkpoints take about \d+ MiB .* but the disk has \d+ MiB left"):
        needs.check_room(tmp_path, free=total - 1)
    with pytest.raises(OSError, match=r"checkpoints take about 2\.5 GiB .* but the disk has 1\.0 GiB left"):
        Writes(5 * 2**29, 0).check_room(tmp_path, free=2**30)
