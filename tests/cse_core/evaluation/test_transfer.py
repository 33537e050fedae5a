"""Transfer tasks against SentEval's protocol, followed step by step: the same numbers to the last digit."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cse_core.data.senteval import labelled_sentences
from cse_core.evaluation import transfer
from cse_core.evaluation.linear_probe import L2, FittedProbe, Problem
from cse_core.evaluation.transfer import SPLITS, Accuracy, accuracy, order, pair_features
from cse_core.models.word_vectors import WordVectors
from tests.support import senteval_reference as reference

Data = tuple[dict[str, Tensor], dict[str, Tensor]]
CLASSES = {"trec": 6}
TURNS = {"all": 0, "train": 0, "dev": 0.3, "test": 0.6}  # other splits are other domains, so they don't score the same


def generated(task: str, sizes: Sequence[int], d: int = 8, seed: int = 0, noise: float = 3) -> Data:
    """Every split's features and noisy linear classes, of unequal size."""
    random = torch.Generator().manual_seed(seed)
    classes = CLASSES.get(task, 2)
    truth, turn = torch.randn(2, d, classes, generator=random)
    bias = torch.linspace(0, 1, classes)
    features, labels = {}, {}
    for name, n in zip(SPLITS.get(task, ("all",)), sizes, strict=True):
        x = features[name] = torch.randn(n, d, generator=random) * torch.linspace(0.5, 5, d) + 1
        clean = x @ (truth + TURNS[name] * turn)
        clean = 5 * (clean - clean.mean(0)) / clean.std(0) + bias
        labels[name] = (clean + noise * torch.randn(n, classes, generator=random)).argmax(1)
    return features, labels


def run(task: str, data: Data, *args, **settings) -> Accuracy:
    return accuracy(task, *data, *args, **settings)


def one_by_one(task: str, data: Data, setting: str, seed: int) -> Accuracy:
    x, y = data
    f1 = None
    if task == "sst2":
        acc, dev = reference.with_dev_set(*((x[name], y[name]) for name in SPLITS[task]), seed, setting)
    elif task in SPLITS:
        acc, dev, of_one = reference.with_test_set(x["train"], y["train"], x["test"], y["test"], seed, setting)
        f1 = of_one / 100 if task == "mrpc" else None
    else:
        acc, dev = reference.cross_validated(x["all"], y["all"], seed, setting)
    return Accuracy(acc / 100, dev / 100, f1)


SIZES = {"mr": (203,), "trec": (307, 101), "mrpc": (251, 131), "sst2": (331, 87, 149)}  # of no fold a multiple


def check_against_reference(task: str, data: Data, setting: str, seed: int) -> None:
    expected = one_by_one(task, data, setting, seed)
    found = run(task, data, setting, seed)
    assert found == expected
    assert (found.f1 is not None) == (task == "mrpc")
    label = data[1]["all" if task == "mr" else "test"]
    assert float(max(label.bincount()) / len(label)) < expected.acc < 0.97, "neither noise nor trivial"
    assert expected.acc != expected.devacc


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "setting", "seed", "data_seed"),
    [
        *((task, "fast", seed, seed) for task in SIZES for seed in (1111, 4)),
        *((task, "test", seed, seed) for task in ("trec", "mrpc") for seed in (1111, 4)),
        ("sst2", "test", 1111, 1),
        ("mr", "test", 4, 2),
    ],
)
def test_accuracies_are_sentevals(task: str, setting: str, seed: int, data_seed: int) -> None:
    sizes = (137,) if (task, setting) == ("mr", "test") else SIZES[task]
    check_against_reference(task, generated(task, sizes, seed=data_seed), setting, seed)


def glove(task: str, folder: Path) -> Data:
    table, encoder = labelled_sentences(task, folder).table, WordVectors.load("glove-6b-50d")
    features, labels = {}, {}
    for name in SPLITS[task]:
        rows = table.filter(lambda split, name=name: split == name, input_columns="split")
        first, second, classes = list(rows["sentence1"]), list(rows["sentence2"]), list(rows["label"])
        at = order(first, second, classes)
        features[name] = encoder.encode([first[i] for i in at])
        labels[name] = torch.tensor([classes[i] for i in at])
    return features, labels


