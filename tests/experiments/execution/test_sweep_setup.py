"""A sweep with missing inputs is refused before it starts, unless only checkpoints to be scored are missing."""

from dataclasses import replace
from pathlib import Path

import pytest

from cse_core.run import Corpus, Pretrained
from experiments.execution.job import ExecutionSettings
from experiments.execution.plan import Plan, jobs_of, make_plan
from experiments.execution.sweep_setup import check_room, look_for_inputs, require_inputs
from experiments.schema.study import Row, pretrained_key
from experiments.storage import needed_inputs
from tests.support.families import plain_folder
from tests.support.plans import BASE, row, study, weights

GONE = Pretrained("nobody/nothing")
TINY = Pretrained("wiki-tiny")
LOST = replace(BASE, corpus=Corpus("lost", 100))


def planned(tmp_path: Path, *rows: Row) -> Plan:
    return make_plan(jobs_of([study(*rows, columns=("synthetic",))]), {}, tmp_path)


def released(label: str, encoder: Pretrained) -> Row:
    return Row(label=label, encoder=encoder, select="as is")


def synthetic_row(label: str, run: object) -> Row:
    return row(label, run, select="synthetic_dev")  # ty: ignore[invalid-argument-type]


def test_a_missing_checkpoint_affects_only_its_own_row(tmp_path: Path) -> None:
    work = planned(tmp_path, released("gone", GONE), released("there", TINY))
    lost = look_for_inputs(work, tmp_path)
    assert lost.keys() == {pretrained_key(GONE)}
    assert lost[pretrained_key(GONE)].startswith("FileNotFoundError: backbone 'nobody/nothing': neither embedded")
    assert look_for_inputs(planned(tmp_path, released("there", TINY)), tmp_path) == {}


def test_missing_inputs_are_an_error_if_a_run_needs_them_or_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nobody/nothing"):
        look_for_inputs(planned(tmp_path, released("gone", GONE)), tmp_path)
    work = planned(tmp_path, released("gone", GONE), released("there", TINY), synthetic_row("lost", LOST))
    with pytest.raises(FileNotFoundError, match=r"(?s)nothing was started.*nobody/nothing.*corpus lost: no such file"):
        look_for_inputs(work, tmp_path)
    with pytest.raises(FileNotFoundError, match="corpus lost"):
        require_inputs(work.pending, work.untrained, tmp_path)


def test_a_trained_run_needs_only_the_inputs_of_its_scoring(tmp_path: Path) -> None:
    for run in synthetic_row("lost", LOST).runs():
        weights(tmp_path, run, "synthetic_dev")
    work = planned(tmp_path, synthetic_row("lost", LOST))
    assert work.pending
    assert not work.untrained
    assert look_for_inputs(work, tmp_path) == {}


def test_runs_that_the_disk_has_no_room_for_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, execution = planned(tmp_path, synthetic_row("small", BASE)), ExecutionSettings(tmp_path)
    check_room(work.pending, work.untrained, execution, 1)
    monkeypatch.setattr(needed_inputs.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(OSError, match="make room"):
        check_room(work.pending, work.untrained, execution, 1)
    check_room(work.pending, frozenset(), execution, 1)  # nothing to train
    check_room(work.pending, work.untrained, replace(execution, shared="file:///x"), 1)


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet"])
def test_a_length_above_the_positions_is_refused_before_anything_is_trained_or_scored(
    name: str, tmp_path: Path
) -> None:
    backbone = Pretrained(str(plain_folder(tmp_path / "plain", name)))
    for length in (48, 49):
        work = planned(tmp_path, synthetic_row("long", replace(BASE, backbone=backbone, max_length=length)))
        if length == 48:
            assert look_for_inputs(work, tmp_path) == {}
    with pytest.raises(ValueError, match=r"max_length must be at most 48, as .*plain has that many positions, got 49"):
        look_for_inputs(work, tmp_path)
