"""BERT-flow (Li et al., EMNLP 2020): sentence vectors made Gaussian by an invertible map, fitted without labels.

The map f is a Glow (Kingma and Dhariwal, NeurIPS 2018) over d channels. Cosines are taken of the latents z = f(u) of
vectors u. f is fitted by maximum likelihood of u under z ~ N(0, I) (Sec. 3.2, Eq. 4):
    log p(u) = log N(f(u); 0, I) + log |det df(u)/du|.

From the paper: Glow's steps with additive coupling (Eqs. 5-8), 2 levels of depth 3, coupling width 32 (Table 7), a
standard Gaussian for all of z, Adam at 1e-3 for 1 epoch over the target's sentences, the encoder fixed (App. B).
From the authors' code, bohanli/BERT-flow: which half is shifted and which factored out, initialisation of the
activation normalisation on the first minibatch, 64 vectors per step (32 pairs).
Inferred: the shift net is three linear layers with torch's initialisation. (The paper names a 3-layer CNN, which on one
position is linear layers; the code normalises the activations inside it.) Odd widths have unequal halves. There is no
weight decay and no clipping of gradients (the code has 0.01 and 1). Log-scales are without Glow's factor 3.

A fixed random permutation lies between activation normalisation and coupling. The paper uses it instead of Glow's
learnt linear map "to avoid numerical errors" (the authors' code reverses the channels).
"""

import math
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cse_core.seeding import generator_for

CONSTANT = 1e-6  # a channel with at most this share of the largest spread counts as constant


class ActivationNorm(nn.Module):
    """y = (x - centre) exp(log_scale) for each channel; the identity until it is initialised."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.centre, self.log_scale = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))

    @torch.no_grad()
    def initialise(self, x: Float[Tensor, "n d"]) -> None:
        """Make y of these x have mean 0 and variance 1; a channel that is constant on them is only centred."""
        spread, mean = torch.std_mean(x.double(), dim=0, correction=0)
        self.centre.copy_(mean)
        self.log_scale.copy_(-torch.where(spread > CONSTANT * spread.max(), spread, 1.0).log())

    def forward(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], Float[Tensor, ""]]:
        """Return y and log |det dy/dx|."""
        return (x - self.centre) * self.log_scale.exp(), self.log_scale.sum()


class Permutation(nn.Module):
    """y_i = x_order[i], a fixed random permutation of the channels."""

    order: Tensor

    def __init__(self, width: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.register_buffer("order", torch.randperm(width, generator=generator))

    def forward(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], Float[Tensor, ""]]:
        """Return y and log |det dy/dx| = 0."""
        return x[:, self.order], x.new_zeros(())


class AdditiveCoupling(nn.Module):
    """y_1 = x_1, y_2 = x_2 + g(x_1) with x_1 the first half of the channels (Eqs. 5-8); the identity at first."""

    def __init__(self, width: int, hidden: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.fixed = width // 2
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise((self.fixed, hidden, hidden, width - self.fixed)):
            layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -(inputs**-0.5), inputs**-0.5, generator=generator)
            layers += [layer, nn.ReLU()]
        self.shift = nn.Sequential(*layers[:-1])
        for parameter in layers[-2].parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], Float[Tensor, ""]]:
        """Return y and log |det dy/dx| = 0."""
        first, second = x[:, : self.fixed], x[:, self.fixed :]
        return torch.cat([first, second + self.shift(first)], 1), x.new_zeros(())


class Flow(nn.Module):
    """A Glow: `levels` times `depth` steps; after each level except the last, half of its channels is factored out.

    A step is activation normalisation, permutation and additive coupling. A new flow only permutes channels, until
    `initialise` sets the normalisations. If a width is odd, the larger half stays in the flow.
    """

    levels: Any  # a ModuleList of each level's ModuleList

    def __init__(
        self, width: int, levels: int = 2, depth: int = 3, hidden: int = 32, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        least = 2 ** (levels - 1) + 1
        if width < least:
            raise ValueError(
                f"a flow of {levels} levels needs vectors of at least {least} dimensions, got {width}: each level's "
                "coupling splits what the one before it left"
            )
        self.widths = [width]
        for _ in range(levels - 1):
            self.widths.append(self.widths[-1] - self.widths[-1] // 2)
        self.levels = nn.ModuleList()
        for w in self.widths:
            steps = [
                (ActivationNorm(w), Permutation(w, generator), AdditiveCoupling(w, hidden, generator))
                for _ in range(depth)
            ]
            self.levels.append(nn.ModuleList(layer for step in steps for layer in step))

    def forward(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], Float[Tensor, ""]]:
        """Return z, its parts in the order of factoring out, and log |det dz/dx|, which is the same for every x."""
        return self._forward(x, initialise=False)

    @torch.no_grad()
    def initialise(self, x: Float[Tensor, "n d"]) -> None:
        """Initialise each activation normalisation: its outputs for these x get mean 0 and variance 1."""
        self._forward(x, initialise=True)

    def _forward(self, x: Float[Tensor, "n d"], *, initialise: bool) -> tuple[Float[Tensor, "n d"], Float[Tensor, ""]]:
        parts, log_determinant = [], x.new_zeros(())
        for layers, width in zip(self.levels, [*self.widths[1:], 0], strict=True):
            for layer in layers:
                if initialise and isinstance(layer, ActivationNorm):
                    layer.initialise(x)
                x, change = layer(x)
                log_determinant = log_determinant + change
            parts.append(x[:, width:])
            x = x[:, :width]
        return torch.cat(parts, 1), log_determinant


def negative_log_likelihood(z: Float[Tensor, "n d"], log_determinant: Float[Tensor, ""]) -> Float[Tensor, " n"]:
    """Return -log p(u) / d of each vector, in nats a dimension (Eq. 4): (|z|^2/2 + d/2 log 2 pi - log |det|) / d."""
    d = z.shape[1]
    return (z.square().sum(1) / 2 + d / 2 * math.log(2 * math.pi) - log_determinant) / d


def fit_flow(
    vectors: Float[Tensor, "n d"], *, learning_rate: float = 1e-3, epochs: int = 1, batch_size: int = 64, seed: int = 42
) -> Flow:
    """Fit a flow to n vectors by maximum likelihood, in float32 on their device: Adam over shuffled minibatches.

    It needs more vectors than dimensions: otherwise their covariance is singular, and the likelihood has no maximum.
    The same vectors and seed give the same flow. Its parameters are frozen.
    """
    n, d = vectors.shape
    if n <= d:
        raise ValueError(f"fit_flow needs more vectors than dimensions, got {n} of {d} dimensions")
    if not torch.isfinite(vectors).all():
        raise ValueError("fit_flow needs finite vectors, got some that are not")
    vectors = vectors.detach().float()
    flow = Flow(d, generator=generator_for(seed, "flow/parameters")).to(vectors.device)
    optimiser = torch.optim.Adam(flow.parameters(), lr=learning_rate)
    flow.initialise(vectors[_order(n, seed, 0)[:batch_size]])
    for epoch in range(epochs):
        for rows in _order(n, seed, epoch).split(batch_size):
            loss = negative_log_likelihood(*flow(vectors[rows])).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    if not all(parameter.isfinite().all() for parameter in flow.parameters()):
        raise ValueError(f"the flow diverged at learning_rate {learning_rate}; take a smaller one")
    return flow.requires_grad_(False)


def _order(n: int, seed: int, epoch: int) -> Int[Tensor, " n"]:
    return torch.randperm(n, generator=generator_for(seed, f"flow/order/{epoch}"))
