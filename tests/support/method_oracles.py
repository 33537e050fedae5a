"""What reference loops are written with: formulas in plain Python numbers, slopes, stand-ins for encoders."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cse_core.method import EncoderRef, VectorScorer
from tests.support.method_variants import Encoded

Vector = Sequence[float]


def cosine(a: Vector, b: Vector) -> float:
    """The cosine of two vectors; 0 with a zero vector."""
    lengths = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


def softmax(scores: Sequence[float]) -> list[float]:
    """The softmax of a list, the largest taken out first."""
    shares = [math.exp(x - max(scores)) for x in scores]
    return [x / sum(shares) for x in shares]


def drawn(*shape: int, seed: int, gradient: bool = False) -> Tensor:
    """Normal numbers in double precision."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_(gradient)


def slopes(value: Callable[..., float], *inputs: Tensor, step: float = 1e-6) -> list[Tensor]:
    """The gradient of a function of tensors by central differences, entry by entry."""
    found = []
    for k, x in enumerate(inputs):
        gradient = torch.zeros_like(x)
        for place in range(x.numel()):
            sides = []
            for sign in (1, -1):
                moved = [y.detach().clone() for y in inputs]
                moved[k].view(-1)[place] += sign * step
                sides.append(value(*moved))
            gradient.view(-1)[place] = (sides[0] - sides[1]) / (2 * step)
        found.append(gradient)
    return found


class Views(Encoded):
    """An Encode that gives the same vectors whatever it reads."""

    def __init__(self, *views: Tensor) -> None:
        super().__init__(lambda *tokens: views)


class NoSource:
    """A Source of which nothing may be asked."""

    def vectors(
        self, encoder: EncoderRef, *, select: str, column: str | None = None, scorer: VectorScorer | None = None
    ) -> Tensor:
        raise AssertionError(f"asked for vectors of {encoder}")

    def sample(self, encoder: EncoderRef, *, select: str, size: int, seed: int) -> Tensor:
        raise AssertionError(f"asked for a sample under {encoder}")
