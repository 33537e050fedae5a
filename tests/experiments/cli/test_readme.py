"""README's "Add a method", done to a copy of the code as it says, and run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SECTION = (ROOT / "README.md").read_text().partition("## Add a method\n")[2].partition("\n## ")[0]


def test_the_walk_through_is_short() -> None:
    assert 20 < len(SECTION.splitlines()) < 60


@pytest.mark.slow
def test_a_method_is_one_file_and_one_line(tmp_path: Path) -> None:
    for package in ("cse_core", "experiments"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (code,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    (command,) = re.findall(r"```\n(python .*?)\n```", SECTION)
    name, line = re.findall(r"`(\w+)\.py`:", SECTION)[0], re.findall(r'`("\w+": \w+,)`', SECTION)[0]
    methods = tmp_path / "cse_core" / "methods"
    (methods / f"{name}.py").write_text(code)
    register = (methods / "__init__.py").read_text()
    assert register.count("\n}\n") == 1
    imported = f"from cse_core.methods.{name} import {line.split()[1].rstrip(',')}\n\nMETHODS"
    register = register.replace("\n}\n", f"\n    {line}\n}}\n").replace("\nMETHODS", imported)
    (methods / "__init__.py").write_text(register)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    words = [sys.executable, *command.split()[1:], "--mlruns", str(tmp_path / "mlruns")]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "backward_weight=0.3" in done.stdout
    assert re.search(r"synthetic\W+\d+\W+\d\d\.\d\d", done.stdout)  # task, pairs, Spearman
