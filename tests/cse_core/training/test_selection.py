"""A checkpoint that was chosen by a dev set is chosen again when the set's file changes."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from cse_core.training.loop import Execution
from cse_core.training.selection import changed_dev_files
from cse_core.training.train import train
from tests.support.training import TINY

FILE = "STS/STSBenchmark/sts-dev.csv"
RUN = replace(TINY, epochs=1, eval_steps=2)


def write_dev_set(folder: Path, turn: int) -> Path:
    """Write STS-B's dev set, with gold scores moved by some pairs."""
    (folder / FILE).parent.mkdir(parents=True)
    rows = [f"a\tb\tc\t{i}\t{(i + turn) % 501 / 100}\tA cat {i % 7} sat.\tA dog {i % 5} ran." for i in range(1500)]
    (folder / FILE).write_text("\n".join(rows) + "\n")
    return folder


@pytest.mark.slow
def test_a_run_is_trained_again_if_its_dev_set_changed(
    tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    a, b = write_dev_set(tmp_path / "a", 0), write_dev_set(tmp_path / "b", 250)
    first = train(RUN, Execution(tmp_path / "store", data=a), rules=["stsb_dev", "last"])
    assert train(RUN, Execution(tmp_path / "store", data=a), rules=["stsb_dev"]) == first
    assert not caplog.messages
    second = train(RUN, Execution(tmp_path / "store", data=b), rules=["stsb_dev"])
    alone = train(RUN, Execution(tmp_path / "alone", data=b), rules=["stsb_dev", "last"])
    assert (second.kept, second.data, second.curves) == (alone.kept, alone.data, alone.curves)
    assert second.kept != first.kept
    (said,) = caplog.messages
    assert said == f"run {RUN.key}: {FILE} changed since its checkpoints were chosen by it: trained again"


def test_only_files_of_the_rules_sets_that_are_there_can_have_changed(tmp_path: Path, cache: Path) -> None:
    data = write_dev_set(tmp_path / "data", 0)
    assert changed_dev_files(["stsb_dev"], {FILE: "other"}, data) == [FILE]
    assert changed_dev_files(["avg_sts"], {FILE: "other", "SICK/SICK_trial.txt": "other"}, data) == [FILE]
    assert changed_dev_files(["last", "quarter_1", "synthetic_dev", "own_set_12345678"], {FILE: "other"}, data) == []
    assert changed_dev_files(["stsb_dev"], {}, data) == []
