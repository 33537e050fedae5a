"""Turn studies into jobs, leave out what is done, and group the rest so that each group needs only earlier ones."""

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

# A retrained score counts as the same if no table could show the difference. On one kind of processor the bits are
# equal; AVX2 instead of AVX-512 moved SimCSE's dev scores by at most 2e-6.
SCORE_TOLERANCE = 5e-5
CELL_OF_METRICS = ["key", "select", "scorer", "task", "version"]
Done = Mapping[str, Set[tuple[str, str, str]]]  # the scored (select, scorer, task) of each run, by key


def jobs_of(studies: Iterable[Study]) -> dict[str, Job]:
    """Return every job of the studies by key, each once, with those of nested runs (teachers, bases)."""
    return merge_jobs(map(jobs_of_study, studies))


def jobs_of_study(study: Study) -> dict[str, Job]:
    """Return the jobs of one study by key, each once; none if it scores no task.

    Refuse a row whose scorer can't score the study's tasks: it would fail only after training.
    """
    groups = []
    for row in study.rows if study.tasks else ():
        if row.encoder is not None:
            _check_scorer(study, row)
        encoders = (row.encoder,) if isinstance(row.encoder, Pretrained) else row.runs()
        groups += [_jobs_of_encoder(encoder, study, row) for encoder in encoders]
    return merge_jobs(groups)


def merge_jobs(groups: Iterable[Mapping[str, Job]]) -> dict[str, Job]:
    """Return the jobs of all groups by key, with every scoring and study of jobs that share a key."""
    jobs: dict[str, Job] = {}
    for group in groups:
        for key, job in group.items():
            jobs[key] = _union(jobs[key], job) if key in jobs else job
    return jobs


def _check_scorer(study: Study, row: Row) -> None:
    try:
        suite.check_scorer(row.scorer, study.tasks)
    except ValueError as error:
        raise ValueError(f"{study.name}, row {row.label}: {error}") from error


def _jobs_of_encoder(encoder: Run | Pretrained, study: Study, row: Row) -> dict[str, Job]:
    """Return an encoder's job by key, and those of its teachers and bases.

    Teachers and bases are scored on dev only, which is enough to see that a retrained one is the same.
    """
    scale, names = study.scale, (study.name,)
    needed = required_jobs(encoder, scale.name, (scale.dev,), names, study.file) if isinstance(encoder, Run) else []
    scorings = tuple(Scoring(select, row.scorer, study.tasks) for select in row.selects)
    own = Job(encoder, scale.name, row.short or row.label, scorings, names, study.file)
    return {job.key: job for job in (*needed, own)}


def required_jobs(
    run: Run, scale: str, tasks: tuple[str, ...], studies: tuple[str, ...] = (), file: str = ""
) -> list[Job]:
    """Return jobs of the runs that a run requires (teachers, bases), in an order of training, scored on `tasks`."""
    return [
        Job(
            required,
            scale,
            f"{required.method.name} {required.backbone.name}",
            tuple(Scoring(rule, Cosine(), tasks) for rule in rules),
            studies,
            file,
        )
        for required, rules in run.required_checkpoints().items()
    ]


def _union(a: Job, b: Job) -> Job:
    """Merge two jobs of the same encoder: every scoring, every study."""
    scorings = {(scoring.select, str(scoring.scorer)): scoring for scoring in a.scorings}
    for new in b.scorings:
        name = new.select, str(new.scorer)
        tasks = scorings[name].tasks if name in scorings else ()
        scorings[name] = replace(new, tasks=tuple(dict.fromkeys(tasks + new.tasks)))
    studies = tuple(dict.fromkeys(a.studies + b.studies))
    keeps = a.keeps_weights or b.keeps_weights
    return replace(a, scorings=tuple(scorings.values()), studies=studies, keeps_weights=keeps)


def scored_cells(results: pd.DataFrame) -> Done:
    """Return, by key, the recorded cells that have all metrics of the present evaluator."""
    metrics: dict[tuple[str, str, str, str, int], set[str]] = defaultdict(set)
    lines = results[results["score"].notna()]
    for *cell, metric in zip(*(lines[name].tolist() for name in [*CELL_OF_METRICS, "metric"]), strict=True):
        metrics[tuple(cell)].add(metric)
    cells: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for (key, select, scorer, task, version), names in metrics.items():
        if suite.complete(task, version, names, UNRECORDED):
            cells[key].add((select, scorer, task))
    return cells


def missing(job: Job, done: Done) -> Job | None:
    """Return the job without the tasks that are scored already (see `scored_cells`); None if all are."""
    done_tasks = done.get(job.key, frozenset())
    left = []
    for scoring in job.scorings:
        tasks = tuple(t for t in scoring.tasks if (scoring.select, str(scoring.scorer), t) not in done_tasks)
        if tasks:
            left.append(replace(scoring, tasks=tasks))
    return replace(job, scorings=tuple(left)) if left else None


