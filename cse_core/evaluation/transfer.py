"""Transfer tasks: logistic regression on frozen sentence vectors, with SentEval's protocol (Conneau and Kiela, 2018).

A classifier is one linear layer, trained by Adam or RMSprop and stopped early; a nested cross-validation picks its
weight decay. SentEval seeds numpy and torch before each, so all classifiers of a task start from the same weights, and
those with equally many rows draw the same permutations. That is what makes them one batched problem: here they are
trained side by side, and only the order of float32 additions differs from training one after another.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cse_core.data.senteval import TRANSFER
from cse_core.evaluation.linear_probe import L2, SETTINGS, Fitted, Problem, Setting, fit

VERSION = 1  # a column of every score: bump with any change that could move one
SEED = 1111  # SentEval's; also of the folds of cross-validated tasks, whatever the seed
SPLITS = {"sst2": ("train", "dev", "test"), "trec": ("train", "test"), "mrpc": ("train", "test")}
Progress = Callable[[int, int], object]


class Accuracy(NamedTuple):
    """`acc` on test data; `devacc` of the chosen weight decay in the search for it; F1 where the task reports it."""

    acc: float
    devacc: float
    f1: float | None = None


class Part(NamedTuple):
    """One split's vectors and classes, in SentEval's order."""

    vectors: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]


def order(first: Sequence[str], second: Sequence[str], labels: Sequence[int]) -> list[int]:
    """SentEval's order of a split: by number of words (of both sentences, one after the other), then by class."""
    return sorted(range(len(labels)), key=lambda i: (len(first[i].split()), len(second[i].split()), labels[i]))


def pair_features(first: Float[Tensor, "n d"], second: Float[Tensor, "n d"]) -> Float[Tensor, "n 2*d"]:
    """MRPC's features of two sentences: [|u - v| ; u * v]."""
    return torch.cat([(first - second).abs(), first * second], dim=1)


def accuracy(
    task: str,
    embeddings: Mapping[str, Float[Tensor, "_ d"]] | Float[Tensor, "n d"],
    labels: Mapping[str, Int[Tensor, " _"]] | Int[Tensor, " n"],
    setting: str = "test",
    seed: int = SEED,
    progress: Progress | None = None,
) -> Accuracy:
    """Test and dev accuracy in [0, 1], rounded as SentEval rounds, of features in SentEval's order (see `order`).

    mr, cr, subj, mpqa take one tensor; sst2, trec and mrpc one a split by name, mrpc's being `pair_features`.
    `progress` gets how many training sets are done, and how many there are.
    """
    if task not in TRANSFER or setting not in SETTINGS:
        known = f"tasks {', '.join(TRANSFER)}; settings {', '.join(SETTINGS)}"
        raise ValueError(f"transfer task {task!r}, setting {setting!r}: unknown; known: {known}")
    parts = _parts(task, embeddings, labels)
    judge = {"sst2": _with_dev_set, "trec": _with_test_set, "mrpc": _with_test_set}.get(task, _cross_validated)
    return judge(parts, SETTINGS[setting], seed, progress or (lambda done, of: None))


def _parts(
    task: str,
    embeddings: Mapping[str, Tensor] | Tensor,
    labels: Mapping[str, Tensor] | Tensor,
) -> dict[str, Part]:
    vectors = {"all": embeddings} if isinstance(embeddings, Tensor) else dict(embeddings)
    classes = {"all": labels} if isinstance(labels, Tensor) else dict(labels)
    wanted = SPLITS.get(task, ("all",))
    if tuple(sorted(vectors)) != tuple(sorted(wanted)) or vectors.keys() != classes.keys():
        raise ValueError(f"{task}: wants features and labels of {', '.join(wanted)}, got {', '.join(vectors)}")
    for name, x in vectors.items():
        if x.ndim != 2 or len(x) != len(classes[name]):
            raise ValueError(f"{task}, {name}: {len(classes[name])} labels, got features {tuple(x.shape)}")
        bad = (~torch.isfinite(x)).any(1).nonzero()
        if len(bad):
            raise ValueError(f"{task}, {name}: features of row {int(bad[0])} are not finite")
    return {name: Part(vectors[name].float(), classes[name].long()) for name in wanted}


