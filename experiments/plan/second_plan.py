"""The second plan (PLAN2.md), stage A: what the first plan's runs can't answer, at scale `small` only."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cse_core.methods.rankcse import Teacher
from cse_core.run import Run
from experiments.plan.pilots import RANKS, TEACHERS, WHITENING, balanced_rankencoder, with_epochs
from experiments.schema.contrasts import EXPLORATORY, ONE_LOOK, Contrast, of_rows
from experiments.schema.recipes import RUNS, present, rankcse_run, simcse_run
from experiments.schema.rows import BASE, rank_scorer, row
from experiments.schema.scales import PLANNED_SEEDS, WIKI_MEDIUM
from experiments.schema.study import Row, Scale, Study, StudyAt, named

MARGIN = 0.5  # points of an average over seven sets
COLUMNS = ("sts_avg", "sts_disjoint_avg")  # all pairs; disjoint pairs, which are not in STS-B's dev or train set
TEACHER_SEEDS = (42, 1, 2)
MEDIUM_SEEDS = (42, 1)  # on wiki-medium; PLAN2.md says why not seed 2
LONG = 8  # epochs
NOT_REPEATED = 309  # a seed of RankEncoder that PLAN2.md leaves out of A4, in its last section
LOSSES = {"ListNet": "list_net", "ListMLE": "list_mle"}


def contrast(claim: str, family: str, plus: Row, minus: Row, *, paired: bool, primary: bool = False) -> list[Contrast]:
    """Return the contrasts of two rows on all pairs and on disjoint pairs; only the first can be a primary."""
    about: dict[str, Any] = {"claim": claim, "family": family, "paired": paired, "margin": MARGIN}
    roles = (ONE_LOOK if primary else EXPLORATORY, EXPLORATORY)
    return [
        of_rows(plus, minus, column=column, role=role, **about) for column, role in zip(COLUMNS, roles, strict=True)
    ]


def seeded_row(scale: Scale, label: str, run: Run | None, seeds: int, **more: Any) -> Row:
    """Return a row with the first of the planned seeds."""
    return row(scale, label, run, BASE, None, seeds=PLANNED_SEEDS[:seeds], **more)


def stage_study(question: str, rows: Sequence[Row], *contrasts: list[Contrast]) -> Study:
    """Return a study of these contrasts, each on all pairs and on disjoint pairs."""
    return Study(
        source="this project, PLAN2.md",
        question=question,
        rows=tuple(rows),
        columns=COLUMNS,
        contrasts=tuple(each for pair in contrasts for each in pair),
    )


def whitening(scale: Scale) -> Study:
    """Declare WhitenedCSE as in its released code, with dropout views, after one epoch."""

    def ours(label: str, **fields: Any) -> Row:
        return seeded_row(scale, label, RUNS["whitenedcse"](scale, BASE, **({"views": "dropout"} | fields)), 20)

    simcse = seeded_row(scale, "SimCSE", simcse_run(scale, BASE), 20)
    full = ours("WhitenedCSE, dropout views")
    plain = ours("groups not shuffled", whitening="group")
    two = ours("two positives", positives=2)
    unwhitened = ours("three dropout views, no whitening", whitening="none", positives=3)
    channels = ours("batch norm of each channel", whitening="channel")
    pca = ours("PCA whitening", whitening="pca")
    inside = ours("sum inside the logarithm", objective="inside")
    settings = {"W3": plain, "W4": two, "W9": channels, "W2": pca, "W7": inside}
    return stage_study(
        "Which of WhitenedCSE's claims hold on dropout views?",
        [simcse, full, plain, two, unwhitened, channels, pca, inside],
        contrast("A1", WHITENING, full, simcse, paired=False, primary=True),
        contrast("W5", WHITENING, full, unwhitened, paired=True),
        contrast("W5", WHITENING, unwhitened, simcse, paired=False),
        *(contrast(claim, WHITENING, full, other, paired=True) for claim, other in settings.items()),
    )


def teachers(scale: Scale) -> Study:
    """Declare RankCSE with teachers as good as the SimCSE it is compared with, and better ones, at two lengths."""
    simcse = present(simcse_run(scale, BASE))
    longer = present(with_epochs(simcse, LONG))
    taught_by = {
        "SimCSE of eight epochs": (longer, TEACHER_SEEDS),
        "wiki-medium's SimCSE": (replace(simcse, backbone=WIKI_MEDIUM), MEDIUM_SEEDS),
    }

    def students(loss: str, rank: str, teacher: str, epochs: int) -> Row:
        encoder, seeds = taught_by[teacher]
        run = with_epochs(rankcse_run(scale, BASE, rank, teachers=(Teacher(encoder, 1.0, scale.dev),)), epochs)
        label = f"{loss} taught by {teacher}, {length(epochs)}"
        return seeded_row(scale, label, run, 10, teacher_seeds=seeds)

    rows = [
        row(scale, f"teacher: {name}", run, BASE, None, seeds=TEACHER_SEEDS) for name, (run, _) in taught_by.items()
    ]
    contrasts: list[list[Contrast]] = []
    for epochs in (1, LONG):
        base = seeded_row(scale, f"SimCSE, {length(epochs)}", with_epochs(simcse, epochs), 10)
        rows.append(base)
        for loss, rank in LOSSES.items():
            equal, better = (students(loss, rank, teacher, epochs) for teacher in taught_by)
            rows += [equal, better]
            primary = {"ListNet": "A2", "ListMLE": "A3"}[loss] if epochs == 1 else "R1"
            contrasts += [
                contrast(primary, TEACHERS, better, base, paired=False, primary=epochs == 1),
                contrast("R1", TEACHERS, equal, base, paired=False),
                contrast("a better teacher", TEACHERS, better, equal, paired=True),
            ]
    return stage_study("Does RankCSE gain over SimCSE when its teachers are as good as the paper's?", rows, *contrasts)


def ranks(scale: Scale) -> Study:
    """Declare SimCSE and RankEncoder after eight epochs, by cosine and by ranks, to separate training from scoring."""
    simcse, encoder = with_epochs(simcse_run(scale, BASE), LONG), with_epochs(balanced_rankencoder(scale), LONG)

    def by(label: str, run: Run | None, **more: Any) -> tuple[Row, Row]:
        cosine = seeded_row(scale, f"{label} by cosine", run, 20, **more)
        return cosine, replace(cosine, label=f"{label} by cosine and ranks", scorer=rank_scorer(scale))

    plain, plain_ranks = by("SimCSE", simcse)
    trained, trained_ranks = by("RankEncoder", encoder, vary="all")
    trained = replace(trained, seeds=tuple(seed for seed in trained.seeds if seed != NOT_REPEATED))
    return stage_study(
        "How much of RankEncoder's gain is training, and how much is scoring?",
        [plain, plain_ranks, trained, trained_ranks],
        contrast("A4", RANKS, trained, plain, paired=True, primary=True),
        contrast("E3, training, scored with ranks", RANKS, trained_ranks, plain_ranks, paired=True),
        contrast("E3, scoring SimCSE with ranks", RANKS, plain_ranks, plain, paired=True),
        contrast("E3, scoring RankEncoder with ranks", RANKS, trained_ranks, trained, paired=True),
        contrast("E3, both", RANKS, trained_ranks, plain, paired=True),
    )


def length(epochs: int) -> str:
    """Return a length of training in words."""
    return "one epoch" if epochs == 1 else f"{epochs} epochs"


STUDIES: dict[str, StudyAt] = named({"plan2-whitening": whitening, "plan2-teachers": teachers, "plan2-ranks": ranks})
