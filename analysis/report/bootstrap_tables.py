"""What a study's comparisons are besides the verdicts' t tests: other seeds, other pairs, other averages."""

from collections.abc import Iterator

import pandas as pd

from analysis.cells import Results
from analysis.report.formats import DASH, MINUS, Grid, interval, markdown, number, p_value
from analysis.stats import significance
from analysis.stats.bootstrap import (
    Estimate,
    difference_bootstrap,
    interquartile_mean,
    mean,
    probability_of_improvement,
)
from analysis.stats.significance import Interval
from experiments.results.csv_record import score_source
from experiments.schema.columns import column
from experiments.schema.hypotheses import Comparison

HOW = (
    "Differences in points. Seeds: runs are drawn anew, a run's scores on all sets as one; with three seeds such an "
    "interval covers 75 times in 100 rather than 95. Middle half: of all seeds' scores on all sets (interquartile "
    "mean). P(A > B): how likely a run of A beats a run of B on a set. Pairs: the first seed's two checkpoints on "
    "pairs drawn anew within each set ({draws:,} draws), p by Holm over this table's comparisons; it says nothing of "
    "other seeds."
)


def estimates_block(results: Results, drawn: pd.DataFrame) -> str:
    """The study's differences over several sets, by seeds and by pairs (`drawn`: lines of pairs.csv), as Markdown."""
    rows = {row.label: score_source(row) for row in results.study.rows if row.encoder is not None}
    lines = {(line["first"], line["second"], line["column"]): line for _, line in drawn.iterrows()}
    wanted = [one for one in results.study.comparisons if one.kind == "mean" and len(column(one.column).tasks) > 1]
    found = [lines.get((rows.get(one.better), rows.get(one.worse), one.column)) for one in wanted]
    adjusted = iter(significance.holm([line["p"] for line in found if line is not None]))
    cells = [
        (f"{one.better} {MINUS} {one.worse}", *_seeds(results, one), *_pairs(line, adjusted))
        for one, line in zip(wanted, found, strict=True)
    ]
    header = (f"A {MINUS} B", "seeds", "middle half", "P(A > B)", "pairs", "Holm p")
    draws = max((line["resamples"] for line in found if line is not None), default=0)
    return f"{markdown(Grid('', header, tuple(cells)))}\n\n{HOW.format(draws=draws)}"


def _seeds(results: Results, one: Comparison) -> tuple[str, str, str]:
    """By the seeds of both: the difference of means, of the scores' middle halves, the probability of improvement."""
    a, b = (_matrix(results, label, one.column) for label in (one.better, one.worse))
    common = a.index.intersection(b.index)
    if common.empty:
        return DASH, DASH, DASH
    both = (a.loc[common].to_numpy(), b.loc[common].to_numpy())
    means = [difference_bootstrap(*both, of, paired=True, whole_runs=True) for of in (mean, interquartile_mean)]
    better = probability_of_improvement(*both, whole_runs=True)
    return _shown(means[0], sign=True), _shown(means[1], sign=True), _shown(better)


def _matrix(results: Results, label: str, name: str) -> pd.DataFrame:
    """Scores by seed and set, of the seeds that have all sets."""
    return pd.DataFrame({task: results.cells[label, task].scores for task in column(name).tasks}).dropna().sort_index()


def _pairs(line: pd.Series | None, adjusted: Iterator[float]) -> tuple[str, str]:
    if line is None:
        return DASH, DASH
    found = Estimate(line["difference"], Interval(line["low"], line["high"]))
    return _shown(found, sign=True), p_value(next(adjusted))


def _shown(found: Estimate, *, sign: bool = False) -> str:
    return f"{number(found.value, sign=sign)} {interval(found.interval, sign=sign)}"
