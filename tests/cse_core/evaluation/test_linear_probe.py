"""The classifiers trained side by side against SentEval's, trained one after another with torch's own layers."""

import threading
from collections.abc import Sequence
from functools import cache
from itertools import count

import numpy as np
import pytest
import torch
from torch import Tensor

from cse_core.evaluation import linear_probe
from cse_core.evaluation.linear_probe import L2, SETTINGS, FittedProbe, Problem, Setting, fit
from tests.support import senteval_reference as reference

settings = pytest.mark.parametrize("setting", SETTINGS)
OPTIMISERS = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}


def generated(n: int, d: int = 10, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noisy linear classes of unequal size: a few in ten stay wrong. The features are neither centred nor scaled."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=random) * torch.linspace(0.5, 5, d) + 1
    scores = x @ torch.randn(d, classes, generator=random) + 5 * torch.randn(n, classes, generator=random)
    return x, scores.argmax(1)


def flat(model: torch.nn.Linear) -> Tensor:
    return torch.cat([model.weight, model.bias[:, None]], dim=1).detach()


def one_by_one(x: Tensor, y: Tensor, problem: Problem, setting: str, seed: int) -> tuple[list[float], Tensor, int]:
    """Best accuracies on the stopping set, the weights that had them, and the most steps that one of them took."""
    rows = torch.from_numpy(problem.rows)
    drawn = np.random.RandomState(seed).permutation(len(rows))[: len(rows) // 20]
    stop = rows[drawn] if problem.stop is None else torch.from_numpy(problem.stop)
    given = None if problem.stop is None else (x[stop], y[stop])
    each = []
    for l2 in problem.l2:
        made = reference.Classifier(x.shape[1], int(y.max()) + 1, l2, seed, reference.SETTINGS[setting])
        each.append(made.fit(x[rows], y[rows], given))
    best = [made.score(x[stop], y[stop]) for made in each]
    return best, torch.stack([flat(made.model) for made in each]), max(made.steps for made in each)


def same(found: FittedProbe, best: Sequence[float] | np.ndarray, weights: Tensor) -> None:
    """Shares of the stopping set are equal to the last bit, as a mean of them is rounded later."""
    assert found.best.tolist() == list(best)
    torch.testing.assert_close(found.weights, weights, rtol=1e-5, atol=1e-5)


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """A list that grows by one with every call of the module's function."""
    calls, function = [], getattr(linear_probe, name)

    def counting(*args):
        calls.append(1)
        return function(*args)

    monkeypatch.setattr(linear_probe, name, counting)
    return calls


PROBLEMS = {
    "given": Problem(np.arange(40, 439), np.arange(39)),  # the last batch is a partial one, of 15
    "drawn": Problem(np.arange(3, 479)[::-1].copy()),  # 23.8 rows of 476 say when to stop
    "one batch": Problem(np.arange(60), np.arange(60, 480)),
}


@settings
@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize(("classes", "seed"), [(2, 1111), (4, 5)])
@pytest.mark.slow
def test_a_problem_has_senteval_s_classifiers(setting, kind, classes, seed, monkeypatch) -> None:
    x, y = generated(480, classes=classes)
    best, weights, steps = one_by_one(x, y, PROBLEMS[kind], setting, seed)
    assert max(y.bincount()) / len(y) < max(best) < 1, "neither noise nor trivial"
    calls = counted(monkeypatch, "_step")
    (found,) = fit(x, y, [PROBLEMS[kind]], SETTINGS[setting], seed)
    same(found, best, weights)
    assert len(calls) == steps


def mixed() -> list[Problem]:
    """Three row counts, given and drawn stopping sets of several sizes, all weight decays and only one."""
    rows = np.random.RandomState(0).permutation(240)
    cuts = [(0, 150, 180), (30, 180, 197), (60, 190, 240), (10, 160, 210), (90, 220, 240), (20, 170, 172)]
    given = [Problem(rows[a:b], rows[b:c]) for a, b, c in cuts]
    drawn = [Problem(rows[a:], None, (l2,)) for a, l2 in ((0, 1e-2), (90, 1e-5), (3, 1e-3), (90, 1e-2))]
    few = [Problem(rows[:150], rows[150:], (1e-2, 1e-4))]
    return [given[0], drawn[0], given[1], drawn[1], *few, given[2], drawn[2], *given[3:], drawn[3]]


@cache
def expected(setting: str) -> list[tuple[list[float], Tensor, int]]:
    x, y = generated(240)
    return [one_by_one(x, y, problem, setting, 7) for problem in mixed()]


@pytest.mark.parametrize(
    ("setting", "side_by_side"), [("fast", 1), ("fast", 2), ("fast", 3), ("fast", 100), ("test", 3)]
)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.slow
def test_mixed_problems_come_back_in_order_however_chunked(setting, side_by_side, threads, monkeypatch) -> None:
    monkeypatch.setattr(linear_probe, "CHUNK", side_by_side)
    torch.set_num_threads(threads)
    done = []
    found = fit(*generated(240), mixed(), SETTINGS[setting], 7, done.append)
    assert len({tuple(best) for best, _, _ in expected(setting)}) > 6  # another order would be seen
    for one, (best, weights, _) in zip(found, expected(setting), strict=True):
        same(one, best, weights)
    assert sum(done) == len(mixed())
    assert len(done) >= 6
    assert max(done) <= side_by_side


class Scripted:
    """Takes the place of the count of correct answers, one script a weight decay, and keeps each round's weights."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *scripts: Sequence[int]) -> None:
        self.rounds, self.seen = zip(*scripts, strict=True), []
        monkeypatch.setattr(linear_probe, "_count_correct", self)

    def __call__(self, state, x1: Tensor, y: Tensor) -> Tensor:
        self.seen.append(state.weights[0].transpose(0, 1).clone())
        return torch.tensor([next(self.rounds)])


def scripted(
    monkeypatch, tenacity: int, *scripts: Sequence[int], optimiser: str = "rmsprop"
) -> tuple[FittedProbe, Scripted]:
    x, y = generated(60)
    script = Scripted(monkeypatch, *scripts)
    setting = Setting(folds=5, optimiser=optimiser, batch=16, tenacity=tenacity, passes=1)
    problem = Problem(np.arange(40), np.arange(40, 60), L2[: len(scripts)])
    (found,) = fit(x, y, [problem], setting, 0)
    return found, script


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_failures_are_counted_over_all_rounds_and_the_one_after_tenacity_stops(optimiser, monkeypatch) -> None:
    #        fails:  1     2  3     4: found three before it, although 7 had just been an improvement
    script = [5, 4, 6, 6, 5, 7, 7, 20, 20]
    found, seen = scripted(monkeypatch, 3, script, optimiser=optimiser)
    assert len(seen.seen) == 7
    assert found.best.tolist() == [7 / 20]
    assert torch.equal(found.weights[0], seen.seen[5][0])  # the first round of the best, not the last


def test_no_tenacity_stops_at_the_first_failure_and_a_first_round_of_nothing_correct_is_none(monkeypatch) -> None:
    found, seen = scripted(monkeypatch, 0, [0, 1, 1, 9])
    assert (len(seen.seen), found.best.tolist()) == (3, [1 / 20])
    found, seen = scripted(monkeypatch, 1, [0, 0, 0, 9])
    assert (len(seen.seen), found.best.tolist()) == (3, [0])
    assert torch.equal(found.weights[0], seen.seen[0][0])


def test_a_stopped_weight_decay_keeps_its_weights_while_others_continue(monkeypatch) -> None:
    found, seen = scripted(monkeypatch, 1, [3, 1, 1, 9, 9, 9], [1, 2, 2, 3, 3, 9], [1, 1, 2, 3, 1, 9])
    assert len(seen.seen) == 5
    assert found.best.tolist() == [3 / 20, 3 / 20, 3 / 20]
    for i, kept in enumerate((0, 3, 3)):
        assert torch.equal(found.weights[i], seen.seen[kept][i])


@pytest.mark.parametrize(("passes", "rounds"), [(4, 51), (2, 101), (3, 67), (300, 1)])
@pytest.mark.slow
def test_a_round_begins_while_no_more_than_200_passes_are_done(passes: int, rounds: int, monkeypatch) -> None:
    setting = Setting(folds=5, optimiser="adam", batch=64, tenacity=10**9, passes=passes)
    judged, steps = counted(monkeypatch, "_update_best"), counted(monkeypatch, "_step")
    rows = np.arange(20)
    fit(*generated(20), [Problem(rows, rows)], setting, 0)
    assert (len(judged), len(steps)) == (rounds, rounds * passes)
    made = reference.Classifier(10, 3, 1e-5, 0, vars(setting) | {"epoch_size": passes, "optimiser": torch.optim.Adam})
    assert made.fit(*generated(20), generated(20)).steps == len(steps)


def test_random_streams_and_threads_stay_as_they_were() -> None:
    x, y = generated(60)
    torch.set_num_threads(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        before, kept = torch.random.get_rng_state(), np.random.get_state(legacy=False)
        fit(x, y, [Problem(np.arange(60)), Problem(np.arange(40), np.arange(40, 60))], SETTINGS["fast"], 1)
        assert torch.equal(torch.random.get_rng_state(), before)
    after = np.random.get_state(legacy=False)
    assert repr(after) == repr(kept)
    assert np.array_equal(after["state"]["key"], kept["state"]["key"])
    assert torch.get_num_threads() == 2


def test_an_error_restores_the_threads() -> None:
    x, y = generated(60)
    torch.set_num_threads(2)
    with pytest.raises(IndexError):
        fit(x, y, [Problem(np.arange(61))], SETTINGS["fast"], 1)
    assert torch.get_num_threads() == 2


def test_an_interruption_ends_what_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = generated(60)
    torch.set_num_threads(2)
    monkeypatch.setattr(linear_probe, "CHUNK", 1)
    begun, numbers, function = [], count(), linear_probe._train_chunk
    release = threading.Event()

    def second_one_waits(*args):
        begun.append(1)
        if next(numbers):
            assert release.wait(60)
        return function(*args)

    def interrupted(more: int) -> None:
        threading.Timer(0.3, release.set).start()
        raise KeyboardInterrupt

    monkeypatch.setattr(linear_probe, "_train_chunk", second_one_waits)
    with pytest.raises(KeyboardInterrupt):
        fit(x, y, [Problem(np.arange(40), np.arange(40, 60))] * 12, SETTINGS["fast"], 1, interrupted)
    assert len(begun) < 6
    assert torch.get_num_threads() == 2
