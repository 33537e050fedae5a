"""The comparison that docs/compare.md shows, run as it stands there with the method of the page."""

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
    """A line of the table of gains, of which another processor changes the numbers, but not the last two columns'."""
    return re.sub(r"[+-]?\d+\.\d\d", "0", line)


@pytest.mark.slow
def test_the_documented_comparison_gives_what_the_page_shows(tmp_path: Path) -> None:
    command, shown = re.findall(r"```\n(.*?)```", PAGE.partition("## A small one")[2], re.DOTALL)[:2]
    (method,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "my_method.py").write_text(method)
    add_empty_database(tmp_path / "mlruns")
    _, script, *words = command.split()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    called = [sys.executable, str(ROOT / script), *words, "--mlruns", str(tmp_path / "mlruns")]
    done = forked.run(called, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    said = {without_numbers(line) for line in done.stdout.splitlines()}
    expected = [line for line in shown.splitlines() if line != "..." and not line.startswith("report: ")]
    assert [line for line in expected if without_numbers(line) not in said] == []
    assert (tmp_path / "mlruns/page.html").is_file()
