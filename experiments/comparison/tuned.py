"""The comparisons that PLAN2.md declares: stage B, all methods with equal tuning at scale `small`."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from cse_core.methods.rankcse import Teacher
from cse_core.run import Run
from cse_core.space import LogUniform
from experiments.comparison.comparison import STAGES, Budget, Comparison, Entrant
from experiments.comparison.entrants import entrant, measures_of, with_space
from experiments.comparison.recorded import dev_scores
from experiments.execution.job import Job
from experiments.execution.plan import merge_jobs
from experiments.results import csv_record
from experiments.schema.recipes import present, simcse_run
from experiments.schema.rows import BASE
from experiments.schema.scales import SCALES, WIKI_MEDIUM
from experiments.schema.study import Scale

PAPERS = ("rankcse", "rankencoder", "whitenedcse", "compcse")  # whose gains are tested together
ALL = ("simcse", *PAPERS, "esimcse", "promptbert", "mixcse", "dclr", "arccse", "mocose", "sncse", "l2pcsr")


def teacher_sets(simcse: Run, scale: Scale) -> tuple[tuple[Teacher, ...], ...]:
    """Return RankCSE's possible teachers: SimCSE on wiki-medium, on the student's backbone, or both as in the paper."""
    medium, tiny = replace(simcse, backbone=WIKI_MEDIUM), simcse

    def mix(*weighted: tuple[Run, float]) -> tuple[Teacher, ...]:
        return tuple(Teacher(run, weight, scale.dev) for run, weight in weighted)

    return (mix((medium, 1.0)), mix((tiny, 1.0)), mix((tiny, 1 / 3), (medium, 2 / 3)))


def tuned() -> Comparison:
    """Return stage B: four searches of sixteen trials for each method, and eight fresh seeds for each winner."""
    scale = SCALES["small"]
    measures = measures_of(("sts", "sts_disjoint"), scale.dev)
    simcse = present(simcse_run(scale, BASE))
    more: dict[str, dict[str, Any]] = {
        "rankcse": {"teachers": teacher_sets(simcse, scale)},
        # At 0.5 and less, recorded runs of this scale never had a larger rank loss, and trained as SimCSE does.
        "rankencoder": {"rank_weight": LogUniform(1.0, 50.0)},
    }

    def tuned_entrant(name: str) -> Entrant:
        tasks = [task for tasks in measures.values() for task in tasks]
        each = with_space(entrant(name, scale, BASE), scale, scale.width or 0, tasks)
        return replace(each, space={**each.space, **more.get(name, {})})

    return Comparison(
        name="tuned",
        scale=scale,
        entrants=tuple(map(tuned_entrant, ALL)),
        measures=measures,
        dev=scale.dev,
        budget=Budget(),
        tested=PAPERS,
    )


COMPARISONS: dict[str, Callable[[], Comparison]] = {"tuned": tuned}


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
