"""What the first plan's runs say besides its own contrasts. All of these runs were known when this was written."""

from dataclasses import replace
from functools import partial

from experiments.plan.pilots import COMPOSITION, SCORING, TEACHERS, with_epochs
from experiments.plan.plan_orders import orders
from experiments.plan.second_plan import COLUMNS, LONG, LOSSES, contrast, length, seeded_row, stage_study
from experiments.schema.recipes import RUNS, rankcse_run, simcse_run
from experiments.schema.rows import BASE, LARGE
from experiments.schema.study import Row, Scale, Study, StudyAt, named


def first_plan(scale: Scale) -> Study:
    """Declare what the first plan's runs say besides its own contrasts; no run is new."""
    simcse = simcse_run(scale, BASE)
    ten, composed = seeded_row(scale, "SimCSE, ten seeds", simcse, 10), _composed(scale)
    runs = {"SimCSE": simcse, "ListNet": rankcse_run(scale, BASE), "ListMLE": rankcse_run(scale, BASE, "list_mle")}
    short, long = (
        {name: seeded_row(scale, f"{name}, {length(n)}", with_epochs(run, n), 20) for name, run in runs.items()}
        for n in (1, LONG)
    )
    larger, larger_long = (
        replace(
            seeded_row(scale, f"SimCSE, larger backbone, {length(n)}", with_epochs(simcse_run(scale, LARGE), n), 20),
            backbone=LARGE,
        )
        for n in (1, LONG)
    )
    gains = [
        *(contrast("R1", TEACHERS, at[loss], at["SimCSE"], paired=False) for at in (short, long) for loss in LOSSES),
        *(contrast("eight epochs in place of one", TEACHERS, long[name], short[name], paired=True) for name in runs),
        *(contrast("R15", TEACHERS, long["ListNet"], other, paired=False) for other in (larger_long, larger)),
        *(contrast("C1 and its rivals", COMPOSITION, each, ten, paired=False) for each in composed),
    ]
    rows = [*short.values(), *long.values(), larger, larger_long, *composed, ten]
    everything = [[each for each in pair if each.column == "sts_avg"] for pair in gains]
    question = "What do the first plan's runs say beside its own contrasts?"
    return replace(stage_study(question, rows, *everything), columns=COLUMNS[:1])


def _composed(scale: Scale) -> list[Row]:
    """Return the rows of CompCSE and of its two controls, random crops and shuffled words."""
    run = partial(RUNS["compcse"], scale, BASE, subsampling="none")
    return [
        seeded_row(scale, "CompCSE", run(), 10),
        seeded_row(scale, "two random crops", run(split_on="crops"), 10),
        seeded_row(scale, "halves of shuffled words", run(split_on="shuffled"), 10),
    ]


def disjoint(scale: Scale) -> Study:
    """Declare the gains of the first plan's methods over SimCSE on all pairs and on disjoint ones; no run is new."""
    simcse, *others = (each for each in orders(scale).rows if each.select == scale.dev)
    return stage_study(
        "How much of a gain is left without the pairs that STS-B's dev or train set has?",
        [simcse, *others],
        *(contrast("S1", SCORING, each, simcse, paired=False) for each in others),
    )


STUDIES: dict[str, StudyAt] = named({"plan2-first-plan": first_plan, "plan2-disjoint": disjoint})
