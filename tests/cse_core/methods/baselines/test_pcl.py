"""PCL's terms against loops written from its formulas, their gradients, symmetries, and what the whole method reads."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from cse_core.data.batches import pad
from cse_core.method import Batch, Loss, Tokens
from cse_core.methods.baselines.augmentation import EDITS
from cse_core.methods.baselines.pcl import PCL, PUBLISHED, cooperation, group_logits, peer_loss, peer_positive
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.train import train
from tests.support.encoders import wiki_tiny
from tests.support.method_oracles import NoSource, cosine, drawn, slopes, softmax
from tests.support.training import Killed, equal, stop_at, weights

TEXTS = ["a cat sat on a mat", "the river rose", "snow fell", "two old men argued about fish", "no", "x y"]
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
    peer_positive(z, 0.3, form).backward()
    (expected,) = slopes(lambda x: positive_loop(x, 0.3, form), z)
    assert z.grad is not None
    assert torch.allclose(z.grad, expected, atol=1e-8)
    assert expected.abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize("reduction", ["entry", "row"])
def test_cooperations_gradient_reaches_both_networks(kind: str, reduction: str) -> None:
    f, g = drawn(3, 3, 3, seed=1, gradient=True), drawn(3, 3, 3, seed=2, gradient=True)
    cooperation(f, g, 0.3, kind, reduction).backward()
    expected = slopes(lambda a, b: cooperation_loop(a, b, 0.3, kind, reduction), f, g)
    for z, slope in zip((f, g), expected, strict=True):
        assert z.grad is not None
        assert torch.allclose(z.grad, slope, atol=1e-8)
        assert slope.abs().max() > 1e-2


def test_the_totals_gradient_is_its_slope_with_one_sentence_too() -> None:
    for n in (1, 3):
        f, g = drawn(n, 3, 3, seed=1, gradient=True), drawn(n, 3, 3, seed=2, gradient=True)
        peer_loss(f, g, 0.3)[0].backward()
        for z, slope in zip((f, g), slopes(lambda a, b: total_loop(a, b, 0.3), f, g), strict=True):
            assert z.grad is not None
            assert torch.allclose(z.grad, slope, atol=1e-8)


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


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    torch.set_num_threads(1)
    return wiki_tiny(dropout=0.3)


def loss_of(method: Any, encoder: Encoder, modules: Any, seed: int = 1) -> tuple[Loss, Batch]:
    text = pad(method.examples(TEXTS, encoder.tokenizer, 9)["text"], encoder.pad_id)
    batch = Batch(torch.arange(len(TEXTS)), {"text": text}, torch.Generator().manual_seed(seed))
    nn.ModuleList([encoder, modules]).train()
    torch.manual_seed(3)
    return method.loss(encoder, batch, modules, {}), batch


def modules_of(method: Any, encoder: Encoder) -> Any:
    return method.modules(encoder, torch.Generator().manual_seed(2))


def test_with_no_weight_and_no_peer_it_is_simcse_bit_for_bit(encoder: Encoder) -> None:
    null = PCL(positive_weight=0.0, cooperation_weight=0.0, peer=False)
    outcomes = []
    for method in (null, SimCSE()):
        modules = modules_of(method, encoder)
        assert list(modules) == ["head"]
        loss, batch = loss_of(method, encoder, modules)
        encoder.zero_grad()
        loss.total.backward()
        grads = [p.grad.clone() for p in [*encoder.parameters(), *modules.parameters()] if p.grad is not None]
        views: Any = loss.views
        outcomes.append([loss.total, *loss.terms.values(), *views, torch.rand(2), batch.generator.get_state(), *grads])
    assert len(outcomes[0]) == len(outcomes[1]) > 40
    assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))
    assert null.targets(NoSource()) == SimCSE().targets(NoSource())


@pytest.mark.parametrize("peer_head", ["shared", "own"])
def test_both_networks_read_all_views_and_the_peer_starts_as_a_copy(peer_head: str) -> None:
    """Without dropout the same vectors come out, so nothing is left to agree on; the views are drawn as set."""
    encoder = wiki_tiny(dropout=0.0)
    method = PCL(augmentations=("inverse", "repetition"), peer_head=peer_head, positives="logit", temperature=0.06)
    modules = modules_of(method, encoder)
    read: dict[str, list[Tokens]] = {}
    passes = {"f": encoder, "g": modules["peer"]}
    for name, network in passes.items():
        network.register_forward_pre_hook(lambda _, tokens, name=name: read.update({name: list(tokens)}))
    loss, _ = loss_of(method, encoder, modules)
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
    peer = modules_of(PCL(), encoder)["peer"]
    encoder.precision = "fp32"
    assert peer.precision == "bf16"
    assert peer.tokenizer is encoder.tokenizer
    assert (peer.pooling, peer.backbone.config.hidden_dropout_prob) == ("cls", 0.3)
    own, copied = encoder.state_dict(), peer.state_dict()
    assert equal(own, copied)
    assert {w.data_ptr() for w in own.values()}.isdisjoint({w.data_ptr() for w in copied.values()})
    torch.manual_seed(0)
    text = pad(SimCSE().examples(TEXTS, encoder.tokenizer, 9)["text"], encoder.pad_id)
    first, second = encoder.train()(text), peer.train()(text)
    assert not torch.allclose(first[0], second[0], atol=1e-3)  # its dropout is its own


def test_views_depend_only_on_the_steps_generator(encoder: Encoder) -> None:
    method = PCL(augmentations=EDITS)
    modules = modules_of(method, encoder)
    found = [loss_of(method, encoder, modules, seed)[0].total for seed in (1, 1, 2)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


BASE = Run(
    method=SimCSE(), backbone=Pretrained("wiki-tiny"), corpus=Corpus("synthetic", 32), batch_size=8, learning_rate=3e-4
)


@pytest.mark.slow
def test_a_killed_run_resumes_with_the_peers_optimiser_state(tmp_path: Any) -> None:
    run = replace(BASE, method=PCL(augmentations=("shuffle", "deletion"), peer_head="own"))
    whole = train(run, tmp_path / "whole")
    with pytest.raises(Killed):
        train(run, tmp_path / "killed", on_step=stop_at(2), save_seconds=0.0)
    state = torch.load(tmp_path / "killed" / run.key / "state.pt", weights_only=True)
    trained = len(state["optimizer"]["state"])
    assert trained == 2 * len(list(wiki_tiny().parameters())) + 4
    assert train(run, tmp_path / "killed").curves == whole.curves
    folders = [tmp_path / name for name in ("whole", "killed")]
    assert equal(*(weights(folder, run, "last") for folder in folders))
    assert whole.curves["loss/self"][0][1] < whole.curves["loss/self"][-1][1]  # they part, as their dropout differs
    assert set(weights(folders[0], run, "last")) == set(weights_of_simcse(tmp_path))  # the peer is not exported


def weights_of_simcse(store: Any) -> dict[str, Tensor]:
    train(BASE, store)
    return weights(store, BASE, "last")


def test_the_published_settings() -> None:
    assert list(PUBLISHED) == ["bert-base-uncased"]
    recipe = PUBLISHED["bert-base-uncased"]
    assert (recipe.batch_size, recipe.learning_rate, recipe.epochs) == (64, 3e-5, 1)
    assert recipe.method == PCL(augmentations=("shuffle", "inverse", "deletion", "repetition") * 2, share=0.2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.0}, r"temperature must be positive, got 0\.0"),
        ({"augmentations": ("shuffle", "crop")}, "augmentations must be of shuffle, .*, repetition, got crop"),
        ({"share": 0.0}, r"share must be in \(0, 1\], got 0\.0"),
        ({"longest": 2}, "longest must be at least 3, got 2"),
        ({"deletion": "word"}, "deletion must be one of place, value, got 'word'"),
        ({"positives": "bce"}, "positives must be one of released, probability, logit, multi, got 'bce'"),
        ({"positive_weight": -1.0}, r"positive_weight must be zero or positive, got -1\.0"),
        ({"cooperation_weight": -1.0}, r"cooperation_weight must be zero or positive, got -1\.0"),
        ({"cooperation_reduction": "sum"}, "cooperation_reduction must be one of entry, row, got 'sum'"),
        ({"peer_head": "none"}, "peer_head must be one of shared, own, got 'none'"),
        ({"peer": False}, r"cooperation needs a peer, got cooperation_weight 1\.0 without one"),
    ],
)
def test_impossible_settings_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PCL(**changes)
