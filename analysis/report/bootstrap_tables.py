"""Make the blocks of bootstrap estimates, of a study or the plan: other seeds, other pairs, other averages."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import pandas as pd

from analysis.cells import Results
from analysis.report.blocks import block
from analysis.report.contrast_tables import contrast_text
from analysis.report.formats import DASH, MINUS, estimate_text, p_value, table
from analysis.report.plan_tables import claim_text
from analysis.stats import significance
from analysis.stats.bootstrap import difference_bootstrap, interquartile_mean, mean, probability_of_improvement
from analysis.stats.estimate import Estimate
from analysis.stats.significance import Interval
from analysis.verdicts.plan import PlanVerdicts
from analysis.verdicts.verdict import Verdict
from experiments.results.csv_record import INDEPENDENT, PAIRED, score_source
from experiments.schema.columns import column
from experiments.schema.contrasts import EXPLORATORY, Contrast
from experiments.schema.study import Row, Study

HOW = (
    "Differences in points. Seeds: runs are resampled, each with its scores on all sets; with three seeds such an "
    "interval covers 75 times in 100 rather than 95. Middle half: of all seeds' scores on all sets (interquartile "
    "mean). P(A > B): how likely a run of A beats a run of B on a set. Pairs: the first seed's two checkpoints on "
    "pairs resampled within each set ({draws:,} draws), p by Holm over this table's comparisons; it says nothing about "
    "other seeds."
)
HOW_BOTH = (
    " Seeds and pairs: both are resampled, seeds of A and of B independently of each other, or the same of both where "
    "the plan's test is paired, pairs the same for all runs; in brackets the seeds of A and B whose pair scores are "
    "recorded."
)
HOW_OVER = (
    "Differences in points. Over seeds: by the contrast's test. Over seeds and pairs: percentiles of the draws, which "
    "are too close together with few seeds (such an interval covers 92 times in 100 with ten, 84 with five, rather "
    "than 95); pairs are drawn within each set, the same for all runs."
)


def two_row_differences(study: Study) -> list[Contrast]:
    """Return the study's contrasts of two rows' means that are about a claim or are a plan's control."""
    about = (each for each in study.contrasts if each.claim or each.role != EXPLORATORY)
    return [contrast for contrast in about if contrast.is_of_two_rows]


def seeds_drawn(contrast: Contrast) -> str:
    """Return how seeds are drawn for a difference: paired if it is a planned contrast that pairs them."""
    return PAIRED if contrast.paired and contrast.role != EXPLORATORY else INDEPENDENT


@block("estimates", of=lambda ask: (ask.results, ask.record.pairs(ask.scale)))
def estimates_block(results: Results, drawn: pd.DataFrame) -> str:
    """Return differences over several sets, by seeds and by pairs (`drawn`: lines of pairs.csv), as Markdown."""
    rows = {row.label: row for row in results.study.rows if row.encoder is not None}
    by_sides = {(line["first"], line["second"], line["column"]): line for _, line in drawn.iterrows()}
    contrasts = [each for each in two_row_differences(results.study) if len(column(each.column).tasks) > 1]
    resampled = [_pairs_line(rows, each, by_sides) for each in contrasts]
    adjusted = iter(significance.holm([line["p"] for line in resampled if line is not None]))
    cells = [
        (
            contrast_text(contrast),
            *_by_seeds(results, contrast),
            *_by_pairs(line, adjusted),
            _by_both(results.study, contrast, drawn),
        )
        for contrast, line in zip(contrasts, resampled, strict=True)
    ]
    header = (f"A {MINUS} B", "seeds", "middle half", "P(A > B)", "pairs", "Holm p", "seeds and pairs")
    draws = max((line["resamples"] for line in resampled if line is not None), default=0)
    how = HOW.format(draws=draws)
    if all(line[-1] == DASH for line in cells):
        header, cells = header[:-1], [line[:-1] for line in cells]
    else:
        how += HOW_BOTH
    return f"{table(header, cells)}\n\n{how}"


def _pairs_line(
    rows: Mapping[str, Row], contrast: Contrast, by_sides: Mapping[tuple[str, str, str], pd.Series]
) -> pd.Series | None:
    """Return the line of the rows' first seeds on drawn pairs."""
    if not {*contrast.rows} <= rows.keys():
        return None
    first, second = (score_source(rows[label]) for label in contrast.rows)
    return by_sides.get((first, second, contrast.column))


