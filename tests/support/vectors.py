"""Random vectors in single precision, and the squared distance of two directions."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in single precision."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def squared_distance(a: Sequence[float], b: Sequence[float]) -> float:
    """The squared distance of two vectors' directions, coordinate by coordinate."""
    norms = [math.sqrt(math.fsum(v * v for v in side)) for side in (a, b)]
    return math.fsum((v / norms[0] - w / norms[1]) ** 2 for v, w in zip(a, b, strict=True))
