"""Estimate whether a study's differences would hold on other pairs, by paired bootstrap of one checkpoint a row.

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
from analysis.stats.bootstrap import paired_bootstrap
from analysis.stats.resampling import RESAMPLES
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

PairScores = Mapping[str, np.ndarray]  # scores of the pairs of each set


def score_pairs(row: Row, tasks: tuple[str, ...], execution: ExecutionSettings) -> tuple[PairScores, float]:
    """Return a row's scores of every pair for its first seed, and the mean of the sets' correlations with gold."""
    encoder = next(iter(row.runs()), row.encoder)
    if encoder is None:
        raise ValueError(f"{row.label}: {row.why}; expected a row with runs")
    outcomes = suite.evaluate(load_encoder(encoder, row.select, execution), row.scorer, tasks, data=execution.data)
    mean = float(np.mean([outcomes[task].metrics["spearman.all"] for task in tasks]))
    return {task: outcomes[task].arrays["pair_scores"] for task in tasks}, mean


def comparisons_of(study: Study) -> list[Comparison]:
    """Return the study's comparisons of means over whole STS sets, whose pairs can be resampled."""
    differences = [
        comparison for comparison in study.comparisons if comparison.kind == "mean" and column(comparison.column).tasks
    ]
    not_run = {row.label for row in study.rows if row.encoder is None}
    differences = [comparison for comparison in differences if not {comparison.better, comparison.worse} & not_run]
    whole = [
        comparison
        for comparison in differences
        if all(suite.TASKS[task].pair_sets == (task,) for task in column(comparison.column).tasks)
    ]
    if not whole:
        raise ValueError(
            f"{study.name}: expected a study that compares rows on whole STS sets; it has no such comparison"
        )
    return whole


def pairs_line(
    study: Study, comparison: Comparison, sides: tuple[PairScores, PairScores], data: Path | None
) -> dict[str, object]:
    """Return the line of pairs.csv for a comparison, in points."""
    tasks = column(comparison.column).tasks
    gold = [np.asarray(pairs(task, data).table["score"][:]) for task in tasks]
    first, second = ([side[task] for task in tasks] for side in sides)
    bootstrap = paired_bootstrap(first, second, gold)
    if bootstrap.difference is None or bootstrap.interval is None:
        raise ValueError(f"{study.name}: {comparison.better} or {comparison.worse} scores all pairs of a set alike")
    shown = {"difference": bootstrap.difference, "low": bootstrap.interval.low, "high": bootstrap.interval.high}
    return {name: round(100 * value, 4) for name, value in shown.items()} | {"p": bootstrap.p, "pairs": bootstrap.n}


def main(
    study: tyro.conf.Positional[str],
    /,
    *,
    scale: str = "small",
    data: Path | None = None,
    mlruns: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = csv_record.MLRUNS,
) -> None:
    """Resample pairs for every comparison of a study on STS sets, and add the lines to mlruns/pairs.csv.

    Args:
        study: study whose runs are in the store; the first seed of each row is embedded again.
        scale: scale of the study.
        data: folder with the data; if not given, CSE_DATA, the Hugging Face cache or the hub.
        mlruns: folder of the record and its store.
    """
    selected = catalogue.single(study, scale)
    results = join(selected, csv_record.read_results(scale, mlruns))
    rows = {row.label: row for row in selected.rows}
    execution = ExecutionSettings(store=mlruns / "store", data=data)
    comparisons = comparisons_of(selected)
    labels = dict.fromkeys(
        (label, comparison.column) for comparison in comparisons for label in (comparison.better, comparison.worse)
    )
    scores: dict[tuple[str, str], PairScores] = {}
    for label, name in track(labels, "pairs scored"):
        scores[label, name], mean = score_pairs(rows[label], column(name).tasks, execution)
        recorded = next(iter(results.cells[label, name].scores.values()), None)
        if recorded is None or abs(recorded - 100 * mean) > 100 * SCORE_TOLERANCE:
            raise ValueError(f"{study}: {label} has {100 * mean:.4f} in {name}; the record says {recorded}")
    commit = csv_record.commit_of(environment(execution.device, execution.threads))
    for comparison in track(comparisons, f"{RESAMPLES:,} draws"):
        about = {"scale": scale, "column": comparison.column, "resamples": RESAMPLES, "commit": commit}
        about |= {
            side: csv_record.score_source(rows[label])
            for side, label in (("first", comparison.better), ("second", comparison.worse))
        }
        values = pairs_line(
            selected,
            comparison,
            (scores[comparison.better, comparison.column], scores[comparison.worse, comparison.column]),
            data,
        )
        csv_record.merge_pairs(scale, mlruns, pd.DataFrame([about | values]))


if __name__ == "__main__":
    run_command(lambda: tyro.cli(main))
