"""Runs that were trained on two kinds of device."""

from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import ttest_rel

from analysis.record import device_tables
from analysis.record.device_tables import devices_block

RECORDED = {1: (0.5, 0.6), 2: (0.52, 0.6), 3: (0.5, 0.64)}  # by seed, of two tasks
AGAIN = {1: (0.51, 0.61), 2: (0.52, 0.64), 3: (0.51, 0.65)}


def lines(scores: dict[int, tuple[float, float]], **about: str) -> pd.DataFrame:
    cell = {"select": "last", "scorer": "cosine", "metric": "spearman.all", "version": 1}
    return pd.DataFrame(
        [
            cell | about | {"key": f"key{seed}", "seed": seed, "task": task, "score": score}
            for seed, both in scores.items()
            for task, score in zip(("sts12", "sts13"), both, strict=True)
        ]
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(device_tables, "FOLDER", tmp_path)
    lines(AGAIN, row="SimCSE", machine="a card").to_csv(tmp_path / "devices.csv", index=False)
    return tmp_path


def test_both_averages_and_their_paired_difference_are_shown(folder: Path) -> None:
    others = lines({4: (0.1, 0.1)})
    test = ttest_rel([56, 58, 58], [55, 56, 57])
    low, high = test.confidence_interval()
    text = devices_block("devices", pd.concat([others, lines(RECORDED)]))
    expected = f"| SimCSE | 56.00 ± 1.00 (3) | 57.33 ± 1.15 (3) | a card | +1.33 [{low:+.2f}, {high:+.2f}] |"
    assert text.splitlines()[-1] == expected


def test_a_score_that_the_record_does_not_have_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"devices\.csv: has 6 scores, the record has 5 of them"):
        devices_block("devices", lines(RECORDED).iloc[1:])
