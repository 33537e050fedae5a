"""The method of README's "Add a method", added to a copy of the code, can be run, planned, listed and drawn."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import forked

ROOT = Path(__file__).parents[3]
SECTION = (ROOT / "README.md").read_text().partition("## Add a method\n")[2].partition("\n## ")[0]
# A study of one's own with the new method in it, as CONTRIBUTING.md describes one.
STUDY = """
import sys
import tyro
from analysis.plots import style
from experiments import estimate, sweep
from experiments.schema.recipes import RUNS
from experiments.schema.rows import BASE, row
from experiments.schema.study import Study
from experiments.studies import catalogue

name = sys.argv[1]

def mine(scale):
    runs = {one: RUNS[one](scale, BASE) for one in ("simcse", "diffcse", name)}
    rows = tuple(row(scale, label, run, BASE, None, seeds=(42,)) for label, run in runs.items())
    return Study(name="mine", source="", question="", scale=scale, rows=rows, columns=("stsb",))

catalogue.STUDIES["mine"] = mine
for command, kind, words in (
    (sweep, sweep.Options, ["--list"]),
    (sweep, sweep.Options, ["--dry-run"]),
    (estimate, estimate.EstimateOptions, ["--gpus", "1"]),
):
    assert command.main(tyro.cli(kind, args=["mine", "--scale", "paper", *words])) == 0
study = catalogue.single("mine", "paper")
for one, look in zip(study.rows, style.looks(study.rows).values(), strict=True):
    print(f"look of {style.method_of(one)}: {look.colour} {look.marker}")
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages with README's method: one file and one line."""
    folder = tmp_path_factory.mktemp("copied")
    for package in ("cse_core", "experiments", "analysis"):
        ignored = shutil.ignore_patterns("__pycache__", "tables", "figures")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    (code,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    name, line = re.findall(r"`(\w+)\.py`:", SECTION)[0], re.findall(r'`("\w+": \w+,)`', SECTION)[0]
    methods = folder / "cse_core" / "methods"
    (methods / f"{name}.py").write_text(code)
    register = (methods / "__init__.py").read_text()
    assert register.count("\n}\n") == 1
    imported = f"from cse_core.methods.{name} import {line.split()[1].rstrip(',')}\n\nMETHODS"
    register = register.replace("\n}\n", f"\n    {line}\n}}\n").replace("\nMETHODS", imported)
    (methods / "__init__.py").write_text(register)
    return folder


def run(folder: Path, *words: str) -> str:
    done = forked.run([sys.executable, *words], cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_walk_through_is_short() -> None:
    assert 20 < len(SECTION.splitlines()) < 60


@pytest.mark.slow
def test_a_method_is_one_file_and_one_line(copied: Path, tmp_path: Path) -> None:
    (command,) = re.findall(r"```\n(python .*?)\n```", SECTION)
    said = run(copied, *command.split()[1:], "--mlruns", str(tmp_path / "mlruns"), "--corpus-lines", "1024")
    assert "backward_weight=0.3" in said
    assert re.search(r"synthetic\W+\d+\W+\d\d\.\d\d", said)  # task, pairs, Spearman


@pytest.mark.slow
def test_a_new_method_is_listed_planned_and_drawn_by_nothing_but_itself(copied: Path) -> None:
    said = run(copied, "-c", STUDY, "symmetric")
    words = " ".join(said.split())
    assert re.search(r"mine │.*│ 3 │ 0 │ 0 │ 3 │ 3 │", words)  # rows, imported, not run; runs, all of them pending
    assert re.search(r"symmetric s42 \(mine\): training; stsb_dev, cosine: stsb", words)
    # SimCSE's 20 minutes (RankCSE, Table 11), DiffCSE's two epochs of 8/3 times that, and as many as SimCSE's for it.
    assert re.search(r"default │ 2\.4 h │ 2\.4 h │ 100 %", words)
    looks = dict(re.findall(r"look of (\w+): (#\w{6} \S+)", said))
    assert list(looks) == ["SimCSE", "DiffCSE", "Symmetric"]
    assert len(set(looks.values())) == 3
