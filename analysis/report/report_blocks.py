"""Make the blocks of REPORT.md about several studies: errors in published tables, the cost of runs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

import pandas as pd

from analysis.report.blocks import block
from analysis.report.formats import Grid
from cse_core.run import Run
from experiments.execution.job import Job
from experiments.execution.plan import Done, jobs_of, missing, scored_cells
from experiments.execution.schedule_estimate import gpu_hours
from experiments.schema.columns import PUBLISHED_NAMES, STS, TRANSFER
from experiments.schema.study import PUBLISHED_FOLDER, Study, published_lines

SEVEN = 7  # tasks of a published average
UNDRAWN = ("table", "examples")  # views of studies that have no figure
SEVENS = {PUBLISHED_NAMES[task] for task in (*STS, *TRANSFER)}


@block("published averages")
def averages_grid() -> Grid:
    """Return published averages that are not the mean of their row, by more than rounding explains."""
    rows = []
    for name in _published_tables():
        for row, lines in _rows_by_task(name).items():
            tasks = [float(line["value"]) for task, line in lines.items() if task in SEVENS]
            if "Avg" not in lines or len(tasks) != SEVEN:
                continue
            printed, mean = lines["Avg"]["value"], sum(tasks) / SEVEN
            if abs(mean - float(printed)) > 10.0 ** -len(printed.partition(".")[2]):
                rows.append((table_title(name), *row[:2], f"{mean:.3f}", printed))
    return Grid("", ("table", "backbone", "method", "mean of seven", "printed"), tuple(rows))


@block("published copies")
def copies_grid() -> Grid:
    """Return rows of one method on two backbones that share at least two exact values; one could be chance."""
    rows = []
    for name in _published_tables():
        for (a, first), (b, second) in combinations(_rows_by_task(name).items(), 2):
            same = [t for t in first if t in second and t in SEVENS and first[t]["value"] == second[t]["value"]]
            if a[1:] == b[1:] and a[0] != b[0] and len(same) > 1:
                shared = ", ".join(f"{task} {first[task]['value']}" for task in same)
                rows.append((table_title(name), a[1], f"{a[0]}, {b[0]}", shared))
    return Grid("", ("table", "method", "backbones", "the same"), tuple(rows))


@block("published mismatches")
def mismatches_grid() -> Grid:
    """Return baselines that two papers imported and print differently."""
    rows: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for first, second in combinations(_published_tables(), 2):
        first_rows, second_rows = _rows_by_task(first), _rows_by_task(second)
        for row in (
            first_rows.keys() & second_rows.keys() if _is_transfer_table(first) == _is_transfer_table(second) else ()
        ):
            for task, line in first_rows[row].items() if row[2] == "imported" else ():
                if task in second_rows[row] and second_rows[row][task]["value"] != line["value"]:
                    heading = (row[1], row[0], table_title(first), table_title(second))
                    rows[heading].append(f"{task} {line['value']} / {second_rows[row][task]['value']}")
    lines = tuple((*heading, ", ".join(values)) for heading, values in sorted(rows.items()))
    return Grid("", ("method", "backbone", "first", "second", "first / second"), lines)


@block("runs", of=lambda ask: (ask.record.studies([ask.name], ask.scale), ask.record.results(ask.scale)))
def runs_grid(studies: Sequence[Study], results: pd.DataFrame) -> Grid:
    """Return for each study how many rows, runs (with those they need) and recorded runs it has, and hours of training.

    Hours are measured, or at scale `paper` estimated for one GPU.
    """
    by_study, done = [(study, jobs_of([study])) for study in studies], scored_cells(results)
    every = {key: job for _, jobs in by_study for key, job in jobs.items()}
    if studies[0].scale.name == "paper":
        header = "GPU-hours, estimated"
        hours = {key: gpu_hours(job.encoder) for key, job in every.items() if isinstance(job.encoder, Run)}
    else:
        seconds = results.groupby("key")["seconds"].first()
        header = "hours trained"
        hours = {key: seconds.get(key, 0.0) / 3600 for key, job in every.items() if isinstance(job.encoder, Run)}
    rows = [
        (
            *_links(study, _is_drawn(study, jobs, done)),
            " ".join(study.claims),
            str(len(study.rows)),
            *_run_counts(jobs, done, hours),
        )
        for study, jobs in by_study
    ]
    rows.append(("together", "", "", "", *_run_counts(every, done, hours)))
    return Grid("", ("study", "source", "claims", "rows", "runs", "recorded", header), tuple(rows))


def _is_drawn(study: Study, jobs: Mapping[str, Job], done: Done) -> bool:
    """Whether a study has a figure: its view is drawn, and at least half of its rows' runs are recorded."""
    keys = {run.key for row in study.rows for run in row.runs()}
    recorded = sum(key in jobs and missing(jobs[key], done) is None for key in keys)
    return study.view not in UNDRAWN and 2 * recorded >= len(keys)


def _links(study: Study, drawn: bool) -> tuple[str, str]:
    """Return a study's name with a link to its table, and its source with a link to its figure, if it is drawn."""
    scale = study.scale.name
    if scale == "paper":  # declared, not run
        return study.name, study.source
    source = f"[{study.source}](analysis/figures/{scale}/{study.name}.png)" if drawn else study.source
    return f"[{study.name}](analysis/tables/{scale}/{study.name}.md)", source


def _run_counts(jobs: Mapping[str, Job], done: Done, hours: Mapping[str, float]) -> tuple[str, str, str]:
    recorded = sum(missing(job, done) is None for job in jobs.values())
    return str(len(jobs)), str(recorded), f"{sum(hours.get(key, 0.0) for key in jobs):.1f}"


def _published_tables() -> list[str]:
    return [path.stem for path in sorted(PUBLISHED_FOLDER.glob("*.csv")) if not path.stem.startswith("_")]


def _rows_by_task(table: str) -> dict[tuple[str, str, str], dict[str, dict[str, str]]]:
    """Return the lines of a published table by row (backbone, method, variant) and task."""
    rows: dict[tuple[str, str, str], dict[str, dict[str, str]]] = defaultdict(dict)
    for line in published_lines(table):
        rows[line["backbone"], line["method"], line["variant"]][line["task"]] = line
    return rows


def _is_transfer_table(table: str) -> bool:
    return any(line["task"] == "MR" for line in published_lines(table))


def table_title(table: str) -> str:
    """Return the paper and the table that published lines are from."""
    line = published_lines(table)[0]
    return f"{line['paper']}, {line['table'].replace('Table', 'Table ')}"
