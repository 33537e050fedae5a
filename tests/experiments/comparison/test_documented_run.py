"""The command that docs/compare.md shows works as shown, with the page's method."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.sweeps import add_empty_database

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "compare.md").read_text()


def without_numbers(line: str) -> str:
    """A line of the table of gains without the numbers that another processor changes."""
    return re.sub(r"[+-]?\d+\.\d\d", "0", line)


COMMAND, SHOWN = re.findall(r"```\n(.*?)```", PAGE.partition("## A small example")[2], re.DOTALL)[:2]


def said_by(folder: Path, *more: str) -> list[str]:
    """What the page's command says, line by line, with the page's method in the folder."""
    (method,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (folder / "my_method.py").write_text(method)
    _, script, *words = COMMAND.split()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    called = [sys.executable, str(ROOT / script), *words, "--mlruns", str(folder / "mlruns"), *more]
    done = forked.run(called, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_documented_comparison_is_one_that_the_command_takes(tmp_path: Path) -> None:
    assert SHOWN.splitlines()[0] in said_by(tmp_path, "--dry-run")


@pytest.mark.slow
@pytest.mark.nightly
def test_the_documented_comparison_gives_what_the_page_shows(tmp_path: Path) -> None:
    add_empty_database(tmp_path / "mlruns")
    said = {without_numbers(line) for line in said_by(tmp_path)}
    expected = [line for line in SHOWN.splitlines() if line != "..." and not line.startswith("report: ")]
    assert [line for line in expected if without_numbers(line) not in said] == []
    assert (tmp_path / "mlruns/page.html").is_file()
