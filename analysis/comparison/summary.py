"""What a comparison found: each method's winners, their scores with fresh seeds, and its gain over the baseline."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pandas as pd

from analysis.stats.contrast_tests import welch_contrast
from analysis.stats.estimate import Estimate
from analysis.verdicts.looks import WHOLE, Looks, decide
from experiments.comparison.comparison import PUBLISHED, STAGES, Comparison, Entrant, Scores, Settings
from experiments.comparison.recorded import dev_scores, means_of
from experiments.results import csv_record

ONE_SEARCH = "not tested: one search"
NOT_RUN = "not run"
ESTIMATED = "estimated, not tested"
BySearch = Mapping[int, Mapping[int, float]]  # a value for each final seed of each search; PUBLISHED is one of them


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """One method: by search the settings that won and their mean dev score, and the finals' dev scores and measures."""

    entrant: Entrant
    winners: Mapping[int, tuple[Settings, float]]
    dev: BySearch
    measures: Mapping[str, BySearch]
    trials: tuple[tuple[float, ...], ...]  # the dev scores of each search's draws, in the order of drawing
    runs: int
    ended: int  # those with a dev score, and those that failed
    failed: int
    core_hours: float
    finals: Mapping[int, tuple[str, ...]]  # keys

    def search_means(self, values: BySearch) -> dict[int, float]:
        """Return the mean over seeds of each search's winner."""
        return {search: mean(of.values()) for search, of in values.items() if of and search != PUBLISHED}

    def mean(self, values: BySearch) -> float | None:
        """Return the mean over searches of their means; None without any."""
        means = self.search_means(values).values()
        return mean(means) if means else None


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A method's gain over the baseline in a measure; only gains in the first measure are tested."""

    estimate: Estimate | None
    verdict: str
    detectable: float | None = None  # the gain that 80 % power would have found


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All methods of a comparison, and their gains over the first by (method, measure)."""

    comparison: Comparison
    tuned: tuple[Tuned, ...]
    gains: Mapping[tuple[str, str], Gain]


def summarise(comparison: Comparison, mlruns: Path) -> Summary:
    """Return what the record has of a comparison."""
    scale = comparison.scale.name
    results, searches = csv_record.read_results(scale, mlruns), csv_record.read_searches(scale, mlruns)
    scores = dev_scores(comparison, results, searches)
    measured = {name: means_of(comparison, results, tasks) for name, tasks in comparison.measures.items()}
    seconds = csv_record.read_runs(scale, mlruns).set_index("key")["seconds"]
    tuned = tuple(_tuned(comparison, each, scores, measured, seconds) for each in comparison.entrants)
    return Summary(comparison=comparison, tuned=tuned, gains=_gains(comparison, tuned))


def _tuned(
    comparison: Comparison,
    entrant: Entrant,
    scores: Scores,
    measured: Mapping[str, Mapping[tuple[str, str], float]],
    seconds: pd.Series,
) -> Tuned:
    searches = range(comparison.budget.searches)
    finals = {search: comparison.finals(entrant, search, scores) for search in (*searches, PUBLISHED)}
    chosen = {search: comparison.selected(entrant, search, scores) for search in searches}
    every = [trial for stage in STAGES for trial in comparison.stage(stage, scores, (entrant,))]
    keys = {trial.run.key for trial in every} | {nested.key for t in every for nested in t.run.required_checkpoints()}

    def of_finals(values: Mapping[tuple[str, str], float]) -> dict[int, dict[int, float]]:
        return {s: {t.run.seed: values[t.address] for t in ts if t.address in values} for s, ts in finals.items()}

    drawn = (comparison.draws(entrant, search, scores) for search in searches)
    return Tuned(
        entrant=entrant,
        winners={search: winner for search, winner in chosen.items() if winner},
        dev=of_finals(scores.by_address),
        measures={name: of_finals(values) for name, values in measured.items()},
        trials=tuple(tuple(v for t in trials if (v := scores.of(t)) is not None) for trials in drawn),
        runs=len(every),
        ended=sum(map(scores.has_ended, every)),
        failed=sum(trial.run.key in scores.failed for trial in every),
        core_hours=float(seconds.reindex(sorted(keys)).sum()) / 3600,
        finals={search: tuple(t.run.key for t in trials) for search, trials in finals.items()},
    )


def _gains(comparison: Comparison, tuned: tuple[Tuned, ...]) -> dict[tuple[str, str], Gain]:
    baseline, *others = tuned
    tested = [each for each in others if not comparison.tested or each.entrant.name in comparison.tested]
    first = next(iter(comparison.measures))
    estimates = {
        (each.entrant.name, name): welch_contrast(
            [each.search_means(each.measures[name]), baseline.search_means(baseline.measures[name])], [1, -1]
        )
        for name in comparison.measures
        for each in others
    }
    gains = {key: Gain(estimate=estimate, verdict=ESTIMATED) for key, estimate in estimates.items()}
    keys = [(each.entrant.name, first) for each in tested]
    looks: dict[tuple[str, str], Looks] = {key: {WHOLE: e} if (e := estimates[key]) else {} for key in keys}
    for key, decision in decide(looks, dict.fromkeys(keys, comparison.margin)).items():
        estimate = estimates[key]
        untested = NOT_RUN if estimate is None else ONE_SEARCH if estimate.error is None else ""
        gains[key] = Gain(estimate=estimate, verdict=untested or decision.word, detectable=decision.detectable)
    return gains
