"""A trial's score is the mean of its seeds' best dev scores, and is reported as they train."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cse_core.run import Run
from cse_core.training.loop import DivergedError
from experiments.execution.job import ExecutionSettings, Job
from experiments.schema.scales import SCALES
from experiments.searches import ray_search
from experiments.searches.spaces import SEARCHES, LogUniform, Search
from tests.support import tiny_study

SETTINGS = {"learning_rate": 3e-4}
SEARCH = replace(tiny_study.searches()["tiny-grid"](tiny_study.SCALE), space={"learning_rate": (3e-4,)})
DEV = f"dev/{tiny_study.SCALE.dev}"
Curve = Sequence[float]
Attempt = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def attempted(monkeypatch: pytest.MonkeyPatch) -> Attempt:
    """A function that returns what a trial reports if its runs have the given dev curves in turn."""

    def attempt(search: Search, *curves: Curve | Exception, kept: Sequence[float | None] = ()) -> list[dict[str, Any]]:
        reported: list[dict[str, Any]] = []
        left = list(curves)
        seeds: list[int] = []

        def execute(job: Job, place: ExecutionSettings, *, on_step: Callable[[int, Any], None]) -> Mapping[str, Any]:
            number, curve = len(curves) - len(left), left.pop(0)
            assert isinstance(job.encoder, Run)
            seeds.append(job.encoder.seed)
            if isinstance(curve, Exception):
                raise curve
            points = [(4 * i, score) for i, score in enumerate(curve, 1)]
            for i in range(1, 1 + len(points)):
                on_step(4 * i, SimpleNamespace(curves={DEV: points[:i]}))
            best = kept[number] if kept else max(curve)
            return {"curves": {DEV: points}, "kept": {tiny_study.SCALE.dev: {"step": 4, "score": best}}}

        monkeypatch.setattr(ray_search, "execute_shared", execute)
        monkeypatch.setattr(ray_search.tune, "report", reported.append)
        ray_search.run_trial(SETTINGS, search, ExecutionSettings(Path("store")))
        assert seeds == list(search.seeds[: len(seeds)])
        return reported

    return attempt


def test_a_trials_score_is_the_mean_over_its_seeds(attempted: Attempt) -> None:
    for first, second in (([0.1], [0.3]), ([0.3], [0.1])):
        reported = attempted(SEARCH, first, second)
        assert reported[-1]["score"] == pytest.approx(0.2)
        assert (reported[-1]["state"], reported[-1]["ended"], reported[-1]["failed"]) == ("finished", 2, "")
        assert reported[-1][ray_search.TIME_ATTR] == 2 * SEARCH.start.evaluations
        assert reported[-2]["score"] == pytest.approx(first[0])  # as the first seed ended
        assert (reported[-2]["ended"], reported[-2][ray_search.TIME_ATTR]) == (1, SEARCH.start.evaluations)


def test_a_trial_of_three_seeds_has_the_mean_of_three(attempted: Attempt) -> None:
    reported = attempted(replace(SEARCH, seeds=(101, 102, 103)), [0.1], [0.4], [0.7])
    means = [(one["ended"], one["score"]) for one in reported if one["ended"]]
    assert means == [(1, pytest.approx(0.1)), (2, pytest.approx(0.25)), (3, pytest.approx(0.4))]


def test_a_run_counts_by_the_checkpoint_that_it_kept(attempted: Attempt) -> None:
    """The end of its curve does not count."""
    reported = attempted(SEARCH, [0.2, 0.6, 0.4], [0.9, 0.1, 0.3])
    assert reported[-1]["score"] == pytest.approx((0.6 + 0.9) / 2)


def test_while_the_first_seed_trains_its_best_so_far_is_reported_at_each_evaluation(attempted: Attempt) -> None:
    reported = attempted(SEARCH, [0.2, 0.6, 0.4], [0.9, 0.95, 0.3])
    assert SEARCH.start.evaluations == 5
    running = [(one[ray_search.TIME_ATTR], one["score"]) for one in reported if not one["ended"]]
    assert running == [(1, 0.2), (2, 0.6), (3, 0.6)]
    assert {one["state"] for one in reported[:-1]} == {"stopped"}  # what a trial is that goes no further


@pytest.mark.parametrize(
    ("error", "state"), [(DivergedError("loss is nan"), "failed"), (OSError("no route to host"), "error")]
)
def test_a_trial_that_fails_has_no_score(attempted: Attempt, error: Exception, state: str) -> None:
    last = attempted(SEARCH, [0.2], error)[-1]
    assert math.isnan(last["score"])
    assert (last["state"], last["ended"], last[ray_search.TIME_ATTR]) == (state, 1, 0)
    assert last["failed"] == f"{type(error).__name__}: {error}"


def test_a_run_without_a_dev_score_fails_its_trial(attempted: Attempt) -> None:
    last = attempted(SEARCH, [0.2], [0.3], kept=(0.2, None))[-1]
    assert (last["state"], last["ended"]) == ("failed", 1)
    assert last["failed"].startswith("UndefinedError: run ")


@pytest.mark.parametrize(("name", "trials"), [("simcse", 24), ("rankcse-listnet", 24), ("rankcse-listmle-grid", 0)])
def test_searches_are_as_declared(name: str, trials: int) -> None:
    small, paper = (SEARCHES[name](SCALES[scale]) for scale in ("small", "paper"))
    assert (small.trials, small.seeds) == (trials, (101, 102))
    if trials:  # a tenth of the study's rate to ten thirds of it
        for search, rate in ((small, 3e-4), (paper, 3e-5)):
            found = search.space["learning_rate"]
            assert isinstance(found, LogUniform)
            assert (found.low, found.high) == pytest.approx((rate / 10, rate * 10 / 3))
    else:
        assert paper.space["learning_rate"] == pytest.approx((2e-5, 3e-5))
    for search in (small, paper):
        if name == "simcse":
            assert search.space["temperature"] == (0.01, 0.05, 0.1)
        else:
            assert search.space["student_temperature"] == (0.0125, 0.025, 0.05)
        assert ("teacher_temperature" in search.space) == (name == "rankcse-listnet")
