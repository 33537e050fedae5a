"""Published effects added after the runs: the papers' numbers, for contrasts that have none in the plan."""

from experiments.plan.published_effects import added_effects
from experiments.studies.catalogue import choose_studies


def test_added_effects_are_the_papers_differences() -> None:
    assert added_effects() == {
        "R5": round(79.41 - 78.41, 4),
        "R8": round(80.05 - (77.48 + 79.66) / 2, 4),
        "W5": round(78.78 - 77.81 - (76.37 - 76.25), 4),
        "E2": round(48.41 - 46.73, 4),
        "E8": 0.17,
    }


def test_no_effect_of_the_plan_is_replaced() -> None:
    planned = {c.subject: c.published for study in choose_studies(["plan"], "small") for c in study.contrasts}
    assert all(planned[claim] is None for claim in added_effects())
