"""Estimate whether a study's differences would hold on other pairs, and with other seeds and on other pairs.

python analysis/pair_bootstrap.py robustness [--claims R1 ...] [--scale small] [--data FOLDER] [--mlruns FOLDER]
"""

if __name__ == "__main__":
    from cse_core.entry_point import run_script

    run_script("analysis.pair_bootstrap")

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
import scipy
import tyro
from rich.progress import track

from analysis.cells import Cell, Results, join
from analysis.report.bootstrap_tables import seeds_drawn, two_row_differences
from analysis.stats.bootstrap import RESAMPLES, Difference, crossed_bootstrap, paired_bootstrap
from cse_core.data.senteval import pairs
from cse_core.evaluation import suite
from cse_core.evaluation.sts_subsets import SUBSETS
from cse_core.lookup import unknown
from cse_core.run import Pretrained, Run
from experiments.cli.command import run_command
from experiments.cli.options import Words
from experiments.execution.job import ExecutionSettings, load_encoder
from experiments.execution.plan import SCORE_TOLERANCE
from experiments.results import csv_record, run_arrays
from experiments.results.provenance import environment
from experiments.schema.columns import column
from experiments.schema.contrasts import Contrast
from experiments.schema.study import Row, Study
from experiments.studies import catalogue

PairScores = Mapping[str, np.ndarray]  # scores of the pairs of each set


class TaskPairs(NamedTuple):
    """The STS set that a task's pairs are in, their rows there, and their gold scores."""

    base: str
    rows: np.ndarray
    gold: np.ndarray


class Side(NamedTuple):
    """A row of a difference, and its checkpoints' scores of every pair by seed; the first declared seed is first."""

    row: Row
    scores: Mapping[int, PairScores]


def pairs_of(task: str, data: Path | None) -> TaskPairs:
    """Return where the pairs of a task are: an STS set, or a subset of one."""
    base, select, reads = SUBSETS.get(task, (task, None, ()))
    whole = pairs(base, data)
    rows = select(whole, {name: pairs(name, data) for name in reads}) if select else np.arange(len(whole.table))
    return TaskPairs(base, rows, np.asarray(whole.table["score"][:])[rows])


def score_pairs(
    row: Row, seed: int, encoder: Run | Pretrained, places: Mapping[str, TaskPairs], execution: ExecutionSettings
) -> PairScores:
    """Return the scores of every pair by task, from the run's folder or, if it has none, from its checkpoint."""
    bases = {place.base for place in places.values()}
    saved = run_arrays.read_pair_scores(execution.store / row.keys()[seed], row.select, str(row.scorer))
    if not bases <= saved.keys():
        loaded = load_encoder(encoder, row.select, execution)
        outcomes = suite.evaluate(loaded, row.scorer, bases, data=execution.data)
        saved = {base: outcomes[base].arrays["pair_scores"] for base in bases}
    return {task: saved[place.base][place.rows] for task, place in places.items()}


def score_seeds(row: Row, recorded: Cell, execution: ExecutionSettings, missing: list[str]) -> dict[int, PairScores]:
    """Return the pair scores of every seed with saved scores or a checkpoint; add the other seeds to `missing`.

    Refuse scores whose correlation with gold differs from the record.
    """
    if row.encoder is None:
        raise ValueError(f"{row.label}: {row.why}; expected a row with runs")
    encoders: Sequence[Run | Pretrained] = row.runs() or (row.encoder,)
    places = {task: pairs_of(task, execution.data) for task in column(recorded.column).tasks}
    scores: dict[int, PairScores] = {}
    for seed, encoder in zip(row.keys(), encoders, strict=True):
        try:
            scores[seed] = score_pairs(row, seed, encoder, places, execution)
        except FileNotFoundError:
            missing.append(f"{row.label}, seed {seed}")
            continue
        mean = np.mean(
            [scipy.stats.spearmanr(scores[seed][task], place.gold).statistic for task, place in places.items()]
        )
        score = recorded.scores.get(seed)
        if score is None or not abs(score - 100 * mean) <= 100 * SCORE_TOLERANCE:
            raise ValueError(
                f"{row.label}, seed {seed}, has {100 * mean:.4f} in {recorded.column}; the record says {score}"
            )
    return scores


def score_sides(
    results: Results, differences: Sequence[Contrast], execution: ExecutionSettings, missing: list[str]
) -> dict[tuple[str, str], Side]:
    """Return the rows of the differences with their pair scores, each once, by label and column."""
    rows = {row.label: row for row in results.study.rows}
    labels = dict.fromkeys((label, each.column) for each in differences for label in each.rows)
    return {
        (label, name): Side(rows[label], score_seeds(rows[label], results.cells[label, name], execution, missing))
        for label, name in track(labels, "pairs scored")
    }


