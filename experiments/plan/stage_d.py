"""The second plan (PLAN2.md), stage D: the methods on an encoder that starts near BERT-base's level."""

from dataclasses import replace
from typing import Any

from cse_core.evaluation.near_start import AveragedWithStart
from cse_core.evaluation.scorers import Cosine
from cse_core.methods.rankcse import Teacher
from experiments.plan.pilots import COMPOSITION, MINILM, RANKS, TEACHERS, WHITENING
from experiments.plan.second_plan import LOSSES, TEACHER_SEEDS, contrast, seeded_row, stage_study
from experiments.schema.recipes import RUNS, present, rankcse_run, rankencoder_run, simcse_run
from experiments.schema.rows import BASE, rank_scorer
from experiments.schema.study import Row, Scale, Study, StudyAt, named

SEEDS = 10
NEAR_START = "near the start"
AVERAGED = ("SimCSE", "WhitenedCSE, dropout views", "CompCSE")


def _students(scale: Scale) -> list[Row]:
    """Return RankCSE with both losses, taught by SimCSE on the same backbone and by MiniLM."""
    simcse = present(simcse_run(scale, BASE))

    def taught(label: str, rank: str, teacher: Teacher, **more: Any) -> Row:
        return seeded_row(scale, label, rankcse_run(scale, BASE, rank, teachers=(teacher,)), SEEDS, **more)

    ours = [
        taught(name, rank, Teacher(simcse, 1.0, scale.dev), teacher_seeds=TEACHER_SEEDS)
        for name, rank in LOSSES.items()
    ]
    return ours + [taught(f"{name}, MiniLM teaches", rank, Teacher(MINILM, 1.0)) for name, rank in LOSSES.items()]


def quality(scale: Scale) -> Study:
    """Declare the four papers' methods, SimCSE, and what might explain CompCSE's gain."""

    def ours(label: str, method: str, **fields: Any) -> Row:
        return seeded_row(scale, label, RUNS[method](scale, BASE, **fields), SEEDS)

    simcse = seeded_row(scale, "SimCSE", simcse_run(scale, BASE), SEEDS)
    net, mle, net_minilm, mle_minilm = _students(scale)
    by_cosine = seeded_row(scale, "RankEncoder by cosine", rankencoder_run(scale, BASE), SEEDS, vary="all")
    ranks = replace(by_cosine, label="RankEncoder", scorer=rank_scorer(scale))
    simcse_ranks = replace(simcse, label="SimCSE scored as RankEncoder", scorer=rank_scorer(scale))
    whitened = ours("WhitenedCSE, dropout views", "whitenedcse", views="dropout")
    composed = ours("CompCSE", "compcse")
    crops = ours("two random crops", "compcse", split_on="crops")
    words = ours("halves of shuffled words", "compcse", split_on="shuffled")
    first = ours("first half alone", "compcse", compose="first")
    rivals = {"two random crops": crops, "halves of shuffled words": words, "first half alone": first}
    return stage_study(
        "Which methods gain over SimCSE on an encoder that starts near BERT-base's level?",
        [
            *(simcse, net, mle, net_minilm, mle_minilm, ranks, by_cosine, simcse_ranks),
            *(whitened, composed, crops, words, first),
        ],
        contrast("D1", TEACHERS, net, simcse, paired=False, primary=True),
        contrast("D2", RANKS, ranks, simcse, paired=True, primary=True),
        contrast("D3", WHITENING, whitened, simcse, paired=False, primary=True),
        contrast("D4", COMPOSITION, composed, simcse, paired=False, primary=True),
        contrast("D5", COMPOSITION, composed, crops, paired=True, primary=True),
        contrast("R1", TEACHERS, mle, simcse, paired=False),
        contrast("positive control", TEACHERS, net_minilm, simcse, paired=False),
        contrast("positive control", TEACHERS, mle_minilm, simcse, paired=False),
        contrast("E3, training", RANKS, by_cosine, simcse, paired=True),
        contrast("E3, scoring", RANKS, simcse_ranks, simcse, paired=True),
        *(contrast("C11", COMPOSITION, rivals[name], simcse, paired=False) for name in rivals),
    )


def _averaged(scale: Scale, row: Row) -> Row:
    return replace(row, label=f"{row.label}, averaged", scorer=AveragedWithStart(start=scale.backbones[BASE]))


def averaged(scale: Scale) -> Study:
    """Declare SimCSE and the methods that gain over it with weights averaged with those that training began from."""
    trained = {row.label: row for row in quality(scale).rows if row.label in AVERAGED}
    halfway = {label: _averaged(scale, row) for label, row in trained.items()}
    simcse = halfway["SimCSE"]
    return stage_study(
        "How much of a gain remains if every encoder moves half-way back to where training began?",
        [*trained.values(), *halfway.values()],
        *(contrast("averaged", NEAR_START, halfway[label], trained[label], paired=True) for label in trained),
        *(
            contrast("both averaged", NEAR_START, row, simcse, paired=False)
            for row in halfway.values()
            if row != simcse
        ),
    )


def distances(scale: Scale) -> Study:
    """Declare how far each of stage D's encoders is from where its training began."""
    trained = [row for row in quality(scale).rows if isinstance(row.scorer, Cosine)]
    return Study(
        source="this project, PLAN2.md",
        question="How far from its start does each method take the encoder? (The scorer names the start; the distances "
        "are those of the encoder itself, not of an average.)",
        rows=tuple(replace(_averaged(scale, row), label=row.label) for row in trained),
        columns=("start_weights", "start_vectors"),
    )


STUDIES: dict[str, StudyAt] = named(
    {"plan2-quality": quality, "plan2-averaged": averaged, "plan2-distances": distances}
)
