"""The bootstrap over seeds and pairs: against a loop over every draw, closed forms, and bootstraps of one of both."""

import itertools

import numpy as np
import pytest
from scipy import stats as reference

from analysis.stats.bootstrap import Difference, crossed_bootstrap, paired_bootstrap, resampled_spearman
from analysis.stats.significance import Interval


def noisy(gold: np.ndarray, seeds: int, noise: float, seed: int, own: float = 0.0) -> np.ndarray:
    """Scores (seeds, pairs): noise of each pair that all seeds share, and noise of each seed's own."""
    random = np.random.default_rng(seed)
    shared = gold + noise * random.normal(size=len(gold))
    return shared + own * random.normal(size=(seeds, 1)) * random.normal(size=(seeds, len(gold)))


def interval_of(found: Difference) -> Interval:
    assert found.interval is not None
    return found.interval


def every_draw(first: np.ndarray, second: np.ndarray, gold: np.ndarray) -> list[float]:
    """The difference in each draw of seeds of both and of pairs, one by one; without those that have no correlation."""
    values = []
    for picks in itertools.product(range(len(gold)), repeat=len(gold)):
        drawn = list(picks)
        if not all(np.ptp(x[drawn]) for x in (*first, *second, gold)):
            continue
        rho = [[reference.spearmanr(x[drawn], gold[drawn]).statistic for x in runs] for runs in (first, second)]
        means = [[np.mean(s) for s in itertools.product(of_seeds, repeat=len(of_seeds))] for of_seeds in rho]
        values += [a - b for a, b in itertools.product(*means)]
    return values


@pytest.mark.slow
def test_it_is_the_loop_over_every_draw_of_seeds_and_pairs() -> None:
    gold = np.array([0.0, 1.0, 2.0, 3.5])
    first = np.array([[1.0, 2.0, 4.0, 3.0], [2.0, 1.0, 3.0, 4.0]])
    second = np.array([[2.0, 1.0, 1.5, 4.0], [3.0, 1.0, 2.0, 4.0], [1.0, 4.0, 3.0, 2.0]])
    found = crossed_bootstrap([first], [second], [gold], resamples=60_000)
    everything = every_draw(first, second, gold)
    rho = [[reference.spearmanr(x, gold).statistic for x in runs] for runs in (first, second)]
    assert found.difference == pytest.approx(np.mean(rho[0]) - np.mean(rho[1]))
    for end, q in zip(interval_of(found), (0.025, 0.975), strict=True):
        low, high = np.quantile(everything, [q - 0.006, q + 0.006], method="inverted_cdf")
        assert low - 1e-9 <= end <= high + 1e-9
    tails = np.mean(np.array(everything) <= 1e-12), np.mean(np.array(everything) >= -1e-12)
    assert found.p == pytest.approx(2 * min(tails), abs=0.015)


def test_with_equal_seeds_it_is_the_bootstrap_over_pairs() -> None:
    gold = np.random.default_rng(0).uniform(0, 5, 60)
    sets = [(noisy(gold, 1, 1.0, i), noisy(gold, 1, 1.5, 9 + i), gold) for i in (1, 2)]
    first, second, golds = (list(each) for each in zip(*sets, strict=True))
    repeated = crossed_bootstrap([x.repeat(3, 0) for x in first], [x.repeat(2, 0) for x in second], golds, 500)
    plain = paired_bootstrap([x[0] for x in first], [x[0] for x in second], golds, 500)
    assert (repeated.difference, repeated.n) == (pytest.approx(plain.difference), plain.n)
    assert (repeated.interval, repeated.p) == (pytest.approx(plain.interval), plain.p)


def test_where_pairs_do_not_matter_it_is_the_binomial_of_seeds() -> None:
    """A run that orders all pairs as gold, or the other way round, does so on all that are drawn."""
    gold = np.arange(40.0)
    first, second = np.array([gold, gold, -gold, gold]), np.array([gold, -gold])
    found = crossed_bootstrap([first], [second], [gold], resamples=40_000)
    ups = [reference.binom(n, share).pmf(range(n + 1)) for n, share in ((4, 0.75), (2, 0.5))]
    law = {}
    for (a, p), (b, q) in itertools.product(*(list(enumerate(pmf)) for pmf in ups)):
        value = (2 * a / 4 - 1) - (2 * b / 2 - 1)
        law[value] = law.get(value, 0) + p * q
    total = np.cumsum([law[value] for value in sorted(law)])
    low, high = (sorted(law)[int(np.searchsorted(total, q))] for q in (0.025, 0.975))
    assert found.difference == pytest.approx(0.5)
    assert found.interval == pytest.approx((low, high))
    assert found.p == pytest.approx(2 * sum(p for value, p in law.items() if value <= 0), abs=0.02)


