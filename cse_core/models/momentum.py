"""A slowly moving copy of an encoder and a queue of its vectors (MoCo, He et al., CVPR 2020), kept in `modules`."""

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from jaxtyping import Float, Int
from torch import Tensor, nn

from cse_core.method import Tokens
from cse_core.models.encoder import Encoder


def cosine_decay(start: float, step: Int[Tensor, ""], total: int) -> Float[Tensor, ""]:
    """Return the decay at a step: from `start` at 0 along half a cosine to 1 at `total`, and down again after it.

    1 - (1 - start) (cos(pi step / total) + 1) / 2 (MoCoSE, Cao et al., Findings of ACL 2022).
    """
    return 1 - (1 - start) * (torch.cos(math.pi * step.double() / total) + 1) / 2


@torch.no_grad()
def move_towards(slow: nn.Module, online: nn.Module, decay: float | Float[Tensor, ""]) -> None:
    """Set each parameter of `slow` to decay * slow + (1 - decay) * online; decay 0 copies `online` bit for bit."""
    for target, source in zip(slow.parameters(), online.parameters(), strict=True):
        target.copy_(decay * target + (1 - decay) * source)


class Slow(nn.Module):
    """A copy of an encoder that moves towards it and is never trained itself.

    It is saved with the modules, without the online encoder that it follows. Calls have no gradient. With `dropout`,
    its dropout is on in training mode. Otherwise calls draw no random number.
    """

    updates: Int[Tensor, ""]  # a tensor, as torch.compile would make a new graph for each value of an int

    def __init__(self, encoder: Encoder, *, dropout: bool = False) -> None:
        super().__init__()
        self.dropout = dropout
        self.register_buffer("updates", torch.tensor(0), persistent=False)
        self.encoder = encoder.clone().requires_grad_(False)
        self.copies = nn.ModuleList()
        # A tuple, as nn.Module does not look into it: these are neither saved nor moved with this module.
        self._pairs: tuple[tuple[nn.Module, nn.Module], ...] = ((self.encoder.backbone, encoder.backbone),)

    def follow(self, online: nn.Module) -> nn.Module:
        """Return a slow copy of another module, such as a head, which `update` moves too."""
        slow = copy.deepcopy(online).requires_grad_(False)
        self.copies.append(slow)
        self._pairs += ((slow, online),)
        return slow

    def update(self, decay: float | Float[Tensor, ""]) -> None:
        """Move all copies towards what they follow, and count the update."""
        for slow, online in self._pairs:
            move_towards(slow, online, decay)
        self.updates += 1

    @torch.no_grad()
    def forward(self, *tokens: Tokens) -> tuple[Float[Tensor, "_ d"], ...]:
        """Encode all Tokens in one pass of the slow encoder; return the pooled vectors of each."""
        return self.encoder(*tokens) if self.dropout else self.encoder.without_dropout(*tokens)

    def get_extra_state(self) -> int:
        """Return the number of updates."""
        return int(self.updates)

    def set_extra_state(self, state: Any) -> None:
        """Restore the number of updates."""
        self.updates.fill_(int(state))


class Queue(nn.Module):
    """A queue of the newest `size` vectors, oldest first. It starts with `first` random unit vectors."""

    vectors: Tensor

    def __init__(self, size: int, width: int, first: int = 0, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if not 0 <= first <= size:
            raise ValueError(f"first must be in [0, {size}], the queue's size, got {first}")
        self.register_buffer("vectors", torch.zeros(size, width))
        self.vectors[:first] = F.normalize(torch.randn(first, width, generator=generator), dim=-1)
        self.filled = first

    @property
    def newest(self) -> Float[Tensor, "m d"]:
        """The vectors held now, a view: `push` overwrites it."""
        return self.vectors[: self.filled]

    @property
    def full(self) -> bool:
        """Whether all of its places are taken, so that its size no longer changes."""
        return self.filled == len(self.vectors)

    @torch.no_grad()
    def push(self, keys: Float[Tensor, "n d"]) -> None:
        """Add vectors, without their gradient, and drop the oldest beyond the size."""
        joined = torch.cat([self.newest, keys.to(self.vectors.dtype)])
        joined = joined[max(len(joined) - len(self.vectors), 0) :]
        self.vectors[: len(joined)] = joined
        self.filled = len(joined)

    def get_extra_state(self) -> int:
        """Return the number of vectors held, which is kept as an int so that nothing waits for a GPU."""
        return self.filled

    def set_extra_state(self, state: Any) -> None:
        """Restore the number of vectors held."""
        self.filled = int(state)
