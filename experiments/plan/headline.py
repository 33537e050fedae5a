"""The smallest part of the plan that decides each paper's first claim: R1, E3, W1 and C1, with their controls."""

from experiments.plan import plan_objectives, plan_rankcse, plan_rankencoder
from experiments.schema.contrasts import EXPLORATORY, HEADLINES, PRIMARY, Contrast
from experiments.schema.study import Scale, Study, StudyAt, named

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
    return Study(
        source="this project, PLAN.md",
        question="Does each paper's first claim hold?",
        rows=tuple(rows.values()),
        columns=tuple(dict.fromkeys(contrast.column for contrast in contrasts)),
        contrasts=contrasts,
    )


def _decides(contrast: Contrast) -> bool:
    if contrast.role == PRIMARY:
        return contrast.claim in HEADLINES.values()
    return contrast.role != EXPLORATORY


STUDIES: dict[str, StudyAt] = named({"headline": headline})
