"""Building blocks of reference loops: formulas in plain Python numbers, and numerical gradients."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Vector = Sequence[float]


def cosine(a: Vector, b: Vector) -> float:
    """The cosine of two vectors; 0 with a zero vector."""
    lengths = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


def softmax(scores: Sequence[float]) -> list[float]:
    """The softmax of a list; the maximum is subtracted first."""
    shares = [math.exp(x - max(scores)) for x in scores]
    return [x / sum(shares) for x in shares]


def drawn(*shape: int, seed: int, gradient: bool = False) -> Tensor:
    """Standard normal numbers in double precision."""
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


def nt_xent_loop(first: Sequence[Vector], second: Sequence[Vector], temperature: float) -> float:
    """NT-Xent, a vector at a time: each against all others of both views."""
    vectors, n, total = [*first, *second], len(first), 0.0
    for i, vector in enumerate(vectors):
        chances = {k: math.exp(cosine(vector, o) / temperature) for k, o in enumerate(vectors) if k != i}
        total -= math.log(chances[(i + n) % (2 * n)] / sum(chances.values())) / (2 * n)
    return total
