"""Fixtures for all tests. No test uses the user's caches or the network."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import shape_checks  # noqa: F401 - named in pyproject.toml, and must be imported first

settings.register_profile("study", deadline=None, max_examples=20, derandomize=True)
settings.load_profile("study")

# Test processes share the cores: with more threads than cores, PyTorch's threads mostly wait for one another.
# This must be set before anything imports torch. The processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# With Ray's default niceness of 15, its workers starve while other tests compute, and tests time out.
os.environ.setdefault("RAY_worker_niceness", "0")
# Otherwise MLflow's server starts seven more processes for its own jobs, which no test uses.
os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")

# Shells start background jobs with Ctrl-C ignored; the processes that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Point every cache at a folder of this session, before huggingface_hub reads its variables at import."""
    folder = tempfile.TemporaryDirectory(prefix="cse-tests-")
    config.add_cleanup(folder.cleanup)
    for name in ("CSE_CACHE", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        os.environ[name] = str(Path(folder.name) / name.lower())
    os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude imported objects from garbage collection: scanning them took a tenth of the tests' time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Reset PyTorch to one thread before a test's fixtures: the last bits of results depend on it."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


LONGEST = ("tests/cluster/test_two_hosts", "tests/experiments/execution/", "tests/cse_core/evaluation/test_gold")
LONG = ("tests/experiments/", "tests/test_")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first: if one started last, it would run alone."""
    items.sort(key=lambda item: -item.nodeid.startswith(LONGEST) - item.nodeid.startswith((*LONGEST, *LONG)))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real evaluation sets and corpora; without it, tests that use it are skipped."""
    if not os.environ.get("CSE_DATA"):
        pytest.skip("CSE_DATA is unset: no real data to test with")
    return Path(os.environ["CSE_DATA"]).resolve()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for this test, and no data folder."""
    monkeypatch.setenv("CSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CSE_DATA", raising=False)
    return tmp_path / "cache"
