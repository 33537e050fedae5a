"""The defaults of runs and methods. Keys leave them out, so a changed one would give old keys a new meaning."""

from typing import Any

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
from cse_core.run import Pretrained, Run

DEFAULTS: dict[Any, dict[str, Any]] = {
    Run: {"seed": 42, "epochs": 1, "batch_size": 64, "learning_rate": 3e-5, "warmup": 0.0, "dropout": 0.1}
    | {"max_length": 32, "pooling": "cls", "eval_steps": 125, "precision": "fp32", "template": ""}
    | {"optimizer": "adamw", "schedule": "linear", "weight_decay": 0.0, "max_steps": 0}
    | {"leave_out_duplicates": False},
    Teacher: {"weight": 1.0, "select": "stsb_dev", "scorer": None},
    SimCSE: {"temperature": 0.05, "hard_negative_weight": 0.0},
    RankCSE: {"teachers": (), "rank": "list_net", "temperature": 0.05, "student_temperature": 0.025}
    | {"teacher_temperature": 0.0125, "contrastive_weight": 1.0, "consistency_weight": 1.0}
    | {"distillation_weight": 1.0, "list_reduction": "sum", "variant": "paper", "teacher_order": "given"},
    RankEncoder: {"base": None, "select": "stsb_dev", "inner": SimCSE(), "corpus_size": 100_000, "corpus_seed": 42}
    | {"rank_weight": 0.05, "lower": 0.5, "upper": 0.8, "combination": "maximum"}
    | {"similarity": "rank", "start": "backbone"},
    WhitenedCSE: {"temperature": 0.05, "groups": 384, "whitening": "shuffled_group", "views": "shared", "positives": 3}
    | {"objective": "outside", "weights": (), "normalise": False, "momentum": 0.99, "detach": True, "eps": 1e-5}
    | {"variant": "paper", "feature_dropout": 0.0},
    CompCSE: {"temperature": 0.05, "parts": 2, "split_on": "wordpieces", "compose": "average", "side": "positive"}
    | {"order": "before_head", "dims": None, "subsampling": "none"},
    PromptBERT: {"temperature": 0.05, "first": 'This sentence of "{}" means [MASK].'}
    | {"second": 'This sentence : "{}" means [MASK].', "denoise": True},
    SNCSE: {"temperature": 0.05, "first": 'This sentence : " {} " means [MASK] .'}
    | {"second": 'This sentence of " {} " means [MASK] .', "margin_weight": 0.001, "nearest": 0.1, "farthest": 0.3}
    | {"negation": "words"},
    DiffCSE: {"temperature": 0.05, "head": "batch_norm", "generator": Pretrained("distilbert-base-uncased")}
    | {"mask_share": 0.3, "detection_weight": 0.005},
    ESimCSE: {"temperature": 0.05, "repetition": 0.32, "queue_size": 160, "momentum": 0.995, "slow_start": "online"}
    | {"limit": "paper"},
    MoCoSE: {"temperature": 0.05, "queue_size": 512, "first": 128, "momentum": 0.85, "momentum_steps": 15_000},
    ConSERT: {"temperature": 0.1, "first": "feature_cutoff", "second": "shuffle", "first_rate": 0.2}
    | {"second_rate": 0.0, "contrast": "both_views", "head": "none"},
    CT: {"negatives": 7, "pairs": "anchored"},
    MLM: {"inner": SimCSE(), "mlm_weight": 0.1, "mlm_share": 0.15},
    DCLR: {"temperature": 0.05, "complement": None, "initial": None, "select": "stsb_dev", "threshold": 0.9}
    | {"noise_times": 1.0, "steps": 4, "step_size": 0.001, "ascent": "batch", "exclusion": "zero"}
    | {"objective": "cross_entropy"},
    ISBERT: {"weighting": "tokens"},
    MixCSE: {"temperature": 0.05, "share": 0.2, "negatives": "own", "excluded": "drop", "normalise_first": True}
    | {"stop_gradient": True},
    PCL: {"temperature": 0.05, "augmentations": ("shuffle", "inverse", "deletion", "repetition") * 2, "share": 0.2}
    | {"longest": 32, "deletion": "place", "positives": "released", "positive_weight": 1.0}
    | {"cooperation_weight": 1.0, "cooperation_reduction": "entry", "peer": True, "peer_head": "shared"},
    ArcCSE: {"temperature": 0.05, "margin_degrees": 10.0, "margin_form": "exact", "triplet_weight": 0.1}
    | {"triplet_margin": 0.0, "light": 0.2, "heavy": 0.4, "shortest": 20},
    L2PCSR: {"temperature": 0.05, "initial": None, "select": "stsb_dev", "threshold": 0.05, "steps": 4}
    | {"step_size": 0.1, "layers": 3, "token_norm": "entry", "views": "both", "spare_specials": False},
}
# What a recipe has where its source says nothing.
UNSTATED: dict[str, Any] = {"epochs": 1, "warmup": 0.0, "dropout": 0.1, "max_length": 32, "eval_steps": 125}
UNSTATED |= {
    "weight_decay": 0.0,
    "optimizer": "adamw",
    "schedule": "linear",
    "pooling": "cls",
    "template": "",
}
