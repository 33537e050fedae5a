"""A built wheel works outside a checkout: the library part, with an embedded backbone."""

import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENCODE = """
import cse_core
from cse_core import Encoder, cosine_matrix
from importlib.metadata import version

vectors = Encoder.from_pretrained("wiki-tiny", pooling="cls").encode(["A man plays a guitar.", "Someone makes music."])
print(cse_core.__file__, version("cse-study"), *vectors.shape, float(cosine_matrix(vectors, vectors)[0, 0]))
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


@pytest.mark.slow
def test_a_wheel_has_the_code_and_the_backbones_and_nothing_that_is_generated(wheel: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert wheel.name == f"cse_study-{version}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "cse_core/assets/wiki-tiny/config.json",
        "experiments/CLAIMS.md",
        "analysis/site/tables.js",
    } <= names
    assert not [
        name for name in names if name.startswith(("tests/", "mlruns/", "analysis/tables/", "analysis/figures/"))
    ]


@pytest.mark.slow
def test_the_library_encodes_outside_a_checkout(wheel: Path, tmp_path: Path) -> None:
    made = run(sys.executable, "-m", "venv", "venv", cwd=tmp_path)
    assert not made.returncode, made.stderr
    python = tmp_path / "venv/bin/python"
    installed = run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    assert not installed.returncode, installed.stderr
    # The dependencies are those of the present environment; its own path files, with an editable install, aren't read.
    (site,) = (tmp_path / "venv/lib").glob("*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    encoded = run(python, "-c", ENCODE, cwd=tmp_path)
    assert not encoded.returncode, encoded.stderr
    file, version, *numbers = encoded.stdout.split()
    assert Path(file).is_relative_to(site)
    assert version in wheel.name
    assert numbers[:2] == ["2", "128"]
    assert float(numbers[2]) == pytest.approx(1, abs=1e-5)


def test_the_citation_and_the_changelog_name_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## {version} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
