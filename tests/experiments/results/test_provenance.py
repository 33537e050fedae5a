"""The record names the commit, device and libraries of a run as far as they are known."""

import os
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info

from experiments.results import provenance
from experiments.results.provenance import blas, commit, environment


def test_the_commit_is_this_checkouts() -> None:
    assert len(commit()["commit"]) == 40


def test_a_machine_without_git_has_an_unknown_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit() == {"commit": "unknown", "dirty": "false"}


class TestWhichRepository:
    """The commit is from the repository that tracks the running files."""

    @pytest.fixture
    def copy(self, tmp_path: Path) -> Path:
        """A copy of this file in another repository with a commit."""
        (copy := tmp_path / "copy/experiments/results").mkdir(parents=True)
        shutil.copy(provenance.__file__, copy)
        git(tmp_path, "init", "-q")
        (tmp_path / ".git/info/exclude").write_text("__pycache__\n")
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "theirs")
        return tmp_path / "copy"

    def test_a_copy_within_another_repository_has_an_unknown_commit(self, copy: Path) -> None:
        assert commit_of_copy(copy) == {"commit": "unknown", "dirty": "false"}

    def test_a_copy_that_the_other_repository_tracks_has_its_commit(self, copy: Path) -> None:
        git(copy, "add", ".")
        git(copy, "commit", "-q", "-m", "the copy")
        assert commit_of_copy(copy) == {"commit": git(copy, "rev-parse", "HEAD"), "dirty": "false"}
        (copy / "experiments/new.py").touch()
        assert commit_of_copy(copy)["dirty"] == "true"

    def test_variables_that_name_another_repository_change_nothing(
        self, copy: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = commit()
        monkeypatch.setenv("GIT_DIR", str(copy.parent / ".git"))
        assert commit() == before
        monkeypatch.setenv("GIT_WORK_TREE", str(copy.parent))
        assert commit() == before


def git(folder: Path, *words: str) -> str:
    about = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", *about, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit_of_copy(copy: Path) -> dict[str, str]:
    path = copy / "experiments/results/provenance.py"
    spec = spec_from_file_location("provenance_of_copy", path)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.commit()


def test_the_environment_names_the_kernels_of_both_openblas_libraries() -> None:
    found = environment("cpu", 1)
    assert {"commit", "dirty", "device", "simd", "blas", "products"} <= found.keys()
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    assert len({library["filepath"] for library in libraries}) == 2  # numpy's and scipy's
    for library in libraries:
        assert f"{library['internal_api']} {library['version']} {library['architecture']}" in found["blas"]


def test_the_environment_says_on_a_gpu_whether_steps_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a GPU")
    fresh = environment.__wrapped__  # what it returns is kept, and there is no GPU here
    assert [fresh("cuda", 1, compiled=compiled)["compiled"] for compiled in (True, False)] == ["True", "False"]
    assert environment("cpu", 1)["compiled"] == ""


@pytest.mark.slow
def test_another_kernel_is_another_environment() -> None:
    script = "from experiments.results.provenance import blas; print(blas())"
    given = os.environ | {"OPENBLAS_CORETYPE": "Prescott"}
    done = subprocess.run([sys.executable, "-c", script], env=given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() != blas()