@dataclass(frozen=True)
class Plan:
    """Jobs to run, with the tasks that are not recorded; `declared` are all jobs of the studies.

    Each level needs only earlier ones; with `by_study` a study's levels come before those of the next. `untrained` are
    the keys of runs to train; `retrained`, those among them that are recorded but have no weights here.
    """

    declared: Mapping[str, Job]
    levels: tuple[tuple[Job, ...], ...]
    untrained: frozenset[str]
    retrained: frozenset[str]
    by_study: bool = False

    @property
    def pending(self) -> tuple[Job, ...]:
        return tuple(job for level in self.levels for job in level)


def make_plan(jobs: Mapping[str, Job], done: Done, store: Path, shared: str = "") -> Plan:
    """Plan the jobs that are left to do, given the scored cells (`scored_cells`).

    A recorded run is retrained only if a pending run needs its missing weights. With `shared` (shared_storage.py), a
    run counts as trained only if it is in shared storage; runs that are only local are submitted again, to be uploaded.
    """
    storage = Shared(shared) if shared else None

    def has_weights(run: Run, rules: Sequence[str]) -> bool:
        return storage.holds(run.key, rules) if storage else finished_history(run, store, rules) is not None

    pending = {key: left for key, job in jobs.items() if (left := missing(job, done))}
    untrained: set[str] = set()
    retrained: set[str] = set()
    queue = list(pending.values())
    while queue:
        job = queue.pop()
        if not isinstance(job.encoder, Run) or has_weights(job.encoder, job.rules):
            continue
        untrained.add(job.key)
        for nested in job.encoder.nested():
            whole = jobs[nested.key]
            if nested.key not in pending and not has_weights(nested, whole.rules):
                pending[nested.key] = whole
                retrained.add(nested.key)
                queue.append(whole)
    # A run that is trained saves a checkpoint for every rule that any row names, also for those scored already.
    pending = {key: replace(job, scorings=_all_rules(job, jobs[key])) for key, job in pending.items()}
    return Plan(jobs, levels_of(pending), frozenset(untrained), frozenset(retrained))


def _all_rules(left: Job, whole: Job) -> tuple[Scoring, ...]:
    named = {s.select for s in left.scorings}
    return left.scorings + tuple(replace(s, tasks=()) for s in whole.scorings if s.select not in named)


def levels_of(jobs: Mapping[str, Job]) -> tuple[tuple[Job, ...], ...]:
    """Group jobs so that each level needs only earlier ones; a job without training needs none."""
    depth: dict[str, int] = {}

    def depth_of(key: str) -> int:
        if key not in depth:
            needs = [run.key for run in jobs[key].encoder.nested() if run.key in jobs]
            depth[key] = 1 + max((depth_of(need) for need in needs), default=-1)
        return depth[key]

    levels = sorted({depth_of(key) for key in jobs})
    return tuple(tuple(jobs[key] for key in jobs if depth[key] == level) for level in levels)


def study_by_study(work: Plan) -> Plan:
    """Return the plan with all levels of a study before those of the next, so that the first is complete early."""
    names = list(dict.fromkeys(job.studies[0] for job in work.declared.values()))
    first = {job.key: names.index(job.studies[0]) for job in work.pending}
    parts = (tuple(job for job in level if first[job.key] == i) for i in range(len(names)) for level in work.levels)
    return replace(work, levels=tuple(filter(None, parts)), by_study=True)


def blocking_reason(job: Job, failed: Mapping[str, str]) -> str:
    """Return why a job can't start (a nested run failed); empty if it can."""
    lost = [run.key for run in job.encoder.nested() if run.key in failed]
    return f"not started: it needs run {lost[0]}, which failed" if lost else ""


def difference_from_record(key: str, name: str, results: pd.DataFrame, store: Path) -> str:
    """Return how the correlations of a teacher or base differ from the record; empty if they do not.

    Accuracies are not compared: all scores come from the same embeddings, but early stopping of a classifier can turn a
    rounding difference into another accuracy.
    """
    result = read_result(store / key)
    if result is None:  # trained, not scored yet: there is nothing to compare
        return ""
    lines = results[(results["key"] == key) & (results["version"] == correlation.VERSION)]
    recorded = lines.set_index(["select", "scorer", "task", "metric"])["score"]
    for cell in result["cells"]:
        place = (cell["select"], cell["scorer"], cell["task"], cell["metric"])
        known = cell["metric"] in correlation.METRICS and place in recorded.index
        if known and not abs(recorded[place] - cell["score"]) <= SCORE_TOLERANCE:
            return (
                f"run {key} ({name}), retrained for its weights, does not reproduce its recorded scores: "
                f"{', '.join(place)} is {cell['score']:.6f}, recorded {recorded[place]:.6f}. "
                f"Put the recorded run's folder into {store}, or start a separate record with --mlruns FOLDER."
            )
    return ""
