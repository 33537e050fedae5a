"""CT: pairs by hand, the whole loss one sentence at a time, its gradient in closed form, two trained encoders."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from cse_core.method import Batch
from cse_core.methods.baselines.ct import CT, PUBLISHED, group_pairs, pair_losses
from experiments.schema.scales import RESCALED
from tests.support.method_cases import UNSTATED
from tests.support.method_oracles import drawn
from tests.support.method_steps import TEXTS, Encoded, batch_of, encoder_of, gradient_of, refuses, rows_of, seeded
from tests.support.one_by_one import perturb, vector_of
from tests.support.training import equal

SEVEN = [*TEXTS, "a dog"]


def surprise(a: Tensor, b: Tensor, same: bool) -> float:
    """-log of the logistic of x, or of -x."""
    x = sum(p * q for p, q in zip(a.tolist(), b.tolist(), strict=True))
    return math.log1p(math.exp(-x if same else x))


def test_groups_make_the_pairs_of_paper_and_code() -> None:
    """(A, A), (A, B), ...; or (A, A), (B, C), ...; what is left over makes as many as it can."""

    def named(n: int, negatives: int, pairs: str) -> list[str]:
        return [
            "".join("abcdefghijklmnop"[row] for row in pair)
            for pair in zip(*group_pairs(n, negatives, pairs), strict=True)
        ]

    assert named(6, 2, "anchored") == ["aa", "ab", "ac", "dd", "de", "df"]
    assert named(5, 2, "anchored") == ["aa", "ab", "ac", "dd", "de"]
    assert named(4, 2, "anchored") == ["aa", "ab", "ac", "dd"]
    assert named(3, 0, "anchored") == named(3, 0, "independent") == ["aa", "bb", "cc"]
    assert named(10, 2, "independent") == ["aa", "bd", "ce", "ff", "gi", "hj"]
    assert named(9, 2, "independent") == ["aa", "bd", "ce", "ff", "gh"]
    assert named(7, 2, "independent") == ["aa", "bd", "ce", "ff"]
    published = [len(group_pairs(n, 7, pairs)[0]) for n, pairs in ((16, "anchored"), (30, "independent"))]
    assert published == [16, 16]


@given(st.integers(1, 3), st.integers(0, 4), st.integers(1, 5), st.integers(0, 1000))
def test_the_loss_of_anchored_groups_is_the_equation(groups: int, negatives: int, d: int, seed: int) -> None:
    n = groups * (negatives + 1)
    anchors, sentences = drawn(groups, d, seed=seed), 3 * drawn(n, d, seed=seed + 1)
    losses = [surprise(anchors[i // (negatives + 1)], sentences[i], i % (negatives + 1) == 0) for i in range(n)]
    left, right = group_pairs(n, negatives)
    same = torch.tensor([a == b for a, b in zip(left, right, strict=True)])
    found = pair_losses(anchors[[row // (negatives + 1) for row in left]], sentences[right], same)
    assert found.mean().item() == pytest.approx(sum(losses) / n, rel=1e-9)


def test_its_gradient_is_the_closed_form() -> None:
    """-s(-x) b of a pair that is one sentence, s(x) b of another, s the logistic function."""
    first, second = drawn(4, 3, seed=1, gradient=True), drawn(4, 3, seed=2)
    same = torch.tensor([True, False, True, False])
    pair_losses(first, second, same).sum().backward()
    x = (first.detach() * second).sum(1, keepdim=True)
    weight = torch.where(same[:, None], -1 / (1 + x.exp()), 1 / (1 + (-x).exp()))
    assert torch.allclose(gradient_of(first), weight * second, atol=1e-12)


def test_products_in_the_hundreds_are_finite() -> None:
    big = torch.full((2, 4), 30.0, requires_grad=True)
    losses = pair_losses(big, big.detach(), torch.tensor([False, True]))
    assert losses.tolist() == [3600.0, 0.0]
    losses.sum().backward()
    assert gradient_of(big).isfinite().all()


def loss_by_loops(method: CT, first: Any, second: Any, batch: Batch) -> tuple[float, float, float]:
    """Means over all pairs, over pairs of one sentence, and over pairs of two, summed pair by pair."""
    rows, same, different = rows_of(batch["text"]), [], []
    for a, b in zip(*group_pairs(len(rows), method.negatives, method.pairs), strict=True):
        vectors = vector_of(first, rows[a], "mean"), vector_of(second, rows[b], "mean")
        (same if a == b else different).append(surprise(*(v / 10 for v in vectors), a == b))
    return (sum(same + different) / len(same + different), sum(same) / len(same), sum(different) / len(different))


def scaled(encoder: Any) -> Encoded:
    """An encoder of vectors a tenth as long: whole ones have products at which the loss is 0 or linear."""
    return Encoded(lambda *tokens: tuple(vectors / 10 for vectors in encoder(*tokens)))


@pytest.mark.parametrize("pairs", ["anchored", "independent"])
def test_the_loss_is_the_equation(pairs: Any) -> None:
    encoder, method = encoder_of(pooling="mean"), CT(negatives=2, pairs=pairs)
    modules: Any = method.modules(encoder, seeded())
    perturb(modules["first"], 1)
    batch, first, second = batch_of(CT(), encoder, SEVEN), scaled(modules["first"]), scaled(encoder)
    found = method.loss(second, batch, Standing(first), {})
    expected = loss_by_loops(method, modules["first"].backbone, encoder.backbone, batch)
    values = (found.total, found.terms["same"], found.terms["different"])
    assert [value.item() for value in values] == pytest.approx(expected, rel=1e-5)
    read = {"anchored": ([0, 3, 6], range(7)), "independent": ([0, 1, 2, 5], [0, 3, 4, 5])}[pairs]
    for tokens, rows in zip((first.asked[0][0], second.asked[0][0]), read, strict=True):  # each sentence once
        assert torch.equal(tokens.ids, batch["text"].ids[list(rows)])


class Standing(nn.ModuleDict):
    """Modules of which the first encoder is replaced."""

    def __init__(self, first: Any) -> None:
        super().__init__()
        self.first = first

    def __getitem__(self, key: str) -> Any:
        assert key == "first"
        return self.first


def test_without_negatives_nothing_is_left_to_learn() -> None:
    """The copies start equal."""
    encoder, losses = encoder_of(pooling="mean"), {}
    for negatives in (0, 2):
        modules: Any = CT(negatives=negatives).modules(encoder, seeded())
        assert equal(encoder.state_dict(), modules["first"].state_dict())
        losses[negatives] = CT(negatives=negatives).loss(encoder, batch_of(CT(), encoder, SEVEN), modules, {})
    assert [set(loss.terms) for loss in losses.values()] == [{"same"}, {"same", "different"}]
    assert losses[0].total < 1e-6
    assert losses[2].total > 10


test_impossible_settings_are_refused = refuses(CT, ({"negatives": -1}, "negatives must be zero or positive, got -1"))


def test_published_settings() -> None:
    base = "bert-base-uncased"
    stated: dict[str, Any] = {"learning_rate": 1e-5, "dropout": 0.0, "max_length": 75, "eval_steps": 500}
    stated |= {"optimizer": "rmsprop", "schedule": "staircase", "pooling": "mean"}
    rows = {base: (CT(negatives=7), 16), ("independent", base): (CT(pairs="independent"), 30)}
    assert set(PUBLISHED) == set(rows)
    for key, (method, batch_size) in rows.items():
        assert PUBLISHED[key].method == method
        assert PUBLISHED[key].training == UNSTATED | stated | {"batch_size": batch_size}
        assert PUBLISHED[key].fixed == ("dropout", "optimizer", "schedule")
    assert set(RESCALED["ct"]) == {base}
