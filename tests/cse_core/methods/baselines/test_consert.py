"""ConSERT: the whole loss one sentence at a time under each change, its null settings, views and padding."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cse_core.method import Loss, Tokens
from cse_core.methods.baselines.consert import PUBLISHED, ConSERT, view
from cse_core.models.encoder import Encoder
from experiments.schema.scales import RESCALED
from tests.support.method_cases import UNSTATED
from tests.support.method_oracles import nt_xent_loop
from tests.support.method_steps import TEXTS, batch_of, encoder_of, loss_under, refuses, seeded, views_of
from tests.support.one_by_one import nce, tanh_of, vector_of

RATES = {"none": 0.0, "shuffle": 0.0, "token_cutoff": 0.4, "feature_cutoff": 0.2, "dropout": 0.1}
PLAIN = ConSERT(first="none", first_rate=0.0, second="none")


def tokens_of(encoder: Encoder) -> Tokens:
    return batch_of(ConSERT(), encoder)["text"]


def loss_of(method: Any, encoder: Encoder, modules: nn.ModuleDict, seed: int = 1) -> Loss:
    return loss_under(method, encoder, batch_of(method, encoder, seed=seed), modules)


def of(kind: Any, other: Any = "none", **changes: Any) -> ConSERT:
    return ConSERT(first=kind, first_rate=RATES[kind], second=other, second_rate=RATES[other], **changes)


def by_hand(encoder: Encoder, tokens: Tokens, row: int) -> Tensor:
    """One row's vector from its states by hand."""
    length = int(tokens.mask[row].sum())
    kept = None if tokens.kept is None else tokens.kept.expand(-1, tokens.ids.shape[1], 128)[row, :length]
    places = tokens.position_ids[row, :length].tolist()
    return vector_of(encoder.backbone, tokens.ids[row, :length].tolist(), encoder.pooling, places=places, kept=kept)


@pytest.mark.parametrize("head", ["none", "tanh"])
@pytest.mark.parametrize("contrast", ["both_views", "one_way"])
@pytest.mark.parametrize(("first", "second"), [("feature_cutoff", "shuffle"), ("token_cutoff", "dropout")])
def test_the_loss_is_the_equation(first: str, second: str, contrast: str, head: str) -> None:
    """What the views keep is drawn again from the same generator; the rest is done for each sentence by itself."""
    encoder, method = encoder_of(pooling="mean"), of(first, second, contrast=contrast, head=head, temperature=0.2)
    modules = method.modules(encoder, seeded())
    found = loss_of(method, encoder, modules)
    generator = seeded(1)
    views = [view(tokens_of(encoder), kind, RATES[kind], 128, generator) for kind in (first, second)]
    sides = [[by_hand(encoder, tokens, row) for row in range(len(TEXTS))] for tokens in views]
    if head == "tanh":
        linear = modules["head"][0]  # ty: ignore[not-subscriptable]
        sides = [[tanh_of(linear, vector) for vector in side] for side in sides]
    lists = [torch.stack(side).tolist() for side in sides]
    expected = nt_xent_loop(*lists, 0.2) if contrast == "both_views" else nce(*sides, [], 0.2)
    assert found.total.item() == pytest.approx(expected, rel=1e-5)
    assert found.terms == {"contrastive": found.total}
    assert torch.allclose(views_of(found)[1].double(), torch.stack(sides[1]), atol=1e-5)


@pytest.mark.parametrize("kind", RATES)
def test_each_change_changes_what_it_says(kind: str) -> None:
    encoder = encoder_of(pooling="mean")
    tokens = tokens_of(encoder)
    changed = view(tokens, kind, RATES[kind], 128, seeded())
    assert torch.equal(changed.ids, tokens.ids)
    assert torch.equal(changed.mask, tokens.mask)
    assert (changed.positions is None) == (kind != "shuffle")
    assert (changed.kept is None) == (kind in ("none", "shuffle"))
    lengths = tokens.mask.sum(1).tolist()
    if changed.positions is not None:
        for row, length in zip(changed.positions.tolist(), lengths, strict=True):
            assert sorted(row[:length]) == list(range(length))
            assert row[length:] == list(range(length, len(row)))
    if changed.kept is not None:
        cut = (~changed.kept).flatten(1).sum(1).tolist()
        expected = {"token_cutoff": [int(n * 0.4) for n in lengths], "feature_cutoff": [25] * len(TEXTS)}
        assert cut == expected.get(kind, [int(n * 128 * 0.1) for n in lengths])
    again, other = (view(tokens, kind, RATES[kind], 128, seeded(seed)) for seed in (2, 3))
    parts = [[part for part in (v.positions, v.kept) if part is not None] for v in (changed, again, other)]
    assert all(torch.equal(a, b) for a, b in zip(parts[0], parts[1], strict=True))
    assert kind == "none" or not torch.equal(parts[0][0], parts[2][0])


def test_without_changes_and_dropout_the_views_are_equal_and_there_is_a_gradient() -> None:
    encoder = encoder_of(pooling="mean")
    loss = loss_of(PLAIN, encoder, PLAIN.modules(encoder, seeded()))
    assert torch.equal(*views_of(loss))
    vectors = views_of(loss)[0].detach().double().tolist()
    assert loss.total.item() == pytest.approx(nt_xent_loop(vectors, vectors, 0.1), rel=1e-5)
    loss.total.backward()
    assert nn.utils.get_total_norm([p.grad for p in encoder.parameters() if p.grad is not None]) > 1e-3


test_impossible_settings_are_refused = refuses(
    partial(replace, ConSERT()),
    ({"first_rate": 0.0}, r"first_rate must be in \(0, 1\) for feature_cutoff, got 0.0"),
    ({"first_rate": 1.0}, r"first_rate must be in \(0, 1\) for feature_cutoff, got 1.0"),
    ({"second_rate": 0.1}, "second_rate must be 0 for shuffle, which has no rate, got 0.1"),
    ({"first": "none"}, "first_rate must be 0 for none, which has no rate, got 0.2"),
)


def test_published_settings() -> None:
    both: dict[str, Any] = {"batch_size": 96, "learning_rate": 5e-7, "warmup": 0.1, "max_length": 67}
    both |= {"weight_decay": 0.01, "pooling": "mean"}
    rows = {
        "bert-base-uncased": (ConSERT(), {"dropout": 0.0, "epochs": 10, "eval_steps": 200}),
        "bert-large-uncased": (of("none", "shuffle"), {"dropout": 0.1, "epochs": 25, "eval_steps": 100}),
    }
    assert set(PUBLISHED) == set(rows) == set(RESCALED["consert"])
    for backbone, (method, stated) in rows.items():
        assert PUBLISHED[backbone].method == method
        assert PUBLISHED[backbone].training == UNSTATED | both | stated
        assert PUBLISHED[backbone].fixed == ("dropout",)
