"""The comparisons that PLAN2.md declares: equal tuning (B), and what won on a larger encoder (C)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from cse_core.methods.rankcse import Teacher
from cse_core.run import Run
from cse_core.space import LogUniform, Values
from experiments.comparison.comparison import RATES, STAGES, Budget, Comparison, Entrant
from experiments.comparison.entrants import entrant, measures_of, tasks_of, with_space
from experiments.comparison.recorded import dev_scores
from experiments.execution.job import Job
from experiments.execution.plan import merge_jobs
from experiments.plan.six_layers import on_six_layers
from experiments.results import csv_record
from experiments.schema.recipes import present, simcse_run
from experiments.schema.rows import BASE
from experiments.schema.scales import SCALES, WIKI_MEDIUM
from experiments.schema.study import Scale

Spaces = Mapping[str, Mapping[str, Values]]  # by method
PAPERS = ("rankcse", "rankencoder", "whitenedcse", "compcse")  # whose gains are tested together
MEASURES = {"STS average": "sts", "STS average, disjoint pairs": "sts_disjoint"}
# At 0.5 and less, recorded runs of this scale never had a larger rank loss, and trained as SimCSE does.
RANK_WEIGHT: Spaces = {"rankencoder": {"rank_weight": LogUniform(1.0, 50.0)}}
ALL = ("simcse", *PAPERS, "esimcse", "promptbert", "mixcse", "dclr", "arccse", "mocose", "sncse", "l2pcsr")


def teacher_sets(simcse: Run, scale: Scale) -> tuple[tuple[Teacher, ...], ...]:
    """Return RankCSE's possible teachers: SimCSE on wiki-medium, on the student's backbone, or both as in the paper."""
    medium, tiny = replace(simcse, backbone=WIKI_MEDIUM), simcse

    def mix(*weighted: tuple[Run, float]) -> tuple[Teacher, ...]:
        return tuple(Teacher(run, weight, scale.dev) for run, weight in weighted)

    return (mix((medium, 1.0)), mix((tiny, 1.0)), mix((tiny, 1 / 3), (medium, 2 / 3)))


def _entrants(names: Sequence[str], scale: Scale, tasks: Sequence[str], more: Spaces) -> tuple[Entrant, ...]:
    """Return methods with their search spaces at a scale; `more` adds to the spaces, by method."""
    found = (with_space(entrant(name, scale, BASE), scale, scale.width or 0, tasks) for name in names)
    return tuple(replace(each, space={**each.space, **more.get(each.name, {})}) for each in found)


def _measures(scale: Scale) -> dict[str, tuple[str, ...]]:
    return dict(zip(MEASURES, measures_of(list(MEASURES.values()), scale.dev).values(), strict=True))


def tuned() -> Comparison:
    """Return stage B: four searches of sixteen trials for each method, and eight fresh seeds for each winner."""
    scale = SCALES["small"]
    measures = _measures(scale)
    taught = {"rankcse": {"teachers": teacher_sets(present(simcse_run(scale, BASE)), scale)}}
    return Comparison(
        name="tuned",
        scale=scale,
        entrants=_entrants(ALL, scale, tasks_of(measures), {**RANK_WEIGHT, **taught}),
        measures=measures,
        dev=scale.dev,
        budget=Budget(),
        tested=PAPERS,
    )


def tuned_medium() -> Comparison:
    """Return stage C: the settings that won in stage B, with three learning rates, on wiki-medium."""
    scale = on_six_layers(SCALES["small"])
    measures = _measures(scale)
    return Comparison(
        name="tuned-medium",
        scale=scale,
        entrants=_entrants(("simcse", *PAPERS), scale, tasks_of(measures), RANK_WEIGHT),
        measures=measures,
        dev=scale.dev,
        budget=Budget(trials=len(RATES), finals=2),
        tested=PAPERS,
        transfers=tuned(),
    )


COMPARISONS: dict[str, Callable[[], Comparison]] = {"tuned": tuned, "tuned-medium": tuned_medium}


def recorded_comparisons(scale: str, searches: pd.DataFrame) -> Iterator[Comparison]:
    """Yield each declared comparison at a scale that has a line in searches.csv."""
    for name, declare in COMPARISONS.items():
        if searches["search"].str.startswith(f"{name} ").any() and (made := declare()).scale.name == scale:
            yield made


def recorded_jobs(scale: str, mlruns: Path) -> dict[str, Job]:
    """Return the jobs of the declared comparisons' recorded trials at a scale, after those of teachers and bases."""
    results, searches = csv_record.read_results(scale, mlruns), csv_record.read_searches(scale, mlruns)
    jobs: list[dict[str, Job]] = []
    for made in recorded_comparisons(scale, searches):
        scores = dev_scores(made, results, searches)
        for stage in STAGES:
            recorded = [trial for trial in made.stage(stage, scores) if scores.of(trial) is not None]
            jobs.append(made.jobs(recorded, final=stage == STAGES[-1]))
    return merge_jobs(jobs)
