"""What tests of training share: one thread, as bits depend on it, a dev set of few pairs, and runs to compare with."""

from collections.abc import Iterator

import pytest

from tests.support.training import KEEP, QUARTERS, Trained, few_dev_pairs


@pytest.fixture(scope="package", autouse=True)
def few_pairs() -> Iterator[None]:
    with few_dev_pairs():
        yield


@pytest.fixture(scope="package")
def undisturbed(few_pairs: None, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """TINY with a state after every step."""
    return Trained.of(tmp_path_factory.mktemp("undisturbed"), 4, 6, 13, rules=KEEP, save_seconds=0.0)


@pytest.fixture(scope="package")
def quartered(few_pairs: None, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """TINY with checkpoints of its quarters too, and a state after a checkpoint only."""
    rules = (*KEEP, *QUARTERS)
    return Trained.of(tmp_path_factory.mktemp("quartered"), 3, 4, 8, rules=rules, save_seconds=600.0)
