"""From studies to work: which jobs there are, which are done, in which order the rest can run, how long it may take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine
from cse_core.metrics import correlation
from cse_core.run import Pretrained, Run
from cse_core.training.run_state import finished_history
from experiments.execution.job import Job, Scoring
from experiments.results.csv_record import UNRECORDED
from experiments.results.run_result import read_result
from experiments.schema.study import Row, Study
from experiments.storage.shared_storage import Shared

if TYPE_CHECKING:
    import pandas as pd

# A score that was trained again counts as the same if no table could show the difference. On one kind of processor the
# bits are equal; AVX2 instead of AVX-512 moved SimCSE's dev scores by at most 2e-6.
SCORE_TOLERANCE = 5e-5
CELL_OF_METRICS = ["key", "select", "scorer", "task", "version"]
Done = Mapping[str, Set[tuple[str, str, str]]]  # by key, every (select, scorer, task) that is scored


def jobs_of(studies: Iterable[Study]) -> dict[str, Job]:
    """Every job of the studies by key, each once, nested runs (teachers, bases) included and scored like the rest."""
    jobs: dict[str, Job] = {}
    for study in (study for study in studies if study.tasks):
        for row in study.rows:
            encoders: tuple[Run | Pretrained, ...] = row.runs()
            if isinstance(row.encoder, Pretrained):
                encoders = (row.encoder,)
            for encoder in encoders:
                _add(jobs, encoder, study, row, row.short or row.label)
    return jobs


def _add(jobs: dict[str, Job], encoder: Run | Pretrained, study: Study, row: Row, label: str) -> None:
    _add_nested(jobs, encoder, study)
    scorings = tuple(Scoring(select, row.scorer, study.tasks) for select in row.selects)
    _put(jobs, Job(encoder, study.scale.name, label, scorings, (study.name,)))


def _add_nested(jobs: dict[str, Job], encoder: Run | Pretrained, study: Study) -> None:
    """Teachers and bases, scored on dev alone: enough to see that one trained again is the same."""
    for nested, rule in encoder.nested_checkpoints() if isinstance(encoder, Run) else ():
        _add_nested(jobs, nested, study)
        label = f"{nested.method.name} {nested.backbone.name}"
        _put(jobs, Job(nested, study.scale.name, label, (Scoring(rule, Cosine(), (study.scale.dev,)),), (study.name,)))


def _put(jobs: dict[str, Job], job: Job) -> None:
    jobs[job.key] = _union(jobs[job.key], job) if job.key in jobs else job


def _union(a: Job, b: Job) -> Job:
    """One job for both: the same encoder, every scoring, every study."""
    scorings = list(a.scorings)
    for new in b.scorings:
        same = [s for s in scorings if (s.select, str(s.scorer)) == (new.select, str(new.scorer))]
        if same:
            merged = replace(same[0], tasks=tuple(dict.fromkeys(same[0].tasks + new.tasks)))
            scorings[scorings.index(same[0])] = merged
        else:
            scorings.append(new)
    return replace(a, scorings=tuple(scorings), studies=tuple(dict.fromkeys(a.studies + b.studies)))


def scored(results: pd.DataFrame) -> Done:
    """By key, every (select, scorer, task) that the record has with all metrics of the present evaluator."""
    metrics: dict[tuple[str, str, str, str, int], set[str]] = defaultdict(set)
    lines = results[results["score"].notna()]
    for *cell, metric in zip(*(lines[name].tolist() for name in [*CELL_OF_METRICS, "metric"]), strict=True):
        metrics[tuple(cell)].add(metric)
    found: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for (key, select, scorer, task, version), names in metrics.items():
        if suite.complete(task, version, names, UNRECORDED):
            found[key].add((select, scorer, task))
    return found


def missing(job: Job, done: Done) -> Job | None:
    """The job reduced to the tasks that are not among those that `scored` gives; None if all are."""
    mine = done.get(job.key, frozenset())
    left = []
    for scoring in job.scorings:
        tasks = tuple(t for t in scoring.tasks if (scoring.select, str(scoring.scorer), t) not in mine)
        if tasks:
            left.append(replace(scoring, tasks=tasks))
    return replace(job, scorings=tuple(left)) if left else None


@dataclass(frozen=True)
class Plan:
    """`levels` run one after the other, each a set of jobs by key, reduced to the tasks that are not recorded.

    `untrained` are the keys of runs to be trained; `again` are recorded ones among them, whose weights are gone.
    """

    declared: Mapping[str, Job]
    levels: tuple[tuple[Job, ...], ...]
    untrained: frozenset[str]
    again: frozenset[str]

    @property
    def pending(self) -> tuple[Job, ...]:
        return tuple(job for level in self.levels for job in level)


def plan(jobs: Mapping[str, Job], done: Done, store: Path, shared: str = "") -> Plan:
    """What is left to do where `done` is what `scored` gives.

    A recorded run is trained again only where a pending run needs weights that are not there. With `shared`
    (shared_storage.py), a run counts as trained only if it is published there: one found only locally is submitted
    again.
    """
    storage = Shared(shared) if shared else None

    def there(run: Run, rules: Sequence[str]) -> bool:
        return storage.holds(run.key, rules) if storage else finished_history(run, store, rules) is not None

    wanted = {key: left for key, job in jobs.items() if (left := missing(job, done))}
    untrained: set[str] = set()
    again: set[str] = set()
    queue = list(wanted.values())
    while queue:
        job = queue.pop()
        if not isinstance(job.encoder, Run) or there(job.encoder, job.rules):
            continue
        untrained.add(job.key)
        for nested in job.encoder.nested():
            whole = jobs[nested.key]
            if nested.key not in wanted and not there(nested, whole.rules):
                wanted[nested.key] = whole
                again.add(nested.key)
                queue.append(whole)
    # A run that is trained (again) keeps a checkpoint for every rule that any row names, scored already or not.
    wanted = {key: replace(job, scorings=_all_rules(job, jobs[key])) for key, job in wanted.items()}
    return Plan(jobs, _levels(wanted), frozenset(untrained), frozenset(again))


def _all_rules(left: Job, whole: Job) -> tuple[Scoring, ...]:
    named = {s.select for s in left.scorings}
    return left.scorings + tuple(replace(s, tasks=()) for s in whole.scorings if s.select not in named)


def _levels(jobs: Mapping[str, Job]) -> tuple[tuple[Job, ...], ...]:
    """Jobs grouped so that each level needs only earlier ones; a job without training needs none."""
    depth: dict[str, int] = {}

    def deep(key: str) -> int:
        if key not in depth:
            run = jobs[key].encoder
            needs = [n.key for n in run.nested() if n.key in jobs] if isinstance(run, Run) else []
            depth[key] = 1 + max((deep(need) for need in needs), default=-1)
        return depth[key]

    levels = sorted({deep(key) for key in jobs})
    return tuple(tuple(jobs[key] for key in jobs if depth[key] == level) for level in levels)


def blocking_reason(job: Job, failed: Mapping[str, str]) -> str:
    """Why a job can't start: a nested run failed. Empty if it can."""
    lost = [n.key for n in job.encoder.nested() if n.key in failed] if isinstance(job.encoder, Run) else []
    return f"not started: it needs run {lost[0]}, which failed" if lost else ""


