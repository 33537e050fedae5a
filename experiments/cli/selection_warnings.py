"""Warn before training if a checkpoint's score will mean less: few dev scores, or dev pairs that are scored too."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from cse_core.data.own_pairs import is_own
from cse_core.data.senteval import pairs
from cse_core.evaluation.sts_subsets import SUBSETS, unordered_pairs
from cse_core.evaluation.suite import find_task
from cse_core.evaluation.tasks import RankingTask, STSTask
from cse_core.run import Run
from cse_core.training.selection import dev_sets
from experiments.cli.console import counted

FEWEST = 3  # dev scores to choose a best one from


def selection_warnings(run: Run, rule: str, tasks: Sequence[str], data: Path | None) -> Iterator[str]:
    """Yield a warning if there are fewer than three dev scores, and one if tasks contain pairs of the dev sets."""
    sets = dev_sets(rule)
    if not sets:
        return
    if few := few_scores_warning(run, rule):
        every = max(1, run.steps // 10)
        yield few + (f"; --eval-steps {every} gives {run.steps // every}" if run.steps >= FEWEST else "")
    yield from shared_pairs_warnings(rule, tasks, data)


def few_scores_warning(run: Run, rule: str) -> str:
    """Return a warning if there are fewer than three dev scores, otherwise an empty text."""
    if run.evaluations >= FEWEST:
        return ""
    return f"{rule} selects among {counted(run.evaluations, 'dev score')} of about {counted(run.steps, 'step')}"


def shared_pairs_warnings(rule: str, tasks: Sequence[str], data: Path | None) -> Iterator[str]:
    """Yield a warning if tasks contain pairs of the dev sets."""
    sets = dev_sets(rule)
    seen = {pair for name in sets for pair in unordered_pairs(pairs(name, data))}
    shared = {name: [pair in seen for pair in _scored_pairs(name, data)] for name in tasks}
    shared = {name: found for name, found in shared.items() if any(found)}
    named = [f"{name} ({sum(found):,} of {len(found):,} pairs)" for name, found in shared.items()]
    if named:
        apart = "; sts_disjoint leaves them out" if "stsb_dev" in sets and not all(map(is_own, shared)) else ""
        yield f"{rule} selects the checkpoint by pairs that are scored too, in {', '.join(named)}{apart}"


def _scored_pairs(task: str, data: Path | None) -> list[frozenset[str]]:
    """Return the pairs that a task scores; none if it scores no pairs."""
    found = find_task(task)
    if not isinstance(found, STSTask | RankingTask):
        return []
    every = [pair for name in found.pair_sets for pair in unordered_pairs(pairs(name, data))]
    if isinstance(found, RankingTask) or not found.subset:
        return every
    subset = SUBSETS[found.subset]
    rows = subset.rows(pairs(subset.base, data), {name: pairs(name, data) for name in subset.reads})
    return [every[row] for row in rows]
