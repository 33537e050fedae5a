"""Pilots and controls: how long must runs be before this testbed can show the effects that the claims are about?

Each family of claims has a positive control, which must help if the testbed can show anything, and a negative control,
which must not help. Both are trained for 256, 1,024 and 2,048 steps on seeds that nothing else uses.
experiments/PLAN.md says what follows from them.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from cse_core.evaluation.scorers import Scorer, Whitened
from cse_core.method import with_fields
from cse_core.methods.rankcse import Teacher
from cse_core.run import Pretrained, Run
from experiments.schema.contrasts import Contrast, must_help, must_not_help
from experiments.schema.recipes import RUNS, present, rankcse_run, rankencoder_run, simcse_run
from experiments.schema.rows import BASE, row
from experiments.schema.scales import PILOT_SEEDS
from experiments.schema.study import Row, Scale, Study, StudyAt, named

# A far better encoder than any that this study trains: its STS average over seven sets is 78.9.
MINILM = Pretrained("all-MiniLM-L6-v2", "4b0aa5629d2b2d9d8b831d74d832d285cbd2a402eeee41cbad74dc17810b4bb1")
EPOCHS = (1, 4, 8)  # at `small` 256, 1,024 and 2,048 steps
# lambda_train at which RankEncoder's two losses are equally large at `small`. The recorded runs with the paper's 0.05
# end at a contrastive loss of 0.31 and a rank loss of 0.125, so with 0.05 the rank loss never counts.
BALANCED_WEIGHT = 2.5
TEACHERS, RANKS, WHITENING, COMPOSITION = "teachers", "trained ranks", "whitening", "composition"
TRANSFER, SCORING = "transfer", "scoring without training"


def with_epochs(run: Run | None, epochs: int) -> Run | None:
    """Return the run with more epochs and as many dev scores as in one epoch."""
    return replace(run, epochs=epochs, eval_steps=run.eval_steps * epochs) if run else None


def balanced_rankencoder(scale: Scale, base: Run | Pretrained | None = None, **fields: Any) -> Run | None:
    """Return a RankEncoder run with losses of equal size, on SimCSE or on another base if one is given."""
    run = rankencoder_run(scale, BASE, rank_weight=BALANCED_WEIGHT, **fields)
    return replace(run, method=with_fields(run.method, base=base)) if run and base else run


def _controls(scale: Scale, epochs: int) -> tuple[list[Row], list[Contrast]]:
    """Return every family's controls after this number of epochs."""

    def control_row(label: str, run: Run | None, scorer: Scorer | None = None) -> Row:
        more: dict[str, Any] = {"scorer": scorer} if scorer else {}
        label = f"{label}, {epochs} epoch{'s' if epochs > 1 else ''}"
        return row(scale, label, with_epochs(run, epochs), BASE, None, seeds=PILOT_SEEDS, **more)

    plain = present(simcse_run(scale, BASE))
    with_minilm = partial(rankcse_run, scale, BASE, teachers=(Teacher(MINILM),))
    views = partial(RUNS["whitenedcse"], scale, BASE, views="dropout")
    simcse = control_row("SimCSE", plain)
    same_views = control_row("SimCSE without dropout", replace(plain, dropout=0.0))
    on_test = control_row("SimCSE, whitened on the test sentences", plain, Whitened(pooling="cls", dims=64))
    elsewhere = Whitened(pooling="cls", dims=64, corpus=scale.corpus)
    on_corpus = control_row("SimCSE, whitened on the training sentences", plain, elsewhere)
    minilm = control_row("RankCSE, MiniLM teaches", with_minilm())
    shuffled = control_row("RankCSE, MiniLM teaches in shuffled order", with_minilm(teacher_order="shuffled"))
    ranks = control_row("RankEncoder, MiniLM ranks", balanced_rankencoder(scale, MINILM))
    ignorant = control_row(
        "RankEncoder, the untrained backbone ranks", balanced_rankencoder(scale, scale.backbones[BASE])
    )
    three = control_row("three dropout views", views(whitening="none"))
    rotated = control_row("three dropout views, rotated at random", views(whitening="rotation"))
    words = control_row("CompCSE, halves of shuffled words", RUNS["compcse"](scale, BASE, split_on="shuffled"))
    return [*(simcse, same_views, on_test, on_corpus, minilm, shuffled, ranks, ignorant, three, rotated, words)], [
        must_help(minilm, simcse, TEACHERS),
        must_not_help(shuffled, simcse, TEACHERS),
        must_help(ranks, simcse, RANKS),
        must_not_help(ignorant, simcse, RANKS),
        must_help(simcse, same_views, WHITENING),
        must_not_help(rotated, three, WHITENING, paired=True),
        must_help(simcse, same_views, COMPOSITION),
        must_not_help(words, simcse, COMPOSITION),
        must_help(on_test, simcse, SCORING, paired=True),
        must_not_help(on_corpus, simcse, SCORING, paired=True),
    ]


def pilots(scale: Scale) -> Study:
    """Declare the controls of every family at three lengths of training."""
    parts = [_controls(scale, epochs) for epochs in EPOCHS]
    return Study(
        source="this project",
        question="After how many steps does this testbed show what must help, and not what must not?",
        rows=tuple(line for rows, _ in parts for line in rows),
        columns=("sts_avg", scale.dev),
        contrasts=tuple(contrast for _, contrasts in parts for contrast in contrasts),
    )


def transfer(scale: Scale) -> Study:
    """Declare the controls of teachers on transfer tasks."""
    rows, contrasts = [], []
    column = "transfer_avg"
    for epochs in EPOCHS:
        simcse, *_, minilm, shuffled = _controls(scale, epochs)[0][:6]
        rows += [simcse, minilm, shuffled]
        contrasts += [must_help(minilm, simcse, TRANSFER, column=column)]
        contrasts += [must_not_help(shuffled, simcse, TRANSFER, column=column)]
    return Study(
        source="this project",
        question="After how many steps do transfer tasks show a better teacher, and not a shuffled one?",
        rows=tuple(rows),
        columns=(column,),
        contrasts=tuple(contrasts),
    )


STUDIES: dict[str, StudyAt] = named({"pilots": pilots, "pilots-transfer": transfer})
