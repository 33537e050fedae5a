"""Stage B has the budget, the seeds and the runs that PLAN2.md declares."""

import pytest

from experiments.comparison.comparison import PUBLISHED, Scores, settings_text
from experiments.comparison.entrants import space_text
from experiments.comparison.tuned import ALL, PAPERS, tuned
from experiments.schema.rows import rank_scorer


@pytest.mark.slow
def test_stage_b_draws_sixty_four_runs_a_method_which_stay_the_same() -> None:
    comparison = tuned()
    trials = comparison.stage("trials", Scores({}))
    assert len(trials) == 64 * len(ALL) == len({trial.run.key for trial in trials})
    assert comparison.budget.runs == 136
    assert {trial.run.seed for trial in trials} == {401 + 18 * search + i for search in range(4) for i in range(16)}
    assert comparison.tested == PAPERS
    # A change of a space, of Optuna's draws or of a key would orphan the recorded trials.
    first = {trial.entrant.name: trial.run.key for trial in reversed(trials)}
    assert first == PINNED


@pytest.mark.slow
def test_rankcse_is_taught_by_either_encoder_or_both_and_its_settings_can_be_read() -> None:
    comparison = tuned()
    rankcse = comparison.entrants[1]
    drawn = comparison.draws(rankcse, 0, Scores({})) + comparison.draws(rankcse, 1, Scores({}))
    taught = {tuple(run.backbone.name for run in t.run.nested()) for t in drawn}
    assert taught == {("wiki-medium",), ("wiki-tiny",), ("wiki-tiny", "wiki-medium")}
    assert {n.seed for t in drawn for n in t.run.nested()} == {42, 1}
    assert all(len(settings_text(t.settings)) < 400 for t in drawn)
    both = next(t for t in drawn if len(t.run.nested()) == 2)
    teachers = "teachers wiki-medium or wiki-tiny or wiki-tiny 0.333 and wiki-medium 0.667"
    assert space_text(rankcse.space).endswith(teachers)
    assert '["wiki-tiny 0.333", "wiki-medium 0.667"]' in settings_text(both.settings)


@pytest.mark.slow
def test_published_settings_are_scored_as_published_in_the_reading_that_is_tuned() -> None:
    comparison = tuned()
    by_name = {each.name: comparison.finals(each, PUBLISHED, Scores({})) for each in comparison.entrants}
    assert {str(t.scorer) for t in by_name["rankencoder"]} == {str(rank_scorer(comparison.scale, weight=0.1))}
    assert {str(t.scorer) for t in by_name["simcse"]} == {"cosine"}
    assert {getattr(t.run.method, "views") for t in by_name["whitenedcse"]} == {"dropout"}  # noqa: B009
    assert [n.seed for t in by_name["rankencoder"] for n in t.run.nested()] == [42, 1] * 4
    assert {t.run.seed for t in by_name["simcse"]} == set(range(801, 809))


PINNED = {
    "simcse": "eccd912b5c08",
    "rankcse": "1b13add307f2",
    "rankencoder": "5e0bc3e30319",
    "whitenedcse": "e6e5af13039e",
    "compcse": "17f0c303fa0e",
    "esimcse": "ba683a8a295b",
    "promptbert": "e47cfc936ebe",
    "mixcse": "a927170d15c6",
    "dclr": "6fa2a5e4bc4e",
    "arccse": "1f84c1c444ac",
    "mocose": "05d91a6f10c2",
    "sncse": "8be4595b3fc3",
    "l2pcsr": "4a2da23a1fe2",
}
