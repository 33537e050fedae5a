"""What stands in a table's cells: how many runs a published number is of, places among targets, steps, rules, seeds."""

from dataclasses import replace

import pandas as pd
import pytest

from analysis.cells import join
from analysis.report import study_tables
from analysis.stats import significance
from cse_core.evaluation.suite import TASKS
from experiments.results import csv_record
from experiments.schema.study import Published, Row, Study
from tests.support.toy_study import SEEDS, toy_line, toy_run


def frame(lines: list[dict[str, object]]) -> pd.DataFrame:
    return pd.DataFrame(lines, columns=csv_record.RESULTS)


def published_row(runs: int) -> Row:
    published = Published("rankcse_table6", "BERT-base", "SimCSE", columns={"sts_avg": "STS Avg"})
    return Row(label="SimCSE", encoder=toy_run(0.05), seeds=SEEDS, published=published, published_runs=runs)


@pytest.mark.parametrize("runs", [1, 5])
def test_a_published_mean_is_held_against_the_interval_of_as_many_runs(study: Study, runs: int) -> None:
    row = published_row(runs)
    scores = {42: 0.76, 1: 0.75, 2: 0.73}
    lines = [
        toy_line(key, task, scores[seed], seed=seed)
        for seed, key in row.keys().items()
        for task in ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
    ]
    shown = replace(study, rows=(row,), columns=("sts_avg",), contrasts=())
    (line,) = study_tables.reproduction_grid(join(shown, frame(lines))).rows
    band = significance.prediction_interval([76.0, 75.0, 73.0], runs=runs)
    other = significance.prediction_interval([76.0, 75.0, 73.0], runs=6 - runs)
    assert band is not None
    assert other is not None
    assert line[6] == f"[{band.low:.2f}, {band.high:.2f}]" != f"[{other.low:.2f}, {other.high:.2f}]"
    assert line[3:6] == (str(runs), "74.67 ± 1.53 (3)", "76.00")
    assert line[7] == "within"
    assert line[2].startswith("75.52")


def test_targets_have_their_places_by_score_and_equal_ones_the_better_place(study: Study) -> None:
    names = tuple(f"examples_eggs.{i}" for i in range(1, 6))
    row = Row(label="SimCSE", encoder=toy_run(0.05), seeds=(42,))
    cosines = dict(zip(TASKS["examples_eggs"].metrics, (0.5, 0.9, 0.5, 0.75, 0.1), strict=False))
    lines = [toy_line(row.keys()[42], "examples_eggs", x) | {"metric": name} for name, x in cosines.items()]
    shown = replace(study, rows=(row,), columns=names, contrasts=(), view="examples")
    (grid,) = study_tables.grids(join(shown, frame(lines)))
    values = [cosines[f"cosine.{i}"] for i in range(1, 6)]
    expected = [f"{x:.2f} ({1 + sum(other > x for other in values)})" for x in values]
    assert [line[1] for line in grid.rows] == expected
    assert len({text.split()[1] for text in expected}) < 5  # two targets share a place


def test_kept_steps_are_those_of_runs_that_a_dev_score_chose_once_each(study: Study) -> None:
    rows = (
        Row(label="a", encoder=toy_run(0.05), seeds=SEEDS),
        Row(label="b", encoder=toy_run(0.1), seeds=(42,), select="last"),
    )
    steps = dict(zip(rows[0].keys().values(), (32, 64, 224), strict=True)) | {rows[1].keys()[42]: 256}
    lines = [
        toy_line(key, task, 0.5, seed=seed, select=row.select) | {"step": steps[key]}
        for row in rows
        for seed, key in row.keys().items()
        for task in ("stsb", "sickr")
    ]
    shown = replace(study, rows=rows, columns=("stsb", "sickr"), contrasts=())
    notes = study_tables.notes(join(shown, frame(lines)))
    (kept,) = [line for line in notes if line.startswith("Checkpoint kept by")]
    assert kept == 'Checkpoint kept by: stsb_dev; last for "b". By dev score at step 64 in the median (32 to 224).'
    (seeds,) = [line for line in notes if line.startswith("Seeds")]
    assert seeds == 'Seeds: 42, 1, 2; 42 for "b".'


def test_notes_say_what_a_row_s_own_note_says_and_why_rows_are_imported(study: Study) -> None:
    rows = (*(replace(row, note="trained on test sentences") for row in study.rows[:2]), *study.rows[2:])
    said = study_tables.notes(join(replace(study, rows=rows), frame([])))
    assert '"SimCSE", "Better": trained on test sentences.' in said
    assert '"Elsewhere": imported: as printed.' in said
