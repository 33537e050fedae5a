"""Controls of the papers' methods: what else might explain a gain. No table of the papers asks these questions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from cse_core.method import with_fields
from cse_core.methods.rankcse import Teacher
from cse_core.run import Run
from experiments.schema.contrasts import Contrast
from experiments.schema.hypotheses import NEGLIGIBLE_COST_RATIO, Cost, beats
from experiments.schema.recipes import RUNS, present, rankcse_run, simcse_run
from experiments.schema.rows import BASE, row
from experiments.schema.study import Row, Scale, Study, StudyAt, named
from experiments.studies.rankcse_tables import MLE, NET
from experiments.studies.whitenedcse_tables import VIEWS


def compute(scale: Scale) -> Study:
    """SimCSE with RankCSE's batch size, epochs and number of dev scores; RankCSE as published and with 4 epochs."""
    four_epochs = {"epochs": 4}
    simcse_at, net_at = present(simcse_run(scale, BASE)), present(rankcse_run(scale, BASE))
    mle_at = present(rankcse_run(scale, BASE, "list_mle"))
    made = partial(_control, scale)
    simcse = made("SimCSE", simcse_at)
    batch = made("SimCSE, batch 128", replace(simcse_at, batch_size=128))
    epochs = made("SimCSE, 4 epochs", replace(simcse_at, **four_epochs))
    both = made("SimCSE, 4 epochs, batch 128", replace(simcse_at, **four_epochs, batch_size=128))
    more_dev_scores = replace(simcse_at, eval_steps=max(1, simcse_at.eval_steps // 4))
    selected = made("SimCSE, four times the dev scores", more_dev_scores)
    net, mle = made(NET, net_at), made(MLE, mle_at)
    longer = [
        made(f"{NET}, 4 epochs", replace(net_at, **four_epochs)),
        made(f"{MLE}, 4 epochs", replace(mle_at, **four_epochs)),
    ]
    return _study(
        scale,
        "Does RankCSE's gain survive equal compute and selection?",
        [simcse, batch, epochs, both, selected, net, mle, *longer],
        [
            *(beats(ours, control, claim="R16") for ours in longer for control in (epochs, both, selected)),
            *(beats(ours, control, claim="R16") for ours in (net, mle) for control in (simcse, batch, selected)),
        ],
    )


def distillation(scale: Scale) -> Study:
    """RankCSE's teachers without a rank loss (squared error), with shuffled rankings, or untrained."""
    net_at = present(rankcse_run(scale, BASE))
    made = partial(_control, scale)
    simcse = made("SimCSE", simcse_run(scale, BASE))
    net, mle = made(NET, net_at), made(MLE, rankcse_run(scale, BASE, "list_mle"))
    squared = made("squared error, same teachers", replace(net_at, method=with_fields(net_at.method, rank="mse")))
    shuffled_net = made(f"{NET}, shuffled teachers", rankcse_run(scale, BASE, teacher_order="shuffled"))
    shuffled_mle = made(f"{MLE}, shuffled teachers", rankcse_run(scale, BASE, "list_mle", teacher_order="shuffled"))
    untrained = rankcse_run(scale, BASE, teachers=(Teacher(scale.backbones[BASE]),))
    return _study(
        scale,
        "Is RankCSE's gain the ranking, or distillation as such?",
        [simcse, net, mle, squared, shuffled_net, shuffled_mle, made(f"{NET}, untrained teacher", untrained)],
        [
            *(beats(net, control, claim="R17") for control in (squared, shuffled_net)),
            *(beats(mle, control, claim="R17") for control in (squared, shuffled_mle)),
        ],
    )


def whitening(scale: Scale) -> Study:
    """Alternatives to whitening that might bring the same gain."""
    make, made = partial(RUNS["whitenedcse"], scale, BASE), partial(_control, scale)
    dropout = make(views="shared", whitening="none", feature_dropout=0.1)
    without = {
        "shared": made("extra dropout on shared features", dropout),
        "dropout": made("three views, no whitening, dropout views", make(views="dropout", whitening="none")),
    }
    rows = [made("SimCSE", simcse_run(scale, BASE))]
    compared, ours = [], {}
    for suffix, views in VIEWS.items():
        ours[views] = made(f"WhitenedCSE{suffix}", make(views=views))
        channels = made(f"batch norm of each channel{suffix}", make(views=views, whitening="channel"))
        rotated = made(f"random rotation{suffix}", make(views=views, whitening="rotation"))
        rows += [ours[views], channels, rotated]
        compared += [beats(ours[views], other, claim="W9") for other in (channels, rotated)]
    compared += [beats(ours[views], without[views], claim="W9") for views in VIEWS.values()]
    slower = []
    if shared := make(views="shared"):  # AdamW's steps do not shrink with the loss, which is nearly 0 here
        for name, part in (("a tenth", 10), ("a hundredth", 100)):
            rate = round(shared.learning_rate / part, 9)
            slower.append(made(f"WhitenedCSE, {name} of the rate", replace(shared, learning_rate=rate)))
    rows += [*without.values(), *slower]
    study = _study(scale, "Does WhitenedCSE's gain come from whitening?", rows, compared)
    steps = ("WhitenedCSE shared, step", "WhitenedCSE dropout, step")
    return replace(study, findings=tuple(Cost("W8", step, NEGLIGIBLE_COST_RATIO, at_most=True) for step in steps))


def composition(scale: Scale) -> Study:
    """Positives as short and as hard: a single part, which composes nothing, and parts that are not halves."""
    make = partial(RUNS["compcse"], scale, BASE)
    runs: Mapping[str, Run | None] = {
        "first half alone": make(compose="first"),
        "one random crop": make(compose="first", split_on="crops"),
        "two random crops, composed": make(split_on="crops"),
        "halves of shuffled words, composed": make(split_on="shuffled"),
    }
    simcse, ours = _control(scale, "SimCSE", simcse_run(scale, BASE)), _control(scale, "CompCSE", make())
    controls = [_control(scale, label, run) for label, run in runs.items()]
    return _study(
        scale,
        "Does composition help, or a shorter, harder positive?",
        [simcse, ours, *controls],
        [*(beats(ours, control, claim="C11") for control in controls), beats(ours, simcse, claim="C1")],
    )


def _control(scale: Scale, label: str, run: Run | None) -> Row:
    return row(scale, label, run, BASE, None)


def _study(scale: Scale, question: str, rows: Sequence[Row], contrasts: Sequence[Contrast]) -> Study:
    return Study(
        source="this project",
        question=question,
        rows=tuple(rows),
        columns=("sts_avg", scale.dev),
        contrasts=tuple(contrasts),
    )


STUDIES: dict[str, StudyAt] = named(
    {
        "rankcse-compute": compute,
        "rankcse-distillation": distillation,
        "whitenedcse-controls": whitening,
        "compcse-controls": composition,
    }
)
