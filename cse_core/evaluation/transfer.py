"""Transfer tasks: logistic regression on frozen sentence vectors, with SentEval's protocol (Conneau and Kiela, 2018).

A classifier is one linear layer, trained by Adam or RMSprop and stopped early; a nested cross-validation picks its
weight decay. SentEval seeds numpy and torch before each. So all classifiers of a task start from the same weights, and
those with equally many rows draw the same permutations. Here they are trained as one batched problem: only the order of
float32 additions differs from training one after another.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cse_core.evaluation.linear_probe import L2, SETTINGS, FittedProbe, Problem, Setting, fit
from cse_core.models.embedding_cache import counting

VERSION = 1  # recorded with every score: bump with any change that could move one
SEED = 1111  # SentEval's; the folds of cross-validated tasks always use it
SPLITS = {"sst2": ("train", "dev", "test"), "trec": ("train", "test"), "mrpc": ("train", "test")}
Progress = Callable[[int, int], object]


class Accuracy(NamedTuple):
    """`acc` on test data; `devacc` of the selected weight decay in its search; F1 where the task reports it."""

    acc: float
    devacc: float
    f1: float | None = None


class Part(NamedTuple):
    """One split's vectors and classes, in SentEval's order."""

    vectors: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]


def order(first: Sequence[str], second: Sequence[str], labels: Sequence[int]) -> list[int]:
    """Return SentEval's order of a split: by number of words (of both sentences, in order), then by class."""
    return sorted(range(len(labels)), key=lambda i: (len(first[i].split()), len(second[i].split()), labels[i]))


def pair_features(first: Float[Tensor, "n d"], second: Float[Tensor, "n d"]) -> Float[Tensor, "n 2*d"]:
    """Return MRPC's features of two sentences: [|u - v| ; u * v]."""
    return torch.cat([(first - second).abs(), first * second], dim=1)


def accuracy(
    task: str,
    vectors: Mapping[str, Float[Tensor, "_ d"]],
    labels: Mapping[str, Int[Tensor, " _"]],
    setting: str = "test",
    seed: int = SEED,
    progress: Progress | None = None,
) -> Accuracy:
    """Return test and dev accuracy in [0, 1], rounded like SentEval, of features in SentEval's order (see `order`).

    Both are by split; that of mr, cr, subj and mpqa is "all". mrpc's features are `pair_features`.
    `progress` gets the number of training sets that are done, and the number of all.
    """
    parts = {name: Part(vectors[name].float(), labels[name].long()) for name in SPLITS.get(task, ("all",))}
    protocols = {"sst2": _use_dev_set, "trec": _use_test_set, "mrpc": _use_test_set}
    protocol = protocols.get(task, _cross_validate)
    return protocol(parts, SETTINGS[setting], seed, progress or (lambda done, of: None))


def _cross_validate(parts: dict[str, Part], setting: Setting, seed: int, progress: Progress) -> Accuracy:
    """Measure accuracy on outer folds; inner folds of each training part select its weight decay."""
    x, y = parts["all"]
    outer = list(_folds(y, setting.folds, SEED))
    inner = [Problem(train[a], train[b]) for train, _ in outer for a, b in _folds(y[train], setting.folds, SEED)]
    report = counting(progress, len(inner) + len(outer))
    fits = fit(x, y, inner, setting, seed, report)
    chosen = [_select_decay(fits[i : i + setting.folds]) for i in range(0, len(fits), setting.folds)]
    refits = [Problem(train, None, (l2,)) for (train, _), (l2, _) in zip(outer, chosen, strict=True)]
    fits = fit(x, y, refits, setting, seed, report)
    scores = [_accuracy(f.weights[0], x[test], y[test]) for f, (_, test) in zip(fits, outer, strict=True)]
    acc, devacc = (round(float(np.mean(v)), 2) / 100 for v in (scores, [dev for _, dev in chosen]))
    return Accuracy(acc, devacc)


def _use_test_set(parts: dict[str, Part], setting: Setting, seed: int, progress: Progress) -> Accuracy:
    """Measure accuracy on the test set; folds of the training set select the weight decay."""
    from sklearn.metrics import f1_score  # lazy: slow import

    (x, y), (test_x, test_y) = parts["train"], parts["test"]
    folds = [Problem(a, b) for a, b in _folds(y, setting.folds, seed)]
    report = counting(progress, len(folds) + 1)
    l2, devacc = _select_decay(fit(x, y, folds, setting, seed, report))
    (refit,) = fit(x, y, [Problem(np.arange(len(y)), None, (l2,))], setting, seed, report)
    f1 = None
    if len(y.unique()) == 2:
        f1 = round(100 * float(f1_score(test_y, _predict(refit.weights[0], test_x))), 2) / 100
    return Accuracy(_accuracy(refit.weights[0], test_x, test_y) / 100, devacc / 100, f1)


def _use_dev_set(parts: dict[str, Part], setting: Setting, seed: int, progress: Progress) -> Accuracy:
    """Stop and select on the dev set. SentEval's second fit of the best, from the same seed, would change nothing."""
    x = torch.cat([parts["train"].vectors, parts["dev"].vectors])
    y = torch.cat([parts["train"].labels, parts["dev"].labels])
    rows = np.arange(len(y))
    size = len(parts["train"].labels)
    (fitted,) = fit(x, y, [Problem(rows[:size], rows[size:])], setting, seed, counting(progress, 1))
    l2, devacc = _select_decay([fitted])
    weights = fitted.weights[L2.index(l2)]
    return Accuracy(_accuracy(weights, *parts["test"]) / 100, devacc / 100)


def _folds(y: Int[Tensor, " n"], folds: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import StratifiedKFold  # lazy: slow import

    return StratifiedKFold(folds, shuffle=True, random_state=seed).split(np.zeros(len(y)), y.numpy())


def _select_decay(folds: Sequence[FittedProbe]) -> tuple[float, float]:
    """Return the first weight decay with the best mean accuracy over folds, and that accuracy in %, to two decimals."""
    means = [round(100 * float(np.mean([fold.best[i] for fold in folds])), 2) for i in range(len(L2))]
    return L2[int(np.argmax(means))], max(means)


def _accuracy(weights: Float[Tensor, "c d1"], x: Float[Tensor, "n d"], y: Int[Tensor, " n"]) -> float:
    return round(100 * float((_predict(weights, x) == y).double().mean()), 2)


def _predict(weights: Float[Tensor, "c d1"], x: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
    return (x @ weights[:, :-1].T + weights[:, -1]).argmax(1)
