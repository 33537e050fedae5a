"""What a comparison draws, promotes and selects, without training anything."""

from dataclasses import replace
from itertools import product
from statistics import mean
from typing import Any

import pytest
import tyro

from cse_core.evaluation.scorers import Whitened
from cse_core.methods.rankcse import Teacher
from cse_core.space import LogUniform, with_settings
from experiments.compare import Options
from experiments.compare import comparison_of as described
from experiments.comparison.comparison import (
    PUBLISHED,
    STAGES,
    Budget,
    Comparison,
    Scores,
    Trial,
    _at_same_places,
    settings_text,
)
from experiments.schema.scales import RESERVED_SEEDS
from tests.support.comparisons import QUICK, comparison_of

BUDGET = Budget(trials=8, searches=3, finals=4)
NONE = Scores({})


def scored(comparison: Comparison, by: dict[str, float] | None = None, failed: frozenset[str] = frozenset()) -> Scores:
    """Scores of all stages, by method: a trial's is its learning rate unless `by` has another for its key."""
    scores = Scores({}, failed)
    for entrant, stage in product(comparison.entrants, STAGES):
        new = {
            trial.address: (by or {}).get(trial.run.key, 1e4 * trial.run.learning_rate)
            for trial in comparison.stage(stage, scores, (entrant,))
            if trial.run.key not in failed
        }
        scores = Scores({**scores.by_address, **new}, failed)
    return scores


COMPARISON = comparison_of("simcse", "rankcse", budget=BUDGET)
SIMCSE, RANKCSE = COMPARISON.entrants


def transferring(other: Comparison, **about: Any) -> Comparison:
    given = {"name": "after", "budget": Budget(trials=3, searches=3, finals=2), "transfers": other}
    return replace(other, **(given | about))


def test_draws_lie_in_the_space_and_are_the_same_in_each_process() -> None:
    drawn = COMPARISON.draws(RANKCSE, 1, NONE)
    assert len(drawn) == 8
    for trial in drawn:
        assert trial.settings.keys() == RANKCSE.space.keys()
        for name, values in RANKCSE.space.items():
            value = trial.settings[name]
            assert values.low <= value <= values.high if isinstance(values, LogUniform) else value in values
    first = COMPARISON.draws(SIMCSE, 0, NONE)[0]
    # Pinned: another Optuna, or another seed of the sampler, would orphan the trials of recorded comparisons.
    text = '{"dropout": 0.4, "epochs": 2, "learning_rate": 0.00043483907769824705, "temperature": 0.012886038209399204}'
    assert settings_text(first.settings) == text
    assert first.run.seed == 401


def test_searches_and_methods_draw_independently_with_seeds_of_their_own() -> None:
    trials = [t for each in COMPARISON.entrants for s in range(3) for t in COMPARISON.draws(each, s, NONE)]
    assert len({t.settings["learning_rate"] for t in trials}) == len(trials)
    scores = scored(COMPARISON)
    of_simcse = [t for stage in STAGES for t in COMPARISON.stage(stage, scores) if t.entrant is SIMCSE]
    seeds = [trial.run.seed for trial in of_simcse]
    # A search's promoted settings share two seeds; all other seeds are fresh.
    assert len(set(seeds)) == 3 * 8 + 3 * 2 + (3 + 1) * 4
    assert not RESERVED_SEEDS & {*seeds}
    assert len(of_simcse) == BUDGET.runs == 3 * (8 + 2 * 2 + 4) + 4


def test_finals_are_fresh_however_many_searches_there_are() -> None:
    many = comparison_of("simcse", "rankcse", budget=Budget(trials=64, searches=9, finals=1))
    tried = {t.run.seed for t in many.stage("trials", NONE)}
    scores = Scores({t.address: 1.0 for t in many.stage("trials", NONE)})
    further = many.stage("promotions", scores)
    scores = Scores({**scores.by_address, **{t.address: 1.0 for t in further}})
    promoted = {t.run.seed for t in further}
    for search in (PUBLISHED, 0, 8):
        finals = {t.run.seed for t in many.finals(SIMCSE, search, scores)}
        assert finals
        assert tried & promoted == tried & finals == promoted & finals == set()


def test_the_best_quarter_is_promoted_and_the_highest_mean_of_three_seeds_wins() -> None:
    draws = COMPARISON.draws(SIMCSE, 0, NONE)
    by = {trial.run.key: float(i) for i, trial in enumerate(draws)}  # the last is the best, then the one before
    trials = COMPARISON.stage("trials", NONE)
    scores = Scores({trial.address: by[trial.run.key] for trial in trials if trial.run.key in by})
    promoted = COMPARISON.promotions(SIMCSE, 0, scores)
    best, second = draws[7].settings, draws[6].settings
    assert [trial.settings for trial in promoted] == [best, best, second, second]
    assert [trial.run.seed for trial in promoted] == [409, 410, 409, 410]
    # With more seeds the second overtakes: (6 + 8 + 8) / 3 against (7 + 6 + 6) / 3.
    more = dict(zip((t.address for t in promoted), (6.0, 6.0, 8.0, 8.0), strict=True))
    winner = COMPARISON.selected(SIMCSE, 0, Scores({**scores.by_address, **more}))
    assert winner == (second, pytest.approx(mean((6, 8, 8))))


