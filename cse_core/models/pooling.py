"""Poolings: how a text's states become its vector. All are fixed except the n-gram poolings, which have weights."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cse_core.graph import values_are_readable

WINDOWS = (1, 3, 5)  # tokens that a convolution reads (IS-BERT, Zhang et al., EMNLP 2020)


def pool(states: Sequence[Float[Tensor, "n t d"]], mask: Bool[Tensor, "n t"], pooling: str) -> Float[Tensor, "n d"]:
    """Return one vector per text from all layers' states (embedding output first) by the named pooling.

    cls: last layer's first token. mean: masked mean of the last layer; of the mean of the last two (top2_mean), of the
    embedding output and the last (first_last_mean: the published 56.70), of layer 1 and the last (layer1_last_mean).
    """
    if pooling == "cls":
        return states[-1][:, 0]
    layers = {"mean": (-1,), "top2_mean": (-1, -2), "first_last_mean": (0, -1), "layer1_last_mean": (1, -1)}[pooling]
    average = torch.stack([states[i] for i in layers]).mean(0)
    weights = mask.unsqueeze(-1).to(average.dtype)
    return (average * weights).sum(1) / weights.sum(1).clamp(min=1e-9)  # zeros for a text without tokens


def mask_columns(ids: Int[Tensor, "n t"], mask_id: int | None, name: str) -> Int[Tensor, " n"]:
    """Return the column of each row's last mask token: the template's, which follows any in the sentence itself."""
    last = ((ids == mask_id) * torch.arange(1, ids.shape[1] + 1, device=ids.device)).amax(1) - 1
    if values_are_readable(last) and len(last) and last.min() < 0:
        raise ValueError(f"{name}: pooling 'mask' requires a mask in every text, row {int(last.argmin())} has none")
    return last


class NgramPooling(nn.Module):
    """Convolutions over the last layer's states, with or without ReLU, and the mean of their outputs over a text.

    By default, each of the three windows has a third of the backbone's width as channels: the published 256 of 768.
    Weights have the names of sentence-transformers' CNN module.
    """

    def __init__(
        self,
        width: int,
        *,
        channels: int | None = None,
        windows: Sequence[int] = WINDOWS,
        relu: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if not windows or any(window < 1 or window % 2 == 0 for window in windows):
            raise ValueError(f"windows of an n-gram pooling must be odd numbers of tokens, got {list(windows)}")
        self.windows, self.relu = tuple(windows), relu
        self.channels = channels or round(width / len(windows))
        self.width = self.channels * len(self.windows)
        convs = [nn.Conv1d(width, self.channels, window, padding=window // 2) for window in self.windows]
        self.convs: Any = nn.ModuleList(convs)
        for conv in convs:  # torch's own bounds, drawn from the run's generator
            bound = 1 / math.sqrt(width * conv.kernel_size[0])
            assert conv.bias is not None
            for parameter in (conv.weight, conv.bias):
                nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def ngrams(self, states: Float[Tensor, "n t d"], mask: Bool[Tensor, "n t"]) -> Float[Tensor, "n t k"]:
        """Return each token's n-gram states: convolutions, then ReLU, with the channels of all windows concatenated.

        A window of w tokens is centred on its token; places outside the sentence count as zeros.
        """
        inside = (states * mask.unsqueeze(-1)).transpose(1, 2)
        joined = torch.cat([conv(inside) for conv in self.convs], dim=1).transpose(1, 2)
        return joined.relu() if self.relu else joined

    def forward(self, states: Float[Tensor, "n t d"], mask: Bool[Tensor, "n t"]) -> Float[Tensor, "n k"]:
        """Return the mean of each text's n-gram states."""
        return pool((self.ngrams(states, mask),), mask, "mean")
