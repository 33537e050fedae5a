"""Reference for SentEval's transfer protocol: one classifier after another, with torch's layers and optimisers.

It is written from the protocol, not for speed, and shares nothing with cse_core/evaluation.
"""

import copy

import numpy as np
import torch
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold
from torch import nn

SETTINGS = {
    "test": {"folds": 10, "optimiser": torch.optim.Adam, "batch": 64, "tenacity": 5, "epoch_size": 4},
    "fast": {"folds": 5, "optimiser": torch.optim.RMSprop, "batch": 128, "tenacity": 3, "epoch_size": 2},
}
L2 = [10.0**power for power in range(-5, -1)]


class Classifier:
    """One linear layer; after `fit` it has the weights of the best round."""

    def __init__(self, width, classes, l2, seed, setting):
        np.random.seed(seed)
        torch.manual_seed(seed)
        self.setting, self.steps = setting, 0
        self.model = nn.Linear(width, classes)
        self.optimiser = setting["optimiser"](self.model.parameters(), weight_decay=l2)

    def fit(self, x, y, stopping=None):
        if stopping is None:
            permutation = np.random.permutation(len(x))
            held = int(0.05 * len(x))
            stopping = x[permutation[:held]], y[permutation[:held]]
            x, y = x[permutation[held:]], y[permutation[held:]]
        best, failures, passes, model = -1.0, 0, 0, self.model
        while passes <= 200:
            self.round(x, y)
            passes += self.setting["epoch_size"]
            accuracy = self.score(*stopping)
            if accuracy > best:
                best, model = accuracy, copy.deepcopy(self.model)
            else:
                if failures >= self.setting["tenacity"]:
                    break
                failures += 1
        self.model = model
        return self

    def round(self, x, y):
        for _ in range(self.setting["epoch_size"]):
            permutation = np.random.permutation(len(x))
            for start in range(0, len(x), self.setting["batch"]):
                rows = torch.from_numpy(permutation[start : start + self.setting["batch"]])
                loss = nn.functional.cross_entropy(self.model(x[rows]), y[rows])
                self.optimiser.zero_grad()
                loss.backward()
                self.optimiser.step()
                self.steps += 1

    @torch.no_grad()
    def predict(self, x):
        return self.model(x).argmax(1)

    def score(self, x, y):
        return float((self.predict(x) == y).double().mean())


def search(x, y, fold_seed, classes, seed, setting):
    """The first of the best weight decays over folds, and its mean accuracy in points."""
    folds = list(StratifiedKFold(setting["folds"], shuffle=True, random_state=fold_seed).split(x, y))
    scores = []
    for l2 in L2:
        each = []
        for train, test in folds:
            made = Classifier(x.shape[1], classes, l2, seed, setting)
            each.append(made.fit(x[train], y[train], (x[test], y[test])).score(x[test], y[test]))
        scores.append(round(100 * np.mean(each), 2))
    return L2[int(np.argmax(scores))], max(scores)


def cross_validated(x, y, seed=1111, setting="test"):
    """MR, CR, SUBJ, MPQA: (acc, devacc) in points."""
    setting, classes = SETTINGS[setting], int(y.max()) + 1
    tests, devs = [], []
    for train, test in StratifiedKFold(setting["folds"], shuffle=True, random_state=1111).split(x, y):
        l2, dev = search(x[train], y[train], 1111, classes, seed, setting)
        made = Classifier(x.shape[1], classes, l2, seed, setting).fit(x[train], y[train])
        tests.append(round(100 * made.score(x[test], y[test]), 2))
        devs.append(dev)
    return round(np.mean(tests), 2), round(np.mean(devs), 2)


def with_test_set(x, y, test_x, test_y, seed=1111, setting="test"):
    """TREC, MRPC: (acc, devacc, F1 of class 1) in points."""
    setting, classes = SETTINGS[setting], int(y.max()) + 1
    l2, dev = search(x, y, seed, classes, seed, setting)
    made = Classifier(x.shape[1], classes, l2, seed, setting).fit(x, y)
    f1 = round(100 * f1_score(test_y, made.predict(test_x), average="binary" if classes == 2 else "macro"), 2)
    return round(100 * made.score(test_x, test_y), 2), dev, f1


def with_dev_set(train, dev, test, seed=1111, setting="test"):
    """SST-2: (acc, devacc) in points."""
    setting, classes = SETTINGS[setting], int(train[1].max()) + 1
    scores = []
    for l2 in L2:
        made = Classifier(train[0].shape[1], classes, l2, seed, setting).fit(*train, dev)
        scores.append(round(100 * made.score(*dev), 2))
    made = Classifier(train[0].shape[1], classes, L2[int(np.argmax(scores))], seed, setting).fit(*train, dev)
    return round(100 * made.score(*test), 2), max(scores)
