"""The command lines as people meet them: a real run, an encoder scored, and words for what can't be done."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tyro

from cse_core.methods.rankcse import RankCSE
from cse_core.run import Run
from experiments import run as run_command
from experiments.run import build

ROOT = Path(__file__).parents[2]


def parsed(*arguments: str) -> Any:
    return tyro.cli(run_command.options_for(arguments[0]), args=list(arguments[1:]))


def built(*arguments: str) -> Run:
    return build(arguments[0], parsed(*arguments))


def said(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_a_run_without_options_is_the_studys_own() -> None:
    assert built("simcse").key == "33351ff7b9fc"
    assert built("simcse", "--seed", "1").key != "33351ff7b9fc"


def test_options_reach_the_method_and_the_run() -> None:
    run = built("rankcse", "--rank", "list_mle", "--student-temperature", "0.1", "--seed", "3", "--dropout", "0.2")
    assert isinstance(run.method, RankCSE)
    assert (run.method.rank, run.method.student_temperature, run.seed, run.dropout) == ("list_mle", 0.1, 3, 0.2)
    assert [teacher.weight for teacher in run.method.teachers] == [1 / 3, 2 / 3]
    assert built("rankcse", "--distillation-weight", "0").nested() == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simcse", "--temperature", "-0.05"), "temperature must be positive, got -0.05"),
        (("simcse", "--batch-size", "1"), "batch_size must be at least 2, got 1: a batch of one has no negatives"),
        (("simcse", "--scale", "huge"), "unknown scale 'huge'; known: quickstart, small"),
        (("simcse", "--backbone", "roberta-base"), "scale small has no backbone 'roberta-base'; known: bert-base-unc"),
        (("rankcse", "--variant", "mine"), "variant must be one of paper, released_code, got 'mine'"),
        (("simcse", "--pooling", "max"), "pooling must be one of cls, mean"),
    ],
)
def test_impossible_runs_are_refused_in_words(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        built(*arguments)


def test_an_unknown_field_or_method_is_met_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run_command.main(["rankcse", "--temprature", "0.05"])
    assert stop.value.code == 2
    assert "--temperature" in said(capsys)
    with pytest.raises(SystemExit) as stop:
        run_command.main(["rankcs"])
    assert stop.value.code == 2
    assert "rankcse" in said(capsys)


def command(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, str(ROOT / "experiments" / name), *arguments]
    return subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.slow
def test_one_run_from_the_command_line(tmp_path: Path) -> None:
    arguments = ("--scale", "quickstart", "--eval-steps", "64", "--batch-size", "512", "--mlruns", str(tmp_path))
    done = command("run.py", "simcse", *arguments)
    assert done.returncode == 0, done.stderr
    assert "batch_size=512" in done.stdout
    assert "synthetic_dev" in done.stdout
    folders = [path.parent for path in tmp_path.glob("own/*/result.json")]
    assert len(folders) == 1
    scored = command("evaluate.py", str(folders[0] / "last"), "--tasks", "synthetic", "--mlruns", str(tmp_path))
    assert scored.returncode == 0, scored.stderr
    last = [line for line in done.stdout.splitlines() if "last" in line and "synthetic" in line]
    again = [line for line in scored.stdout.splitlines() if "as is" in line and "1000" in line]
    assert last[0].split("│")[4:8] == again[0].split("│")[4:8]  # the same four scores, from the exported folder


@pytest.mark.slow
def test_errors_are_one_line_and_a_status(tmp_path: Path) -> None:
    missing = command("evaluate.py", "no-such-model", "--mlruns", str(tmp_path))
    assert missing.returncode == 1
    assert missing.stderr.startswith("error: backbone 'no-such-model': neither embedded (wiki-mini, wiki-tiny)")
    unknown = command("sweep.py", "rankcse-table99", "--mlruns", str(tmp_path))
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("error: unknown study 'rankcse-table99'; known: all, quickstart")
    blocked = command("sweep.py", "quickstart", "--mlruns", "/proc/sys")
    assert blocked.returncode == 1
    assert "error: /proc/sys: can't be written" in blocked.stderr
    assert not any("Traceback" in done.stderr for done in (missing, unknown, blocked))
