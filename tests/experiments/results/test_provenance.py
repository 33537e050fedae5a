"""What a run ran on is recorded as far as it is known."""

import os
import subprocess
import sys

import pytest
from threadpoolctl import threadpool_info

from experiments.results.provenance import blas, commit, environment


def test_the_commit_is_this_checkouts() -> None:
    assert len(commit()["commit"]) == 40


def test_a_machine_without_git_has_an_unknown_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit() == {"commit": "unknown", "dirty": "false"}


def test_the_environment_names_the_kernels_of_both_openblas_libraries() -> None:
    found = environment("cpu", 1)
    assert {"commit", "dirty", "device", "simd", "blas"} <= found.keys()
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    assert len({library["filepath"] for library in libraries}) == 2  # numpy's and scipy's
    for library in libraries:
        assert f"{library['internal_api']} {library['version']} {library['architecture']}" in found["blas"]


@pytest.mark.slow
def test_another_kernel_is_another_environment() -> None:
    script = "from experiments.results.provenance import blas; print(blas())"
    given = os.environ | {"OPENBLAS_CORETYPE": "Prescott"}
    done = subprocess.run([sys.executable, "-c", script], env=given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() != blas()