def test_settings_that_are_drawn_again_are_promoted_once() -> None:
    choices = replace(SIMCSE, space={"dropout": (0.1, 0.2)})
    comparison = replace(COMPARISON, entrants=(choices, *COMPARISON.entrants[1:]))
    draws = comparison.draws(choices, 0, NONE)
    assert {trial.settings["dropout"] for trial in draws} == {0.1, 0.2}
    assert sum(trial.settings["dropout"] == 0.1 for trial in draws) > 1
    scores = Scores({trial.address: 90 - 10 * trial.run.dropout for trial in draws})
    promoted = comparison.promotions(choices, 0, scores)
    assert [trial.settings["dropout"] for trial in promoted[::2]] == [0.1, 0.2]


@pytest.mark.parametrize("other", [Teacher(SIMCSE.start, scorer=Whitened()), Teacher(replace(SIMCSE.start, epochs=7))])
def test_settings_that_read_alike_are_told_apart(other: Teacher) -> None:
    choices = ((Teacher(SIMCSE.start),), (other,))
    taught = replace(RANKCSE, space={"teachers": choices})
    comparison = replace(COMPARISON, entrants=(SIMCSE, taught))
    draws = comparison.draws(taught, 0, NONE)
    by = {trial.address: 80.0 if trial.settings["teachers"] == choices[1] else 60.0 for trial in draws}
    assert {*by.values()} == {60.0, 80.0}
    promoted = comparison.promotions(taught, 0, Scores(by))
    assert [trial.settings["teachers"] for trial in promoted[::2]] == [choices[1], choices[0]]
    by |= {trial.address: 80.0 if trial.settings["teachers"] == choices[1] else 60.0 for trial in promoted}
    assert comparison.selected(taught, 0, Scores(by)) == ({"teachers": choices[1]}, 80.0)
    scorer = " (whitened layer1_last_mean on the task, 64 tokens)" if other.scorer else ""
    assert settings_text({"teachers": choices[1]}) == f'{{"teachers": ["wiki-tiny 1{scorer}"]}}'


def test_a_failed_trial_is_not_promoted_and_a_failed_seed_loses() -> None:
    draws = COMPARISON.draws(SIMCSE, 0, NONE)
    by = {trial.address: float(i) for i, trial in enumerate(draws)}
    del by[draws[7].address]
    scores = Scores(by, frozenset({draws[7].run.key}))
    promoted = COMPARISON.promotions(SIMCSE, 0, scores)
    assert [trial.settings for trial in promoted[::2]] == [draws[6].settings, draws[5].settings]
    lost = Scores({**by, **{t.address: 9.0 for t in promoted[1:]}}, frozenset({draws[7].run.key, promoted[0].run.key}))
    winner = COMPARISON.selected(SIMCSE, 0, lost)
    assert winner
    assert winner[0] == draws[5].settings
    every = frozenset(trial.run.key for trial in draws)
    assert COMPARISON.selected(SIMCSE, 0, Scores({}, every)) is None
    assert COMPARISON.finals(SIMCSE, 0, Scores({}, every)) == []


def test_teachers_that_are_the_baseline_have_the_settings_that_won_its_search() -> None:
    scores = scored(COMPARISON)
    assert [COMPARISON.needs_baseline(each) for each in (SIMCSE, RANKCSE)] == [False, True]
    for stage in STAGES:
        for trial in COMPARISON.stage(stage, scores, (RANKCSE,)):
            (teacher,) = trial.run.nested()
            published = trial.search == PUBLISHED
            winner = None if published else COMPARISON.selected(SIMCSE, trial.search, scores)
            settings = winner[0] if winner else {}
            assert teacher == replace(with_settings(SIMCSE.start, settings), seed=teacher.seed)
            if not published:
                assert teacher.seed == (42, 1, 42)[trial.search]
    untuned = COMPARISON.draws(RANKCSE, 1, NONE)
    tuned = COMPARISON.draws(RANKCSE, 1, scores)
    assert [t.settings for t in untuned] == [t.settings for t in tuned]
    assert not {t.run.key for t in untuned} & {t.run.key for t in tuned}


