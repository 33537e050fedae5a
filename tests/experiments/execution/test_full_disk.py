"""A job on a full disk, and one with the largest seed."""

from dataclasses import replace
from pathlib import Path

import pytest

from cse_core.evaluation.scorers import Cosine
from cse_core.run import MAX_SEED
from experiments.execution.job import ExecutionSettings, Job, Scoring, execute
from experiments.results import csv_record
from tests.support.full_disk import files_of_at_most
from tests.support.training import TINY

RUN = replace(TINY, max_steps=2)


def job(seed: int) -> Job:
    return Job(replace(RUN, seed=seed), "own", "simcse", (Scoring("last", Cosine(), ("synthetic",)),))


@pytest.mark.slow
@pytest.mark.parametrize(("save_seconds", "file"), [(0.0, "state.pt"), (1e9, "unfinished/last")])
def test_training_on_a_full_disk_names_the_file_and_ends_when_there_is_room(
    tmp_path: Path, save_seconds: float, file: str
) -> None:
    """PyTorch, which writes the state, and safetensors, which writes the weights, raise errors of their own."""
    settings = ExecutionSettings(tmp_path, save_seconds=save_seconds)
    with files_of_at_most(1_000_000), pytest.raises(OSError, match="MiB free on this file's disk") as caught:
        execute(job(1), settings)
    assert caught.value.filename == str(tmp_path / job(1).key / file)
    assert execute(job(1), settings)["kept"]["last"]["step"] == 2


@pytest.mark.slow
def test_the_largest_seed_is_in_the_record_as_it_is(tmp_path: Path) -> None:
    csv_record.merge_lines("own", tmp_path, [execute(job(MAX_SEED), ExecutionSettings(tmp_path))])
    assert set(csv_record.read_results("own", tmp_path)["seed"]) == {MAX_SEED}
