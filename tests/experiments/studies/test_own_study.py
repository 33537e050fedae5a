"""A user's study in a file outside the packages: the example of docs/own_study.md, and files that are refused."""

import os
import re
import sys
from collections.abc import Generator
from pathlib import Path

import pandas as pd
import pytest

from cse_core.methods import METHODS
from experiments.execution.job import describe
from experiments.execution.plan import jobs_of
from experiments.results import csv_record
from experiments.schema.scales import SCALES
from experiments.storage.record_folders import MLRUNS, folder_of
from experiments.studies import own_study
from experiments.studies.catalogue import choose_studies
from experiments.sweep import Options, main
from tests.support import forked, without_ray

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/own_study.md").read_text()
(CODE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Forget the modules and methods that a test loads."""
    methods, modules = dict(METHODS), dict(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(own_study, "_LOADED", [])
    yield
    METHODS.clear()
    METHODS.update(methods)
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]


def written(folder: Path, code: str = CODE, name: str = "my_study.py") -> Path:
    path = folder / name
    path.write_text(code)
    return path


def test_the_page_is_short() -> None:
    assert len(CODE.splitlines()) <= 32


def test_a_file_is_a_study_at_any_scale_and_its_methods_are_known(tmp_path: Path) -> None:
    path = written(tmp_path)
    for scale, column in {"quickstart": "synthetic", "paper": "sts_avg"}.items():
        (study,) = choose_studies([str(path)], scale)
        assert (study.scale, study.columns) == (SCALES[scale], (column,))
        assert [row.seeds for row in study.rows] == [(1, 2, 3, 4, 5)] * 2
        assert len({key for row in study.rows for key in row.keys().values()}) == 10
    assert METHODS["both-ways"].__name__ == "BothWays"
    assert own_study.loaded_files() == (str(path),)


def test_its_jobs_name_its_file_and_jobs_of_the_project_name_none(tmp_path: Path) -> None:
    path = written(tmp_path)
    mine, theirs = (jobs_of(choose_studies([name], "small")) for name in (str(path), "rankcse-table4"))
    assert {job.file for job in mine.values()} == {describe(job)["file"] for job in mine.values()} == {str(path)}
    assert {job.file for job in theirs.values()} == {""}


def test_workers_get_the_files_that_it_imports_too(tmp_path: Path) -> None:
    beside = written(tmp_path, "WORD = 'sts'\n", "my_words_beside.py")
    path = written(tmp_path, "from my_words_beside import WORD\n" + CODE)
    choose_studies([str(path)], "small")
    assert own_study.loaded_files() == (str(path), str(beside))


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("nothing.py", None, "nothing.py: no such file; expected a Python file of your own"),
        ("my-study.py", CODE, "my-study.py: expected a name that can be imported"),
        ("random.py", CODE, "random.py: another module has its name, .*random.py; rename the file"),
        ("no_study.py", "x = 1\n", "no_study.py: expected a function `study` of a scale that returns a Study, found"),
        ("no_return.py", "def study(scale):\n    pass\n", "no_return.py: expected of `study` a Study, got NoneType"),
        (
            "no_name.py",
            CODE.replace('{"name": "both-ways", ', "{"),
            "no_name.py: expected of `study` a Study with a name",
        ),
        ("no_scale.py", CODE.replace(', "scale": scale}', "}"), "expected of `study` a Study with a name and a scale"),
        ("old_name.py", CODE.replace('"both-ways"', '"simcse"', 1), "BothWays: cse_core.methods.simcse has one of"),
        ("old_class.py", CODE.replace("BothWays", "RankCSE"), "method RankCSE: cse_core.methods.rankcse has one of"),
    ],
)
def test_a_file_that_is_no_study_is_refused(tmp_path: Path, name: str, code: str | None, message: str) -> None:
    if code is not None:
        written(tmp_path, code, name)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        choose_studies([str(tmp_path / name)], "small")


def test_its_record_is_in_its_folder_and_never_in_the_projects(tmp_path: Path) -> None:
    path = str(written(tmp_path))
    assert folder_of([path], MLRUNS) == tmp_path / "my_study-results"
    assert folder_of([path], tmp_path / "elsewhere") == tmp_path / "elsewhere"
    assert folder_of(["rankcse-table4"], MLRUNS) == MLRUNS
    with pytest.raises(ValueError, match="a study of your own has a record of its own; run it without other studies"):
        main(Options(studies=("rankcse-table4",), study=(path,)))


def test_a_dry_run_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    assert main(Options(study=(str(path),), scale="quickstart", dry_run=True)) == 0
    said = capsys.readouterr().out
    assert "10 runs, 0 done, 10 to do" in said
    assert [child.name for child in tmp_path.iterdir() if child.name != "__pycache__"] == ["my_study.py"]


@pytest.mark.slow
@pytest.mark.parametrize("ray", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["one process", "Ray"])
def test_the_page_gives_record_table_figure_and_verdict(tmp_path: Path, ray: bool) -> None:
    """Two of five seeds cut short, from another folder than the file's: Ray's workers have the driver's paths."""
    (tmp_path / "mine").mkdir()
    short = CODE.replace("(1, 2, 3, 4, 5)", "(1, 2)")
    cut = 'replace(simcse_run(scale, BASE), max_steps=16, eval_steps=8, corpus=Corpus("synthetic", 2048))'
    short = "from cse_core.run import Corpus\n" + short.replace("simcse_run(scale, BASE)", cut)
    written(tmp_path / "mine", short)
    (command,) = re.findall(r"```\npython experiments/(sweep.py .*)\n```", PAGE)
    words = command.replace("my_study.py", "mine/my_study.py").split()
    record = [*MLRUNS.glob("*.csv"), MLRUNS / "SHA256SUMS"]
    before = {path: path.read_bytes() for path in record}
    script, *options = words
    one_process = ["-c", without_ray.SCRIPT + "from experiments.sweep import command; command()"]
    given = [
        sys.executable,
        *([str(ROOT / "experiments" / script)] if ray else one_process),
        *options,
        "--workers",
        "1",
    ]
    done = forked.run(given, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    results = tmp_path / "mine/my_study-results"
    assert {path: path.read_bytes() for path in record} == before
    scores = csv_record.read_results("quickstart", results)
    assert sorted(set(zip(scores["method"], scores["seed"], strict=True))) == [
        (method, seed) for method in ("both-ways", "simcse") for seed in (1, 2)
    ]
    table = pd.read_csv(results / "tables/quickstart/both-ways.csv")
    assert table["n"].tolist() == [2, 2]
    assert f"│ both ways │ {table['mean'][1]:.2f} ± {table['sd'][1]:.2f} │     2 │" in done.stdout
    page = (results / "tables/quickstart/both-ways.md").read_text()
    words = r"(better|worse|equivalent|inconclusive)(, by less than the margin)?"
    assert re.search(rf"\| both ways are better \| both ways − SimCSE \|.* \| 0\.5 \| {words} \|", page)
    assert re.search(rf"both ways − SimCSE: [+-]\d+\.\d\d \[.*\], 2 seeds: {words}", done.stdout)
    assert (results / "figures/quickstart/both-ways-curves.png").stat().st_size > 10_000
    assert "loss curves: " in done.stdout
