"""The public checkpoints' tables: honest where nothing is recorded, and with outcomes where something is."""

from pathlib import Path

import pandas as pd
import pytest

from analysis import make_tables
from analysis.cells import join
from analysis.report.released_tables import released_block, released_grid
from experiments.results import csv_record
from experiments.studies.catalogue import choose_studies
from tests.support.figure_records import lines_of

STUDIES = choose_studies(["released"], "small")
EMPTY = pd.DataFrame(columns=csv_record.RESULTS)


def test_without_scores_every_row_is_not_run_or_not_available() -> None:
    for study in STUDIES:
        rows = released_grid(join(study, EMPTY)).rows
        assert [row[0] for row in rows] == [row.label for row in study.rows]
        assert {row[6].partition(":")[0] for row in rows} == {"not run", "not available"}
        assert {row[5] for row in rows} == {"–"}


def test_scores_have_an_outcome_by_the_printed_average() -> None:
    study = STUDIES[0]
    lines = lines_of(study)
    row = study.rows[0]
    for name in study.columns[:7]:
        value = row.published.value(name) if row.published else None
        assert value is not None
        shift = 0.3 if name == "sickr" else 0.0
        lines.loc[(lines["key"] == row.keys()[0]) & (lines["task"] == name), "score"] = (value + shift) / 100
    grid = released_grid(join(study, lines))
    assert grid.rows[0][4:] == ("76.25", "76.29", "reproduces", "SICK-R +0.30")
    assert {line[6].split(" ")[0] for line in grid.rows} == {"reproduces", "differs", "not", "no"}
    block = released_block([join(study, lines)])
    assert "released-sts: 1 reproduces, 24 differs, 1 no printed number, 28 not available." in block


@pytest.mark.slow
def test_the_page_is_as_made_from_the_record() -> None:
    path = Path(make_tables.ROOT) / "docs" / "released.md"
    text = path.read_text(encoding="utf-8")
    assert make_tables.fill_page(text, make_tables.Record(csv_record.MLRUNS)) == text
    assert text.count("\n| SimCSE BERT-base |") == 2
