"""Many linear classifiers trained in one batch, each exactly as SentEval's PyTorch classifier trains one.

Problems differ in rows and weight decays. They share initial weights and permutations, as each starts from the same
seed. Axes: f problems, k weight decays, c classes, d1 = d + 1 features, the last of ones, whose weight is the bias.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

L2 = (1e-5, 1e-4, 1e-3, 1e-2)  # weight decays; the bias decays too
HELD_OUT = 0.05
MAX_PASSES = 200
CHUNK = 16  # problems; with more, a step no longer fits into the cache


@dataclass(frozen=True)
class Setting:
    """SentEval's parameters: training in rounds of `passes` over the data.

    Training ends when a round fails to improve and `tenacity` (SentEval's name for patience) rounds failed before it.
    """

    folds: int
    optimiser: str
    batch: int
    tenacity: int
    passes: int


SETTINGS = {
    "test": Setting(folds=10, optimiser="adam", batch=64, tenacity=5, passes=4),  # what papers report
    "fast": Setting(folds=5, optimiser="rmsprop", batch=128, tenacity=3, passes=2),  # SentEval's prototyping setting
}


class Problem(NamedTuple):
    """Training rows, rows for early stopping (if None, 5 % of the former are drawn), weight decays to try."""

    rows: Int[np.ndarray, " n"]
    stop: Int[np.ndarray, " m"] | None = None
    l2: tuple[float, ...] = L2


class FittedProbe(NamedTuple):
    """The best accuracy on the stopping set for each weight decay, and the weights that reached it, bias last."""

    best: Float[np.ndarray, " k"]
    weights: Float[Tensor, "k c d1"]


def fit(
    x: Float[Tensor, "n d"],
    y: Int[Tensor, " n"],
    problems: Sequence[Problem],
    setting: Setting,
    seed: int,
    progress: Callable[[int], object] = lambda more: None,
) -> list[FittedProbe]:
    """Fit every problem's classifiers; return them in order. `progress` gets the number of problems just done.

    Chunks of problems run in parallel, in as many threads as torch may use; each chunk runs in a single thread.
    """
    x1 = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
    start = _initial_weights(x.shape[1], int(y.max()) + 1, seed)
    chunks = _chunks(problems)
    results: dict[int, FittedProbe] = {}
    with _one_thread_each() as threads, ThreadPoolExecutor(threads) as pool:
        running = {
            pool.submit(_train_chunk, x1, y, start, [problems[i] for i in chunk], setting, seed): chunk
            for chunk in chunks
        }
        try:
            for done in as_completed(running):
                results |= zip(running[done], done.result(), strict=True)
                progress(len(running[done]))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # otherwise an error or Ctrl-C waits for queued chunks
    return [results[i] for i in range(len(problems))]


def _initial_weights(width: int, classes: int, seed: int) -> Float[Tensor, "c d1"]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        linear = nn.Linear(width, classes)
    return torch.cat([linear.weight, linear.bias[:, None]], dim=1).detach()


def _chunks(problems: Sequence[Problem]) -> list[list[int]]:
    """Group the indices of problems with equally many rows, which draw the same permutations; most rows first."""

    def shape(i: int) -> tuple[int, bool, int]:
        return len(problems[i].rows), problems[i].stop is None, len(problems[i].l2)

    chunks = []
    for _, alike in groupby(sorted(range(len(problems)), key=shape, reverse=True), key=shape):
        same = list(alike)
        chunks += [part.tolist() for part in np.array_split(same, -(-len(same) // CHUNK))]
    return chunks


@contextmanager
def _one_thread_each():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


def _train_chunk(
    x1: Float[Tensor, "n d1"],
    y: Int[Tensor, " n"],
    start: Float[Tensor, "c d1"],
    problems: Sequence[Problem],
    setting: Setting,
    seed: int,
) -> list[FittedProbe]:
    """Train in rounds until no classifier is left; problems whose classifiers have all stopped leave the batch."""
    stream = np.random.RandomState(seed)  # the stream that numpy.random.seed(seed) starts
    rows, stop = _split_rows(problems, stream)
    state = _State.of(start, rows, stop, [problem.l2 for problem in problems], setting)
    results: dict[int, FittedProbe] = {}
    passes = 0
    while len(state.of_problem) and passes <= MAX_PASSES:
        for _ in range(setting.passes):
            permutation = torch.from_numpy(stream.permutation(state.rows.shape[1]))
            for places in permutation.split(setting.batch):
                _step(state, x1, y, state.rows[:, places])
        passes += setting.passes
        _update_best(state, _count_correct(state, x1, y), setting.tenacity)
        results |= state.drop(~state.active.any(1))
    results |= state.drop(torch.ones(len(state.of_problem), dtype=torch.bool))
    return [results[i] for i in range(len(problems))]


def _split_rows(problems: Sequence[Problem], stream: np.random.RandomState) -> tuple[Tensor, Tensor]:
    """Return training rows (f, n) and stopping rows (f, m), where -1 pads the shorter ones."""
    rows = np.stack([problem.rows for problem in problems])
    if problems[0].stop is None:
        drawn = stream.permutation(rows.shape[1])
        held = int(HELD_OUT * rows.shape[1])
        if not held:
            raise ValueError(f"a stopping set of 5 % needs at least 20 rows to draw from, got {rows.shape[1]}")
        return torch.from_numpy(rows[:, drawn[held:]]), torch.from_numpy(rows[:, drawn[:held]])
    given = [torch.from_numpy(problem.stop) for problem in problems if problem.stop is not None]
    return torch.from_numpy(rows), nn.utils.rnn.pad_sequence(given, batch_first=True, padding_value=-1)


@dataclass
class _State:
    """The training state of a chunk's classifiers; every tensor's first axis is the problem."""

    of_problem: Int[Tensor, " f"]
    rows: Int[Tensor, "f n"]
    stop: Int[Tensor, "f m"]
    weights: Float[Tensor, "f c k d1"]
    decay: Float[Tensor, "f 1 k 1"]
    kept: Float[Tensor, "f c k d1"]
    best: Int[Tensor, "f k"]  # correct answers
    failures: Int[Tensor, "f k"]  # rounds without improvement, never reset
    active: Bool[Tensor, "f k"]
    first: Float[Tensor, "f c k d1"] | None
    second: Float[Tensor, "f c k d1"]
    steps: int = 0

    @classmethod
    def of(
        cls, start: Tensor, rows: Tensor, stop: Tensor, decays: Sequence[Sequence[float]], setting: Setting
    ) -> "_State":
        decay = torch.tensor(decays)
        weights = start[None, :, None].repeat(len(rows), 1, decay.shape[1], 1)
        counts = torch.zeros(decay.shape, dtype=torch.long)
        return cls(
            of_problem=torch.arange(len(rows)),
            rows=rows,
            stop=stop,
            weights=weights,
            decay=decay[:, None, :, None],
            kept=weights.clone(),
            best=counts - 1,
            failures=counts,
            active=counts == 0,
            first=torch.zeros_like(weights) if setting.optimiser == "adam" else None,
            second=torch.zeros_like(weights),
        )

    def drop(self, gone: Bool[Tensor, " f"]) -> dict[int, FittedProbe]:
        """Remove problems and return their results by index."""
        sizes = (self.stop >= 0).sum(1)
        results = {
            int(self.of_problem[i]): FittedProbe(
                (self.best[i].double() / sizes[i]).numpy(), self.kept[i].transpose(0, 1)
            )
            for i in gone.nonzero().flatten()
        }
        if results:
            for name, value in vars(self).items():
                if isinstance(value, Tensor):
                    setattr(self, name, value[~gone])
        return results


def _step(state: _State, x1: Float[Tensor, "n d1"], y: Int[Tensor, " n"], rows: Int[Tensor, "f b"]) -> None:
    """Take one optimiser step on a batch of each problem: cross entropy, averaged over the batch, gradient by hand."""
    f, c, k, d1 = state.weights.shape
    x = x1.index_select(0, rows.flatten()).view(f, -1, d1)
    logits = torch.bmm(state.weights.view(f, c * k, d1), x.transpose(1, 2)).view(f, c, k, -1)
    slope = torch.softmax(logits, dim=1)
    slope.sub_(nn.functional.one_hot(y[rows], c).transpose(1, 2)[:, :, None]).div_(rows.shape[1])
    gradient = torch.bmm(slope.view(f, c * k, -1), x).view(f, c, k, d1)
    gradient.addcmul_(state.weights, state.decay)
    state.steps += 1
    if state.first is not None:
        _adam(state.weights, gradient, state.first, state.second, state.steps)
    else:
        _rmsprop(state.weights, gradient, state.second)


def _adam(weights: Tensor, gradient: Tensor, first: Tensor, second: Tensor, steps: int) -> None:
    """Apply torch.optim.Adam's update with its defaults (rate 1e-3), in its order of operations."""
    first.lerp_(gradient, 1 - 0.9)
    second.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
    scale = second.sqrt().div_((1 - 0.999**steps) ** 0.5).add_(1e-8)
    weights.addcdiv_(first, scale, value=-1e-3 / (1 - 0.9**steps))


def _rmsprop(weights: Tensor, gradient: Tensor, second: Tensor) -> None:
    """Apply torch.optim.RMSprop's update with its defaults (rate 1e-2), in its order of operations."""
    second.mul_(0.99).addcmul_(gradient, gradient, value=1 - 0.99)
    weights.addcdiv_(gradient, second.sqrt().add_(1e-8), value=-1e-2)


def _count_correct(state: _State, x1: Float[Tensor, "n d1"], y: Int[Tensor, " n"]) -> Int[Tensor, "f k"]:
    f, c, k, d1 = state.weights.shape
    x = x1[state.stop]
    logits = torch.bmm(state.weights.view(f, c * k, d1), x.transpose(1, 2)).view(f, c, k, -1)
    right = (logits.argmax(1) == y[state.stop][:, None]) & (state.stop >= 0)[:, None]
    return right.sum(-1)


def _update_best(state: _State, correct: Int[Tensor, "f k"], tenacity: int) -> None:
    """Store weights that improved; stop classifiers that did not and had failed `tenacity` times before."""
    better = state.active & (correct > state.best)
    worse = state.active & ~better
    state.best = torch.where(better, correct, state.best)
    state.kept = torch.where(better[:, None, :, None], state.weights, state.kept)
    state.active = state.active & ~(worse & (state.failures >= tenacity))
    state.failures = state.failures + worse
