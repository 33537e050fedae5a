"""How much of a GPU's memory a run takes, estimated before anything is started, and how many runs fit.

Weights, gradients and AdamW's two moments take 16 bytes a parameter, beside a half-precision copy under autocast. What
a layer keeps for its backward pass takes 34 bytes a token and channel in half precision and 5 a pair of tokens and
head (Korthikanti et al., MLSys 2023, Eq. 1), twice that in fp32.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

from cse_core.functional.rank_vectors import BLOCK
from cse_core.method import innermost
from cse_core.models.pretrained import ASSETS
from cse_core.run import Run

GIB = 2**30
PROCESS = 0.6 * GIB  # CUDA's context and kernels, libraries' workspaces
# Layers, channels, heads and words of the papers' backbones, from their configurations.
PUBLISHED = {
    "bert-base-uncased": (12, 768, 12, 30_522),
    "bert-large-uncased": (24, 1024, 16, 30_522),
    "roberta-base": (12, 768, 12, 50_265),
    "roberta-large": (24, 1024, 16, 50_265),
}
# Rows of the encoder that a step keeps for each example; two of most methods.
ROWS: dict[str, float] = {"compcse": 4, "sncse": 3, "diffcse": 4, "whitenedcse": 3, "mocose": 1, "ct": 9 / 8}
ROWS |= {"pcl": 20, "arccse": 5}
TRAINED_TWICE, SLOW = ("diffcse", "ct", "pcl"), ("esimcse", "mocose")  # methods with a second encoder, trained or not


@dataclass(frozen=True)
class Shape:
    """A BERT's size."""

    layers: int
    width: int
    heads: int
    words: int

    @property
    def parameters(self) -> int:
        """Of embeddings and layers: four projections and two of the feed-forward part, which is four times as wide."""
        return self.words * self.width + self.layers * 12 * self.width**2


def shape(backbone: str) -> Shape | None:
    """An embedded or a published backbone's; None of any other, which would have to be fetched first."""
    path = ASSETS / backbone / "config.json"
    if path.is_file():
        config = json.loads(path.read_text())
        names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
        return Shape(*(config[name] for name in names))
    return Shape(*PUBLISHED[backbone]) if backbone in PUBLISHED else None


def gpu_bytes(run: Run) -> float | None:
    """A run's estimated peak on a GPU, its process included; None for a backbone of unknown size."""
    model = shape(run.backbone.name)
    if not model:
        return None
    half = run.precision != "fp32"
    method = innermost(run.method)
    rows = ROWS.get(method.name, 2) + (run.method.name == "mlm")  # which masks the sentences once more
    tokens = rows * run.batch_size * run.max_length
    a_token = 34 * model.width + 5 * model.heads * run.max_length
    activations = tokens * model.layers * a_token * (1 if half else 2)
    copies = 2 if method.name in TRAINED_TWICE else 1
    state = model.parameters * (copies * (16 + 2 * half) + 4 * (method.name in SLOW))
    ranked = 24 * BLOCK * getattr(run.method, "corpus_size", 0)  # scores, order and ranks of a block of rankings
    return PROCESS + state + activations + ranked


@dataclass(frozen=True)
class Fit:
    """The runs that take most, in bytes, and how many such runs a GPU holds; runs of unknown size are left out."""

    largest: Run
    takes: float
    at_once: int


def fit(runs: Iterable[Run], gpu_gib: float) -> Fit | None:
    """How many of the largest of some runs one GPU holds."""
    if not 0 < gpu_gib < math.inf:
        raise ValueError(f"--gpu-memory wants the GiB of a GPU, got {gpu_gib}")
    known = [(takes, run) for run in runs if (takes := gpu_bytes(run)) is not None]
    if not known:
        return None
    takes, largest = max(known, key=lambda pair: pair[0])
    return Fit(largest, takes, int(gpu_gib * GIB / takes))
