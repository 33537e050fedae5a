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
from cse_core.models.pretrained import ASSETS
from cse_core.run import Run
from experiments.execution.step_cost import step_cost

GIB = 2**30
PROCESS = 0.6 * GIB  # CUDA's context and kernels, libraries' workspaces
# Layers, channels, heads and words of the papers' backbones, from their configurations.
PUBLISHED = {
    "bert-base-uncased": (12, 768, 12, 30_522),
    "bert-large-uncased": (24, 1024, 16, 30_522),
    "roberta-base": (12, 768, 12, 50_265),
    "roberta-large": (24, 1024, 16, 50_265),
}


@dataclass(frozen=True)
class Shape:
    """A BERT's size."""

    layers: int
    width: int
    heads: int
    words: int

    @property
    def layer_parameters(self) -> int:
        """The parameters of all layers: four projections, and two in the feed-forward part, four times as wide."""
        return self.layers * 12 * self.width**2

    @property
    def parameters(self) -> int:
        """The number of parameters of the embeddings and the layers."""
        return self.words * self.width + self.layer_parameters


def shape(backbone: str) -> Shape | None:
    """Return the size of an embedded or published backbone; None for others, which would first have to be fetched."""
    path = ASSETS / backbone / "config.json"
    if path.is_file():
        config = json.loads(path.read_text())
        names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
        return Shape(*(config[name] for name in names))
    return Shape(*PUBLISHED[backbone]) if backbone in PUBLISHED else None


def gpu_bytes(run: Run) -> float | None:
    """Return a run's estimated peak on a GPU, its process included; None for a backbone of unknown size."""
    training = training_bytes(run)
    return None if training is None else PROCESS + training


def training_bytes(run: Run) -> float | None:
    """Return a run's estimated peak without its process, also on a CPU; None for a backbone of unknown size."""
    model = shape(run.backbone.name)
    if not model:
        return None
    half, cost = run.precision != "fp32", step_cost(run)
    tokens = run.batch_size * run.max_length * cost.kept / cost.examples
    a_token = 34 * model.width + 5 * model.heads * run.max_length
    activations = tokens * model.layers * a_token * (1 if half else 2)
    trained = (1 + cost.trained_encoders) * model.parameters * (16 + 2 * half)
    frozen = cost.frozen_encoders * model.parameters * 4
    # Their vectors, and for each pair of one and a sentence a score, its place in the order and its rank.
    shared = cost.shared * (4 * model.width + 24 * min(run.batch_size, BLOCK))
    return trained + frozen + activations + shared


@dataclass(frozen=True)
class Fit:
    """The runs that take most, in bytes, and how many such runs a GPU holds; runs of unknown size are left out."""

    largest: Run
    takes: float
    at_once: int


def fit(runs: Iterable[Run], gpu_gib: float) -> Fit | None:
    """Return the largest of these runs and how many such runs one GPU holds; None if no backbone has a known size."""
    if not 0 < gpu_gib < math.inf:
        raise ValueError(f"--gpu-memory: expected the GiB of a GPU, got {gpu_gib}")
    estimates = [(takes, run) for run in runs if (takes := gpu_bytes(run)) is not None]
    if not estimates:
        return None
    takes, largest = max(estimates, key=lambda pair: pair[0])
    return Fit(largest, takes, int(gpu_gib * GIB / takes))
