"""The new scores of an encoder replace its old ones in the record of `evaluate.py`."""

from pathlib import Path
from typing import Any

from experiments.results import csv_record
from experiments.results.stored_scores import replace_scores
from tests.support import sweeps


def cell(task: str, score: float) -> dict[str, Any]:
    about = {"select": "as is", "scorer": "cosine", "metric": "spearman.all", "pairs": 9, "step": 0, "version": 1}
    return about | {"task": task, "score": score}


def test_scores_that_an_encoder_no_longer_has_are_removed_and_others_stay(tmp_path: Path) -> None:
    def recorded(key: str, *cells: dict[str, Any]) -> dict[str, float]:
        replace_scores(tmp_path, sweeps.result(key, scale="own", cells=list(cells)), earlier)
        lines = csv_record.RESULTS_TABLE.read(tmp_path)
        return dict(zip(lines["key"] + " " + lines["task"], lines["score"], strict=True))

    earlier: list[dict[str, Any]] = []
    recorded("other", cell("stsb", 0.5))
    recorded("mine", cell("stsb", 0.1), cell("sickr", 0.2))
    earlier = [cell("stsb", 0.1), cell("sickr", 0.2)]
    assert recorded("mine", cell("stsb", 0.3)) == {"other stsb": 0.5, "mine stsb": 0.3}
