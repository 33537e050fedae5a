"""Rows and contrasts of the plan, with each family's length of training, the planned seeds and published effects."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cse_core.run import Run
from experiments.plan.pilots import COMPOSITION, RANKS, SCORING, TEACHERS, TRANSFER, WHITENING
from experiments.schema.contrasts import EXPLORATORY, HEADLINES, MARGIN, PRIMARY, Contrast, looks_at, of_rows
from experiments.schema.recipes import simcse_run
from experiments.schema.rows import BASE, row
from experiments.schema.scales import PLANNED_SEEDS
from experiments.schema.study import Published, Row, Scale, Study

# Epochs of each family at `small`, by PLAN.md's rule from the pilots: teachers and ranks show nothing after one or four
# epochs, so they are tried at eight. Other scales use the recipes' epochs.
EPOCHS = {TEACHERS: 8, TRANSFER: 1, RANKS: 8, WHITENING: 1, COMPOSITION: 1, SCORING: 1}
SEEDS = PLANNED_SEEDS[:5]  # at scales other than `small`, for rows that only exploratory contrasts read
SEEDS_OF = {COMPOSITION: PLANNED_SEEDS[:10]}  # families that end before the last look at `small`
FIRST_FAMILIES = (TEACHERS, RANKS, WHITENING, COMPOSITION)  # of the papers' first claims: R1, E3, W1, C1


def planned_row(scale: Scale, label: str, run: Run | None, family: str, backbone: str = BASE, **more: Any) -> Row:
    """Return a row with its family's seeds and length of training, and as many dev scores as in one epoch."""
    times = EPOCHS[family] if scale.name == "small" else 1
    if times > 1:
        run = replace(run, epochs=run.epochs * times, eval_steps=run.eval_steps * times) if run else None
        label = f"{label}, {times} epochs"  # the family's; a row with twice the epochs trains for twice as many
    more = {"seeds": planned_seeds(scale, family)} | more
    return row(scale, label, run, backbone, more.pop("published", None), **more)


def planned_seeds(scale: Scale, family: str) -> tuple[int, ...]:
    """Return a family's seeds: at `small` those of the family's last look, otherwise the first five."""
    return SEEDS_OF.get(family, PLANNED_SEEDS) if scale.name == "small" else SEEDS


def primary(
    claim: str, family: str, plus: Row | Sequence[Row], minus: Row | Sequence[Row] = (), **more: Any
) -> Contrast:
    """Declare the contrast that decides a claim."""
    return of_rows(plus, minus, claim=claim, family=family, role=PRIMARY, **({"margin": MARGIN} | more))


def printed(table: str, method: str, variant: str | None = None, *, backbone: str = "BERT-base", of: str) -> float:
    """Return a number of a published table, by its heading."""
    value = Published(table, backbone, method, variant, {of: of}).value(of)
    if value is None:
        raise ValueError(f"{table}: no {of} of {method}, {variant}")
    return value


def contrasts_at(scale: Scale, contrasts: Sequence[Contrast]) -> tuple[Contrast, ...]:
    """Return the contrasts with their roles at a scale; at `small` they are as declared.

    At other scales only the papers' first claims and their families' controls keep their roles; the rest is
    exploratory.
    """
    if scale.name == "small":
        return tuple(contrasts)
    return tuple(each if _decides_elsewhere(each) else replace(each, role=EXPLORATORY) for each in contrasts)


def _decides_elsewhere(contrast: Contrast) -> bool:
    if contrast.role == PRIMARY:
        return contrast.claim in HEADLINES.values()
    return contrast.family in FIRST_FAMILIES


def planned_study(
    scale: Scale, question: str, rows: Sequence[Row], contrasts: Sequence[Contrast], **more: Any
) -> Study:
    """Return a study of these contrasts, with the rows and columns that they read.

    At scales other than `small`, rows that a first claim or its controls read have all seeds of the last look.
    """
    contrasts = contrasts_at(scale, contrasts)
    used = {label for contrast in contrasts for label in contrast.rows}
    distinct = {line.label: line for line in rows if line.label in used}
    if scale.name != "small":
        seeds = PLANNED_SEEDS[: looks_at(scale.name)[-1]]
        judged = {label for contrast in contrasts if contrast.role != EXPLORATORY for label in contrast.rows}
        distinct |= {label: replace(distinct[label], seeds=seeds) for label in judged}
    return Study(
        source="this project, PLAN.md",
        question=question,
        rows=tuple(distinct.values()),
        columns=tuple(dict.fromkeys(contrast.column for contrast in contrasts)),
        contrasts=contrasts,
        **more,
    )


def planned_simcse(scale: Scale, family: str, published: Published | None = None) -> Row:
    """Return SimCSE with a family's length of training."""
    return planned_row(scale, "SimCSE", simcse_run(scale, BASE), family, published=published)


def without_dropout(scale: Scale, family: str) -> Row:
    """Return SimCSE with equal views, which has nothing to learn from: a control for methods that make views."""
    run = simcse_run(scale, BASE)
    return planned_row(scale, "SimCSE without dropout", replace(run, dropout=0.0) if run else None, family)
