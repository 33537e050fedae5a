"""A wheel has the library, which works outside a checkout; an editable install has the study and its command, too."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from cse_core import __version__

ROOT = Path(__file__).parents[1]
ENCODE = """
import cse_core
from cse_core import Encoder, cosine_matrix
from importlib.metadata import version

vectors = Encoder.from_pretrained("wiki-tiny", pooling="cls").encode(["A man plays a guitar.", "Someone makes music."])
numbers = (*vectors.shape, float(cosine_matrix(vectors, vectors)[0, 0]))
print(cse_core.__file__, version("cse-study"), cse_core.__version__, *numbers)
"""
HINT = "installed there by `pip install -e .`"
FOUND = """
from importlib.util import find_spec

print(*(find_spec(name).origin for name in ("cse_core", "experiments.sweep", "analysis.make_tables")))
"""


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(list(map(str, command)), cwd=cwd, env=alone, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT, cwd=folder)
    if built.returncode and "No matching distribution found for hatchling" in built.stderr:
        pytest.skip(f"pip can't get hatchling here: {built.stderr.splitlines()[-1]}")
    assert not built.returncode, built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The site-packages of a new environment, which sees the dependencies of the present one."""
    made = run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=tmp_path)  # the present one's is seen, too
    assert not made.returncode, made.stderr
    (site,) = (tmp_path / "venv/lib").glob("*/site-packages")
    # The present environment's own path files, with an editable install, aren't read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return site


def contents(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


@pytest.mark.slow
def test_a_wheel_has_the_library_and_its_backbones_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"cse_study-{__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names} == {"cse_core", f"cse_study-{__version__}.dist-info"}
    assert {"cse_core/py.typed", "cse_core/assets/wiki-tiny/config.json"} <= names


@pytest.mark.slow
def test_the_library_encodes_outside_a_checkout_and_writes_nothing_there(
    wheel: Path, site: Path, tmp_path: Path
) -> None:
    commands = tmp_path / "venv/bin"
    installed = run(commands / "python", "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    assert not installed.returncode, installed.stderr
    before = contents(site)
    encoded = run(commands / "python", "-c", ENCODE, cwd=tmp_path)
    assert not encoded.returncode, encoded.stderr
    file, version, same, *numbers = encoded.stdout.split()
    assert Path(file).is_relative_to(site)
    assert version == same == __version__
    assert numbers[:2] == ["2", "128"]
    assert float(numbers[2]) == pytest.approx(1, abs=1e-5)
    for words in (["--help"], ["sweep", "quickstart"]):
        refused = run(commands / "cse", *words, cwd=tmp_path)
        assert refused.returncode == 1
        assert refused.stderr == f"error: cse needs a checkout of the study, {HINT}; {site} has only the library\n"
    assert run(commands / "cse", "--version", cwd=tmp_path).stdout == f"{__version__}\n"
    assert contents(site) == before


@pytest.mark.slow
def test_an_editable_install_has_the_study_and_its_command(wheel: Path, site: Path, tmp_path: Path) -> None:
    commands = tmp_path / "venv/bin"
    installed = run(commands / "python", "-m", "pip", "install", "-q", "--no-deps", "-e", ROOT, cwd=tmp_path)
    assert not installed.returncode, installed.stderr
    found = run(commands / "python", "-c", FOUND, cwd=tmp_path).stdout.split()
    files = ("cse_core/__init__.py", "experiments/sweep.py", "analysis/make_tables.py")
    assert found == [str(ROOT / name) for name in files]
    listed = run(commands / "cse", "sweep", "quickstart", "--list", "--mlruns", tmp_path, cwd=tmp_path)
    assert "together 7 unique runs" in listed.stdout, listed.stderr


def test_the_citation_and_the_changelog_name_the_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## {__version__} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
