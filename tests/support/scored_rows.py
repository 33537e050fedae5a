"""Rows with given scores, and the verdicts of what is tested on them."""

from dataclasses import replace

import pandas as pd

from analysis.cells import join
from analysis.verdicts.looks import study_verdicts
from analysis.verdicts.verdict import Verdict
from experiments.results import csv_record
from experiments.schema.columns import STS
from experiments.schema.contrasts import Contrast
from experiments.schema.hypotheses import Finding
from experiments.schema.study import Row, Study
from tests.support.toy_study import SEEDS, toy_line, toy_run

Scores = dict[str, dict[int, list[float]]]


def scored(scores: Scores, tasks: tuple[str, ...] = STS) -> tuple[tuple[Row, ...], pd.DataFrame]:
    """Rows with the given scores by seed and task (one number: the same for every task), and their record."""
    rows = tuple(
        Row(label=label, encoder=toy_run(0.05 + i / 100), seeds=tuple(found))
        for i, (label, found) in enumerate(scores.items())
    )
    lines = [
        toy_line(row.keys()[seed], task, values[j % len(values)], seed=seed)
        for row in rows
        for seed, values in scores[row.label].items()
        for j, task in enumerate(tasks)
    ]
    return rows, pd.DataFrame(lines, columns=csv_record.RESULTS)


def judged(study: Study, scores: Scores, *tested: Contrast | Finding) -> tuple[Verdict, ...]:
    rows, lines = scored(scores)
    contrasts = tuple(each for each in tested if isinstance(each, Contrast))
    findings = tuple(each for each in tested if not isinstance(each, Contrast))
    return study_verdicts(join(replace(study, rows=rows, contrasts=contrasts, findings=findings), lines))


def by_seed(*values: float) -> dict[int, list[float]]:
    return {seed: [value] for seed, value in zip(SEEDS, values, strict=True)}
