"""A small study with every kind of row, and the record that it finds."""

from pathlib import Path

import pandas as pd
import pytest

from experiments.results import csv_record
from experiments.schema.columns import STS
from experiments.schema.study import Study
from experiments.studies import catalogue
from tests.support.toy_study import toy_lines, toy_study


@pytest.fixture
def study() -> Study:
    return toy_study()


@pytest.fixture
def only_toy(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue with only the toy study."""
    monkeypatch.setattr(catalogue, "STUDIES", {"toy": lambda scale: study})


@pytest.fixture
def wide() -> Study:
    return toy_study((*STS, "sts_avg"))


@pytest.fixture
def paper() -> Study:
    return toy_study(scale="paper")


@pytest.fixture
def lines() -> pd.DataFrame:
    return toy_lines()


@pytest.fixture
def mlruns(tmp_path: Path, lines: pd.DataFrame) -> Path:
    """A folder with the toy study's record."""
    folder = tmp_path / "mlruns"
    folder.mkdir()
    csv_record.merge_results(folder, lines)
    return folder
