"""The smallest part of the plan that decides each paper's first claim: R1, E3, W1 and C1, with their controls.

The plan tests WhitenedCSE as its text has it, and RankEncoder at 50 times the paper's weight of the rank loss. So two
rows are added: WhitenedCSE with the views of its released code, and RankEncoder at the paper's weight.
"""

from experiments.plan import plan_objectives, plan_rankcse, plan_rankencoder
from experiments.plan.pilots import RANKS, WHITENING
from experiments.plan.second_plan import seeded_row
from experiments.schema.contrasts import EXPLORATORY, HEADLINES, PRIMARY, Contrast, of_rows
from experiments.schema.recipes import RUNS, rankencoder_run
from experiments.schema.rows import BASE, rank_scorer
from experiments.schema.study import Row, Scale, Study, StudyAt, named

SOURCES: tuple[StudyAt, ...] = tuple(
    studies[name]
    for studies in (plan_rankcse.STUDIES, plan_rankencoder.STUDIES, plan_objectives.STUDIES)
    for name in ("plan-losses", "plan-teachers", "plan-ranks", "plan-whitening", "plan-composition")
    if name in studies
)


def headline(scale: Scale) -> Study:
    """Return a study of the plan's first claims and their families' controls, with the plan's seeds."""
    studies = [source(scale) for source in SOURCES]
    contrasts = tuple(each for study in studies for each in study.contrasts if _decides(each))
    read = {label for contrast in contrasts for label in contrast.rows}
    found = [row for study in studies for row in study.rows if row.label in read]
    found.sort(key=lambda row: len(row.seeds))  # of a row in several studies, the one with most seeds is kept
    rows = {row.label: row for row in found}
    simcse, whitened, ranks = rows["SimCSE"], *_other_readings(scale)
    rows |= {row.label: row for row in (whitened, ranks)}
    contrasts += (
        of_rows(whitened, simcse, claim="W1", family=WHITENING),
        of_rows(ranks, simcse, claim="E3", family=RANKS, paired=True),
    )
    return Study(
        source="this project, PLAN.md",
        question="Does each paper's first claim hold?",
        rows=tuple(rows.values()),
        columns=tuple(dict.fromkeys(contrast.column for contrast in contrasts)),
        contrasts=contrasts,
    )


def _other_readings(scale: Scale) -> tuple[Row, Row]:
    """Return WhitenedCSE with the views of its released code, and RankEncoder at the paper's weight."""
    whitened, ranks = RUNS["whitenedcse"](scale, BASE, views="dropout"), rankencoder_run(scale, BASE)
    by_ranks = {"vary": "all", "scorer": rank_scorer(scale)}
    return (
        seeded_row(scale, "WhitenedCSE, dropout views", whitened, 10),
        seeded_row(scale, "RankEncoder, the paper's weight", ranks, 10, **by_ranks),
    )


def _decides(contrast: Contrast) -> bool:
    if contrast.role == PRIMARY:
        return contrast.claim in HEADLINES.values()
    return contrast.role != EXPLORATORY


STUDIES: dict[str, StudyAt] = named({"headline": headline})
