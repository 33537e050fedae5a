"""What a comparison found: each method's winners, their scores with fresh seeds, and its gain over the baseline."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import pandas as pd

from analysis.stats.contrast_tests import difference
from analysis.stats.estimate import Estimate
from analysis.verdicts.looks import WHOLE, Looks, decide
from analysis.verdicts.verdict import with_size
from cse_core.evaluation.scorers import Cosine
from experiments.cli.console import counted
from experiments.comparison.comparison import PUBLISHED, STAGES, Address, Comparison, Entrant, Scores, Settings, Trial
from experiments.comparison.recorded import means_of, read_scores
from experiments.comparison.tuned import recorded_comparisons
from experiments.results import csv_record
from experiments.results.row_scores import curve_facts
from experiments.schema.contrasts import HEADLINES

ONE_SEARCH = "not tested: one search"
NOT_RUN = "not run"
FAILED = "failed: no trial ended with a dev score"
NO_BASELINE = "not compared: the baseline has not run to its end"
ESTIMATED = "estimated, not tested"
SHARE = "loss/share_"  # how curves of such terms begin
BySearch = Mapping[int, Mapping[int, float]]  # values by search, or PUBLISHED, and by the finals' seed


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """One method: each search's winning settings with their mean dev score, and dev scores and measures of its finals.

    Finals are a winner's runs with fresh seeds. `no_gain` says why there is no gain: the method is not complete, or
    runs that its mean needs failed. Empty if there is one.
    """

    entrant: Entrant
    winners: Mapping[int, tuple[Settings, float]]
    dev: BySearch
    measures: Mapping[str, BySearch]
    by_cosine: BySearch  # the first measure of finals whose pairs are scored by ranks, with the cosine in their place
    # The dev scores of each search's draws, in the order of drawing; a failed one counts as the search's lowest score.
    trials: tuple[tuple[float, ...], ...]
    no_gain: str
    ended: int  # runs with a dev score, and runs that failed
    failed: int
    core_hours: float
    # For each search or PUBLISHED, the mean over finals and steps of terms of its loss that are shares, in [0, 1].
    shares: Mapping[int, Mapping[str, float]]
    finals: Mapping[int, tuple[str, ...]]  # keys
    keys: frozenset[str]  # of all its runs, with those of teachers and bases

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
    detectable: float | None = None  # the gain that the test finds with 80 % power


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All methods of a comparison, and their gains over the first by (method, measure)."""

    comparison: Comparison
    tuned: tuple[Tuned, ...]
    gains: Mapping[tuple[str, str], Gain]

    @property
    def backbone(self) -> str:
        """The name of the encoder that all methods train."""
        return self.comparison.entrants[0].start.backbone.name

    def gain(self, name: str, measure: int = 0) -> Gain | None:
        """Return a method's gain in the first measure or another; None if it is the baseline or not compared."""
        return self.gains.get((name, list(self.comparison.measures)[measure]))


def recorded_summaries(scale: str, searches: pd.DataFrame, mlruns: Path) -> Iterator[Summary]:
    """Yield a summary of each declared comparison with a line in searches.csv, with the methods that have begun.

    The baseline is always in it.
    """
    for comparison in recorded_comparisons(scale, searches):
        every = summarise(comparison, mlruns)
        yield replace(every, tuned=tuple(each for each in every.tuned if each.ended or each is every.tuned[0]))


def paper_gains(summaries: Iterable[Summary], backbone: str, measure: int = 0) -> dict[str, Gain]:
    """Return the four papers' gains over an equally tuned SimCSE on a backbone, in the comparison's first measure.

    What is not complete is left out. `measure` is the number of another measure.
    """
    found: dict[str, Gain] = {}
    for summary in (each for each in summaries if each.backbone == backbone):
        for paper in HEADLINES:
            gain = summary.gain(paper.lower(), measure)
            found |= {paper: gain} if gain and gain.estimate else {}
    return found


def summarise(comparison: Comparison, mlruns: Path, failed: Collection[str] = ()) -> Summary:
    """Summarise a comparison from the record; `failed` are keys of runs that failed just now and are not recorded."""
    scale = comparison.scale.name
    results, scores = read_scores(comparison, mlruns, failed)
    measured = {name: means_of(comparison, results, tasks) for name, tasks in comparison.measures.items()}
    seconds = csv_record.read_runs(scale, mlruns).set_index("key")["seconds"]
    curves = csv_record.read_curves(scale, mlruns)
    tuned = tuple(_tuned(comparison, each, scores, measured, seconds, curves) for each in comparison.entrants)
    return Summary(comparison=comparison, tuned=tuned, gains=_gains(comparison, tuned))


