"""A run is removed from everywhere, and nothing else is; the same command completes an interrupted removal."""

import contextlib
import io
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock

from experiments import remove as command
from experiments.execution.log_queue import record_results
from experiments.remove import Options, main, users_of
from experiments.results import csv_record
from experiments.results.manifest import Manifest, write_manifests
from experiments.schema.scales import SCALES
from experiments.studies.catalogue import single
from experiments.tracking import removal
from experiments.tracking.mlflow_log import Tracker
from tests.support import tiny_study
from tests.support.sweeps import leave

GONE, KEPT = "0123456789ab", "ba9876543210"


@pytest.fixture
def mlruns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of two runs with folders, lines in every file and arrays; no study uses them."""
    monkeypatch.setitem(SCALES, "tiny", tiny_study.SCALE)
    monkeypatch.setattr(command, "users_of", lambda keys: [])
    folder = tmp_path / "mlruns"
    for key in (GONE, KEPT):
        leave(folder / "store", key, curves={"loss": [[1, 0.5], [2, 0.4]]})
        arrays = folder / "figure_data" / key / "x.npz"
        arrays.parent.mkdir(parents=True)
        np.savez(arrays, x=np.ones(3))
    record_results(folder / "store", folder)
    drawn = {"scale": "tiny", "column": "sts_avg", "difference": 0.1, "low": 0.0, "high": 0.2, "p": 0.5, "pairs": 9}
    drawn |= {"resamples": 9, "commit": "x", "seeds": ""}
    sides = [(f"{GONE} last cosine", "c d e"), ("c d e", f"{GONE} last cosine"), ("c d e", f"{KEPT} last cosine")]
    sides += [(f"{KEPT}+{GONE} last cosine", "c d e")]  # several seeds
    csv_record.merge_pairs("tiny", folder, pd.DataFrame([drawn | {"first": a, "second": b} for a, b in sides]))
    write_manifests()
    return folder


def remove(mlruns: Path, key: str = GONE, *, yes: bool = True, own: bool = False) -> int:
    return main(Options(keys=(key,), yes=yes, own=own, mlruns=mlruns))


def lines_of(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text().splitlines() for path in sorted(folder.glob("*.csv"))}


def run_ids(mlruns: Path) -> list[str]:
    return [run.info.run_id for run in Tracker(mlruns).runs("tiny").values()]


def check_removed(mlruns: Path, before: dict[str, list[str]]) -> None:
    kept = {name: [line for line in lines if GONE not in line] for name, lines in before.items()}
    assert lines_of(mlruns) == kept
    assert all(len(lines) < len(before[name]) for name, lines in kept.items())
    assert sorted(path.name for path in (mlruns / "store").iterdir()) == [KEPT]
    assert [path.parent.name for path in mlruns.rglob("*.npz")] == [KEPT]
    assert not (mlruns / "figure_data" / GONE).exists()
    write_manifests()
    assert Manifest(mlruns).differences() == {}
    record_results(mlruns / "store", mlruns)  # the next sweep
    assert lines_of(mlruns) == kept


def test_what_is_removed_is_listed_and_everything_else_stays(mlruns: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = lines_of(mlruns)
    assert remove(mlruns) == 0
    said = capsys.readouterr().out
    assert f"folder {mlruns / 'store' / GONE}: 0.0 MiB" in said
    for name, count in {"runs": 1, "results": 1, "curves": 2, "pairs": 3}.items():
        assert f"{count} line{'s' if count > 1 else ''} of {mlruns / name}.csv" in said
    assert f"1 file of arrays in {mlruns / 'figure_data'}" in said
    check_removed(mlruns, before)
    with pytest.raises(ValueError, match=f"nothing to remove in {mlruns}: unknown run '{GONE}'"):
        remove(mlruns)


def test_without_a_terminal_nothing_is_removed_and_the_option_is_named(
    mlruns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lines_of(mlruns)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(ValueError, match="there is no terminal to ask at; expected --yes"):
        remove(mlruns, yes=False)
    assert lines_of(mlruns) == before
    assert (mlruns / "store" / GONE).is_dir()


@pytest.mark.parametrize(("answer", "removed"), [("n", False), ("y", True)])
def test_at_a_terminal_it_asks(mlruns: Path, monkeypatch: pytest.MonkeyPatch, answer: str, removed: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    assert remove(mlruns, yes=False) == (0 if removed else 1)
    assert (mlruns / "store" / GONE).exists() is not removed


class Stopped(Exception):  # noqa: N818 - it simulates a kill, it is no error
    pass


@pytest.mark.parametrize("place", ["rmtree", "Table.remove", "replace"])
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.slow
def test_the_same_command_completes_an_interrupted_removal(
    mlruns: Path, monkeypatch: pytest.MonkeyPatch, place: str, at: int
) -> None:
    """The removal stops at the first, second or third call of a function; the record can be read at once."""
    before = lines_of(mlruns)
    owner, name = {
        "rmtree": (removal.shutil, "rmtree"),
        "Table.remove": (removal.Table, "remove"),
        "replace": (Manifest, "replace"),
    }[place]
    real, calls = getattr(owner, name), iter(range(1, 100))

    def stop(*given: object, **named: object) -> object:
        if next(calls) == at:
            raise Stopped
        return real(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, stop)
        with contextlib.suppress(Stopped):
            remove(mlruns)
    csv_record.read_results("tiny", mlruns)
    with contextlib.suppress(ValueError):  # nothing was left to remove
        remove(mlruns)
    check_removed(mlruns, before)


def test_a_run_in_progress_is_refused(mlruns: Path) -> None:
    before = lines_of(mlruns)
    refusal = f"run {GONE}: a process is training or scoring it"
    with FileLock(mlruns / "store" / f"{GONE}.lock"), pytest.raises(ValueError, match=refusal):
        remove(mlruns)
    assert lines_of(mlruns) == before


@pytest.mark.parametrize("word", ["", ".", "..", "/tmp", f"{GONE}/x", GONE[:-1]])
def test_a_word_that_is_no_key_removes_nothing(mlruns: Path, word: str) -> None:
    before = sorted(mlruns.rglob("*"))
    for keys in ((word,), (GONE, word)):
        with pytest.raises(ValueError, match=r"^run '.*': expected its key, twelve hex digits"):
            main(Options(keys=keys, yes=True, mlruns=mlruns))
    assert sorted(mlruns.rglob("*")) == before


def test_a_key_without_a_trace_is_named(mlruns: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Options(keys=(GONE, "f" * 12), yes=True, mlruns=mlruns)) == 0
    said = capsys.readouterr().out
    assert f"nothing of run {'f' * 12}" in said
    assert f"nothing of run {GONE}" not in said


def test_a_similar_key_is_shown(mlruns: Path) -> None:
    with pytest.raises(ValueError, match=rf"unknown run '0123456789aa' \(did you mean {GONE}\?\)"):
        remove(mlruns, "0123456789aa")


def test_a_users_own_run_is_removed_and_the_recorded_run_of_the_same_key_stays(
    mlruns: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = lines_of(mlruns)
    shutil.copytree(mlruns / "store" / GONE, mlruns / "own" / GONE)
    with FileLock(mlruns / "own" / f"{GONE}.lock"), pytest.raises(ValueError, match="a process is training"):
        remove(mlruns)
    assert remove(mlruns, own=True) == 0
    assert capsys.readouterr().out.count("folder ") == 3  # listed twice before it was refused
    assert not (mlruns / "own" / GONE).exists()
    assert (mlruns / "store" / GONE).is_dir()
    assert lines_of(mlruns) == before
    with pytest.raises(ValueError, match=f"nothing to remove in {mlruns / 'own'}: .*{GONE}"):
        remove(mlruns, own=True)


@pytest.mark.slow
def test_of_two_runs_with_the_same_key_in_mlflow_only_the_users_own_is_removed(mlruns: Path) -> None:
    shutil.copytree(mlruns / "store" / GONE, mlruns / "own" / GONE)
    recorded = Tracker(mlruns).log(mlruns / "store" / GONE)
    result = mlruns / "own" / GONE / "result.json"
    result.write_text(json.dumps(json.loads(result.read_text()) | {"studies": []}))
    own = Tracker(mlruns).log(mlruns / "own" / GONE)
    assert sorted(Tracker(mlruns).ids([GONE])) == sorted([recorded, own])
    assert remove(mlruns, own=True) == 0
    assert Tracker(mlruns).ids([GONE]) == [recorded]


@pytest.mark.slow
def test_the_rows_that_use_a_run_are_named() -> None:
    simcse = single("rankcse-table4", "small").rows[0].keys()[42]
    lines = users_of((simcse,))
    assert "used by rankcse-table4, scale small: row SimCSE; as a teacher or base" in lines
    (table2,) = [line for line in lines if line.startswith("used by rankcse-table2,")]
    assert "scale small: row SimCSE BERT-base; row SimCSE BERT-base, flow; " in table2
    assert table2.endswith("; as a teacher or base")


@pytest.mark.slow
def test_a_run_is_removed_from_mlflow_too_or_a_message_says_that_it_could_not_be(
    mlruns: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = {key: Tracker(mlruns).log(mlruns / "store" / key) for key in (GONE, KEPT)}
    before = lines_of(mlruns)
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        assert remove(mlruns) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "MLflow can't be reached, and may still have it" in said
    assert f"finish with the same command: python experiments/remove.py {GONE}" in said
    check_removed(mlruns, before)
    assert sorted(run_ids(mlruns)) == sorted(ids.values())
    with monkeypatch.context() as patch:  # it is lost between the question and the answer
        patch.setattr(type(Tracker(mlruns).client), "delete_run", lambda client, run_id: 1 / 0)
        assert remove(mlruns) == 1
    assert "removed, but for MLflow's part" in capsys.readouterr().out
    assert remove(mlruns) == 0
    assert f"run {ids[GONE]} in MLflow" in capsys.readouterr().out
    assert run_ids(mlruns) == [ids[KEPT]]