def differences(folder: Path, results: pd.DataFrame) -> list[str]:
    """Correlations of a run's folder that are not those in the record, as sentences.

    Other scores follow from the same vectors, but a classifier's early stop can turn rounding into another accuracy.
    """
    result = read_result(folder)
    if result is None:  # trained, not scored yet: there is nothing to compare
        return []
    lines = results[(results["key"] == result["key"]) & (results["version"] == correlation.VERSION)]
    recorded = lines.set_index(["select", "scorer", "task", "metric"])["score"]
    found = []
    for cell in result["cells"]:
        name = (cell["select"], cell["scorer"], cell["task"], cell["metric"])
        if (
            cell["metric"] in correlation.METRICS
            and name in recorded.index
            and not abs(recorded[name] - cell["score"]) <= SCORE_TOLERANCE
        ):
            found.append(f"{', '.join(name)} is {cell['score']:.6f}, recorded {recorded[name]:.6f}")
    return found


def verify_reproduces_record(nested: Mapping[str, str], results: pd.DataFrame, store: Path) -> None:
    """Stop before anything is built on a nested run, name by key, whose weights do not give its recorded scores."""
    for key, name in nested.items():
        found = differences(store / key, results)
        if found:
            raise SystemExit(
                f"run {key} ({name}), trained again for its weights, does not give its recorded scores: "
                f"{found[0]}. Nothing was built on it. Put the recorded run's folder into {store} in its place, "
                "or make a study of your own with --mlruns FOLDER."
            )