def _tuned(
    comparison: Comparison,
    entrant: Entrant,
    scores: Scores,
    measured: Mapping[str, Mapping[Address, float]],
    seconds: pd.Series,
    curves: pd.DataFrame,
) -> Tuned:
    searches = range(comparison.budget.searches)
    finals = {search: comparison.finals(entrant, search, scores) for search in (*searches, PUBLISHED)}
    chosen = {search: comparison.selected(entrant, search, scores) for search in searches}
    every = [trial for stage in STAGES for trial in comparison.stage(stage, scores, (entrant,))]
    keys = {trial.run.key for trial in every} | {nested.key for t in every for nested in t.run.required_checkpoints()}
    final_keys = {search: tuple(t.run.key for t in trials) for search, trials in finals.items()}

    def of_finals(values: Mapping[Address, float]) -> dict[int, dict[int, float]]:
        return {s: {t.run.seed: values[t.address] for t in ts if t.address in values} for s, ts in finals.items()}

    return Tuned(
        entrant=entrant,
        winners={search: winner for search, winner in chosen.items() if winner},
        dev=of_finals(scores.by_address),
        measures={name: of_finals(values) for name, values in measured.items()},
        by_cosine=_by_cosine(finals, next(iter(measured.values()))),
        trials=tuple(_dev_of(comparison.draws(entrant, search, scores), scores) for search in searches),
        no_gain=_why_no_gain(comparison, every, finals, scores, measured),
        ended=sum(map(scores.has_ended, every)),
        failed=sum(trial.run.key in scores.failed for trial in every),
        core_hours=float(seconds.reindex(sorted(keys)).sum()) / 3600,
        shares=_shares(final_keys, curves),
        finals=final_keys,
        keys=frozenset(keys),
    )


def _by_cosine(finals: Mapping[int, Sequence[Trial]], values: Mapping[Address, float]) -> dict[int, dict[int, float]]:
    cosine = Cosine()
    return {
        search: {
            t.run.seed: values[address]
            for t in trials
            if t.scorer != cosine and (address := (t.run.key, str(cosine))) in values
        }
        for search, trials in finals.items()
    }


def _shares(finals: Mapping[int, Sequence[str]], curves: pd.DataFrame) -> dict[int, dict[str, float]]:
    """Return the mean over finals of the mean over steps of each term called `share_...`."""
    names = [name for name in curves["name"].unique() if name.startswith(SHARE)]
    found = curve_facts(curves, [key for keys in finals.values() for key in keys], names)
    means: dict[int, dict[str, float]] = {}
    for search, keys in finals.items():
        for name in names:
            values = [value for key in keys if (value := found.get((key, f"mean {name}"))) is not None]
            if values:
                means.setdefault(search, {})[name.removeprefix(SHARE)] = mean(values)
    return means


def _dev_of(draws: Sequence[Trial], scores: Scores) -> tuple[float, ...]:
    """Return the dev scores of a search's draws; empty until all have ended."""
    found = [scores.of(trial) for trial in draws]
    lowest = min((value for value in found if value is not None), default=None)
    if lowest is None or not all(map(scores.has_ended, draws)):
        return ()
    return tuple(lowest if value is None else value for value in found)


def _why_no_gain(
    comparison: Comparison,
    every: Sequence[Trial],
    finals: Mapping[int, Sequence[Trial]],
    scores: Scores,
    measured: Mapping[str, Mapping[Address, float]],
) -> str:
    """Return why a method has no gain: finals are missing, or their mean would leave out failed ones."""
    tested = [trials for search, trials in finals.items() if search != PUBLISHED]
    known = [trial for trials in tested for trial in trials]
    scored = sum(all(trial.address in values for values in measured.values()) for trial in known)
    failed = sum(trial.run.key in scores.failed for trial in known)
    lost = sum(not trials for trials in tested)
    if not any(map(scores.has_ended, every)):
        return NOT_RUN
    if lost == len(tested) and all(scores.has_ended(trial) for trial in every if trial.search != PUBLISHED):
        return FAILED
    if not all(map(scores.has_ended, every)) or scored + failed < len(known):
        return f"not complete: {scored} of {comparison.budget.searches * comparison.budget.finals} finals"
    if lost or failed:
        return f"not tested: {counted(lost, 'search', 'searches')} and {counted(failed, 'final')} failed"
    return ""


def _gains(comparison: Comparison, tuned: tuple[Tuned, ...]) -> dict[tuple[str, str], Gain]:
    baseline, *others = tuned
    tested = [each for each in others if not comparison.tested or each.entrant.name in comparison.tested]
    first = next(iter(comparison.measures))
    no_gain = {each.entrant.name: each.no_gain or (NO_BASELINE if baseline.no_gain else "") for each in others}
    estimates = {
        (each.entrant.name, name): None
        if no_gain[each.entrant.name]
        else difference(
            each.search_means(each.measures[name]), baseline.search_means(baseline.measures[name]), paired=False
        )
        for name in comparison.measures
        for each in others
    }
    gains = {key: Gain(estimate=found, verdict=no_gain[key[0]] or ESTIMATED) for key, found in estimates.items()}
    keys = [(each.entrant.name, first) for each in tested]
    looks: dict[tuple[str, str], Looks] = {key: {WHOLE: e} if (e := estimates[key]) else {} for key in keys}
    for key, decision in decide(looks, dict.fromkeys(keys, comparison.margin)).items():
        estimate = estimates[key]
        if estimate is not None:
            word = ONE_SEARCH if estimate.error is None else with_size(decision.word, estimate, comparison.margin)
            gains[key] = Gain(estimate=estimate, verdict=word, detectable=decision.detectable)
    return gains
