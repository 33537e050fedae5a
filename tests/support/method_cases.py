"""One entry per method: its pinned defaults, and for each field a change that must have an effect.

Keys leave defaults out, so a changed default would give old keys a new meaning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cse_core.evaluation.scorers import Whitened
from cse_core.method import Method
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
from cse_core.run import Pretrained


@dataclass(frozen=True)
class Field:
    """A field's default, another value, and what else must be set for the value to matter."""

    default: Any
    other: Any
    given: Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A method whose fields all matter, its fields, and more variants of it to train with."""

    base: Any
    fields: Mapping[str, Field]
    also: Mapping[str, Mapping[str, Any]]

    def pair(self, field: str) -> tuple[Method, Method]:
        """Two methods that differ only in one field."""
        about = self.fields[field]
        base = replace(self.base, **about.given)
        return base, replace(base, **{field: about.other})


def case(base: Any, also: Mapping[str, Mapping[str, Any]] | None = None, /, **about: tuple) -> Case:
    """A case whose fields are (default, other value) or (default, other value, what else must be set)."""
    return Case(base, {name: Field(*(*values, {})[:3]) for name, values in about.items()}, also or {})


A, B = Pretrained("a"), Pretrained("b")
TEACHER, OTHER = Teacher(A), Teacher(B)
TAUGHT = RankCSE(teachers=(TEACHER,))
BOTH = RankCSE(teachers=(replace(TEACHER, weight=0.3), replace(OTHER, weight=0.7)))
SWAPPED = RankCSE(teachers=(replace(TEACHER, weight=0.7), replace(OTHER, weight=0.3)))
TEMPLATE = 'The words "{}" say [MASK].'
TEACHER_DEFAULTS: dict[str, Any] = {"weight": 1.0, "select": "stsb_dev", "scorer": None}
TEACHER_MOVES = {
    "encoder": (TAUGHT, replace(TAUGHT, teachers=(OTHER,))),
    "weight": (BOTH, SWAPPED),
    "select": (TAUGHT, replace(TAUGHT, teachers=(replace(TEACHER, select="last"),))),
    "scorer": (TAUGHT, replace(TAUGHT, teachers=(replace(TEACHER, scorer=Whitened()),))),
}
CASES: dict[str, Case] = {
    "simcse": case(SimCSE(), temperature=(0.05, 0.06), hard_negative_weight=(0.0, 0.5)),
    "rankcse": case(
        TAUGHT,
        {
            "list_mle": {"rank": "list_mle"},
            "mse of a shuffled teacher": {"rank": "mse", "teacher_order": "shuffled"},
            "released_code": {"variant": "released_code"},
        },
        teachers=((), (OTHER,)),
        rank=("list_net", "list_mle"),
        temperature=(0.05, 0.06),
        student_temperature=(0.025, 0.03),
        teacher_temperature=(0.0125, 0.02),
        contrastive_weight=(1.0, 0.9),
        consistency_weight=(1.0, 0.9),
        distillation_weight=(1.0, 0.9),
        list_reduction=("sum", "mean", {"rank": "list_mle"}),
        variant=("paper", "released_code"),
        teacher_order=("given", "shuffled"),
    ),
    "rankencoder": case(
        RankEncoder(base=A, corpus_size=50, lower=-1.0, upper=1.0, combination="sum"),
        {"on cosines": {"similarity": "centred"}, "on promptbert": {"inner": PromptBERT()}},
        base=(None, B),
        select=("stsb_dev", "last"),
        inner=(SimCSE(), SimCSE(temperature=0.06)),
        corpus_size=(100_000, 51),
        corpus_seed=(42, 1),
        rank_weight=(0.05, 0.06),
        lower=(0.5, 0.05),
        upper=(0.8, 0.5),
        combination=("maximum", "maximum"),
        similarity=("rank", "centred"),
        start=("backbone", "base"),
    ),
    "whitenedcse": case(
        WhitenedCSE(groups=64, views="dropout"),
        {
            # Views that share one pass are so alike that at the usual temperature there is almost nothing to learn.
            "shared": {"views": "shared", "temperature": 1.0},
            "zca": {"whitening": "zca"},
            "rotated": {"whitening": "rotation"},
            "feature dropout": {"whitening": "none", "views": "shared", "feature_dropout": 0.1},
            "released_code": {"variant": "released_code"},
        },
        temperature=(0.05, 0.06),
        groups=(384, 32),
        whitening=("shuffled_group", "group"),
        views=("shared", "shared"),
        positives=(3, 2),
        objective=("outside", "inside"),
        weights=((), (0.5, 1.0)),
        normalise=(False, True),
        momentum=(0.99, 0.9, {"whitening": "zca"}),
        detach=(True, False),
        eps=(1e-5, 1e-3),
        variant=("paper", "released_code"),
        feature_dropout=(0.0, 0.1),
    ),
    "compcse": case(
        CompCSE(),
        {"projected": {"compose": "difference_project"}},
        temperature=(0.05, 0.06),
        parts=(2, 3),
        split_on=("wordpieces", "truncated"),
        compose=("average", "sum"),
        side=("positive", "anchor"),
        order=("before_head", "after_head"),
        dims=(None, 43),
        subsampling=("none", "overlapping"),
    ),
    "promptbert": case(
        PromptBERT(),
        {"without denoising": {"denoise": False}},
        temperature=(0.05, 0.06),
        first=('This sentence of "{}" means [MASK].', TEMPLATE),
        second=('This sentence : "{}" means [MASK].', TEMPLATE),
        denoise=(True, False),
    ),
    "sncse": case(
        SNCSE(margin_weight=1.0, nearest=0.0, farthest=0.0),
        temperature=(0.05, 0.06),
        first=('This sentence : " {} " means [MASK] .', TEMPLATE),
        second=('This sentence of " {} " means [MASK] .', TEMPLATE),
        margin_weight=(0.001, 0.9),
        nearest=(0.1, 0.1, {"farthest": 0.1}),
        farthest=(0.3, 0.001),
        negation=("words", "spacy"),
    ),
    "diffcse": case(
        DiffCSE(generator=Pretrained("wiki-mini"), detection_weight=1.0),
        {"tanh": {"head": "tanh"}},
        temperature=(0.05, 0.06),
        head=("batch_norm", "tanh"),
        generator=(Pretrained("distilbert-base-uncased"), Pretrained("wiki-tiny")),
        mask_share=(0.3, 0.6),
        detection_weight=(0.005, 0.9),
    ),
    "mlm": case(
        MLM(),
        {"alone": {"mlm_weight": 1.0}},
        inner=(SimCSE(), SimCSE(temperature=0.06)),
        mlm_weight=(0.1, 0.2),
        mlm_share=(0.15, 0.6),
    ),
    "esimcse": case(
        ESimCSE(queue_size=4, momentum=0.5),
        temperature=(0.05, 0.06),
        repetition=(0.32, 0.9),
        queue_size=(160, 5),
        momentum=(0.995, 0.6),
        slow_start=("online", "random"),
        limit=("paper", "released_code"),
    ),
    "mocose": case(
        MoCoSE(queue_size=4, first=2, momentum=0.5, momentum_steps=8),
        temperature=(0.05, 0.06),
        queue_size=(512, 5),
        first=(128, 3),
        momentum=(0.85, 0.6),
        momentum_steps=(15_000, 9),
    ),
    "consert": case(
        ConSERT(second="token_cutoff", second_rate=0.5),
        temperature=(0.1, 0.11),
        first=("feature_cutoff", "token_cutoff"),
        second=("shuffle", "dropout"),
        first_rate=(0.2, 0.3),
        second_rate=(0.0, 0.3),
        contrast=("both_views", "one_way"),
        head=("none", "tanh"),
    ),
    "ct": case(CT(negatives=2), negatives=(7, 1), pairs=("anchored", "independent")),
    "dclr": case(
        DCLR(complement=A, threshold=0.0, step_size=1.0),
        {"binary": {"objective": "binary"}},
        temperature=(0.05, 0.06),
        complement=(None, B),
        initial=(None, A),
        select=("stsb_dev", "last"),
        threshold=(0.9, 0.3),
        noise_times=(1.0, 2.0),
        steps=(4, 3),
        step_size=(0.001, 0.5),
        ascent=("batch", "noise_only"),
        exclusion=("zero", "logit"),
        objective=("cross_entropy", "binary"),
    ),
    "mixcse": case(
        MixCSE(),
        {"released": {"negatives": "both", "excluded": "zero", "normalise_first": False}},
        temperature=(0.05, 0.06),
        share=(0.2, 0.3),
        negatives=("own", "none"),
        excluded=("drop", "zero", {"negatives": "batch"}),
        normalise_first=(True, False),
        stop_gradient=(True, False),
    ),
    "pcl": case(
        PCL(share=0.5),
        {"multi, own heads": {"positives": "multi", "peer_head": "own"}},
        temperature=(0.05, 0.06),
        augmentations=(
            ("shuffle", "inverse", "deletion", "repetition") * 2,
            ("shuffle", "inverse", "deletion", "repetition"),
        ),
        share=(0.2, 0.3),
        longest=(32, 8),
        deletion=("place", "value"),
        positives=("released", "multi"),
        positive_weight=(1.0, 0.9),
        cooperation_weight=(1.0, 0.9),
        cooperation_reduction=("entry", "row"),
        peer=(True, False, {"cooperation_weight": 0.0}),
        peer_head=("shared", "own"),
    ),
    "arccse": case(
        ArcCSE(shortest=3, triplet_margin=0.5),
        temperature=(0.05, 0.06),
        margin_degrees=(10.0, 20.0),
        margin_form=("exact", "monotone", {"margin_degrees": 170.0}),
        triplet_weight=(0.1, 0.2),
        triplet_margin=(0.0, 0.6),
        light=(0.2, 0.5, {"heavy": 0.9}),
        heavy=(0.4, 0.9),
        shortest=(20, 6),
    ),
    "l2pcsr": case(
        L2PCSR(initial=A, layers=2),
        {"of the second view": {"views": "second", "token_norm": "row"}},
        temperature=(0.05, 0.06),
        initial=(None, B),
        select=("stsb_dev", "last"),
        threshold=(0.05, 0.3),
        steps=(4, 2),
        step_size=(0.1, 0.3),
        layers=(3, 1),
        token_norm=("entry", "row"),
        views=("both", "second"),
        spare_specials=(False, True),
    ),
    "isbert": case(ISBERT(), {"by sentences": {"weighting": "sentences"}}, weighting=("tokens", "sentences")),
}
FIELDS = [(name, field) for name, about in CASES.items() for field in about.fields]
TRAINED: dict[str, Method] = {
    f"{name} {how}".strip(): replace(about.base, **changes)
    for name, about in CASES.items()
    for how, changes in {"": {}, **about.also}.items()
}
# The values of a recipe where its source states none.
UNSTATED: dict[str, Any] = {"epochs": 1, "warmup": 0.0, "dropout": 0.1, "max_length": 32, "eval_steps": 125}
UNSTATED |= {"weight_decay": 0.0, "optimizer": "adamw", "schedule": "linear", "pooling": "cls", "template": ""}
