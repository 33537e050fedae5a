"""Copies of a sentence in a batch: left out of its negatives in every method that has negatives in the batch."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cse_core.api import train
from cse_core.data.batches import pad
from cse_core.functional.contrastive import nt_xent
from cse_core.method import Batch, Loss, Method, equal_texts
from cse_core.methods import METHODS
from cse_core.methods.baselines.arccse import ArcCSE, arc_con
from cse_core.methods.baselines.consert import ConSERT
from cse_core.methods.baselines.dclr import DCLR, debiased_loss
from cse_core.methods.baselines.esimcse import ESimCSE
from cse_core.methods.baselines.l2pcsr import L2PCSR
from cse_core.methods.baselines.mixcse import MixCSE, mixed_loss
from cse_core.methods.baselines.mocose import MoCoSE
from cse_core.methods.baselines.pcl import PCL, cooperation, peer_positive
from cse_core.methods.compcse import CompCSE
from cse_core.methods.diffcse import DiffCSE
from cse_core.methods.mlm import MLM
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.rankcse import RankCSE
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.methods.sncse import SNCSE
from cse_core.methods.whitenedcse import WhitenedCSE, multi_positive_inside
from cse_core.run import Corpus, Pretrained, Run
from tests.support.method_oracles import cosine, drawn, softmax
from tests.support.method_steps import (
    HEADLESS,
    Views,
    batch_of,
    check_against_loop,
    encoder_for,
    length_for,
    loss_under,
    on_lists,
    seeded,
    views_of,
)

TWICE = ["a cat sat on a mat", "the river rose", "A cat sat on a mat", "two old men argued about fish", "no"]
DISTINCT = [*TWICE[:2], "snow fell", *TWICE[3:]]
COPIES = [{2}, set(), {0}, set(), set()]  # of each sentence of TWICE, once it is lower case
SAME = torch.tensor([[j in COPIES[i] for j in range(5)] for i in range(5)])
T = 0.3

# One of each method whose loss is, or has as a term, InfoNCE of the views that it returns.
CONTRASTS: dict[str, tuple[Method, str]] = {
    "simcse": (SimCSE(), "contrastive"),
    "rankcse": (RankCSE(distillation_weight=0.0), "contrastive"),
    "rankencoder": (RankEncoder(rank_weight=0.0), "contrastive"),
    "mlm": (MLM(mlm_weight=0.0), "contrastive"),
    "whitenedcse": (WhitenedCSE(groups=64, views="dropout"), "positive_1"),
    "compcse": (CompCSE(), "contrastive"),
    "promptbert": (PromptBERT(), "contrastive"),
    "sncse": (SNCSE(), "contrastive"),
    "diffcse": (DiffCSE(detection_weight=0.0), "contrastive"),
    "esimcse": (ESimCSE(queue_size=4), "contrastive"),
    "mocose": (MoCoSE(queue_size=4, first=0), "contrastive"),
    "consert": (ConSERT(contrast="one_way"), "contrastive"),
    "dclr": (DCLR(threshold=2.0, noise_times=0.0), "contrastive"),
    "mixcse": (MixCSE(negatives="none"), "contrastive"),
    "pcl": (PCL(positive_weight=0.0, cooperation_weight=0.0, peer=False), "contrastive"),
    "arccse": (ArcCSE(margin_degrees=0.0, triplet_weight=0.0), "contrastive"),
    "l2pcsr": (L2PCSR(layers=1, steps=1), "contrastive"),
}
WHOLE: dict[str, Method] = {  # the other forms of losses
    "consert of both views": ConSERT(),
    "whitenedcse inside": WhitenedCSE(groups=64, views="dropout", objective="inside"),
    "mixcse own": MixCSE(),
    "mixcse both": MixCSE(negatives="both"),
    "pcl": PCL(),
    "pcl of probabilities by row": PCL(positives="probability", cooperation_reduction="row"),
    "dclr binary": DCLR(threshold=2.0, objective="binary"),
    "arccse": ArcCSE(shortest=3),
}


def loss_of(method: Method, texts: Sequence[Any], *, left_out: bool) -> Loss:
    encoder = encoder_for(method)
    batch = batch_of(method, encoder, texts, length=length_for(method), leave_out_duplicates=left_out)
    return loss_under(method, encoder, batch, method.modules(encoder, seeded()))


def contrast_loop(z1: Sequence, z2: Sequence, temperature: float, copies: Sequence[set[int]]) -> float:
    """InfoNCE, a sentence at a time, of those that are no copies of it."""
    total = 0.0
    for i, a in enumerate(z1):
        below = sum(math.exp(cosine(a, b) / temperature) for j, b in enumerate(z2) if j not in copies[i])
        total -= math.log(math.exp(cosine(a, z2[i]) / temperature) / below)
    return total / len(z1)


def test_every_method_with_negatives_in_the_batch_is_here() -> None:
    able = {name for name, kind in METHODS.items() if getattr(kind, "leaves_out_duplicates", False)}
    assert {*CONTRASTS} == able | {"mlm", "rankencoder"}  # which leave out what their inner method does
    assert {*METHODS} - {*CONTRASTS} == {"ct", "isbert"}


@pytest.mark.parametrize("name", CONTRASTS)
@pytest.mark.slow
def test_copies_are_left_out_of_the_sum(name: str) -> None:
    method, term = CONTRASTS[name]
    loss = loss_of(method, TWICE, left_out=True)
    inner: Any = getattr(method, "inner", method)
    z1, z2 = (view.tolist() for view in views_of(loss))
    expected = contrast_loop(z1, z2, inner.temperature, COPIES)
    assert loss.terms[term].item() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    with_copies = contrast_loop(z1, z2, inner.temperature, [set()] * 5)
    assert with_copies > expected + 1e-3
    assert loss_of(method, TWICE, left_out=False).terms[term].item() > expected + 1e-3


@pytest.mark.parametrize("method", [*(m for m, _ in CONTRASTS.values()), *WHOLE.values()])
@pytest.mark.slow
def test_without_copies_the_option_changes_no_bit(method: Method) -> None:
    found = [loss_of(method, DISTINCT, left_out=left_out).total.item() for left_out in (True, False)]
    assert found[0] == found[1]


@pytest.mark.parametrize("method", WHOLE.values(), ids=WHOLE)
@pytest.mark.slow
def test_with_copies_it_changes_every_form_of_loss(method: Method) -> None:
    with_copies, without = (loss_of(method, TWICE, left_out=left_out).total for left_out in (False, True))
    assert without.isfinite()
    assert without.item() != with_copies.item()


def drawn_views(number: int, *shape: int) -> list[Tensor]:
    return [drawn(5, *shape, seed=seed, gradient=True) for seed in range(number)]


def test_nt_xent_leaves_out_both_views_of_a_copy() -> None:
    def loop(z1: list, z2: list) -> float:
        both, total = z1 + z2, 0.0
        for i, a in enumerate(both):
            candidates = [k for k in range(10) if k != i and k % 5 not in COPIES[i % 5]]
            below = sum(math.exp(cosine(a, both[k]) / T) for k in candidates)
            total -= math.log(math.exp(cosine(a, both[(i + 5) % 10]) / T) / below)
        return total / 10

    views = drawn_views(2, 3)
    check_against_loop(nt_xent(*views, T, left_out=SAME), on_lists(loop), *views)


def test_a_margin_stays_and_copies_go() -> None:
    def loop(z1: list, z2: list) -> float:
        total = 0.0
        for i, a in enumerate(z1):
            angle = math.acos(cosine(a, z2[i])) + math.radians(10)
            own = math.exp(math.cos(angle) / T)
            others = sum(math.exp(cosine(a, b) / T) for j, b in enumerate(z2) if j != i and j not in COPIES[i])
            total -= math.log(own / (own + others))
        return total / 5

    views = drawn_views(2, 3)
    check_against_loop(arc_con(views[0], views[1], T, 10.0, left_out=SAME), on_lists(loop), *views)


@pytest.mark.parametrize("printed", [False, True])
def test_several_positives_inside_the_logarithm_leave_copies_out(printed: bool) -> None:
    def loop(anchor: list, *positives: list) -> float:
        total = 0.0
        for i, a in enumerate(anchor):
            inside = 0.0
            for z in positives:
                below = sum(math.exp(cosine(a, b) / T) for j, b in enumerate(z) if j not in COPIES[i])
                own = cosine(a, z[i]) / T
                inside += math.exp(-own) / below if printed else below / math.exp(own)
            total += -math.log(inside) if printed else math.log(inside)
        return total / 5

    views = drawn_views(3, 3)
    check_against_loop(
        multi_positive_inside(views[0], views[1:], T, printed=printed, left_out=SAME), on_lists(loop), *views
    )


@pytest.mark.parametrize("objective", ["cross_entropy", "binary"])
def test_noise_stays_and_copies_go(objective: str) -> None:
    noise = drawn(3, 4, seed=9)
    weights = torch.ones(5, 5, dtype=torch.float64)
    weights[0, 1] = 0  # by the complement

    def loop(z1: list, z2: list) -> float:
        total, entries = 0.0, 0
        for i, a in enumerate(z1):
            kept = [j for j in range(5) if j not in COPIES[i]]
            logits = [cosine(a, z2[j]) / T if weights[i, j] else -math.inf for j in kept]
            chances = softmax(logits + [cosine(a, v) / T for v in noise.tolist()])
            if objective == "cross_entropy":
                total -= math.log(chances[kept.index(i)])
                entries += 1
            else:
                total -= sum(math.log(p if k == kept.index(i) else 1 - p) for k, p in enumerate(chances))
                entries += len(chances)
        return total / entries

    views = drawn_views(2, 4)
    check_against_loop(
        debiased_loss(*views, weights, noise, T, objective=objective, left_out=SAME), on_lists(loop), *views
    )


@pytest.mark.parametrize("distance", [1, 2])
@pytest.mark.parametrize("negatives", ["own", "batch", "both"])
def test_what_is_mixed_of_copies_is_no_negative(negatives: str, distance: int) -> None:
    """At 1, 1's partner is 2, a copy of 0, so u_1 is mostly 0's own vector. At 2, the partner of 0 is its copy."""
    partner = [(i + distance) % 5 for i in range(5)]

    def unit(vector: list) -> list:
        return [x / math.hypot(*vector) for x in vector]

    def mix(z: list) -> list:
        units = [unit(v) for v in z]
        return [unit([0.2 * x + 0.8 * y for x, y in zip(units[i], units[partner[i]], strict=True)]) for i in range(5)]

    def loop(z1: list, z2: list) -> float:
        total = 0.0
        for i, a in enumerate(z1):
            of_own = COPIES[i] | {i}
            terms = [cosine(a, b) for j, b in enumerate(z2) if j not in COPIES[i]]
            if negatives == "own":
                terms += [cosine(a, u[i])] if partner[i] not in COPIES[i] else []
            else:
                terms += [cosine(a, u[k]) for k in range(5) if partner[k] not in of_own]
            if negatives == "both":
                of_partner = COPIES[partner[i]] | {partner[i]}
                terms += [cosine(w[i], z2[j]) for j in range(5) if j not in of_partner]
            total -= math.log(math.exp(cosine(a, z2[i]) / T) / sum(math.exp(s / T) for s in terms))
        return total / 5

    views = drawn_views(2, 4)
    w, u = (mix(view.tolist()) for view in views)
    about = {"temperature": T, "share": 0.2, "negatives": negatives, "duplicates": SAME}
    found = mixed_loss(*views, torch.tensor(partner), **about)  # ty: ignore[invalid-argument-type]
    if negatives == "both":  # w is a constant, so its slope is not in the gradient: only the value
        assert found.item() == pytest.approx(loop(*(view.tolist() for view in views)), rel=1e-10)
    else:
        check_against_loop(found, on_lists(loop), *views)


def entries_of(q: list, k: list, i: int) -> list[float]:
    """Row i of PCL's S(Q, K) without copies of i: its own other views, then the others' first ones."""
    own = [cosine(q[i][0], view) for view in k[i][1:]]
    return [s / T for s in own + [cosine(q[i][0], k[j][0]) for j in range(5) if j != i and j not in COPIES[i]]]


@pytest.mark.parametrize("form", ["released", "logit", "probability", "multi"])
def test_a_group_of_positives_has_no_entry_for_a_copy(form: str) -> None:
    def loop(z: list) -> float:
        terms = []
        for i in range(5):
            logits = entries_of(z, z, i)
            for k, (s, p) in enumerate(zip(logits, softmax(logits), strict=True)):
                y = float(k < 2)
                if form == "multi":
                    terms += [-math.log(p)] if y else []
                elif form == "probability":
                    terms.append(-math.log(p if y else 1 - p))
                else:
                    x = p if form == "released" else s
                    terms.append(math.log1p(math.exp(x)) - y * x)
        return sum(terms) / len(terms)

    (z,) = drawn_views(1, 3, 4)
    check_against_loop(peer_positive(z, T, form, SAME), on_lists(loop), z)


@pytest.mark.parametrize("reduction", ["entry", "row"])
def test_two_networks_do_not_compare_copies(reduction: str) -> None:
    def loop(f: list, g: list) -> float:
        terms = []
        for i in range(5):
            p, q = (softmax(entries_of(z, z, i)) for z in (f, g))
            terms.append([b * math.log(b / a) for a, b in zip(p, q, strict=True)])
        flat = [x for row in terms for x in row]
        return sum(flat) / (len(flat) if reduction == "entry" else 5)

    f, g = drawn_views(2, 3, 4)
    check_against_loop(cooperation(f, g, T, "self", reduction, SAME), on_lists(loop), f, g)


def test_columns_leave_out_copies_of_sentence_and_positive_and_what_belongs_to_a_copy() -> None:
    """Rows 0 and 2 have one sentence. Row 1's positive and 3's hard negative are row 0's sentence."""
    texts = [[1, 2], [3, 4], [1, 2], [5, 6]], [[7, 8, 9], [1, 2, 0], [3, 3, 3], [4, 4, 4]], [[2], [7], [8], [1, 2]]
    names = ("text", "positive", "negative")
    columns = {n: pad([[*ids] for ids in c], 0) for n, c in zip(names, texts, strict=True)}
    columns["positive"] = replace(columns["positive"], mask=columns["positive"].ids > 0)
    views = drawn_views(3, 3)
    views = [view[:4].detach().requires_grad_() for view in views]
    left_out = [{1, 2, 7}, {7}, {0, 1, 7}, set()]  # candidates: four positives, four hard negatives

    def loop(z1: list, z2: list, z3: list) -> float:
        candidates = z2 + z3
        total = 0.0
        for i, a in enumerate(z1):
            logits = {j: cosine(a, b) / T + (0.5 if j == 4 + i else 0) for j, b in enumerate(candidates)}
            below = sum(math.exp(s) for j, s in logits.items() if j not in left_out[i])
            total -= math.log(math.exp(logits[i]) / below)
        return total / 4

    batch = Batch(torch.arange(4), columns, torch.Generator(), leave_out_duplicates=True)
    method = SimCSE(temperature=T, hard_negative_weight=0.5)
    loss = method.loss(Views(*views), batch, HEADLESS, {}).total
    check_against_loop(loss, on_lists(loop), *views)