@pytest.mark.slow
def test_glove_on_trec_gets_sentevals_numbers(real_data: Path) -> None:
    data = glove("trec", real_data)
    assert [len(y) for y in data[1].values()] == [5452, 500]
    check_against_reference("trec", data, "fast", 1111)


class Script:
    """Takes the place of `fit`, keeps what it was asked for, and answers with given accuracies and weights."""

    def __init__(self, monkeypatch, best: Callable[[int], Sequence[float]], weights: Tensor) -> None:
        self.best, self.weights, self.calls, self.count = best, weights, [], 0
        monkeypatch.setattr(transfer, "fit", self)

    def __call__(self, x, y, problems: Sequence[Problem], setting, seed: int, report: Callable) -> list[FittedProbe]:
        self.calls.append(problems)
        found = []
        for problem in problems:
            k = len(problem.l2)
            found.append(FittedProbe(np.array(self.best(self.count)[:k], float), self.weights[:k]))
            self.count += 1
        report(len(problems))
        return found


ZEROS = torch.tensor([[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]] * len(L2))  # class 0, whatever the two features


@pytest.mark.parametrize(
    ("best", "chosen"),
    [
        ((0.5, 0.7, 0.7, 0.6), 1),
        ((0.7, 0.7, 0.7, 0.7), 0),
        ((0.6, 0.6, 0.6, 0.61), 3),
        ((0.7, 0.70004, 0.69999, 0.7), 0),  # points to two decimals: 70.00 of all
        ((0.7, 0.70006, 0.70009, 0.7), 1),  # 70.01 of both
    ],
)
@pytest.mark.parametrize(("task", "sizes", "outer"), [("mr", (100,), 5), ("mrpc", (100, 20), 1)])
def test_the_first_of_the_best_weight_decays_in_two_decimals_wins(task, sizes, outer, best, chosen, monkeypatch):
    script = Script(monkeypatch, lambda i: best, ZEROS)
    found = run(task, generated(task, sizes, d=2), "fast", 1)
    assert [problem.l2 for problem in script.calls[0]] == [L2] * 5 * outer
    assert [problem.l2 for problem in script.calls[1]] == [(L2[chosen],)] * outer
    assert found.devacc == round(100 * best[chosen], 2) / 100


