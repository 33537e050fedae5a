"""Time benchmarks as users run the code: without the type checks that the tests turn on."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def unchecked(pytestconfig: pytest.Config) -> None:
    """Refuse to time checked code."""
    if pytestconfig.getoption("jaxtyping_packages", default=None):
        pytest.exit(
            'benchmarks require -o python_files="bench_*.py" -o addopts= (else types are checked in each call)', 2
        )