def test_more_searches_keep_the_teachers_of_those_before_and_of_the_published_settings() -> None:
    def teachers(searches: int, search: int) -> list[int]:
        words = ("simcse", "rankcse", "--scale", "quickstart", "--searches", str(searches), "--trials", "1")
        comparison = described(tyro.cli(Options, args=words))
        scores = Scores({t.address: 1.0 for t in comparison.stage("trials", NONE)})
        _, rankcse = comparison.entrants
        trials = [*(comparison.draws(rankcse, search, scores) if search >= 0 else [])]
        trials += comparison.finals(rankcse, search, Scores({**scores.by_address, **{t.address: 1.0 for t in trials}}))
        return sorted({run.seed for trial in trials for run in trial.run.nested()})

    assert [teachers(4, search) for search in range(4)] == [[42], [1], [2], [3]]
    assert [teachers(count, PUBLISHED) for count in (1, 2, 4)] == [[1, 42]] * 3
    assert [teachers(2, search) for search in range(2)] == [[42], [1]]


def test_the_baseline_has_chosen_when_its_promotions_have_ended() -> None:
    scores = scored(COMPARISON)
    assert COMPARISON.has_chosen(SIMCSE, scores)
    last = COMPARISON.promotions(SIMCSE, 2, scores)[-1].address
    others = {address: score for address, score in scores.by_address.items() if address != last}
    assert not COMPARISON.has_chosen(SIMCSE, Scores(others))
    assert COMPARISON.has_chosen(SIMCSE, Scores(others, frozenset({last[0]})))
    assert not COMPARISON.has_chosen(SIMCSE, NONE)
    tpe = replace(COMPARISON, sampler="tpe")
    assert not tpe.has_chosen(SIMCSE, Scores({t.address: 1.0 for t in tpe.stage("trials", NONE, (SIMCSE,))}))


def test_settings_of_another_comparison_are_tried_once_it_has_chosen() -> None:
    after = transferring(COMPARISON)
    assert after.has_settings(SIMCSE, NONE) is False
    assert after.stage("trials", NONE) == []
    assert not after.has_chosen(SIMCSE, NONE)  # nothing is known to try
    scores = scored(COMPARISON)
    last = COMPARISON.promotions(SIMCSE, 2, scores)[-1].address
    others = {address: score for address, score in scores.by_address.items() if address != last}
    assert after.stage("trials", Scores(others), (SIMCSE,)) == []
    lost = Scores(others, frozenset({last[0]}))  # ended, if not with a score
    for known in (scores, lost):
        for search in range(3):
            won, _ = COMPARISON.selected(SIMCSE, search, known) or ({}, 0.0)
            tried = [t.settings for t in after.draws(SIMCSE, search, known)]
            assert tried == [{**won, "learning_rate": rate * won["learning_rate"]} for rate in (1 / 3, 1.0, 3.0)]
    draws = after.draws(SIMCSE, 1, scores)
    known = Scores({**scores.by_address, **{t.address: score for t, score in zip(draws, (3.0, 9.0, 6.0), strict=True)}})
    assert after.selected(SIMCSE, 1, known) == (draws[1].settings, 9.0)
    assert after.promotions(SIMCSE, 1, known) == []


def test_settings_move_to_the_same_place_of_another_space() -> None:
    theirs = {"a": LogUniform(1.0, 10.0), "b": (16, 32), "c": (1, 2), "d": LogUniform(1.0, 2.0)}
    ours = {"a": LogUniform(0.5, 5.0), "b": (64, 128), "d": LogUniform(1.0, 2.0)}
    assert _at_same_places({"a": 4.0, "b": 32, "c": 2, "d": 1.5}, theirs, ours) == {"a": 2.0, "b": 128, "d": 1.5}


def test_a_comparison_that_can_not_try_the_settings_of_another_is_refused() -> None:
    with pytest.raises(ValueError, match="comparison after tries the settings of test: expected 3 trials and 3 search"):
        transferring(COMPARISON, budget=Budget(trials=4, searches=3))
    with pytest.raises(ValueError, match="comparison after: compcse: expected methods of test that search the learn"):
        transferring(COMPARISON, entrants=(SIMCSE, comparison_of("simcse", "compcse").entrants[1]))
    fixed = replace(RANKCSE, space={name: v for name, v in RANKCSE.space.items() if name != "learning_rate"})
    with pytest.raises(ValueError, match="comparison after: rankcse: expected"):
        transferring(COMPARISON, entrants=(SIMCSE, fixed))


def test_finals_scored_by_ranks_are_also_scored_by_the_cosine() -> None:
    ranked = comparison_of("simcse", "rankencoder", budget=BUDGET)
    trial = ranked.trial(ranked.entrants[1], 0, {"scoring_weight": 0.1}, 1)
    for final in (False, True):
        (job,) = (job for key, job in ranked.jobs([trial], final=final).items() if key == trial.run.key)
        assert [str(scoring.scorer) for scoring in job.scorings] == [str(trial.scorer), "cosine"][: 1 + final]
        assert len({scoring.tasks for scoring in job.scorings}) == 1


