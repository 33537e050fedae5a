"""Which runs planned rows have: seeds by looks at `small`, ten of each paper's first claim at the published scale."""

import pytest

from experiments.execution.plan import jobs_of
from experiments.plan.pilots import COMPOSITION, RANKS, SCORING, TEACHERS, TRANSFER, WHITENING
from experiments.schema.contrasts import HEADLINES, LOOKS
from experiments.schema.scales import PLANNED_SEEDS
from experiments.studies.catalogue import choose_studies


def test_first_claims_have_ten_seeds_at_the_published_scale_and_others_five() -> None:
    found = set()
    for study in choose_studies(["plan"], "paper"):
        first = {
            label for contrast in study.contrasts if contrast.subject in HEADLINES.values() for label in contrast.rows
        }
        found |= {contrast.subject for contrast in study.contrasts} & set(HEADLINES.values())
        for row in study.rows if study.contrasts else ():
            assert row.seeds in (PLANNED_SEEDS[:10] if row.label in first else PLANNED_SEEDS[:5], ())
    assert found == set(HEADLINES.values())


def test_rows_have_the_seeds_of_a_look() -> None:
    looks = {TEACHERS: 20, TRANSFER: 20, RANKS: 20, WHITENING: 20, COMPOSITION: 10, SCORING: 20}
    assert set(looks.values()) <= set(LOOKS)
    for study in choose_studies(["plan"], "small"):
        for contrast in study.contrasts:
            expected = PLANNED_SEEDS[: looks[contrast.family]]
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
