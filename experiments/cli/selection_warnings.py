"""Warn before training if a checkpoint's score will mean less: few dev scores, or dev pairs that are scored too."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from cse_core.data.own_pairs import is_own
from cse_core.data.senteval import pairs
from cse_core.evaluation.sts_subsets import unordered_pairs
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
    steps, scores = run.steps, run.evaluations
    if scores < FEWEST:
        every = max(1, steps // 10)
        more = f"; --eval-steps {every} gives {steps // every}" if steps >= FEWEST else ""
        among, length = counted(scores, "dev score"), counted(steps, "step")
        yield f"{rule} selects among {among} of about {length}{more}"
    yield from shared_pairs_warnings(rule, tasks, data)


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
    """Return the pairs of a task that scores all pairs of its sets; none for any other task."""
    found = find_task(task)
    if not isinstance(found, STSTask | RankingTask) or (isinstance(found, STSTask) and found.subset):
        return []
    return [pair for name in found.pair_sets for pair in unordered_pairs(pairs(name, data))]
