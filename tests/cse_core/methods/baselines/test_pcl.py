"""PCL's terms against loops written from its formulas, their gradients, symmetries, and what the whole method reads."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cse_core.method import Tokens
from cse_core.methods.baselines.pcl import PCL, PUBLISHED, cooperation, group_logits, peer_loss, peer_positive
from cse_core.models.encoder import Encoder
from tests.support.encoders import wiki_tiny
from tests.support.method_oracles import cosine, drawn, softmax
from tests.support.method_steps import batch_of, check_against_loop, loss_under, refuses, seeded
from tests.support.training import equal

FORMS = ("released", "probability", "logit", "multi")
sizes, seeds = st.integers(1, 5), st.integers(0, 10_000)
positives = st.integers(1, 4)


def rows_loop(queries: Tensor, keys: Tensor, temperature: float) -> list[list[float]]:
    """S(Q, K) by entries."""
    q, k = queries.tolist(), keys.tolist()
    rows = []
    for i in range(len(q)):
        row = [cosine(q[i][0], key) / temperature for key in k[i][1:]]
        row += [cosine(q[i][0], k[j][0]) / temperature for j in range(len(q)) if j != i]
        rows.append(row)
    return rows


def positive_loop(z: Tensor, temperature: float, form: str) -> float:
    own, terms = z.shape[1] - 1, []
    for row in rows_loop(z, z, temperature):
        chances = softmax(row)
        for a, (score, p) in enumerate(zip(row, chances, strict=True)):
            if form in ("released", "logit"):
                x = p if form == "released" else score
                terms.append(math.log1p(math.exp(-abs(x))) + max(x, 0.0) - (x if a < own else 0.0))
            elif form == "probability":
                rest = sum(q for b, q in enumerate(chances) if b != a)
                terms.append(-math.log(p) if a < own else -math.log(rest))
            elif a < own:
                terms.append(-math.log(p))
    return sum(terms) / len(terms)


def cooperation_loop(f: Tensor, g: Tensor, temperature: float, kind: str, reduction: str) -> float:
    first, second = ((f, f), (g, g)) if kind == "self" else ((f, g), (g, f))
    p, q = ([softmax(row) for row in rows_loop(*pair, temperature)] for pair in (first, second))
    terms = [b * math.log(b / a) for i in range(len(p)) for a, b in zip(p[i], q[i], strict=True)]
    return sum(terms) / (len(terms) if reduction == "entry" else len(p))


def contrast_loop(z: Tensor, temperature: float) -> float:
    first, second = z[:, 0].tolist(), z[:, 1].tolist()
    rows = [softmax([cosine(a, b) / temperature for b in second]) for a in first]
    return -sum(math.log(row[i]) for i, row in enumerate(rows)) / len(rows)


def total_loop(f: Tensor, g: Tensor, temperature: float) -> float:
    own = sum(contrast_loop(z, temperature) + positive_loop(z, temperature, "released") for z in (f, g))
    return own + sum(cooperation_loop(f, g, temperature, kind, "entry") for kind in ("self", "cross"))


@given(sizes, positives, seeds)
def test_the_logits_are_own_views_and_then_other_sentences(n: int, own: int, seed: int) -> None:
    f, g = drawn(n, 1 + own, 4, seed=seed), drawn(n, 1 + own, 4, seed=seed + 1)
    found = group_logits(f, g, 0.3)
    assert found.shape == (n, own + n - 1)
    assert torch.allclose(found, torch.tensor(rows_loop(f, g, 0.3), dtype=torch.float64).view_as(found))


@given(sizes, positives, seeds, st.sampled_from(FORMS), st.sampled_from([0.05, 1.0]))
def test_the_positives_term_is_the_formula(n: int, own: int, seed: int, form: str, temperature: float) -> None:
    z = drawn(n, 1 + own, 4, seed=seed)
    found = peer_positive(z, temperature, form).item()
    assert found == pytest.approx(positive_loop(z, temperature, form), rel=1e-7, abs=1e-12)


@given(sizes, positives, seeds, st.sampled_from(["self", "cross"]), st.sampled_from(["entry", "row"]))
def test_cooperation_is_the_formula(n: int, own: int, seed: int, kind: str, reduction: str) -> None:
    f, g = drawn(n, 1 + own, 4, seed=seed), drawn(n, 1 + own, 4, seed=seed + 1)
    found = cooperation(f, g, 0.3, kind, reduction).item()
    assert found == pytest.approx(cooperation_loop(f, g, 0.3, kind, reduction), rel=1e-9, abs=1e-12)
    assert found >= -1e-12
    entries = own + n - 1
    assert cooperation(f, g, 0.3, kind, "row").item() == pytest.approx(
        entries * cooperation(f, g, 0.3, kind, "entry").item(), abs=1e-12
    )


@given(sizes, positives, seeds)
def test_the_total_is_the_six_terms(n: int, own: int, seed: int) -> None:
    f, g = drawn(n, 1 + own, 4, seed=seed), drawn(n, 1 + own, 4, seed=seed + 1)
    total, terms = peer_loss(f, g, 0.1)
    assert total.item() == pytest.approx(total_loop(f, g, 0.1), rel=1e-9)
    assert len(terms) == 6
    assert total.item() == pytest.approx(sum(term.item() for term in terms.values()), rel=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_the_positives_terms_gradient_is_its_slope(form: str) -> None:
    z = drawn(3, 4, 3, seed=1, gradient=True)
    check_against_loop(peer_positive(z, 0.3, form), lambda x: positive_loop(x, 0.3, form), z, least=1e-3, atol=1e-8)


@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize("reduction", ["entry", "row"])
def test_cooperations_gradient_reaches_both_networks(kind: str, reduction: str) -> None:
    f, g = drawn(3, 3, 3, seed=1, gradient=True), drawn(3, 3, 3, seed=2, gradient=True)
    loss = cooperation(f, g, 0.3, kind, reduction)
    check_against_loop(loss, lambda a, b: cooperation_loop(a, b, 0.3, kind, reduction), f, g, least=1e-2, atol=1e-8)


@pytest.mark.parametrize("n", [1, 3])
def test_the_totals_gradient_is_its_slope_with_one_sentence_too(n: int) -> None:
    f, g = drawn(n, 3, 3, seed=1, gradient=True), drawn(n, 3, 3, seed=2, gradient=True)
    check_against_loop(peer_loss(f, g, 0.3)[0], lambda a, b: total_loop(a, b, 0.3), f, g, atol=1e-8)


def test_bounds_of_the_released_form() -> None:
    """Probabilities as logits leave each entry in [0.31, 0.69] for own views and [0.69, 1.31] for others."""
    z = drawn(6, 10, 8, seed=1)
    low, high = math.log1p(math.exp(-1)), math.log1p(math.e)
    assert low < peer_positive(z, 0.05).item() < high
    perfect = torch.eye(6, dtype=torch.float64)[:, None].expand(6, 10, 6)
    p = math.exp(1 / 0.05) / (9 * math.exp(1 / 0.05) + 5)
    expected = (9 * (math.log1p(math.exp(p)) - p) + 5 * math.log(2)) / 14
    assert peer_positive(perfect, 0.05).item() == pytest.approx(expected, rel=1e-6)
    assert expected == pytest.approx((9 * 0.639 + 5 * 0.693) / 14, abs=1e-3)


def test_one_network_twice_has_nothing_to_agree_on() -> None:
    f = drawn(5, 4, 6, seed=1)
    for kind in ("self", "cross"):
        assert cooperation(f, f.clone(), 0.05, kind).item() == 0


def test_networks_exchanged_turn_the_two_divergences_around_and_nothing_else() -> None:
    f, g = drawn(5, 4, 6, seed=1), drawn(5, 4, 6, seed=2)
    (_, there), (_, back) = peer_loss(f, g, 0.3), peer_loss(g, f, 0.3)
    for name in ("contrastive", "positives"):
        assert there[name].item() == back[f"peer_{name}"].item()
        assert there[f"peer_{name}"].item() == back[name].item()
    for kind in ("self", "cross"):
        assert back[kind].item() == pytest.approx(cooperation_loop(g, f, 0.3, kind, "entry"))
        assert back[kind].item() != pytest.approx(there[kind].item(), rel=1e-3)


@pytest.mark.parametrize("peer_head", ["shared", "own"])
def test_both_networks_read_all_views_and_the_peer_starts_as_a_copy(peer_head: Any) -> None:
    """Without dropout the same vectors come out, so nothing is left to agree on; the views are drawn as set."""
    encoder = wiki_tiny(dropout=0.0)
    method = PCL(augmentations=("inverse", "repetition"), peer_head=peer_head, positives="logit", temperature=0.06)
    modules: Any = method.modules(encoder, seeded())
    read: dict[str, list[Tokens]] = {}
    passes = {"f": encoder, "g": modules["peer"]}
    for name, network in passes.items():
        network.register_forward_pre_hook(lambda _, tokens, name=name: read.update({name: list(tokens)}))
    loss = loss_under(method, encoder, batch_of(method, encoder, length=9), modules)
    assert len(read["f"]) == len(read["g"]) == 4
    for a, b in zip(read["f"], read["g"], strict=True):
        assert torch.equal(a.ids, b.ids)
    assert torch.equal(read["f"][0].ids, read["f"][1].ids)
    lengths = [tokens.mask.sum(1) for tokens in read["f"]]
    assert torch.equal(lengths[2], lengths[0])
    assert (lengths[3] - lengths[0]).tolist() == [1, 1, 0, 1, 0, 0]
    f = torch.stack([modules["head"](h) for h in encoder(*read["f"])], 1).detach().double()
    own_head = modules["peer_head" if peer_head == "own" else "head"]
    g = torch.stack([own_head(h) for h in modules["peer"](*read["f"])], 1).detach().double()
    assert loss.terms["peer_positives"].item() == pytest.approx(positive_loop(g, 0.06, "logit"), rel=1e-5)
    assert loss.terms["positives"].item() == pytest.approx(positive_loop(f, 0.06, "logit"), rel=1e-5)
    assert loss.terms["self"].item() == pytest.approx(cooperation_loop(f, g, 0.06, "self", "entry"), abs=1e-6)
    assert (abs(loss.terms["self"].item()) < 1e-7) == (peer_head == "shared")
    for hook in (encoder, modules["peer"]):
        hook._forward_pre_hooks.clear()


def test_the_peer_is_another_set_of_weights_in_the_same_precision(encoder: Encoder) -> None:
    encoder.precision = "bf16"
    peer: Any = PCL().modules(encoder, seeded())["peer"]
    encoder.precision = "fp32"
    assert peer.precision == "bf16"
    assert peer.tokenizer is encoder.tokenizer
    assert (peer.pooling, peer.backbone.config.hidden_dropout_prob) == ("cls", 0.3)
    own, copied = encoder.state_dict(), peer.state_dict()
    assert equal(own, copied)
    assert {w.data_ptr() for w in own.values()}.isdisjoint({w.data_ptr() for w in copied.values()})
    torch.manual_seed(0)
    text = batch_of(PCL(), encoder)["text"]
    first, second = encoder.train()(text), peer.train()(text)
    assert not torch.allclose(first[0], second[0], atol=1e-3)  # its dropout is its own


def test_the_published_settings() -> None:
    assert list(PUBLISHED) == ["bert-base-uncased"]
    recipe = PUBLISHED["bert-base-uncased"]
    assert (recipe.batch_size, recipe.learning_rate, recipe.epochs) == (64, 3e-5, 1)
    assert recipe.method == PCL(augmentations=("shuffle", "inverse", "deletion", "repetition") * 2, share=0.2)


test_impossible_settings_are_refused = refuses(
    PCL,
    ({"augmentations": ("shuffle", "crop")}, "augmentations must be of shuffle, .*, repetition, got crop"),
    ({"share": 0.0}, r"share must be in \(0, 1\], got 0\.0"),
    ({"longest": 2}, "longest must be at least 3, got 2"),
    ({"positive_weight": -1.0}, r"positive_weight must be zero or positive, got -1\.0"),
    ({"cooperation_weight": -1.0}, r"cooperation_weight must be zero or positive, got -1\.0"),
    ({"peer": False}, r"cooperation needs a peer, got cooperation_weight 1\.0 without one"),
)
