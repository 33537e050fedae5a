"""N-gram states from the formula, one channel, window and token at a time; and encoders with that pooling."""

import torch
from torch import Tensor

from cse_core.models.encoder import Encoder
from cse_core.models.pooling import NgramPooling
from tests.support.method_steps import seeded


def encoder_of(pooling: str = "ngrams", seed: int = 2) -> Encoder:
    return Encoder.from_pretrained("wiki-tiny", pooling=pooling, generator=seeded(seed))


def by_loops(states: Tensor, pooling: NgramPooling) -> Tensor:
    """Each token's n-gram state, channel by channel, from windows that see only the sentence's tokens."""
    rows, convs = [], [(conv.weight.detach().double(), conv.bias.tolist()) for conv in pooling.convs]
    for token in range(len(states)):
        row: list[float] = []
        for (weight, bias), window in zip(convs, pooling.windows, strict=True):
            for channel in range(pooling.channels):
                value = bias[channel]
                for place in range(window):
                    other = token + place - window // 2
                    if 0 <= other < len(states):
                        value += float(weight[channel, :, place] @ states[other].double())
                row.append(max(value, 0.0) if pooling.relu else value)
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)
