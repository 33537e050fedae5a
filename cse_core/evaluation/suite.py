"""Tasks by name, and their evaluation from one embedding of each distinct sentence."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cse_core.data import own_pairs
from cse_core.data.senteval import (
    STS_DEV,
    STS_TEST,
    STS_TRAIN,
    SYNTHETIC,
    TRANSFER,
    EvalDataset,
    labelled_sentences,
    pairs,
)
from cse_core.evaluation.dataset_facts import EXAMPLES, Example, Gold, Halves, Sizes
from cse_core.evaluation.near_start import DistanceFromStart
from cse_core.evaluation.scorers import SPLITS, Scorer
from cse_core.evaluation.space_tasks import Density, GeometryTask, Positives, Projection, SimilarityMatrixTask
from cse_core.evaluation.sts_subsets import SEEN, SUBSETS
from cse_core.evaluation.task import Inputs, Outcome, Task
from cse_core.evaluation.tasks import Neighbours, RankingTask, STSTask, TransferTask
from cse_core.lookup import unknown
from cse_core.models.embedding_cache import CachedEncoder, EncoderOfDistinctIds, Progress, SentenceEncoder, cut_warning
from cse_core.models.fp32_products import faster_products

# CompCSE, Fig. 4.
PHRASES = (
    "A man is lifting weights in a garage",
    "A man is lifting weights",
    "A man in a garage",
    "We store it outside of the house",
    "A man is in a garage",
    "She parked on the driveway",
)
UNRECORDED_SUBSETS = ("stsb_dissimilar", "stsb_between")


def _subset(name: str) -> STSTask:
    base, _, reads = SUBSETS[name]
    return STSTask((base,), read_sets=reads, subset=name)


# Tasks with scores in the project's record, computed as in SentEval: texts with equal token ids are embedded apart, and
# equal vectors have a cosine next to 1. For all others, and the user's own files, equal ids have one vector and cosines
# are exact. See docs/evaluations.md.
_OF_RECORD: dict[str, Task] = {
    **{name: STSTask((name,)) for name in (*STS_TEST, "stsb_dev")},
    **{f"{name}_groups": RankingTask(SPLITS.get(name, (name,))) for name in STS_TEST},
    **{name: TransferTask(labelled_sets=(name,)) for name in TRANSFER},
    **{name: _subset(name) for name in SUBSETS if name not in UNRECORDED_SUBSETS},
    "stsb_dev_geometry": GeometryTask(("stsb_dev",)),
    "stsb_dev_projection": Projection(("stsb_dev",)),
    "stsb_dev_density": Density(("stsb_dev",)),
    "stsb_dev_positives": Positives(("stsb_dev",)),
    "stsb_dev_start": DistanceFromStart(("stsb_dev",)),
    "phrases": SimilarityMatrixTask(sentences=PHRASES),
    "stsb_neighbours": Neighbours(("stsb",)),
    "stsb_sample_projection": Projection(("stsb",), size=1000),
    "stsb_sample_density": Density(("stsb",), size=1000),
    "stsb_dev_halves": Halves(read_sets=("stsb_dev",)),
    **{f"{name}_sizes": Sizes.of(*SPLITS.get(name, (name,))) for name in (*STS_TEST, *TRANSFER)},
    **{f"{name}_gold": Gold(read_sets=(name, *SEEN)) for name in STS_TEST},
    **{f"examples_{name}": Example.of(*example) for name, example in EXAMPLES.items()},
}
RECORDED = frozenset(_OF_RECORD)
TASKS: dict[str, Task] = _OF_RECORD | {
    **{name: STSTask((name,)) for name in ("sickr_dev", *STS_TRAIN, *SYNTHETIC)},
    **{name: _subset(name) for name in UNRECORDED_SUBSETS},
    **{f"{name}_test_groups": RankingTask((name,)) for name in SPLITS},
    **{f"{name}_fast": TransferTask(labelled_sets=(name,), setting="fast") for name in TRANSFER},
    "stsb_geometry": GeometryTask(SPLITS["stsb"]),
}
UNDEFINED, NOT_FINITE = "undefined (are all its scores equal?)", "is not finite"  # why an encoder has no score
GROUPS: dict[str, tuple[str, ...]] = {
    "sts": STS_TEST,
    "sts_disjoint": tuple(f"{name}_disjoint" for name in STS_TEST),
    "dev": STS_DEV,
    "transfer": TRANSFER,
    "transfer_fast": tuple(f"{name}_fast" for name in TRANSFER),
    "ranking": tuple(f"{name}_groups" for name in STS_TEST),
    "ranking_test": tuple(f"{name}_test_groups" for name in SPLITS),
    "geometry": (
        "stsb_dev_geometry",
        *("stsb_dissimilar", "stsb_between", "stsb_similar"),
        *("stsb_dev_projection", "phrases"),
    ),
    "neighbours": ("stsb_neighbours",),
    "synthetic": tuple(SYNTHETIC),
    "sizes": tuple(f"{name}_sizes" for name in (*STS_TEST, *TRANSFER)),
    "gold": tuple(f"{name}_gold" for name in STS_TEST),
    "examples": tuple(f"examples_{name}" for name in EXAMPLES),
}


def expand_names(names: Iterable[str], columns: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of the tasks of groups, single tasks and files (own_pairs.py), each once, in order.

    A name is first looked up as a group, then as a task, then as a file. `columns` are those of the files.
    """
    named = {*GROUPS, *TASKS}
    given = (own_pairs.add(n, columns) if n not in named and own_pairs.is_file(n) else n for n in names)
    return tuple(_look_up(task for name in given for task in GROUPS.get(name, (name,))))


def version(name: str) -> int:
    """Return the version of a task's evaluation, which is recorded with each score."""
    return _look_up([name])[name].version


