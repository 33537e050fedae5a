"""The sizes at which every study can be run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import log
from typing import Any

from cse_core.run import Corpus, Pretrained
from experiments.schema.study import Scale

WIKI_TINY = Pretrained("wiki-tiny", "e22f4fc2dee1f7bf1ca4694ec5187f532163816ac0bfdd977629e06754efbe82")
WIKI_MINI = Pretrained("wiki-mini", "f325d89d694256ad5cde6fe3b8385b002a2bc25f0130f7f79d13147b4186d9cd")
WIKI_MEDIUM = Pretrained("wiki-medium", "d1f7ad612e4b70ec5a28fbdb86276666e8903a33c7706460013bba0d76e8f975")
# Made from all-MiniLM-L6-v2, a supervised sentence encoder; not in the repository (docs/data.md).
REMASKED = Pretrained("minilm-remasked", "d6754cefb19bf071f4ac23921d6ab34b84e759bab50af35fd78aadb63e65f75e")
WIKIPEDIA = Corpus("wiki_sentences_1m", 16_384, "a51f808aa28b59ec24f9e9d8f2eee3b1a0cb36a6bc3e104576fdbc1336c9bde8")
# With BERT's dropout of 0.1 a two-layer model solves the contrastive task without learning (assets/README.md).
SMALL = {"learning_rate": 3e-4, "dropout": 0.3, "batch_size": 64, "epochs": 1, "warmup": 0.0, "eval_steps": 32}
SEARCH_SEEDS = (101, 102)  # of the study `search` and of searches
PILOT_SEEDS = (201, 202, 203)  # used by pilots only
PLANNED_SEEDS = tuple(range(301, 321))  # used by the studies of PLAN.md, and by the ladder, which shares runs of it
RESERVED_SEEDS = frozenset((*SEARCH_SEEDS, *PILOT_SEEDS, *PLANNED_SEEDS))
STAND_INS = {"bert-base-uncased": WIKI_TINY, "bert-large-uncased": WIKI_MINI}
# Published fields that 128 dimensions and a few thousand sentences don't allow, by method and the papers' backbone.
RESCALED: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # As many channels per group as in the paper: two of BERT-base's 768, four of BERT-large's 1024.
    "whitenedcse": {"bert-base-uncased": {"groups": 64}, "bert-large-uncased": {"groups": 32}},
    "compcse": {"bert-base-uncased": {"dims": 43}},  # a third of the dimensions, as 256 is of 768
    "rankencoder": {"bert-base-uncased": {"corpus_size": 10_000}},  # of 16,384 sentences
    "sncse": {name: {"negation": "words"} for name in STAND_INS},  # needs no parser
    "diffcse": {"bert-base-uncased": {"generator": WIKI_MINI}},  # needs no hub, and has wiki-tiny's vocabulary
    "mocose": {name: {"momentum_steps": 256} for name in STAND_INS},  # the length of training
    # Rates with the published ratio to SimCSE's: a sixtieth, a third, a fifteenth and a thirtieth.
    "consert": {name: {"learning_rate": 5e-6, "max_length": 32} for name in STAND_INS},
    "ct": {"bert-base-uncased": {"learning_rate": 1e-4, "max_length": 32}},
    "isbert": {"bert-base-uncased": {"learning_rate": 2e-5, "max_length": 32}},
    "l2pcsr": {"bert-base-uncased": {"layers": 2, "learning_rate": 1e-5}},  # of the two that there are
    "arccse": {name: {"shortest": 12} for name in STAND_INS},  # wordpieces, as sentences are cut at 32
}

SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            name="quickstart",
            title="synthetic sentences, wiki-tiny",
            backbones={"bert-base-uncased": WIKI_TINY},
            corpus=Corpus("synthetic", 8192, "eeaa170fe51152791c761d8c0e4c9f11722ea9ecaae2d75ce8a902b507e8355d"),
            seeds=(42, 1),
            dev="synthetic_dev",
            training=SMALL | {"eval_steps": 16},
            width=128,
            rescaled={
                **RESCALED,
                "rankencoder": {"bert-base-uncased": {"corpus_size": 4096}},
                "mocose": {"bert-base-uncased": {"momentum_steps": 128}},
            },
            notes="Synthetic sentences with similarity known by construction: shows that the machinery works, no more.",
        ),
        Scale(
            name="small",
            title="wiki-tiny for BERT-base, the deeper wiki-mini for BERT-large, 16,384 Wikipedia sentences",
            backbones=STAND_INS,
            corpus=WIKIPEDIA,
            seeds=(42, 1, 2),
            training=SMALL,
            width=128,
            rescaled=RESCALED,
            backbone_seeds={"bert-large-uncased": (42,)},
            notes="256 steps of 64 sentences and a dev score every 32 steps, unless a row says otherwise. Not SimCSE's "
            "Wikipedia sample, and not BERT: these numbers test the directions of claims and are no reproduction of "
            "a published one.",
        ),
        Scale(
            name="minilm",
            title="minilm-remasked (6 layers of 384) for BERT-base, 16,384 Wikipedia sentences",
            backbones={"bert-base-uncased": REMASKED},
            corpus=WIKIPEDIA,
            seeds=(42, 1, 2),
            training=SMALL | {"learning_rate": 5e-5, "dropout": 0.1, "max_steps": 160, "eval_steps": 20},
            width=384,
            rescaled=RESCALED
            | {
                "whitenedcse": {"bert-base-uncased": {"groups": 128}},
                "compcse": {"bert-base-uncased": {"dims": 128}},
                "mocose": {"bert-base-uncased": {"momentum_steps": 160}},
            },
            notes="160 steps of 64 sentences. The encoder descends from a supervised sentence encoder: nothing trained "
            "from it is an unsupervised result. It shows how methods compare from a good start.",
        ),
        Scale(
            name="small-1m",
            title="wiki-tiny for BERT-base, wiki-mini for BERT-large, one million Wikipedia sentences",
            backbones=STAND_INS,
            corpus=Corpus(
                "wiki_sentences_1m", 1_000_000, "e0917d993b8e00ff2387ca32f831dc096a1efb9210d0ee053b1cabbfeac3e011"
            ),
            seeds=(42, 1, 2),
            training={"learning_rate": 3e-4, "dropout": 0.3, "precision": "bf16"},
            width=128,
            rescaled=RESCALED | {"mocose": {}},  # trained for as many steps as published
            notes="The papers' epochs and batches on stand-in backbones and another Wikipedia sample.",
        ),
        Scale(
            name="paper",
            title="BERT and RoBERTa, SimCSE's million sentences, published settings",
            backbones={name: Pretrained(name) for name in (*STAND_INS, "roberta-base", "roberta-large")},
            corpus=Corpus("wiki1m_for_simcse", 1_000_000),
            seeds=(42, 1, 2, 3, 4),
            training={"precision": "bf16"},  # published: fp16, whose loss scale skips steps at the start
        ),
    )
}

# Public checkpoints as they are: the scale of the study `released`, which trains nothing.
RELEASED = Scale(
    name="released",
    title="public checkpoints, from the Hugging Face hub or a folder",
    backbones=SCALES["paper"].backbones,
    corpus=SCALES["paper"].corpus,
    seeds=(),
    notes="Nothing is trained. The first scoring pins each checkpoint's content for its store.",
)


# Layers and width of the encoders whose settings `scale_for` reuses, by scale and the papers' name.
SIZES = {
    ("small", "bert-base-uncased"): (2, 128),
    ("paper", "bert-base-uncased"): (12, 768),
    ("paper", "bert-large-uncased"): (24, 1024),
}
FOR_SHORT_CORPUS = ("rankencoder", "mocose", "sncse")  # fields in RESCALED that do not depend on the encoder's size


def scale_for(encoder: Pretrained, layers: int, width: int, corpus: Corpus) -> tuple[Scale, str]:
    """Return a scale for an encoder, with the settings of the nearest in depth and width, and that one's paper name.

    Seeds and dev set are those of `small`. Encoders of its size keep its interval of dev scores too; others get eight
    dev scores in an epoch, or more on a corpus as long as the papers'.
    """
    (name, backbone), _ = min(
        SIZES.items(), key=lambda size: abs(log(layers / size[1][0])) + abs(log(width / size[1][1]))
    )
    small = SCALES["small"]
    if name == small.name:
        return replace(small, backbones={backbone: encoder}, corpus=corpus), backbone
    rescaled = {method: RESCALED[method] for method in FOR_SHORT_CORPUS}
    training = {"eval_steps": min(125, max(1, corpus.lines // SMALL["batch_size"] // 8))}
    about: dict[str, Any] = {"corpus": corpus, "rescaled": rescaled, "training": training, "width": None}
    return replace(small, backbones={backbone: encoder}, **about), backbone


def seed_stream(declared: Sequence[int]) -> Iterator[int]:
    """Yield the declared seeds, then 1, 2, 3 ... except for these and the seeds of searches, pilots and the plan."""
    yield from declared
    yield from (seed for seed in count(1) if seed not in RESERVED_SEEDS and seed not in declared)
