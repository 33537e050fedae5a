"""Planned rows have seeds by looks at `small`, and ten for each paper's first claim at other scales."""

from collections import Counter

import pytest

from experiments.execution.plan import jobs_of
from experiments.plan.pilots import COMPOSITION, RANKS, SCORING, TEACHERS, TRANSFER, WHITENING
from experiments.plan.plan_orders import FAMILY_OF
from experiments.plan.planned_rows import FIRST_FAMILIES
from experiments.schema.contrasts import EXPLORATORY, HEADLINES, LOOKS, MEAN, NEGATIVE, POSITIVE, PRIMARY, looks_at
from experiments.schema.scales import PLANNED_SEEDS
from experiments.studies.catalogue import choose_studies


@pytest.mark.parametrize("scale", ["small-1m", "paper"])
def test_first_claims_and_their_controls_have_ten_seeds_at_other_scales_and_other_rows_five(scale: str) -> None:
    for study in choose_studies(["plan"], scale):
        judged = [contrast for contrast in study.contrasts if contrast.role != EXPLORATORY]
        ten = {label for contrast in judged for label in contrast.rows}
        for row in study.rows if study.contrasts else ():
            assert row.seeds in ((PLANNED_SEEDS[:10],) if row.label in ten else (PLANNED_SEEDS[:5], ()))


@pytest.mark.parametrize("scale", ["small-1m", "paper"])
def test_only_first_claims_are_primary_at_other_scales_each_with_both_controls(scale: str) -> None:
    contrasts = [contrast for study in choose_studies(["plan"], scale) for contrast in study.contrasts]
    assert {each.claim for each in contrasts if each.role == PRIMARY} == set(HEADLINES.values())
    for kind in (PRIMARY, POSITIVE, NEGATIVE):
        assert Counter(each.family for each in contrasts if each.role == kind) == Counter(FIRST_FAMILIES)


def test_all_contrasts_decide_at_small() -> None:
    contrasts = [contrast for study in choose_studies(["plan"], "small") for contrast in study.contrasts]
    assert Counter(each.role for each in contrasts if each.kind == MEAN) == {PRIMARY: 45, POSITIVE: 6, NEGATIVE: 6}
    assert (looks_at("small"), looks_at("paper")) == ((5, 10, 20), (10,))


def test_rows_have_the_seeds_of_a_look() -> None:
    looks = {TEACHERS: 20, TRANSFER: 20, RANKS: 20, WHITENING: 20, COMPOSITION: 10, SCORING: 20}
    assert set(looks.values()) <= set(LOOKS)
    for study in choose_studies(["plan"], "small"):
        for contrast in study.contrasts:
            expected = PLANNED_SEEDS[: looks[contrast.family or FAMILY_OF[contrast.claim]]]
            assert all(row.seeds in (expected, ()) for row in study.rows if row.label in contrast.rows)


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.slow
def test_a_sweep_trains_every_row_of_a_contrast(scale: str) -> None:
    studies = choose_studies(["plan"], scale)
    jobs = jobs_of(studies)
    judged = [(study, row) for study in studies for row in study.rows if study.contrasts]
    missing = [f"{study.name}: {row.label}" for study, row in judged if not set(row.keys().values()) <= set(jobs)]
    assert missing == []
    assert len(judged) > 50