def complete(name: str, recorded_version: int, metrics: Collection[str], unrecorded: Collection[str] = ()) -> bool:
    """Whether `metrics` has all metrics of the task's current version, except those that are never recorded."""
    task = find_task(name)
    return task is not None and recorded_version == task.version and set(task.metrics) - set(unrecorded) <= set(metrics)


def find_task(name: str) -> Task | None:
    """Return a task by name, or None; a user's own set has the name that own_pairs.add returned."""
    return STSTask((name,)) if own_pairs.is_own(name) else TASKS.get(name)


def check_scorer(scorer: Scorer, names: Iterable[str]) -> None:
    """Refuse tasks that a scorer can't score, such as neighbours without a corpus."""
    for name, task in _look_up(names).items():
        task.check(name, scorer)


def _look_up(names: Iterable[str]) -> dict[str, Task]:
    tasks: dict[str, Task] = {}
    for name in names:
        if not (task := find_task(name)):
            raise unknown("task", name, [*GROUPS, *TASKS])
        tasks[name] = task
    return tasks


@dataclass(frozen=True)
class Evaluated:
    """Outcomes by task, the reasons why tasks failed, and the datasets that all of them were computed from."""

    outcomes: Mapping[str, Outcome]
    failures: Mapping[str, str]
    datasets: Mapping[str, EvalDataset]

    def __getitem__(self, task: str) -> Outcome:
        """Return a task's outcome; raise its failure as a ValueError if it has none."""
        if task in self.failures:
            raise ValueError(self.failures[task])
        return self.outcomes[task]


@faster_products()
def evaluate(
    encoder: SentenceEncoder,
    scorer: Scorer,
    names: Iterable[str],
    *,
    data: Path | None = None,
    progress: Progress | None = None,
) -> Evaluated:
    """Score an encoder on tasks; a task that fails does not stop the others.

    All sets and a scorer's corpus are read before anything is embedded, so that a damaged file costs nothing. Then
    every distinct sentence of all tasks is embedded once. Those of recorded tasks come first, so that their bits do not
    depend on other tasks. Tasks that only state facts about the sets embed nothing.
    """
    tasks = _look_up(names)
    check_scorer(scorer, tasks)
    embedded = _embedded(tasks.values())
    needed = _unique_names([*(task.read_sets for task in tasks.values()), embedded])
    sets = {name: (labelled_sentences if name in TRANSFER else pairs)(name, data) for name in needed}
    cached = CachedEncoder.wrap(encoder)
    for name in embedded:
        cut = cut_warning(name, scorer.view(cached).encoder, (text for side in _sides(sets[name]) for text in side))
        sets[name] = replace(sets[name], warnings=(*sets[name].warnings, *cut))
    recorded, others = ({n: t for n, t in tasks.items() if (n in RECORDED) == kept} for kept in (True, False))
    inputs: dict[str, Inputs] = {}
    outcomes, failures = {}, {}
    for group, view in ((recorded, cached), (others, EncoderOfDistinctIds(cached))):
        failures |= (unscored := _embed(view, scorer, group, sets, data, progress))
        left = {name: task for name, task in group.items() if name not in unscored}
        scored = _unique_names(task.pair_sets for task in left.values())
        columns = {name: (sets[name].table["sentence1"][:], sets[name].table["sentence2"][:]) for name in scored}
        scores = scorer.pair_scores(view, columns, data=data) if columns else {}
        inputs |= dict.fromkeys(left, Inputs(sets, scores, scorer, view, data, progress))
    for name, task in tasks.items():
        if name in failures:
            continue
        try:
            outcomes[name] = _outcome(name, task, inputs[name])
        except ValueError as error:
            failures[name] = str(error)
    return Evaluated(outcomes, failures, sets)


def _embed(
    view: CachedEncoder,
    scorer: Scorer,
    tasks: Mapping[str, Task],
    sets: Mapping[str, EvalDataset],
    data: Path | None,
    progress: Progress | None,
) -> dict[str, str]:
    """Embed the texts of tasks; return, by name, why tasks fail: the vector of a text is not finite."""
    of_sets = {name: [s for side in _sides(sets[name]) for s in side] for name in _embedded(tasks.values())}
    if not of_sets and not any(task.sentences for task in tasks.values()):
        return {}  # otherwise a scorer's corpus would be embedded for nothing
    texts = [s for of_set in of_sets.values() for s in of_set] + [s for task in tasks.values() for s in task.sentences]
    embedding = scorer.view(view)
    embedding.fill([*texts, *scorer.texts(data)], progress)
    failures = {}
    for name, task in tasks.items():
        of_task = [*(s for each in _embedded([task]) for s in of_sets[each]), *task.sentences]
        if (text := embedding.not_finite(of_task)) is not None:
            failures[name] = f"{name} by {scorer}: the vector of {text!r} {NOT_FINITE}"
    return failures


def _embedded(tasks: Iterable[Task]) -> list[str]:
    """Return the sets whose texts are embedded: first those of pairs."""
    tasks = list(tasks)
    return _unique_names([*(task.pair_sets for task in tasks), *(task.labelled_sets for task in tasks)])


def _outcome(name: str, task: Task, inputs: Inputs) -> Outcome:
    outcome = task.outcome(name, inputs)
    undefined = [metric for metric, value in outcome.metrics.items() if math.isnan(value)]
    if undefined:
        raise ValueError(f"{name} by {inputs.scorer}: {', '.join(undefined)} {UNDEFINED}")
    return outcome


def _unique_names(names: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for group in names for name in group))


def _sides(evaluation: EvalDataset) -> list[list[str]]:
    first, second = (evaluation.table[side][:] for side in ("sentence1", "sentence2"))
    return [first, second] if any(second) else [first]
