"""The second plan (PLAN2.md), stage D: the methods on an encoder that starts near BERT-base's level."""

from dataclasses import replace
from typing import Any

from cse_core.methods.rankcse import Teacher
from experiments.plan.pilots import COMPOSITION, MINILM, RANKS, TEACHERS, WHITENING
from experiments.plan.second_plan import LOSSES, TEACHER_SEEDS, contrast, seeded_row, stage_study
from experiments.schema.recipes import RUNS, present, rankcse_run, rankencoder_run, simcse_run
from experiments.schema.rows import BASE, rank_scorer
from experiments.schema.study import Row, Scale, Study, StudyAt, named

SEEDS = 10


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


STUDIES: dict[str, StudyAt] = named({"plan2-quality": quality})
