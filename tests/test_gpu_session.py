"""A session on a GPU, tried on a CPU: its time budget, its outcomes, interruption and resumption, and all its steps."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from tests.benchmarks import bench_gpu, gpu_session, repeated_runs
from tests.benchmarks.gpu_session import STAGES, Options, Step, finished, main, steps_of
from tests.benchmarks.measure import busy_time, kernels_of
from tests.support.polling import until

PAGE = (gpu_session.ROOT / "docs/gpu.md").read_text()


def python(name: str, code: str, **more: object) -> Step:
    return Step(name, ("-c", code), **{"needs": 0.1, "most": 3} | more)  # ty: ignore[invalid-argument-type]


def session(monkeypatch: pytest.MonkeyPatch, folder: Path, *steps: Step, seconds: float = 60) -> int:
    monkeypatch.setattr(gpu_session, "steps_of", lambda stage, options: list(steps))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return main(Options(minutes=seconds / 60, out=folder, device="cpu", tiny=True, stages=("right",)))


def outcomes(folder: Path) -> list[tuple[str, str]]:
    entries = [json.loads(line) for line in (folder / "tiny/steps.jsonl").read_text().splitlines()]
    return [(entry["step"], entry["outcome"]) for entry in entries]


@pytest.mark.slow
def test_a_step_that_takes_too_long_is_ended_and_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [python("a", ""), python("b", "import time; time.sleep(60)", most=0.5), python("c", "")]
    assert session(monkeypatch, tmp_path, *steps) == 1
    expected = [("a", "done"), ("b", "failed: out of time"), ("c", "done")]
    assert outcomes(tmp_path) == expected
    assert finished(tmp_path / "tiny") == {"a", "c"}
    session(monkeypatch, tmp_path, *steps)
    assert outcomes(tmp_path) == [*expected, ("b", "failed: out of time")]  # only that one was tried again


@pytest.mark.slow
def test_a_step_that_needs_more_time_than_is_left_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert session(monkeypatch, tmp_path, python("long", "", needs=61), python("short", "", needs=10)) == 0
    said = capsys.readouterr().out
    assert re.search(r"long: left for the next session: needs 61 s, (59|60) s are left", said)
    assert said.endswith("failed: none; for the next session: long\n")
    assert outcomes(tmp_path) == [("short", "done")]


@pytest.mark.slow
def test_a_filling_step_ends_within_the_budget_and_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ends itself when asked to, and one that must be killed."""
    started = time.monotonic()
    code = "import sys, time; time.sleep(int(sys.argv[1])); sys.exit(75)"
    polite = Step("polite", ("-c", code, "SECONDS"), 0.1, 1, fills=True)
    rude = Step("rude", ("-c", "import time; time.sleep(60)"), 0.1, 60, fills=True)
    assert session(monkeypatch, tmp_path, polite, rude, seconds=3) == 0
    assert time.monotonic() - started < 5
    assert outcomes(tmp_path)[-1] == ("rude", "unfinished")
    assert outcomes(tmp_path)[0][1] == "unfinished"
    assert finished(tmp_path / "tiny") == set()


@pytest.mark.slow
def test_a_failure_is_in_the_exit_status_and_blocks_what_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = Step("skipped", ("-c", "print('2 skipped')", "pytest"), 0.1, 3)
    passed = Step("passed", ("-c", "print('1 passed, 2 skipped')", "pytest"), 0.1, 3)
    steps = [python("a", "exit(3)"), python("b", "", after="a"), python("c", ""), skipped, passed]
    assert session(monkeypatch, tmp_path, *steps) == 1
    assert outcomes(tmp_path) == [
        ("a", "failed with 3"),
        ("c", "done"),
        ("skipped", "failed: all of its tests were skipped"),
        ("passed", "done"),
    ]
    said = capsys.readouterr().out
    assert "b: blocked: a is not done\n" in said
    assert said.endswith("failed: a, b, skipped; for the next session: none\n")