def _cross_validated(parts: dict[str, Part], setting: Setting, seed: int, progress: Progress) -> Accuracy:
    """Outer folds give the accuracy, folds of each one's training part its weight decay."""
    x, y = parts["all"]
    outer = list(_folds(y, setting.folds, SEED))
    inner = [Problem(train[a], train[b]) for train, _ in outer for a, b in _folds(y[train], setting.folds, SEED)]
    tell = _counter(progress, len(inner) + len(outer))
    found = fit(x, y, inner, setting, seed, tell)
    chosen = [_chosen(found[i : i + setting.folds]) for i in range(0, len(found), setting.folds)]
    refits = [Problem(train, None, (l2,)) for (train, _), (l2, _) in zip(outer, chosen, strict=True)]
    fits = fit(x, y, refits, setting, seed, tell)
    scores = [_share(f.weights[0], x[test], y[test]) for f, (_, test) in zip(fits, outer, strict=True)]
    acc, devacc = (round(float(np.mean(v)), 2) / 100 for v in (scores, [dev for _, dev in chosen]))
    return Accuracy(acc, devacc)


def _with_test_set(parts: dict[str, Part], setting: Setting, seed: int, progress: Progress) -> Accuracy:
    """Folds of the training set give the weight decay, its own test set the accuracy."""
    from sklearn.metrics import f1_score  # lazy: slow import

    (x, y), (test_x, test_y) = parts["train"], parts["test"]
    folds = [Problem(a, b) for a, b in _folds(y, setting.folds, seed)]
    tell = _counter(progress, len(folds) + 1)
    l2, devacc = _chosen(fit(x, y, folds, setting, seed, tell))
    (found,) = fit(x, y, [Problem(np.arange(len(y)), None, (l2,))], setting, seed, tell)
    f1 = None
    if len(y.unique()) == 2:
        f1 = round(100 * float(f1_score(test_y, _predicted(found.weights[0], test_x))), 2) / 100
    return Accuracy(_share(found.weights[0], test_x, test_y) / 100, devacc / 100, f1)


def _with_dev_set(parts: dict[str, Part], setting: Setting, seed: int, progress: Progress) -> Accuracy:
    """The dev set stops and judges. SentEval fits the winner once more, from the same seed: the same classifier."""
    x = torch.cat([parts["train"].vectors, parts["dev"].vectors])
    y = torch.cat([parts["train"].labels, parts["dev"].labels])
    rows = np.arange(len(y))
    size = len(parts["train"].labels)
    (found,) = fit(x, y, [Problem(rows[:size], rows[size:])], setting, seed, _counter(progress, 1))
    l2, devacc = _chosen([found])
    weights = found.weights[L2.index(l2)]
    return Accuracy(_share(weights, *parts["test"]) / 100, devacc / 100)


def _folds(y: Int[Tensor, " n"], folds: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import StratifiedKFold  # lazy: slow import

    return StratifiedKFold(folds, shuffle=True, random_state=seed).split(np.zeros(len(y)), y.numpy())


def _chosen(found: Sequence[Fitted]) -> tuple[float, float]:
    """The first weight decay with the best mean accuracy over folds, in points to two decimals, and that accuracy."""
    means = [round(100 * float(np.mean([f.best[i] for f in found])), 2) for i in range(len(L2))]
    return L2[int(np.argmax(means))], max(means)


def _share(weights: Float[Tensor, "c d1"], x: Float[Tensor, "n d"], y: Int[Tensor, " n"]) -> float:
    return round(100 * float((_predicted(weights, x) == y).double().mean()), 2)


def _predicted(weights: Float[Tensor, "c d1"], x: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
    return (x @ weights[:, :-1].T + weights[:, -1]).argmax(1)


def _counter(progress: Progress, of: int) -> Callable[[int], None]:
    done = 0

    def tell(more: int) -> None:
        nonlocal done
        done += more
        progress(done, of)

    return tell