def test_only_finals_are_scored_on_the_tasks_and_keep_their_weights() -> None:
    scores = scored(COMPARISON)
    for stage in STAGES:
        trials = COMPARISON.stage(stage, scores)
        jobs = COMPARISON.jobs(trials, final=stage == "finals")
        for trial in trials:
            tasks = {task for scoring in jobs[trial.run.key].scorings for task in scoring.tasks}
            assert ("synthetic" in tasks) == (stage == "finals")
            assert QUICK.dev in tasks
            assert jobs[trial.run.key].keeps_weights == (stage == "finals")
        teachers = jobs.keys() - {trial.run.key for trial in trials}
        assert teachers
        assert all(jobs[key].keeps_weights for key in teachers)


def test_each_winner_and_the_published_settings_have_as_many_finals() -> None:
    scores = scored(COMPARISON)
    finals = COMPARISON.stage("finals", scores)
    assert len(finals) == 2 * (3 + 1) * 4
    published = [t for t in finals if t.search == PUBLISHED and t.entrant is SIMCSE]
    assert {replace(t.run, seed=0) for t in published} == {replace(SIMCSE.start, seed=0)}
    best = max(COMPARISON.draws(SIMCSE, 0, NONE), key=lambda trial: trial.run.learning_rate)
    winners = {settings_text(t.settings) for t in finals if t.search == 0 and t.entrant is SIMCSE}
    assert winners == {settings_text(best.settings)}


def test_a_single_promoted_setting_gets_no_further_seeds() -> None:
    small = comparison_of("simcse", "rankcse", budget=Budget(trials=2, searches=2, finals=1))
    scores = scored(small)
    assert small.stage("promotions", scores) == []
    first, second = small.draws(SIMCSE, 0, NONE)
    best = first if first.run.learning_rate > second.run.learning_rate else second
    assert small.selected(SIMCSE, 0, scores) == (best.settings, pytest.approx(1e4 * best.run.learning_rate))


def test_tpe_draws_one_at_a_time_from_the_scores_and_resumes_alike() -> None:
    tpe = comparison_of("simcse", "rankcse", sampler="tpe", budget=Budget(trials=14, searches=1, finals=1))

    def draw_all(better: float) -> list[Trial]:
        scores = NONE
        for i in range(14):
            trials = tpe.draws(SIMCSE, 0, scores)
            assert len(trials) == i + 1
            # A new comparison, as after an interruption, draws the same from the same scores.
            again = comparison_of("simcse", "rankcse", sampler="tpe", budget=tpe.budget)
            assert again.draws(SIMCSE, 0, scores) == trials
            new = -abs(trials[-1].run.dropout - better)
            scores = Scores({**scores.by_address, trials[-1].address: new})
        return tpe.draws(SIMCSE, 0, scores)

    low, high = draw_all(0.1), draw_all(0.4)
    # A failed trial is one more draw, and no score.
    scores = Scores({trial.address: 1.0 for trial in low[:3]}, frozenset({low[3].run.key}))
    assert len(tpe.draws(SIMCSE, 0, scores)) == 5
    assert low[:10] == high[:10]  # drawn at random, as Optuna's sampler begins
    assert mean(t.run.dropout for t in low[10:]) < mean(t.run.dropout for t in high[10:])


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_search_is_drawn_once_for_what_it_selects(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = comparison_of("simcse", "rankcse", sampler=sampler, budget=BUDGET)
    every = [trial.run.seed for trial in COMPARISON.draws(SIMCSE, 1, NONE)]
    drawn: list[int] = []
    monkeypatch.setattr(
        Comparison,
        "_draw",
        lambda self, each, search, *given, draw=Comparison._draw: (
            drawn.append(search) or draw(self, each, search, *given)
        ),
    )
    made.selected(made.entrants[0], 1, NONE)
    assert drawn == [1]
    if sampler == "random":  # whose draws no score changes: not even for another question
        made.finals(made.entrants[0], 1, NONE)
        made.promotions(made.entrants[0], 1, NONE)
        assert [trial.run.seed for trial in made.draws(made.entrants[0], 1, NONE)] == every
        assert drawn == [1]


def test_impossible_comparisons_are_refused() -> None:
    for names in (("simcse",), ("simcse", "simcse")):
        with pytest.raises(ValueError, match="two or more different methods"):
            comparison_of(*names)
    with pytest.raises(ValueError, match=r"dev scores.*'last'"):
        comparison_of("simcse", "rankcse", dev="last")
    with pytest.raises(ValueError, match="sampler must be"):
        comparison_of("simcse", "rankcse", sampler="grid")