def test_the_first_best_classifier_on_the_dev_set_is_judged_on_the_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The four classifiers say: 0, is it negative, is it positive, 1. The last two tie; on the test set 0 is best."""
    weights = torch.tensor([[[0.0, 1], [0, 0]], [[0, 0], [-1, 0]], [[0, 0], [1, 0]], [[0, 0], [0, 1]]])
    script = Script(monkeypatch, lambda i: (0.5, 0.75, 0.8, 0.80004), weights)
    x = {"train": torch.ones(9, 1), "dev": torch.ones(5, 1), "test": torch.tensor([1.0, 2, -3, 4, 5, 6, -7])[:, None]}
    y = {"train": torch.zeros(9).long(), "dev": torch.ones(5).long(), "test": torch.tensor([0, 0, 0, 1, 0, 0, 0])}
    assert accuracy("sst2", x, y) == (0.4286, 0.8, None)
    (problem,) = script.calls[0]
    assert (problem.rows.tolist(), problem.l2) == (list(range(9)), L2)
    assert problem.stop is not None
    assert problem.stop.tolist() == list(range(9, 14))


def test_means_over_outer_folds_are_of_rounded_percentages(monkeypatch: pytest.MonkeyPatch) -> None:
    """All classifiers say class 0, of which each fold has its share; each fold's search finds its own dev accuracy."""
    dev = [0.500049, 0.500049, 0.500049, 0.5001, 0.5001]
    Script(monkeypatch, lambda i: (0.1, dev[i // 5 % 5], 0.1, 0.1), ZEROS)
    y = torch.tensor([1, 0] * 43 + [0] * 21)
    folds = [test for _, test in reference.StratifiedKFold(5, shuffle=True, random_state=1111).split(y, y)]
    shares = [100 * float((y[fold] == 0).double().mean()) for fold in folds]
    rounded = round(sum(round(share, 2) for share in shares) / 5, 2)
    assert rounded != round(sum(shares) / 5, 2)
    assert accuracy("cr", {"all": torch.zeros(107, 2)}, {"all": y}, "fast") == (rounded / 100, 0.5, None)


def folds_of(task: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[list[int]], ...]:
    script = Script(monkeypatch, lambda i: (0.5,) * 4, ZEROS)
    run(task, generated(task, SIZES[task], d=2), "test", seed)
    searched = [problem.rows.tolist() for problem in script.calls[0]]
    return searched, [problem.rows.tolist() for problem in script.calls[1]]


def test_only_tasks_with_a_test_set_draw_their_folds_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    searched, refitted = folds_of("mr", 5, monkeypatch)
    assert (searched, refitted) == folds_of("mr", 1111, monkeypatch)
    assert (len(searched), len(refitted)) == (100, 10)
    for i, rows in enumerate(searched):
        assert set(rows) < set(refitted[i // 10]), "an outer fold's test rows are not searched with"
    for task in ("mrpc", "trec"):
        (searched, refitted), (others, _) = (folds_of(task, seed, monkeypatch) for seed in (5, 1111))
        assert len(searched) == 10
        assert all(rows not in others for rows in searched)
        assert refitted == [list(range(SIZES[task][0]))]


@pytest.mark.parametrize(("task", "sizes"), [("cr", (400,)), ("mrpc", (400, 200)), ("sst2", (400, 100, 200))])
def test_classes_that_a_plane_separates_are_learnt_and_unrelated_ones_are_not(task, sizes) -> None:
    random = torch.Generator().manual_seed(3)
    features, labels = generated(task, sizes)
    apart = {name: torch.cat([x, 20 * labels[name][:, None] - 10.0], 1) for name, x in features.items()}
    easy = run(task, (apart, labels), "fast")
    assert min(value for value in easy if value is not None) > 0.99
    drawn = {name: (torch.rand(len(y), generator=random) < 0.8).long() for name, y in labels.items()}
    majority = float(drawn["all" if task == "cr" else "test"].double().mean())
    assert run(task, (features, drawn), "fast").acc == pytest.approx(majority, abs=0.06)


def test_types_and_the_order_of_splits_do_not_matter_and_progress_is_reported() -> None:
    features, labels = generated("mrpc", (120, 50))
    reported = []
    found = accuracy("mrpc", features, labels, "fast", progress=lambda done, of: reported.append((done, of)))
    other = {name: features[name].double() for name in ("test", "train")}
    assert accuracy("mrpc", other, {name: y.int() for name, y in labels.items()}, "fast") == found
    assert reported == sorted(set(reported))
    assert (reported[-1], {of for _, of in reported}) == ((6, 6), {6})
    reported.clear()
    run("subj", generated("subj", (90,)), "fast", progress=lambda done, of: reported.append((done, of)))
    assert (reported[-1], sorted(set(reported))) == ((30, 30), reported)


def test_order_is_by_words_of_the_first_then_of_the_second_then_by_class() -> None:
    rows = [
        ("a b", "x", 1),
        ("a", "x y", 0),
        ("a", "x", 1),
        ("a  b ", "x", 0),
        ("", "", 1),
        ("b", "y", 1),
        ("c", "z", 0),
    ]
    first, second, labels = zip(*rows, strict=True)
    assert order(first, second, labels) == [4, 6, 2, 5, 1, 3, 0]
    assert order([], [], []) == []


def test_pair_features_are_the_size_of_the_difference_and_the_product() -> None:
    u, v = torch.tensor([[1.0, -2], [0, 3]]), torch.tensor([[3.0, 4], [-1, 2]])
    assert pair_features(u, v).tolist() == [[2, 6, 3, -8], [1, 1, 0, 6]]
    assert torch.equal(pair_features(u, v), pair_features(v, u))
