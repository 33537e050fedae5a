"""Sweeps of parts of studies, of runs cut short and of runs trained afresh: what is recorded where, and printed."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.cli.sweep_choice import print_nothing_to_do
from experiments.cli.sweep_options import Options, in_own_record
from experiments.results import csv_record
from experiments.sweep import main
from tests.support import sweeps, tiny_study
from tests.support.sweeps import finished_at


def sweep(mlruns: Path, *words: str) -> str:
    """Run a sweep of the study `healthy` without Ray; return what it printed."""
    done = sweeps.sweep(mlruns, "healthy", *words, ray=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def record_of(mlruns: Path) -> dict[str, bytes]:
    files = (*mlruns.glob("*.csv"), mlruns / "SHA256SUMS", *mlruns.glob("store/*/result.json"))
    return {path.relative_to(mlruns).as_posix(): path.read_bytes() for path in files}


def keys_of(mlruns: Path) -> set[str]:
    return set(csv_record.read_results("tiny", mlruns)["key"])


def test_runs_apart_have_folders_of_their_own() -> None:
    plain = Options(mlruns=Path("m"), store=Path("s"), shared="s3://bucket/x/")
    assert in_own_record(plain) == plain
    short = in_own_record(replace(plain, max_steps=3))
    assert (short.mlruns, short.store, short.shared) == (Path("m/trial"), Path("s/trial"), "s3://bucket/x/trial")
    fresh = in_own_record(Options(mlruns=Path("m"), fresh=True))
    assert (fresh.mlruns, fresh.store, fresh.shared) == (Path("m/fresh"), None, "")
    mine = in_own_record(Options(studies=("a/mine.py",), store=Path("s"), shared="s3://bucket/x", fresh=True))
    assert mine.store == Path("s/mine-results/fresh")
    assert mine.shared == "s3://bucket/x/mine-results/fresh"
    both = in_own_record(Options(mlruns=Path("m"), corpus_lines=99, fresh=True))
    assert both.mlruns == Path("m/trial/fresh")


def test_the_command_that_trains_anyway_is_the_one_that_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    options = Options(studies=("rankcse-table4",), rows=("SimCSE", "w/o rank"), seeds=(3,), data=Path("my data"))
    print_nothing_to_do(["a", "b"], options, options)
    said = capsys.readouterr().out
    assert f"nothing to do: all 2 runs are in the record, {csv_record.MLRUNS}" in said
    command = "python experiments/sweep.py rankcse-table4 --data 'my data' --rows SimCSE 'w/o rank' --seeds 3 --fresh"
    assert f"to train here anyway: {command}\n" in said


def test_a_dry_run_says_what_is_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = Options(
        studies=("rankcse-table4",), rows=("SimCSE", "listNet full"), seeds=(4,), dry_run=True, mlruns=tmp_path
    )
    assert main(options) == 0
    said = capsys.readouterr().out
    assert said.startswith("rows: SimCSE; RankCSE-listNet full\nseeds: 42 1 2 3\n9 runs, 0 done, 9 to do")
    assert "time unknown: no time is recorded" in said


@pytest.mark.slow
def test_parts_enter_the_record_and_what_is_short_or_fresh_does_not(tmp_path: Path) -> None:
    mlruns = tmp_path / "mlruns"
    words = ("--rows", "b", "--seeds", "2")
    sweep(mlruns, *words)
    assert tiny_study.run(seed=2).key in keys_of(mlruns)
    assert len(keys_of(mlruns)) == 2
    before, trained = record_of(mlruns), finished_at(mlruns)

    again = sweep(mlruns, *words)
    assert f"nothing to do: all 2 runs are in the record, {mlruns}" in again
    assert re.search(r"│ b +│ \d\d\.\d\d ± \d+\.\d\d │     2 │ ", again)
    assert "--rows b --seeds 2 --fresh" in again

    short = sweep(mlruns, "--rows", "b", "--max-steps", "6", "--corpus-lines", "160")
    assert f"runs cut short have a record of their own, {mlruns / 'trial'}" in short
    assert not keys_of(mlruns / "trial") & keys_of(mlruns)
    curves = csv_record.read_curves("tiny", mlruns / "trial")
    assert curves["step"].max() == 8  # the sixth, in a mean over four

    fresh = sweep(mlruns, *words, "--fresh")
    assert f"fresh: trained although recorded in {mlruns}, which does not change" in fresh
    assert keys_of(mlruns / "fresh") == keys_of(mlruns)
    (line,) = [line for line in fresh.splitlines() if line.startswith("│ b ")]
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells[1:3] == cells[3:5]  # the same bits on the same machine
    assert (record_of(mlruns), finished_at(mlruns)) == (before, trained)
    frames = [csv_record.read_results("tiny", folder).drop(columns="seconds") for folder in (mlruns, mlruns / "fresh")]
    assert frames[0]["score"].tolist() == frames[1]["score"].tolist()