def test_half_a_line_is_no_finished_step(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step": "a", "outcome": "done"}\n{"step": "b", "outc')
    assert finished(tmp_path) == {"a"}


def test_what_can_not_be_done_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="--data"):
        main(Options(minutes=1, out=tmp_path, device="cpu"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no GPU"):
        main(Options(minutes=1, out=tmp_path, data=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_page_shows_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    main(Options(minutes=25, data=Path("DATA"), out=Path("FOLDER"), dry_run=True))
    assert f"```\n{capsys.readouterr().out}```" in PAGE


def test_the_benchmarks_that_it_names_exist() -> None:
    steps = [step for stage in STAGES for step in steps_of(stage, Options(minutes=1, out=Path(), data=Path()))]
    named = [word.partition("::")[2] for step in steps for word in step.command if "::" in word]
    assert len(named) == 14
    for name, values in re.findall(r"(\w+)\[(.+?)\]", " ".join(named)):
        marks = {mark.args[0]: mark.args[1] for mark in getattr(bench_gpu, name).pytestmark if mark.args}
        assert list(marks) in (["batch"], ["model"], ["batch", "way"], ["batch", "precision"])
        choices = [list(map(str, chosen)) for chosen in marks.values()]
        assert "-".join(values.split("-", len(choices) - 1)) == values
        assert all(v in of for v, of in zip(values.split("-", len(choices) - 1), choices, strict=True))
    tests = (gpu_session.ROOT / "tests/cse_core/models/test_on_gpu.py").read_text()
    assert all(f"def {name}" in tests for name in steps[0].command[-1].split(" or "))


def test_the_time_in_which_kernels_run() -> None:
    """Two that overlap, one within another, and two pauses."""
    assert busy_time([(20.0, 5.0), (0.0, 4.0), (2.0, 6.0), (3.0, 1.0), (10.0, 1.0)]) == (5, 14.0, 11.0)
    assert busy_time([]) == (0, 0.0, 0.0)


@pytest.mark.slow
def test_a_steps_operators_are_counted() -> None:
    a = torch.ones(10)
    count, busy, idle = kernels_of(lambda: a + a, 5, "cpu")
    assert count == 1
    assert 0 < busy < 1
    assert 0 < idle < 1


def test_weights_that_differ_are_counted() -> None:
    assert repeated_runs.difference(torch.zeros(3), torch.zeros(3)) == ""
    assert repeated_runs.difference(torch.zeros(3), torch.tensor([0, 0.5, 0])) == "1 of 3 weights, by up to 0.5"


def test_a_run_that_differs_when_it_is_resumed_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = subprocess.CompletedProcess([], -signal.SIGKILL)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: killed)
    options = repeated_runs.Options(out=tmp_path, device="cpu", only=("simcse",))
    for differs, status in ((0.0, 0), (0.1, 1)):
        trained = {False: torch.zeros(3), True: torch.full((3,), differs)}
        monkeypatch.setattr(repeated_runs, "train", lambda *_, resumed=False, trained=trained: (trained[resumed], 1.0))
        assert repeated_runs.main(options) == status
    killed.returncode = 1
    with pytest.raises(RuntimeError, match="ended with status 1"):
        repeated_runs.main(options)


def processes_of(folder: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if str(folder) in " ".join(_words(process))]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it ended, or is another user's
        return []


@pytest.mark.slow
def test_an_interrupted_session_leaves_no_process_and_is_resumed(tmp_path: Path) -> None:
    """A real one, ended by SIGTERM once pre-training has tokenised its sentences; the next one completes that stage."""
    command = [sys.executable, gpu_session.__file__, "--minutes", "9", "--out", str(tmp_path), "--device", "cpu"]
    command += ["--tiny", "--stages", "backbone"]
    kept = tmp_path / "tiny/backbone/rows of 2000 lines of synthetic.pt"
    first = subprocess.Popen(command, cwd=gpu_session.ROOT, stdout=subprocess.PIPE, text=True)
    until(kept.exists)
    assert len(processes_of(tmp_path)) == 2
    first.send_signal(signal.SIGTERM)
    assert "pretrain: interrupted" in first.communicate(timeout=60)[0]
    assert first.returncode == 130
    assert processes_of(tmp_path) == []
    assert finished(tmp_path / "tiny") == set()
    tokenised = kept.stat().st_mtime_ns
    second = subprocess.run(command, cwd=gpu_session.ROOT, capture_output=True, text=True, check=True)
    assert second.stdout == "pretrain: done\nfailed: none; for the next session: none\n"
    assert kept.stat().st_mtime_ns == tokenised
    assert json.loads((kept.parent / "pretraining.json").read_text())["steps"] > 0


@pytest.mark.slow
@pytest.mark.nightly
def test_a_tiny_session_is_completed_on_a_cpu(tmp_path: Path) -> None:
    options = ["--minutes", "30", "--out", str(tmp_path), "--device", "cpu", "--tiny"]
    done = subprocess.run([sys.executable, gpu_session.__file__, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "failed: none; for the next session: none" in done.stdout
    names = {step.name for stage in STAGES for step in steps_of(stage, Options(minutes=1, out=tmp_path, tiny=True))}
    assert finished(tmp_path / "tiny") == names
    assert {path.name for path in (tmp_path / "tiny/measured").iterdir()} == {"ratios.csv", "shares.csv"}
