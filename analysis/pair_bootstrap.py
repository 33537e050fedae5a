"""Would the differences that a study compares hold on other pairs? Paired bootstrap over pairs, one checkpoint a row.

python analysis/pair_bootstrap.py robustness [--scale small] [--data FOLDER] [--mlruns FOLDER]
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import tyro
from rich.progress import track

from analysis.cells import join
from analysis.stats.bootstrap import RESAMPLES, paired_bootstrap
from cse_core.data.senteval import pairs
from cse_core.evaluation import suite
from experiments.cli.command import run_command
from experiments.execution.job import ExecutionSettings, load_encoder
from experiments.execution.plan import SCORE_TOLERANCE
from experiments.results import csv_record
from experiments.results.provenance import environment
from experiments.schema.columns import column
from experiments.schema.hypotheses import Comparison
from experiments.schema.study import Row, Study
from experiments.studies import catalogue

Scored = Mapping[str, np.ndarray]  # scores of a set's pairs by its name


def scored(row: Row, tasks: tuple[str, ...], place: ExecutionSettings) -> tuple[Scored, float]:
    """A row's scores of every pair under its first seed, and the mean of the sets' correlations with gold."""
    encoder = next(iter(row.runs()), row.encoder)
    if encoder is None:
        raise ValueError(f"{row.label}: {row.why}; wanted a row with runs")
    found, _ = suite.evaluate(load_encoder(encoder, row.select, place), row.scorer, tasks, data=place.data)
    mean = float(np.mean([found[task].metrics["spearman.all"] for task in tasks]))
    return {task: found[task].arrays["pair_scores"] for task in tasks}, mean


def compared(study: Study) -> list[Comparison]:
    """The study's differences of means over STS sets: what pairs can be drawn for."""
    found = [one for one in study.comparisons if one.kind == "mean" and column(one.column).tasks]
    silent = {row.label for row in study.rows if row.encoder is None}
    found = [one for one in found if not {one.better, one.worse} & silent]
    whole = [one for one in found if all(suite.TASKS[task].pair_sets == (task,) for task in column(one.column).tasks)]
    if not whole:
        raise ValueError(
            f"{study.name}: wanted a study that compares rows on whole STS sets, it has no such comparison"
        )
    return whole


def line(study: Study, one: Comparison, sides: tuple[Scored, Scored], data: Path | None) -> dict[str, object]:
    """A comparison as a line of pairs.csv, in points."""
    tasks = column(one.column).tasks
    gold = [np.asarray(pairs(task, data).table["score"][:]) for task in tasks]
    first, second = ([side[task] for task in tasks] for side in sides)
    found = paired_bootstrap(first, second, gold)
    if found.difference is None or found.interval is None:
        raise ValueError(f"{study.name}: {one.better} or {one.worse} scores all pairs of a set alike")
    shown = {"difference": found.difference, "low": found.interval.low, "high": found.interval.high}
    return {name: round(100 * value, 4) for name, value in shown.items()} | {"p": found.p, "pairs": found.n}


def main(
    study: tyro.conf.Positional[str],
    /,
    *,
    scale: str = "small",
    data: Path | None = None,
    mlruns: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = csv_record.MLRUNS,
) -> None:
    """Draw pairs anew for every comparison of a study on STS sets, and add the lines to mlruns/pairs.csv.

    Args:
        study: a study whose runs are in the store; each row's first seed is embedded once more.
        scale: the size.
        data: folder with the data; else CSE_DATA, the Hugging Face cache, the hub.
        mlruns: the folder of the record and its store.
    """
    chosen = catalogue.single(study, scale)
    results = join(chosen, csv_record.read_results(scale, mlruns))
    rows = {row.label: row for row in chosen.rows}
    place = ExecutionSettings(store=mlruns / "store", data=data)
    wanted = compared(chosen)
    labels = dict.fromkeys((label, one.column) for one in wanted for label in (one.better, one.worse))
    scores: dict[tuple[str, str], Scored] = {}
    for label, name in track(labels, "pairs scored"):
        scores[label, name], mean = scored(rows[label], column(name).tasks, place)
        told = next(iter(results.cells[label, name].scores.values()), None)
        if told is None or abs(told - 100 * mean) > 100 * SCORE_TOLERANCE:
            raise ValueError(f"{study}: {label} has {100 * mean:.4f} in {name}; the record says {told}")
    commit = csv_record.commit_of(environment(place.device, place.threads))
    for one in track(wanted, f"{RESAMPLES:,} draws"):
        about = {"scale": scale, "column": one.column, "resamples": RESAMPLES, "commit": commit}
        about |= {
            side: csv_record.score_source(rows[label]) for side, label in (("first", one.better), ("second", one.worse))
        }
        found = line(chosen, one, (scores[one.better, one.column], scores[one.worse, one.column]), data)
        csv_record.merge_pairs(scale, mlruns, pd.DataFrame([about | found]))


if __name__ == "__main__":
    run_command(lambda: tyro.cli(main))