def test_texts_are_equal_by_their_ids_whatever_the_padding() -> None:
    a, b = pad([[1, 2], [1, 2, 0], [3]], 0), pad([[1, 2, 0], [3], [1, 2], [2, 1]], 0, width=6)
    expected = [[False, False, True, False], [True, False, False, False], [False, True, False, False]]
    assert equal_texts(a, b).tolist() == expected


@pytest.mark.slow
def test_most_negatives_left_out_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    about: dict[str, Any] = {"max_steps": 1, "store": tmp_path, "device": "cpu", "leave_out_duplicates": True}
    for texts, share in ((["A cow."] * 4 + ["A hen."], 60), (["A cow."] * 3 + ["A hen.", "A fox."], 0)):
        caplog.clear()
        train(SimCSE(), texts, "wiki-tiny", batch_size=5, **about)
        said = [text for text in caplog.messages if "of all negatives" in text]
        assert [text.partition(": ")[2] for text in said] == [
            f"leave_out_duplicates leaves out {share} % of all negatives"
        ] * bool(share)


@pytest.mark.parametrize("name", ["ct", "isbert"])
def test_a_method_without_negatives_in_the_batch_refuses_the_option_before_training(name: str) -> None:
    about: dict[str, Any] = {"backbone": Pretrained("wiki-tiny"), "corpus": Corpus("synthetic", 100)}
    pooling = "ngrams" if name == "isbert" else "cls"
    with pytest.raises(ValueError, match=rf"method {name}.*leave_out_duplicates"):
        Run(method=METHODS[name](), pooling=pooling, leave_out_duplicates=True, **about)
