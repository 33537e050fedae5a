"""A sweep shows the progress of all runs together and of each by name."""

import io
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from experiments.cli import console as module
from experiments.cli.console import Bar, counted
from experiments.execution import sweep_report
from experiments.tracking.mlflow_log import Tracker

OF_RICH = ("get_default_columns", "from_markup", "rich.console", "from rich import")
ROOT = Path(__file__).parents[3]
NAMES = {"a": "SimCSE s42", "b": "ListNet s1", "c": "ListNet s2"}


def screen(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> io.StringIO:
    shown = io.StringIO()
    monkeypatch.setattr(module, "console", Console(file=shown, force_terminal=terminal, width=160, soft_wrap=True))
    return shown


def test_one_is_followed_by_the_singular() -> None:
    assert [counted(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


def test_each_run_in_progress_has_a_bar_with_its_name_and_status(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, terminal=True)
    with Bar(NAMES) as bar:
        bar.move("a", 0.3, "step 96 of 256, loss 0.12, dev/stsb_dev 0.700")
        bar.move("b", 0.1, "starting")
        bar.progress.refresh()
        text = shown.getvalue()
        for part in ("0 done, 3 pending", "SimCSE s42", "step 96 of 256, loss 0.12", "ListNet s1"):
            assert part in text
        assert "ListNet s2" not in text  # not begun
        bar.end("a")
        assert [task.description for task in bar.progress.tasks] == ["1 done, 2 pending", "ListNet s1"]
        bar.move("b", 0.5)
        bar.move("b", 0.2)  # restarted after a lost worker
        assert bar.progress.tasks[1].completed == 0.5
        assert bar.progress.tasks[0].completed == 1.5


def test_without_a_terminal_a_line_is_printed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, terminal=False)
    now = 1_000.0  # whole, so that sums of seconds are exact
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with Bar(NAMES) as bar:
        for second in range(0, 61):
            now += 1
            bar.move("a", second / 100, f"step {second} of 100")
    lines = [line for line in shown.getvalue().splitlines() if "step" in line]
    assert len(lines) == 2
    assert lines[0].startswith("0 done, 3 pending, 10 %; SimCSE s42: step 29 of 100")
    assert "left" in lines[1]
    assert not any("step" in line for line in shown.getvalue().splitlines()[-1:])


def test_a_run_without_a_status_is_shown_by_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_time_left", lambda task: "0:00:01 left")
    bar = Bar(NAMES)
    bar.move("a", 0.9)
    assert bar.line() == "0 done, 3 pending, 30 %; SimCSE s42: 0:00:01 left"
    bar.move("a", 0.9, "step 9 of 10")
    assert bar.line().endswith("SimCSE s42: step 9 of 10, 0:00:01 left")


def test_a_failed_run_does_not_count_as_done() -> None:
    bar = Bar(NAMES)
    bar.move("a", 0.7)
    bar.end("a", failed=True)
    bar.end("b")
    assert bar.line() == "1 done, 1 failed, 1 pending, 33 %"
    bar.end("c", failed=True)
    assert bar.line() == "1 done, 2 failed, 0 pending, 33 %"


def test_a_hundred_percent_are_shown_when_every_run_is_done_and_not_before() -> None:
    bar = Bar({str(i): f"run {i}" for i in range(300)})
    for i in range(299):
        bar.end(str(i))
    bar.move("299", 0.99)
    assert bar.line().startswith("299 done, 1 pending, 99 %")
    assert bar.progress.tasks[0].fields["share"] == 99
    bar.end("299")
    assert bar.line() == "300 done, 0 pending, 100 %"
    assert bar.progress.tasks[0].fields["share"] == 100


def test_brackets_and_colons_of_paths_labels_and_names_are_printed_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "[old]/runs :smile: [mean] [/x]"
    table = Table(title=text, caption=text)
    table.add_column(text)
    table.add_row(text)
    module.console.print(text, table)
    module.print_failures({text: text}, ended=True)
    with Progress(*module.plain_columns(), console=module.console) as progress:
        progress.add_task(text)
    assert capsys.readouterr().out.count(text) >= 8


def test_a_reason_that_runs_share_is_printed_once_with_what_each_names(capsys: pytest.CaptureFixture[str]) -> None:
    lost = "FileNotFoundError: backbone '{}': neither embedded nor on the hub"
    failed = {"A (1)": lost.format("a/a"), "B (2)": "ValueError: damaged", "C (3)": lost.format("c/c")}
    module.print_failures(failed | {"D (4)": "ValueError: damaged"}, ended=True)
    assert capsys.readouterr().out.splitlines() == [
        "failed: A (1): FileNotFoundError: backbone 'a/a': neither embedded nor on the hub",
        "failed for the same reason: C (3): 'c/c'",
        "failed: B (2): ValueError: damaged",
        "failed for the same reason: D (4)",
    ]


def test_a_bar_shows_the_names_of_runs_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar({"a": "[old] SimCSE [/x]"}) as bar:
        bar.move("a", 0.3, "scoring [mean]")
        assert "[old] SimCSE [/x]: scoring [mean]" in bar.line()
        bar.progress.refresh()
        module.console.print(bar.line())
    assert "[old] SimCSE [/x]: scoring [mean]" in capsys.readouterr().out


def test_no_command_prints_through_another_console() -> None:
    """Rich reads brackets as markup by default, so its own console, print and columns are used in one file only."""
    files = (Path(__file__).parents[3] / "experiments").rglob("*.py")
    found = {path.name for path in files if any(word in path.read_text() for word in OF_RICH)}
    assert found == {"console.py"}


def test_mlflows_database_is_named_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    sweep_report.print_mlflow_command(Tracker(Path("mine")))
    assert capsys.readouterr().out.strip() == "runs in MLflow: mlflow ui --backend-store-uri sqlite:///mine/mlflow.db"


@pytest.mark.parametrize(("notebook", "expected"), [(False, "True"), (True, "False")])
def test_a_notebook_is_no_terminal_though_its_output_claims_to_be_one(notebook: bool, expected: str) -> None:
    parent, child = pty.openpty()
    code = "from experiments.cli.console import console; print(console.is_terminal)"
    environment = {name: value for name, value in os.environ.items() if name != "JPY_PARENT_PID"}
    environment |= {"JPY_PARENT_PID": "1"} if notebook else {}
    subprocess.run([sys.executable, "-c", code], stdout=child, env=environment, check=True, cwd=ROOT)
    assert os.read(parent, 100).decode().strip() == expected
    os.close(parent)
    os.close(child)
