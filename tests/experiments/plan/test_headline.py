"""The smallest study that decides the four first claims at the published scale."""

from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.run import Run
from experiments.execution.plan import jobs_of
from experiments.plan.headline import headline
from experiments.schema.contrasts import EXPLORATORY, HEADLINES, NEGATIVE, POSITIVE, PRIMARY
from experiments.schema.scales import SCALES
from experiments.studies.catalogue import choose_studies

OTHER_READINGS = ("WhitenedCSE, dropout views", "RankEncoder, the paper's weight")


def test_it_has_the_plans_first_claims_and_their_controls_and_the_plans_runs() -> None:
    (study,) = choose_studies(["headline"], "small")  # it has a scale of its own
    assert study.scale is SCALES["paper"]
    assert [each.claim for each in study.contrasts if each.role == PRIMARY] == list(HEADLINES.values())
    families = {each.family for each in study.contrasts if each.role == PRIMARY}
    for role in (POSITIVE, NEGATIVE):
        assert {each.family for each in study.contrasts if each.role == role} == families
    planned = choose_studies(["plan"], "paper")
    contrasts = [each for one in planned for each in one.contrasts if each.role != EXPLORATORY]
    assert {each for each in study.contrasts if each.role != EXPLORATORY} == {
        each for each in contrasts if each.family in families
    }
    assert {len(row.seeds) for row in study.rows} == {10}
    others = [row for row in study.rows if row.label in OTHER_READINGS]
    assert {*jobs_of([study])} - {*jobs_of(planned)} <= {key for row in others for key in row.keys().values()}


def test_it_also_has_the_papers_weight_and_the_released_codes_views() -> None:
    study = headline(SCALES["paper"])
    whitened, ranks = (next(row for row in study.rows if row.label == label) for label in OTHER_READINGS)
    assert isinstance(whitened.encoder, Run)
    assert isinstance(whitened.encoder.method, WhitenedCSE)
    assert whitened.encoder.method.views == "dropout"
    assert isinstance(ranks.encoder, Run)
    assert isinstance(ranks.encoder.method, RankEncoder)
    assert ranks.encoder.method.rank_weight == 0.05
    planned = next(row for row in study.rows if row.label == "RankEncoder")
    assert ranks.scorer == planned.scorer
    assert {label for each in study.contrasts if each.role == EXPLORATORY for label in each.plus} == {*OTHER_READINGS}


def test_a_label_means_one_run() -> None:
    study = headline(SCALES["paper"])
    rows = [row for one in choose_studies(["plan"], "paper") for row in one.rows]
    for row in study.rows:
        same = [other.keys() for other in rows if other.label == row.label and len(other.seeds) == 10]
        assert all(keys == row.keys() for keys in same)