def test_paired_seeds_are_drawn_together_and_give_the_binomial_of_their_differences() -> None:
    gold = np.arange(40.0)
    first, second = np.array([gold, gold, -gold, gold]), np.array([gold, -gold, -gold, gold])  # one in four differs
    found = crossed_bootstrap([first], [second], [gold], resamples=40_000, paired=True)
    law = reference.binom(4, 0.25)
    assert found.difference == pytest.approx(0.5)
    assert interval_of(found) == pytest.approx((0, 2 * law.ppf(0.975) / 4))
    assert found.p == pytest.approx(2 * law.pmf(0), abs=0.02)
    assert interval_of(crossed_bootstrap([first], [second], [gold], 4_000)).low < 0  # independent seeds are uncertain
    itself = noisy(gold, 4, 9.0, 3, own=9.0)
    assert interval_of(crossed_bootstrap([itself], [itself], [gold], 300, paired=True)) == pytest.approx((0, 0))


def test_a_seed_is_drawn_with_all_its_sets_and_a_pair_for_all_runs() -> None:
    gold = np.arange(30.0)
    mixed = np.array([gold, -gold]), np.array([-gold, gold])  # each run's mean over the two sets is 0
    none = [np.array([gold, gold])] * 2
    assert interval_of(crossed_bootstrap(mixed, mixed, [gold] * 2, 300)) == pytest.approx((0, 0))
    assert interval_of(crossed_bootstrap(mixed, none, [gold] * 2, 300)) == pytest.approx((-1, -1))
    same = noisy(gold, 1, 9.0, 3).repeat(4, 0)
    found = crossed_bootstrap([same], [same], [gold], 300)
    assert (found.difference, interval_of(found), found.p) == (pytest.approx(0), pytest.approx((0, 0)), 1.0)


def test_squared_widths_of_seeds_and_of_pairs_add_up() -> None:
    gold = np.random.default_rng(5).uniform(0, 5, 400)
    first, second = noisy(gold, 8, 1.2, 1, own=0.9), noisy(gold, 6, 1.6, 2, own=0.9)
    random, n = np.random.default_rng(0), len(gold)
    of_runs = [np.array([reference.spearmanr(x, gold).statistic for x in runs]) for runs in (first, second)]
    means = [random.choice(rho, (4000, len(rho))).mean(1) for rho in of_runs]
    by_seeds = np.quantile(means[0] - means[1], [0.025, 0.975])
    crossed = crossed_bootstrap([first], [second], [gold], 4000)
    counts = np.array([np.bincount(random.integers(0, n, n), minlength=n) for _ in range(1500)]).T
    drawn = resampled_spearman(np.concatenate([first, second]), gold, counts)
    by_pairs = np.quantile(drawn[:8].mean(0) - drawn[8:].mean(0), [0.025, 0.975])
    seeds, pairs, both = (high - low for low, high in (by_seeds, by_pairs, interval_of(crossed)))
    assert max(seeds, pairs) < both
    assert both**2 == pytest.approx(seeds**2 + pairs**2, rel=0.2)


def test_one_seed_has_no_interval() -> None:
    gold = np.arange(20.0)
    many, single = noisy(gold, 3, 4.0, 1), noisy(gold, 1, 4.0, 2)
    found = crossed_bootstrap([many], [single], [gold], 50)
    assert found.difference is not None
    assert (found.interval, found.p, found.n) == (None, None, 20)


def test_seeds_are_drawn_by_a_generator_of_their_own() -> None:
    random = np.random.default_rng(3)
    gold = random.normal(size=20)
    first, second = gold + random.normal(size=(3, 20)), gold + random.normal(size=(4, 20))
    found = crossed_bootstrap([first], [second], [gold], 50)
    seeds, drawn_pairs = np.random.default_rng((0, 1)), np.random.default_rng(0)
    shares = [seeds.multinomial(n, [1 / n] * n, 50) / n for n in (3, 4)]
    picks = drawn_pairs.integers(0, 20, (20, 50))
    counts = np.stack([np.bincount(draw, minlength=20) for draw in picks.T], axis=1).astype(np.int32)
    rho = resampled_spearman(np.concatenate([first, second]), gold, counts)
    drawn = np.einsum("de,ed->d", np.concatenate([shares[0], -shares[1]], axis=1), rho)
    assert interval_of(found) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))
