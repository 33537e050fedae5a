"""Controls of the papers' methods: what else might explain a gain. The study's own; no table of the papers has them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from cse_core.method import with_fields
from cse_core.methods.rankcse import Teacher
from cse_core.run import Run
from experiments.schema.hypotheses import LITTLE, Comparison, Cost
from experiments.schema.recipes import RUNS, rankcse_run, simcse_run
from experiments.schema.rows import BASE, row
from experiments.schema.study import Scale, Study, StudyAt
from experiments.studies.rankcse import MLE, NET
from experiments.studies.whitenedcse import READINGS, VIEWS


def compute(scale: Scale) -> Study:
    """SimCSE with RankCSE's batch, epochs and so many dev scores; RankCSE with SimCSE's and with its own."""
    many = {"epochs": 4}
    simcse, net, mle = simcse_run(scale, BASE), rankcse_run(scale, BASE), rankcse_run(scale, BASE, "list_mle")
    assert simcse  # every scale has something for BERT-base
    assert net
    assert mle
    made = {
        "SimCSE": simcse,
        "SimCSE, batch 128": replace(simcse, batch_size=128),
        "SimCSE, 4 epochs": replace(simcse, **many),
        "SimCSE, 4 epochs, batch 128": replace(simcse, **many, batch_size=128),
        "SimCSE, four times the dev scores": replace(simcse, eval_steps=max(1, simcse.eval_steps // 4)),
        NET: net,
        MLE: mle,
        f"{NET}, 4 epochs": replace(net, **many),
        f"{MLE}, 4 epochs": replace(mle, **many),
    }
    controls = [label for label in made if label.startswith("SimCSE")]
    return _control(
        scale,
        "rankcse-compute",
        "Does RankCSE's gain survive equal compute and selection?",
        made,
        [Comparison("R16", f"{m}, 4 epochs", c) for m in (NET, MLE) for c in controls if "4 epochs" in c or "four" in c]
        + [Comparison("R16", m, c) for m in (NET, MLE) for c in controls if "epochs" not in c],
    )


def distillation(scale: Scale) -> Study:
    """RankCSE's teachers without ranking, and with their rankings destroyed."""
    net = rankcse_run(scale, BASE)
    assert net  # every scale has something for BERT-base
    made = {
        "SimCSE": simcse_run(scale, BASE),
        NET: net,
        MLE: rankcse_run(scale, BASE, "list_mle"),
        "squared error, same teachers": replace(net, method=with_fields(net.method, rank="mse")),
        f"{NET}, shuffled teachers": rankcse_run(scale, BASE, teacher_order="shuffled"),
        f"{MLE}, shuffled teachers": rankcse_run(scale, BASE, "list_mle", teacher_order="shuffled"),
        f"{NET}, untrained teacher": rankcse_run(scale, BASE, teachers=(Teacher(scale.backbones[BASE]),)),
    }
    return _control(
        scale,
        "rankcse-distillation",
        "Is RankCSE's gain the ranking, or distillation as such?",
        made,
        [
            Comparison("R17", m, c)
            for m in (NET, MLE)
            for c in ("squared error, same teachers", f"{m}, shuffled teachers")
        ],
    )


def whitening(scale: Scale) -> Study:
    """What else might do what whitening does."""
    make = partial(RUNS["whitenedcse"], scale, BASE)
    made: dict[str, Run | None] = {"SimCSE": simcse_run(scale, BASE)}
    compared = []
    for suffix, views in VIEWS.items():
        mine = f"WhitenedCSE{suffix}"
        others = {f"batch norm of each channel{suffix}": "channel", f"random rotation{suffix}": "rotation"}
        made |= {mine: make(views=views)} | {o: make(views=views, whitening=kind) for o, kind in others.items()}
        compared += [Comparison("W9", mine, other, reading=READINGS[suffix]) for other in others]
    made["extra dropout on shared features"] = make(views="shared", whitening="none", feature_dropout=0.1)
    made["three views, no whitening, dropout views"] = make(views="dropout", whitening="none")
    compared += [
        Comparison("W9", f"WhitenedCSE{suffix}", other, reading=READINGS[suffix])
        for suffix, other in zip(VIEWS, list(made)[-2:], strict=True)
    ]
    shared = make(views="shared")
    if shared:  # AdamW's steps are as long for a loss that is nearly 0 as for any other
        for name, part in (("a tenth", 10), ("a hundredth", 100)):
            rate = round(shared.learning_rate / part, 9)
            made[f"WhitenedCSE, {name} of the rate"] = replace(shared, learning_rate=rate)
    study = _control(scale, "whitenedcse-controls", "Does WhitenedCSE's gain come from whitening?", made, compared)
    steps = ("WhitenedCSE shared, step", "WhitenedCSE dropout, step")
    return replace(study, findings=tuple(Cost("W8", step, LITTLE, at_most=True) for step in steps))


def composition(scale: Scale) -> Study:
    """Positives as short and as hard: one part alone, which composes nothing, and parts that are no halves."""
    make = partial(RUNS["compcse"], scale, BASE)
    made = {
        "SimCSE": simcse_run(scale, BASE),
        "CompCSE": make(),
        "first half alone": make(compose="first"),
        "one random crop": make(compose="first", split_on="crops"),
        "two random crops, composed": make(split_on="crops"),
        "halves of shuffled words, composed": make(split_on="shuffled"),
    }
    compared = [Comparison("C11", "CompCSE", other) for other in list(made)[2:]]
    compared += [Comparison("C1", "CompCSE", "SimCSE")]
    return _control(scale, "compcse-controls", "Does composition help, or a shorter, harder positive?", made, compared)


def _control(
    scale: Scale, name: str, question: str, made: Mapping[str, Run | None], compared: Sequence[Comparison]
) -> Study:
    return Study(
        name=name,
        source="this project",
        question=question,
        scale=scale,
        rows=tuple(row(scale, label, run, BASE, None) for label, run in made.items()),
        columns=("sts_avg", scale.dev),
        comparisons=tuple(compared),
    )


STUDIES: dict[str, StudyAt] = {
    "rankcse-compute": compute,
    "rankcse-distillation": distillation,
    "whitenedcse-controls": whitening,
    "compcse-controls": composition,
}
