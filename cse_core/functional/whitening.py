"""Whitening of a batch's features in training (WhitenedCSE, Zhuo et al., ACL 2023) and of finished vectors."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cse_core.graph import randn

ALL_CHANNEL_KINDS = ("pca", "zca")


class _InverseRoot(torch.autograd.Function):
    """(S + eps I)^-1/2 whose gradient, unlike that of eigenvectors, is finite where eigenvalues are equal."""

    @staticmethod
    def forward(ctx: Any, covariance: Tensor, eps: float) -> Tensor:
        values, vectors = _spectrum(covariance, eps)
        ctx.save_for_backward(values, vectors)
        return (vectors * values.rsqrt().unsqueeze(-2)) @ vectors.mT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        # With f(l) = l^-1/2 the differences (f(a) - f(b)) / (a - b) are -1 / (ra rb (ra + rb)), r the square roots.
        values, vectors = ctx.saved_tensors
        a, b = values.sqrt().unsqueeze(-1), values.sqrt().unsqueeze(-2)
        inner = vectors.mT @ ((grads[0] + grads[0].mT) / 2) @ vectors
        return vectors @ (-inner / (a * b * (a + b))) @ vectors.mT, None


def _spectrum(covariance: Float[Tensor, "*g c c"], eps: float) -> tuple[Float[Tensor, "*g c"], Float[Tensor, "*g c c"]]:
    values, vectors = torch.linalg.eigh(covariance)
    return values.clamp(min=0) + eps, vectors  # rounding gives a rank-deficient covariance negative eigenvalues


def inverse_root(covariance: Float[Tensor, "*g c c"], eps: float = 1e-5) -> Float[Tensor, "*g c c"]:
    """Return (S + eps I)^-1/2 of symmetric, positive semidefinite S, one or a batch of them; once differentiable."""
    return _InverseRoot.apply(covariance, eps)


def _whitening_matrix(covariance: Float[Tensor, "d d"], kind: str, eps: float, detach: bool) -> Float[Tensor, "d d"]:
    if kind == "zca":
        return inverse_root(covariance.detach() if detach else covariance, eps)
    values, vectors = _spectrum(covariance.detach(), eps)
    return vectors * values.rsqrt()


def group_whiten(
    x: Float[Tensor, "n d"],
    groups: int,
    permutation: Int[Tensor, " d"] | None = None,
    eps: float = 1e-5,
    *,
    detach: bool = True,
) -> Float[Tensor, "n d"]:
    """Whiten `groups` groups of d // groups channels by ZCA, each by its own covariance (Section 3.2).

    Group g has the channels permutation[g c : (g + 1) c]; the result is in the order of x. With `detach` the whitening
    matrices are constants to the gradient, as in the released code; the mean isn't.
    """
    check_groups(groups, x.shape[1])
    centred = x - x.mean(0)
    blocks = (centred if permutation is None else centred[:, permutation]).unflatten(1, (groups, -1)).transpose(0, 1)
    covariance = blocks.mT @ blocks / len(x)
    white = blocks @ inverse_root(covariance.detach() if detach else covariance, eps)
    white = white.transpose(0, 1).flatten(1)
    return white if permutation is None else white[:, permutation.argsort()]


def random_rotation(width: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Float[Tensor, "d d"]:
    """Draw an orthogonal matrix uniformly from all, reflections included (Haar; Mezzadri, 2007, Section 5).

    It is the Q of a Gaussian matrix's QR decomposition, with the column signs that make R's diagonal positive.
    """
    draw = randn(width, width, generator=generator, device=generator.device, dtype=dtype)
    q, r = torch.linalg.qr(draw)
    return q * r.diagonal().sign()


def check_groups(groups: int, width: int) -> None:
    """Refuse a number of groups that doesn't divide the width."""
    if groups < 1 or width % groups:
        raise ValueError(f"groups must be a divisor of the width, got groups={groups} for width {width}")


class RunningWhitening(nn.Module):
    """Whitening over all channels by running statistics (Eq. 13), as a batch has fewer rows than channels.

    Let C + eps I = U Lambda U^T, with the biased covariance C. "pca" returns (x - mean) U Lambda^-1/2, in which the
    signs of U's columns are arbitrary; "zca" returns (x - mean) U Lambda^-1/2 U^T (Eq. 2 to 5). Each call in training
    mode sets mean <- b mean + (1 - b) batch mean, starting from 0; C likewise, from I. The batch's share of the mean
    has a gradient; that of C only for ZCA without `detach`.
    """

    mean: Tensor
    covariance: Tensor

    def __init__(self, width: int, kind: str, momentum: float, eps: float, detach: bool) -> None:
        super().__init__()
        self.kind, self.momentum, self.eps, self.detach = kind, momentum, eps, detach
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("covariance", torch.eye(width))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Return the rows less the running mean, times the whitening matrix of the running covariance."""
        mean, covariance, b = self.mean, self.covariance, self.momentum
        if self.training:
            centred = x - x.mean(0)
            mean = b * mean + (1 - b) * x.mean(0)
            covariance = b * covariance + (1 - b) * (centred.T @ centred / len(x))
            self.mean, self.covariance = mean.detach(), covariance.detach()
        return (x - mean) @ _whitening_matrix(covariance, self.kind, self.eps, self.detach)


def whitening(fitted_on: Float[Tensor, "n d"], dims: int | None = None) -> Callable[[Tensor], Tensor]:
    """Return the map x -> (x - mean) U Lambda^-1/2 fitted on n vectors, in float64, the largest variances first."""
    n, d = fitted_on.shape
    if not 1 <= (d if dims is None else dims) <= d:
        raise ValueError(f"whitening to {dims} of {d} dimensions: expected 1 to {d}")
    x = fitted_on.double()
    mean = x.mean(0)
    variances, directions = torch.linalg.eigh((x - mean).T @ (x - mean) / n)
    variances, directions = variances.flip(0)[:dims], directions.flip(1)[:, :dims]
    if variances[-1] <= variances[0] * (d * torch.finfo(torch.float32).eps) ** 2:  # no more than rounding
        raise ValueError(f"whitening {len(variances)} dimensions from {n} vectors that span fewer; ask for fewer dims")
    return lambda vectors: (vectors.double() - mean) @ (directions / variances.sqrt())
