"""Figures are drawn in the project's style, and closed after each test."""

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pytest

from analysis.plots import style


@pytest.fixture(autouse=True)
def drawing() -> Iterator[None]:
    with plt.rc_context(style.RC):
        yield
    plt.close("all")
