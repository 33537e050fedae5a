"""The smallest study that decides the four first claims at the published scale."""

from experiments.execution.plan import jobs_of
from experiments.plan.headline import headline
from experiments.schema.contrasts import EXPLORATORY, HEADLINES, NEGATIVE, POSITIVE, PRIMARY
from experiments.schema.scales import SCALES
from experiments.studies.catalogue import choose_studies


def test_it_has_the_plans_first_claims_and_their_controls_and_the_plans_runs() -> None:
    (study,) = choose_studies(["headline"], "small")  # it has a scale of its own
    assert study.scale is SCALES["paper"]
    assert [each.claim for each in study.contrasts if each.role == PRIMARY] == list(HEADLINES.values())
    families = {each.family for each in study.contrasts if each.role == PRIMARY}
    for role in (POSITIVE, NEGATIVE):
        assert {each.family for each in study.contrasts if each.role == role} == families
    planned = choose_studies(["plan"], "paper")
    contrasts = [each for one in planned for each in one.contrasts if each.role != EXPLORATORY]
    assert {*study.contrasts} == {each for each in contrasts if each.family in families}
    assert jobs_of([study]).keys() < jobs_of(planned).keys(), "no run that the plan has not"
    assert {len(row.seeds) for row in study.rows} == {10}


def test_a_label_means_one_run() -> None:
    study = headline(SCALES["paper"])
    rows = [row for one in choose_studies(["plan"], "paper") for row in one.rows]
    for row in study.rows:
        same = [other.keys() for other in rows if other.label == row.label and len(other.seeds) == 10]
        assert all(keys == row.keys() for keys in same)
