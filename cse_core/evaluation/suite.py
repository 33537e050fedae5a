"""Evaluations by name, all of a call scored from one embedding of each distinct sentence."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cse_core.data.senteval import STS_DEV, STS_TEST, STS_TRAIN, SYNTHETIC, TRANSFER, EvalDataset, labelled, pairs
from cse_core.evaluation.dataset_facts import EXAMPLES, Example, Gold, Halves, Sizes
from cse_core.evaluation.scorers import SPLITS, Scorer
from cse_core.evaluation.subsets import SEEN, SUBSETS
from cse_core.evaluation.task import Inputs, Outcome, Task
from cse_core.evaluation.tasks import (
    GeometryTask,
    Neighbours,
    Projection,
    RankingTask,
    SimilarityMatrixTask,
    STSTask,
    TransferTask,
)
from cse_core.lookup import unknown
from cse_core.models.embedding_cache import CachedEncoder, Progress, SentenceEncoder

# CompCSE, Fig. 4.
PHRASES = (
    "A man is lifting weights in a garage",
    "A man is lifting weights",
    "A man in a garage",
    "We store it outside of the house",
    "A man is in a garage",
    "She parked on the driveway",
)


TASKS: dict[str, Task] = {
    **{name: STSTask((name,)) for name in (*STS_TEST, *STS_DEV, *STS_TRAIN, *SYNTHETIC)},
    **{name: STSTask((base,), read_sets=reads, subset=name) for name, (base, _, reads) in SUBSETS.items()},
    **{f"{name}_groups": RankingTask(SPLITS.get(name, (name,))) for name in STS_TEST},
    **{f"{name}_test_groups": RankingTask((name,)) for name in SPLITS},
    **{name: TransferTask(labelled_sets=(name,)) for name in TRANSFER},
    **{f"{name}_fast": TransferTask(labelled_sets=(name,), setting="fast") for name in TRANSFER},
    "stsb_dev_geometry": GeometryTask(("stsb_dev",)),
    "stsb_geometry": GeometryTask(SPLITS["stsb"]),
    "stsb_dev_projection": Projection(("stsb_dev",)),
    "phrases": SimilarityMatrixTask(sentences=PHRASES),
    "stsb_neighbours": Neighbours(("stsb",)),
    "stsb_sample_projection": Projection(("stsb",), size=1000),
    "stsb_dev_halves": Halves(read_sets=("stsb_dev",)),
    **{f"{name}_sizes": Sizes.of(*SPLITS.get(name, (name,))) for name in (*STS_TEST, *TRANSFER)},
    **{f"{name}_gold": Gold(read_sets=(name, *SEEN)) for name in STS_TEST},
    **{f"examples_{name}": Example.of(*example) for name, example in EXAMPLES.items()},
}
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


def named(names: Iterable[str]) -> tuple[str, ...]:
    """The tasks of groups and single names, each once, in order; a group comes before a task of its name."""
    return tuple(_known(task for name in names for task in GROUPS.get(name, (name,))))


def version(name: str) -> int:
    """Of a task's numbers: a column of every score."""
    return _known([name])[name].version


def complete(name: str, found_version: int, metrics: Collection[str], unrecorded: Collection[str] = ()) -> bool:
    """Whether these are all the metrics that a task's present version gives, those left out of a record aside."""
    task = TASKS.get(name)
    return task is not None and found_version == task.version and set(task.metrics) - set(unrecorded) <= set(metrics)


def _known(names: Iterable[str]) -> dict[str, Task]:
    found = dict.fromkeys(names)
    for name in found:
        if name not in TASKS:
            raise unknown("task", name, [*GROUPS, *TASKS])
    return {name: TASKS[name] for name in found}


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


def evaluate(
    encoder: SentenceEncoder,
    scorer: Scorer,
    names: Iterable[str],
    *,
    data: Path | None = None,
    progress: Progress | None = None,
) -> Evaluated:
    """Score an encoder on tasks; a task that fails does not stop the others.

    All sets and a scorer's corpus are read before anything is embedded, so that a damaged file costs nothing; then
    every distinct sentence of all tasks is embedded once. Tasks that only state facts of the sets embed nothing.
    """
    tasks = _known(names)
    for name, task in tasks.items():
        task.check(name, scorer)
    scored = {name: pairs(name, data) for name in _all(task.pair_sets for task in tasks.values())}
    classed = {name: labelled(name, data) for name in _all(task.labelled_sets for task in tasks.values())}
    others = _all(task.read_sets for task in tasks.values())
    read = {name: (labelled if name in TRANSFER else pairs)(name, data) for name in others}
    sets = read | scored | classed
    memory = CachedEncoder.wrap(encoder)
    every = [s for found in (scored | classed).values() for side in _sides(found) for s in side]
    own = [s for task in tasks.values() for s in task.sentences]
    if every or own:  # else a scorer's corpus would be embedded for nothing
        scorer.view(memory).fill([*every, *own, *scorer.texts(data)], progress)
    columns = {name: (e.table["sentence1"][:], e.table["sentence2"][:]) for name, e in scored.items()}
    scores = scorer.pair_scores(memory, columns, data=data) if columns else {}
    inputs = Inputs(sets, scores, scorer, memory, data, progress)
    outcomes, failures = {}, {}
    for name in tasks:
        try:
            outcomes[name] = _outcome(name, inputs)
        except ValueError as error:
            failures[name] = str(error)
    return Evaluated(outcomes, failures, sets)


def _outcome(name: str, inputs: Inputs) -> Outcome:
    outcome = TASKS[name].outcome(name, inputs)
    undefined = [metric for metric, value in outcome.metrics.items() if math.isnan(value)]
    if undefined:
        raise ValueError(f"{name} by {inputs.scorer}: {', '.join(undefined)} undefined; are all its scores equal?")
    return outcome


def _all(names: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for some in names for name in some))


def _sides(evaluation: EvalDataset) -> list[list[str]]:
    first, second = (evaluation.table[side][:] for side in ("sentence1", "sentence2"))
    return [first, second] if any(second) else [first]
