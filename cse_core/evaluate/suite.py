"""Evaluations by name, all of a call scored from one embedding of each distinct sentence."""

import math
from collections.abc import Iterable
from pathlib import Path

from cse_core.data import sentences
from cse_core.evaluate.subsets import SUBSETS
from cse_core.evaluate.tasks import (
    Classified,
    Correlations,
    Grouped,
    Inputs,
    Neighbours,
    Outcome,
    Pairwise,
    Projection,
    Space,
    Task,
)
from cse_core.memory import Embeds, Memory, Progress
from cse_core.run import Corpus
from cse_core.scorers import SPLITS, Scorer
from cse_core.senteval import STS_DEV, STS_TEST, STS_TRAIN, SYNTHETIC, TRANSFER, Evaluation, labelled, pairs

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
    **{name: Correlations((name,)) for name in (*STS_TEST, *STS_DEV, *STS_TRAIN, *SYNTHETIC)},
    **{name: Correlations((base,), subset=name) for name, (base, _) in SUBSETS.items()},
    **{f"{name}_groups": Grouped(SPLITS.get(name, (name,))) for name in STS_TEST},
    **{f"{name}_test_groups": Grouped((name,)) for name in SPLITS},
    **{name: Classified(labelled_sets=(name,)) for name in TRANSFER},
    **{f"{name}_fast": Classified(labelled_sets=(name,), setting="fast") for name in TRANSFER},
    "stsb_dev_geometry": Space(("stsb_dev",)),
    "stsb_geometry": Space(SPLITS["stsb"]),
    "stsb_dev_projection": Projection(("stsb_dev",)),
    "phrases": Pairwise(sentences=PHRASES),
    "stsb_neighbours": Neighbours(("stsb",)),
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
}


def named(names: Iterable[str]) -> tuple[str, ...]:
    """The tasks of groups and single names, each once, in order; a group comes before a task of its name."""
    return tuple(_known(task for name in names for task in GROUPS.get(name, (name,))))


def version(name: str) -> int:
    """Of a task's numbers: a column of every score."""
    return _known([name])[name].version


def _known(names: Iterable[str]) -> dict[str, Task]:
    found = dict.fromkeys(names)
    unknown = [name for name in found if name not in TASKS]
    if unknown:
        raise ValueError(
            f"unknown task {', '.join(unknown)}; known groups: {', '.join(GROUPS)}; known tasks: {', '.join(TASKS)}"
        )
    return {name: TASKS[name] for name in found}


def evaluate(
    encoder: Embeds,
    scorer: Scorer,
    names: Iterable[str],
    *,
    data: Path | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Outcome], dict[str, Evaluation]]:
    """Every task's outcome, and the sets that they were read from.

    All sets and a scorer's corpus are read before anything is embedded, so that a damaged file costs nothing; then
    every distinct sentence of all tasks is embedded once.
    """
    tasks = _known(names)
    for name, task in tasks.items():
        task.check(name, scorer)
    corpus: Corpus | None = getattr(scorer, "corpus", None)
    if corpus:
        sentences(corpus, data)
    pair_sets = {name: pairs(name, data) for name in dict.fromkeys(n for t in tasks.values() for n in t.pair_sets)}
    others = {name: labelled(name, data) for name in dict.fromkeys(n for t in tasks.values() for n in t.labelled_sets)}
    sets = pair_sets | others
    memory = Memory.of(encoder)
    every = [s for found in sets.values() for side in _sides(found) for s in side]
    scorer.view(memory).fill([*every, *(s for task in tasks.values() for s in task.sentences)], progress)
    columns = {name: (e.table["sentence1"][:], e.table["sentence2"][:]) for name, e in pair_sets.items()}
    scores = scorer.pair_scores(memory, columns, data=data)
    inputs = Inputs(sets, scores, scorer, memory, data, progress)
    found = {name: task.outcome(name, inputs) for name, task in tasks.items()}
    for name, outcome in found.items():
        undefined = [metric for metric, value in outcome.metrics.items() if math.isnan(value)]
        if undefined:
            raise ValueError(f"{name} by {scorer}: {', '.join(undefined)} undefined; are all its scores equal?")
    return found, sets


def _sides(evaluation: Evaluation) -> list[list[str]]:
    first, second = (evaluation.table[side][:] for side in ("sentence1", "sentence2"))
    return [first, second] if any(second) else [first]