def differences_of(study: Study) -> list[Contrast]:
    """Return the study's differences of two rows that are run, on STS sets or parts of them."""
    not_run = {row.label for row in study.rows if row.encoder is None}
    differences = [
        difference
        for difference in two_row_differences(study)
        if column(difference.column).tasks and not {*difference.rows} & not_run
    ]
    on_pairs = [difference for difference in differences if all(map(_has_pairs, column(difference.column).tasks))]
    if not on_pairs:
        raise ValueError(
            f"{study.name}: expected a study that compares rows on STS sets or parts of them; it has no such contrast"
        )
    return on_pairs


def chosen_by_claim(differences: Sequence[Contrast], claims: Sequence[str]) -> list[Contrast]:
    """Return the differences of these claims, or all if no claim is given; refuse a claim without a difference."""
    ids = [difference.name for difference in differences]
    for claim in claims:
        if claim not in ids:
            raise unknown("claim", claim, dict.fromkeys(ids))
    return [difference for difference in differences if not claims or difference.name in claims]


def _has_pairs(task: str) -> bool:
    """Whether a task is the correlation with gold of an STS set's pairs, or of a subset of them."""
    return task in SUBSETS or suite.TASKS[task].pair_sets == (task,)


def pairs_lines(name: str, sides: tuple[Side, Side], how: str, data: Path | None) -> list[dict[str, object]]:
    """Return the lines of pairs.csv for a difference in a column, in points.

    The first line resamples pairs for the rows' first declared seeds, if both are scored. The second resamples seeds
    and pairs, if both rows have several seeds; with paired seeds (`how`), only those that both rows have.
    """
    tasks = column(name).tasks
    gold = [pairs_of(task, data).gold for task in tasks]
    lines = []
    firsts = [next(iter(side.row.keys())) for side in sides]
    if all(seed in side.scores for seed, side in zip(firsts, sides, strict=True)):
        a, b = ([side.scores[seed][task] for task in tasks] for seed, side in zip(firsts, sides, strict=True))
        lines.append({"seeds": ""} | _line(sides, ((), ()), paired_bootstrap(a, b, gold)))
    first, second = (tuple(side.scores) for side in sides)
    if how == csv_record.PAIRED:
        first = second = tuple(seed for seed in first if seed in second)
    if min(len(first), len(second)) > 1:
        seeds = (first, second)
        a, b = (
            [np.stack([side.scores[seed][task] for seed in chosen]) for task in tasks]
            for side, chosen in zip(sides, seeds, strict=True)
        )
        crossed = crossed_bootstrap(a, b, gold, paired=how == csv_record.PAIRED)
        lines.append({"seeds": how} | _line(sides, seeds, crossed))
    return lines


def _line(sides: tuple[Side, Side], seeds: Sequence[Sequence[int]], bootstrap: Difference) -> dict[str, object]:
    first, second = (csv_record.score_source(side.row, of_side) for side, of_side in zip(sides, seeds, strict=True))
    if bootstrap.difference is None or bootstrap.interval is None:
        raise ValueError(f"{' or '.join(side.row.label for side in sides)} scores all pairs of a set alike")
    shown = {"difference": bootstrap.difference, "low": bootstrap.interval.low, "high": bootstrap.interval.high}
    values = {name: round(100 * value, 4) for name, value in shown.items()} | {"p": bootstrap.p, "pairs": bootstrap.n}
    return {"first": first, "second": second} | values


def main(
    study: tyro.conf.Positional[str],
    /,
    *,
    claims: Words = (),
    scale: str = "small",
    data: Path | None = None,
    mlruns: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = csv_record.MLRUNS,
) -> None:
    """Resample pairs, and seeds and pairs, for every difference of a study on STS sets; add lines to mlruns/pairs.csv.

    Args:
        study: study whose runs are in the store; a seed without the pairs' scores there is embedded again.
        claims: claims, or a plan's controls by name, whose differences are drawn; if not given, all of the study.
        scale: scale of the study.
        data: folder with the data; if not given, CSE_DATA, the Hugging Face cache or the hub.
        mlruns: folder of the record and its store.
    """
    selected = catalogue.single(study, scale)
    csv_record.require(mlruns, scores=True)
    results = join(selected, csv_record.read_results(scale, mlruns))
    execution = ExecutionSettings(store=mlruns / "store", data=data, cache=True)  # rows share checkpoints
    differences = chosen_by_claim(differences_of(selected), claims)
    missing: list[str] = []
    scores = score_sides(results, differences, execution, missing)
    if not any(side.scores for side in scores.values()):
        raise FileNotFoundError(f"{execution.store}: holds no checkpoint of {study}; expected one of a recorded run")
    commit = csv_record.commit_of(environment(execution.device, execution.threads))
    for each in track(differences, f"{RESAMPLES:,} draws"):
        about = {"scale": scale, "column": each.column, "resamples": RESAMPLES, "commit": commit}
        first, second = (scores[place] for place in each.cells)
        lines = pairs_lines(each.column, (first, second), seeds_drawn(each), data)
        if lines:
            csv_record.merge_pairs(scale, mlruns, pd.DataFrame([about | line for line in lines]))
    if missing:
        print(f"no checkpoint in {execution.store} of {'; '.join(dict.fromkeys(missing))}")


def command() -> None:
    """Run the command line."""
    run_command(lambda: tyro.cli(main))