def pairs_and_seeds(plan: PlanVerdicts, drawn: pd.DataFrame) -> list[tuple[Verdict, "OfBoth"]]:
    """Return the plan's verdicts that have an estimate over seeds and pairs in `drawn`, each with that estimate."""
    studies = {contrast: results.study for results in plan.planned for contrast in results.study.contrasts}
    of_both = [
        (verdict, _of_both(studies[verdict.contrast], verdict.contrast, drawn))
        for verdict in plan.contrasts
        if verdict.contrast.is_of_two_rows and verdict.estimate and verdict.contrast.margin is not None
    ]
    return [(verdict, both) for verdict, both in of_both if both]


@block("pairs-and-seeds", of=lambda ask: (ask.plan, ask.record.pairs(ask.scale)))
def pairs_and_seeds_block(plan: PlanVerdicts, drawn: pd.DataFrame) -> str:
    """Return the plan's contrasts over seeds, and over seeds and pairs if `drawn` has them, as Markdown."""
    rows = [
        (
            claim_text(verdict.contrast),
            contrast_text(verdict.contrast),
            estimate_text(verdict.estimate),
            str(verdict.estimate.n),
            estimate_text(both.estimate),
            f"{both.first}, {both.second}",
            f"{both.pairs:,}",
            what_it_excludes(both.estimate.interval, verdict.contrast.margin),
        )
        for verdict, both in pairs_and_seeds(plan, drawn)
        if verdict.estimate
    ]
    over = ("over seeds", "seeds", "over seeds and pairs", "seeds of both", "pairs", "the interval over both")
    return f"{table(('claim', 'contrast', *over), rows)}\n\n{HOW_OVER}"


def what_it_excludes(band: Interval | None, margin: float | None) -> str:
    """Say whether an interval holds 0, and whether it lies within the margin."""
    if band is None or margin is None:
        return DASH
    zero = "holds 0" if band.low <= 0 <= band.high else "excludes 0"
    inside = -margin < band.low and band.high < margin
    return f"{zero}, {'within the margin' if inside else 'not within the margin'}"


class OfBoth(NamedTuple):
    """An estimate over drawn seeds and pairs, the seeds of both rows, and the number of pairs."""

    estimate: Estimate
    first: int
    second: int
    pairs: int


def _by_both(study: Study, contrast: Contrast, drawn: pd.DataFrame) -> str:
    both = _of_both(study, contrast, drawn)
    return f"{estimate_text(both.estimate)} ({both.first}, {both.second})" if both else DASH


def _of_both(study: Study, contrast: Contrast, drawn: pd.DataFrame) -> OfBoth | None:
    """Return the estimate over drawn seeds and pairs, of the line with most seeds; None without a line."""
    rows = {row.label: row for row in study.rows if row.encoder is not None}
    if drawn.empty or not {*contrast.rows} <= rows.keys():
        return None
    first, second = (
        drawn[side].map(partial(_count_seeds, rows[label]))
        for side, label in zip(("first", "second"), contrast.rows, strict=True)
    )
    of_it = (drawn["column"] == contrast.column) & (drawn["seeds"] == seeds_drawn(contrast))
    crossed = (first > 1) & (second > 1) & of_it
    if not crossed.any():
        return None
    at = (first + second)[crossed].idxmax()
    line = drawn.loc[at]
    estimate = Estimate(line["difference"], Interval(line["low"], line["high"]))
    return OfBoth(estimate, int(first[at]), int(second[at]), int(line["pairs"]))


def _count_seeds(row: Row, source: str) -> int:
    """Return how many of the row's seeds a side of a line of pairs.csv has; 0 if it is not of this row."""
    keys, _, scored = source.partition(" ")
    several = keys.split("+")
    of_row = scored == f"{row.select} {row.scorer}" and set(several) <= set(row.keys().values())
    return len(several) if of_row else 0


def _by_seeds(results: Results, contrast: Contrast) -> tuple[str, str, str]:
    """Estimate, over seeds, the difference of means and of interquartile means, and the probability of improvement."""
    a, b = (_score_matrix(results, label, contrast.column) for label in contrast.rows)
    common = a.index.intersection(b.index)
    if common.empty:
        return DASH, DASH, DASH
    both = (a.loc[common].to_numpy(), b.loc[common].to_numpy())
    means = [difference_bootstrap(*both, of) for of in (mean, interquartile_mean)]
    better = probability_of_improvement(*both)
    return estimate_text(means[0]), estimate_text(means[1]), estimate_text(better, sign=False)


def _score_matrix(results: Results, label: str, name: str) -> pd.DataFrame:
    """Return scores by seed and set, for the seeds that have all sets."""
    return pd.DataFrame({task: results.cells[label, task].scores for task in column(name).tasks}).dropna().sort_index()


def _by_pairs(line: pd.Series | None, adjusted: Iterator[float]) -> tuple[str, str]:
    if line is None:
        return DASH, DASH
    estimate = Estimate(line["difference"], Interval(line["low"], line["high"]))
    return estimate_text(estimate), p_value(next(adjusted))
