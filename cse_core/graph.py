"""Helpers for compiling a whole training step into one graph: random draws, and whether values can be read.

torch.compile can't pass a generator into a graph, so a `GeneratorState` takes its place there. A draw is then an
operator that takes the state and returns the numbers and the next state. The numbers equal the generator's own.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor


class GeneratorState:
    """The state of a generator, used in its place inside a graph. Each draw replaces it with the next state."""

    def __init__(self, generator: Generator) -> None:
        self.state, self.device = generator.get_state(), generator.device


DRAWS: dict[str, Callable[..., Tensor]] = {
    "rand": lambda shape, limits, **to: torch.rand(shape, **to),
    "randn": lambda shape, limits, **to: torch.randn(shape, **to),
    "randint": lambda shape, limits, **to: torch.randint(*limits, shape, **to),
    "randperm": lambda shape, limits, **to: torch.randperm(*shape, **to),
}


def values_are_readable(values: Tensor) -> bool:
    """Return whether a check can read values cheaply: not inside a graph, nor on a GPU, where it would have to wait."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def rand(*shape: int, generator: Generator | None, device: torch.device) -> Tensor:
    """Return numbers in [0, 1)."""
    return _draw("rand", shape, (), generator, torch.float32, device)


def randn(*shape: int, generator: Generator | None, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return numbers of the standard normal distribution."""
    return _draw("randn", shape, (), generator, dtype, device)


def randint(low: int, high: int, shape: Sequence[int], *, generator: Generator | None, device: torch.device) -> Tensor:
    """Return integers from `low` to below `high`."""
    return _draw("randint", shape, (low, high), generator, torch.int64, device)


def randperm(n: int, *, generator: Generator | None, device: torch.device) -> Tensor:
    """Return a permutation of 0 to n - 1."""
    return _draw("randperm", (n,), (), generator, torch.int64, device)


def _draw(
    kind: str,
    shape: Sequence[int],
    limits: Sequence[int],
    generator: Generator | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    if not isinstance(generator, GeneratorState):
        return DRAWS[kind](shape, limits, generator=generator, dtype=dtype, device=device)
    numbers, generator.state = _draw_by_state(generator.state, kind, shape, limits, dtype, device)
    return numbers


# A CUDA graph can't hold it, as it sets a generator's state on the CPU: the parts before and after it are graphs.
@torch.library.custom_op("cse::draw", mutates_args=(), tags=[torch.Tag.cudagraph_unsafe])
def _draw_by_state(
    state: Tensor, kind: str, shape: Sequence[int], limits: Sequence[int], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    generator = Generator(device)
    generator.set_state(state)
    return DRAWS[kind](shape, limits, generator=generator, dtype=dtype, device=device), generator.get_state()


@_draw_by_state.register_fake
def _like_a_draw(
    state: Tensor, kind: str, shape: Sequence[int], limits: Sequence[int], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    return torch.empty(tuple(shape), dtype=dtype, device=device), torch.empty_like(state)
