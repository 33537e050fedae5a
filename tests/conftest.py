"""Fixtures of all tests. No test reads or writes the caches of the user, and none reaches the network."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import shape_checks  # noqa: F401 - pyproject.toml names it, and it must be imported before

settings.register_profile("study", deadline=None, max_examples=20, derandomize=True)
settings.load_profile("study")

# Test processes share the cores: with more threads than cores, PyTorch's spend their time waiting for one another.
# This must be set before anything imports torch, and the processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray gives its workers niceness 15, at which they starve while other tests compute, until a test's time is up.
os.environ.setdefault("RAY_worker_niceness", "0")
# MLflow's server starts seven processes more for jobs of its own, which no test has.
os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")

# Shells start background jobs with Ctrl-C ignored, and the processes that tests start would inherit that.
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
    """Leave what is imported out of garbage collections: scanning it took a tenth of the tests' time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Take one thread before any fixture of a test, whatever an earlier one has left: the last bits depend on it."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


LONGEST = ("tests/cluster/test_two_hosts", "tests/experiments/execution/", "tests/cse_core/evaluation/test_gold")
LONG = ("tests/experiments/", "tests/test_")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first: one that is the last to start would run by itself."""
    items.sort(key=lambda item: -item.nodeid.startswith(LONGEST) - item.nodeid.startswith((*LONGEST, *LONG)))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real evaluation sets and corpora; tests that need it are skipped without."""
    if not os.environ.get("CSE_DATA"):
        pytest.skip("CSE_DATA is unset: no real data to test with")
    return Path(os.environ["CSE_DATA"]).resolve()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own, and no data folder."""
    monkeypatch.setenv("CSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CSE_DATA", raising=False)
    return tmp_path / "cache"
