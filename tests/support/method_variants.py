"""For every field of every method two methods that differ only in it, where it matters; and methods to train with."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from cse_core.evaluation.scorers import Whitened
from cse_core.method import Method, Tokens, innermost
from cse_core.methods import METHODS
from cse_core.methods.baselines.arccse import ArcCSE
from cse_core.methods.baselines.consert import ConSERT
from cse_core.methods.baselines.ct import CT
from cse_core.methods.baselines.dclr import DCLR
from cse_core.methods.baselines.esimcse import ESimCSE
from cse_core.methods.baselines.isbert import ISBERT
from cse_core.methods.baselines.l2pcsr import L2PCSR
from cse_core.methods.baselines.mixcse import MixCSE
from cse_core.methods.baselines.mocose import MoCoSE
from cse_core.methods.baselines.pcl import PCL
from cse_core.methods.compcse import CompCSE
from cse_core.methods.diffcse import DiffCSE
from cse_core.methods.mlm import MLM
from cse_core.methods.promptbert import PromptBERT
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.rankencoder import RankEncoder
from cse_core.methods.simcse import SimCSE
from cse_core.methods.sncse import SNCSE
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Pretrained

A, B = Pretrained("a"), Pretrained("b")
TEACHER, OTHER = Teacher(A), Teacher(B)
TAUGHT = RankCSE(teachers=(TEACHER,))
MLE = RankCSE(teachers=(TEACHER,), rank="list_mle")
BOTH = RankCSE(teachers=(replace(TEACHER, weight=0.3), replace(OTHER, weight=0.7)))
SWAPPED = RankCSE(teachers=(replace(TEACHER, weight=0.7), replace(OTHER, weight=0.3)))
BASED = RankEncoder(base=A, corpus_size=50, lower=-1.0, upper=1.0, combination="sum")
DROPPED = WhitenedCSE(groups=64, views="dropout")
WIDE = SNCSE(margin_weight=1.0, nearest=0.0, farthest=0.0)
EDITED = DiffCSE(generator=Pretrained("wiki-mini"), detection_weight=1.0)
QUEUED = ESimCSE(queue_size=4, momentum=0.5)
MOVING = MoCoSE(queue_size=4, first=2, momentum=0.5, momentum_steps=8)
CUT = ConSERT(second="token_cutoff", second_rate=0.5)
DEBIASED = DCLR(complement=A, threshold=0.0, step_size=1.0)
SHARED = MixCSE(negatives="batch")
PEERS = PCL(share=0.5)
ORDERED = ArcCSE(shortest=3, triplet_margin=0.5)
WIDE_ANGLE, MASKED = replace(ORDERED, margin_degrees=170.0), replace(ORDERED, heavy=0.9)
WEAKENED = L2PCSR(initial=A, layers=2)
TEMPLATE = 'The words "{}" say [MASK].'


def _moves(base: Any, /, **changes: Any) -> dict[str, tuple[Method, Method]]:
    """A change a field; a value that is a pair of methods is used as it is."""
    moved = {name: v if isinstance(v, tuple) and name != "weights" else None for name, v in changes.items()}
    return {name: pair or (base, replace(base, **{name: changes[name]})) for name, pair in moved.items()}


MOVES: dict[str, dict[str, tuple[Method, Method]]] = {
    "simcse": _moves(SimCSE(), temperature=0.06, hard_negative_weight=0.5),
    "rankcse": _moves(
        TAUGHT,
        teachers=(TAUGHT, replace(TAUGHT, teachers=(OTHER,))),
        rank="list_mle",
        temperature=0.06,
        student_temperature=0.03,
        teacher_temperature=0.02,
        contrastive_weight=0.9,
        consistency_weight=0.9,
        distillation_weight=0.9,
        list_reduction=(MLE, replace(MLE, list_reduction="mean")),
        variant="released_code",
        teacher_order="shuffled",
    ),
    "rankencoder": _moves(
        BASED,
        base=B,
        select="last",
        inner=SimCSE(temperature=0.06),
        corpus_size=51,
        corpus_seed=1,
        rank_weight=0.06,
        lower=0.05,
        upper=0.5,
        combination="maximum",
        similarity="centred",
        start="base",
    ),
    "whitenedcse": _moves(
        DROPPED,
        temperature=0.06,
        groups=32,
        whitening="group",
        views="shared",
        positives=2,
        objective="inside",
        weights=(0.5, 1.0),
        normalise=True,
        momentum=(replace(DROPPED, whitening="zca"), replace(DROPPED, whitening="zca", momentum=0.9)),
        detach=False,
        eps=1e-3,
        variant="released_code",
        feature_dropout=0.1,
    ),
    "compcse": _moves(
        CompCSE(),
        temperature=0.06,
        parts=3,
        split_on="truncated",
        compose="sum",
        side="anchor",
        order="after_head",
        dims=43,
        subsampling="overlapping",
    ),
    "promptbert": _moves(PromptBERT(), temperature=0.06, first=TEMPLATE, second=TEMPLATE, denoise=False),
    "sncse": _moves(
        WIDE,
        temperature=0.06,
        first=TEMPLATE,
        second=TEMPLATE,
        margin_weight=0.9,
        nearest=(replace(WIDE, farthest=0.1), replace(WIDE, nearest=0.1, farthest=0.1)),
        farthest=0.001,
        negation="spacy",
    ),
    "diffcse": _moves(
        EDITED,
        temperature=0.06,
        head="tanh",
        generator=Pretrained("wiki-tiny"),
        mask_share=0.6,
        detection_weight=0.9,
    ),
    "esimcse": _moves(
        QUEUED,
        temperature=0.06,
        repetition=0.9,
        queue_size=5,
        momentum=0.6,
        slow_start="random",
        limit="released_code",
    ),
    "mocose": _moves(MOVING, temperature=0.06, queue_size=5, first=3, momentum=0.6, momentum_steps=9),
    "consert": _moves(
        CUT,
        temperature=0.11,
        first="token_cutoff",
        second="dropout",
        first_rate=0.3,
        second_rate=0.3,
        contrast="one_way",
        head="tanh",
    ),
    "ct": _moves(CT(negatives=2), negatives=1, pairs="independent"),
    "dclr": _moves(
        DEBIASED,
        temperature=0.06,
        complement=B,
        initial=A,
        select="last",
        threshold=0.3,
        noise_times=2.0,
        steps=3,
        step_size=0.5,
        ascent="noise_only",
        exclusion="logit",
        objective="binary",
    ),
    "mixcse": _moves(
        MixCSE(),
        temperature=0.06,
        share=0.3,
        negatives="none",
        excluded=(SHARED, replace(SHARED, excluded="zero")),
        normalise_first=False,
        stop_gradient=False,
    ),
    "pcl": _moves(
        PEERS,
        temperature=0.06,
        augmentations=(PEERS, replace(PEERS, augmentations=("shuffle", "inverse", "deletion", "repetition"))),
        share=0.3,
        longest=8,
        deletion="value",
        positives="multi",
        positive_weight=0.9,
        cooperation_weight=0.9,
        cooperation_reduction="row",
        peer=(replace(PEERS, cooperation_weight=0.0), replace(PEERS, cooperation_weight=0.0, peer=False)),
        peer_head="own",
    ),
    "arccse": _moves(
        ORDERED,
        temperature=0.06,
        margin_degrees=20.0,
        margin_form=(WIDE_ANGLE, replace(WIDE_ANGLE, margin_form="monotone")),
        triplet_weight=0.2,
        triplet_margin=0.6,
        light=(MASKED, replace(MASKED, light=0.5)),
        heavy=0.9,
        shortest=6,
    ),
    "l2pcsr": _moves(
        WEAKENED,
        temperature=0.06,
        initial=B,
        select="last",
        threshold=0.3,
        steps=2,
        step_size=0.3,
        layers=1,
        token_norm="row",
        views="second",
        spare_specials=True,
    ),
    "isbert": _moves(ISBERT(), weighting="sentences"),
    "mlm": _moves(MLM(), inner=SimCSE(temperature=0.06), mlm_weight=0.2, mlm_share=0.6),
}
TEACHER_MOVES = {
    "encoder": (TAUGHT, replace(TAUGHT, teachers=(OTHER,))),
    "weight": (BOTH, SWAPPED),
    "select": (TAUGHT, replace(TAUGHT, teachers=(replace(TEACHER, select="last"),))),
    "scorer": (TAUGHT, replace(TAUGHT, teachers=(replace(TEACHER, scorer=Whitened()),))),
}
TRAINED: dict[str, Method] = {
    "simcse": SimCSE(),
    "rankcse list_net": TAUGHT,
    "rankcse list_mle": MLE,
    "rankcse mse of a shuffled teacher": replace(TAUGHT, rank="mse", teacher_order="shuffled"),
    "rankcse released_code": replace(TAUGHT, variant="released_code"),
    "rankencoder": BASED,
    "rankencoder on cosines": replace(BASED, similarity="centred"),
    "rankencoder on promptbert": replace(BASED, inner=PromptBERT()),
    "whitenedcse": DROPPED,
    # The views of one pass are so alike that at the usual temperature there is next to nothing to learn.
    "whitenedcse shared": replace(DROPPED, views="shared", temperature=1.0),
    "whitenedcse zca": replace(DROPPED, whitening="zca"),
    "whitenedcse rotated": replace(DROPPED, whitening="rotation"),
    "whitenedcse feature dropout": replace(DROPPED, whitening="none", views="shared", feature_dropout=0.1),
    "whitenedcse released_code": replace(DROPPED, variant="released_code"),
    "compcse": CompCSE(),
    "compcse projected": CompCSE(compose="difference_project"),
    "promptbert": PromptBERT(),
    "promptbert without denoising": PromptBERT(denoise=False),
    "sncse": WIDE,
    "diffcse": EDITED,
    "diffcse tanh": replace(EDITED, head="tanh"),
    "mlm": MLM(mlm_weight=1.0),
    "esimcse": QUEUED,
    "mocose": MOVING,
    "consert": CUT,
    "ct": CT(negatives=2),
    "dclr": DEBIASED,
    "dclr binary": replace(DEBIASED, objective="binary"),
    "mixcse": MixCSE(),
    "mixcse released": MixCSE(negatives="both", excluded="zero", normalise_first=False),
    "pcl": PEERS,
    "arccse": ORDERED,
    "isbert": ISBERT(),
    "isbert by sentences": ISBERT(weighting="sentences"),
    "l2pcsr": WEAKENED,
    "l2pcsr of the second view": replace(WEAKENED, views="second", token_norm="row"),
    "pcl multi, own heads": replace(PEERS, positives="multi", peer_head="own"),
}


def centred(method: Method) -> bool:
    """Whether something takes a constant out of the features (whitening, denoising): no bias before it is taught."""
    inner = innermost(method)
    head: str = getattr(inner, "head", "")
    return inner.name == "whitenedcse" or head == "batch_norm" or getattr(inner, "denoise", False)


class Encoded:
    """An Encode made of a function from Tokens to vectors."""

    def __init__(self, embed: Callable[..., tuple[Tensor, ...]]) -> None:
        self.embed = embed

    def __call__(self, *tokens: Tokens) -> tuple[Tensor, ...]:
        return self.embed(*tokens)

    still = __call__

    def states(self, tokens: Tokens) -> Tensor:
        raise NotImplementedError


def template_of(method: Method) -> str:
    """The template of the first view, where the method has templates."""
    inner = innermost(method)
    return inner.first if isinstance(inner, PromptBERT | SNCSE) else ""


def encoder_for(method: Method, dropout: float = 0.3) -> Encoder:
    """wiki-tiny, with the method's first template where it has templates. Shared: reset what a test changes."""
    return _encoder(pooling_of(method), template_of(method), dropout)


def pooling_of(method: Method) -> str:
    """The pooling that a method's runs have."""
    return "ngrams" if innermost(method).name == "isbert" else "mask" if template_of(method) else "cls"


@cache
def _encoder(pooling: str, template: str, dropout: float) -> Encoder:
    generator = torch.Generator().manual_seed(0)
    about: Any = {"pooling": pooling, "template": template, "generator": generator}
    return Encoder.from_pretrained("wiki-tiny", dropout=dropout, **about)


def length_for(method: Method) -> int:
    """The length of examples: short, so that truncation shows, but with room for SNCSE's templates."""
    return 24 if innermost(method).name == "sncse" else 8


KNOBS = [(name, field.name) for name, method in METHODS.items() for field in fields(method)]  # ty: ignore[invalid-argument-type]
