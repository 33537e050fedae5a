"""Stage B has the budget, the seeds and the runs that PLAN2.md declares."""

from itertools import product

import pytest

from experiments.comparison.comparison import PUBLISHED, STAGES, Comparison, Entrant, Scores, settings_text
from experiments.comparison.entrants import tried_text
from experiments.comparison.recorded import read_scores
from experiments.comparison.tuned import ALL, PAPERS, tuned, tuned_medium
from experiments.schema.rows import rank_scorer
from experiments.storage.record_folders import MLRUNS


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
    tiny, medium = both.run.nested()
    simcse = comparison.entrants[0]
    won = comparison.draws(simcse, both.search, Scores({}))[3]
    scores = Scores({})
    for stage in ("trials", "promotions"):
        ended = comparison.stage(stage, scores, (simcse,))
        scores = Scores({**scores.by_address, **{t.address: float(t.settings == won.settings) for t in ended}})
    tuned_tiny, same = comparison.draws(rankcse, both.search, scores)[drawn.index(both) % 16].run.nested()
    assert (tuned_tiny.learning_rate, tuned_tiny.seed) == (won.run.learning_rate, tiny.seed)
    assert (same, tuned_tiny.backbone.name) == (medium, "wiki-tiny")
    teachers = "teachers wiki-medium or wiki-tiny or wiki-tiny 0.333 and wiki-medium 0.667"
    assert tried_text(comparison, rankcse).endswith(teachers)
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


@pytest.mark.slow
def test_stage_c_tries_what_won_in_b_at_three_learning_rates_on_the_larger_encoder() -> None:
    before, after = tuned(), tuned_medium()
    assert (after.tested, after.budget.runs, after.scale.name) == (PAPERS, 4 * (3 + 2) + 2, "small")
    scores = chosen_at_random(before, [each for each in before.entrants if each.name in ("simcse", *PAPERS)])
    scores = chosen_at_random(after, [after.entrants[0]], scores)
    for each in after.entrants:
        theirs = next(other for other in before.entrants if other.name == each.name)
        for search in range(4):
            won = dict(before.selected(theirs, search, scores)[0])  # ty: ignore[not-subscriptable]
            wider = {name: WIDER[name][won[name]] for name in WIDER if name in won}
            same = {name: value for name, value in won.items() if name not in ("teachers", "epochs")}
            draws = after.draws(each, search, scores)
            rates = [won["learning_rate"] * rate for rate in (1 / 3, 1, 3)]
            assert [t.settings for t in draws] == [{**same, **wider, "learning_rate": rate} for rate in rates]
            assert [t.run.seed for t in draws] == [401 + 3 * search + i for i in range(3)]
            assert {(t.run.backbone.name, t.run.max_steps) for t in draws} == {("wiki-medium", 256)}
            simcse = after.selected(after.entrants[0], search, scores)
            nested = {n for t in draws for n in t.run.nested()}
            assert len(nested) == (each.name in ("rankcse", "rankencoder"))
            for run in nested:
                assert run.backbone.name == "wiki-medium"
                assert run.learning_rate == simcse[0]["learning_rate"]  # ty: ignore[not-subscriptable]
    published = {each.name: after.finals(each, PUBLISHED, scores)[0].run.method for each in after.entrants}
    assert (published["whitenedcse"].groups, published["compcse"].dims) == (128, 85)  # ty: ignore[missing-attribute]


WIDER = {"groups": {16: 32, 32: 64, 64: 128}, "dims": {32: 64, 43: 85, 64: 128, 128: 256}}


def chosen_at_random(comparison: Comparison, entrants: list[Entrant], scores: Scores = Scores({})) -> Scores:  # noqa: B008
    """Scores of all trials and promotions, made from the runs' keys."""
    for each, stage in product(entrants, STAGES[:-1]):
        new = {t.address: int(t.run.key, 16) / 16**12 for t in comparison.stage(stage, scores, (each,))}
        scores = Scores({**scores.by_address, **new})
    return scores


PINNED = {
    "simcse": "c55c77bd6185",
    "rankcse": "98ae8114d3db",
    "rankencoder": "3595743d40a0",
    "whitenedcse": "31784ada8332",
    "compcse": "3bde3ff41bae",
    "esimcse": "23ef2a51879a",
    "promptbert": "cd9a45462012",
    "mixcse": "90e18442b612",
    "dclr": "f95c216d5e9f",
    "arccse": "504e77f6a807",
    "mocose": "f9049a46840c",
    "sncse": "84e6c7a7bed1",
    "l2pcsr": "475d49d8694d",
}


@pytest.mark.slow  # reads the record
def test_stage_c_begins_with_what_the_record_says_won_in_b() -> None:
    comparison = tuned_medium()
    _, scores = read_scores(comparison, MLRUNS)
    by_name = {each.name: each for each in comparison.entrants}
    # A change of a key, of B's selection or of the learning rates would orphan the recorded trials.
    first = {name: [t.run.key for t in comparison.draws(by_name[name], 0, scores)] for name in PINNED_MEDIUM}
    assert first == PINNED_MEDIUM


PINNED_MEDIUM = {
    "simcse": ["3f023b61a111", "c5d2e11781d9", "c5d0a8427423"],
    "rankcse": ["e6a22d780cda", "1b3575854332", "c2bf297dbd43"],
    "rankencoder": ["313f931be9f7", "3ee8dafc2aac", "c6cfb44d257a"],
    "whitenedcse": ["283a853c4733", "bbaa348326a3", "2ca841a01e7e"],
    "compcse": ["c1c152b4fc73", "981f5a437a9c", "002c44f9829c"],
}
