"""How vectors lie on the unit sphere: densities, cosines of all pairs, and how far the positives of one text spread."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cse_core.metrics.geometry import directions

VERSION = 1  # recorded with every score: bump with any change that could move one
BLOCK = 256  # rows whose cosines with all others are in memory at once
EDGES = np.linspace(-1, 1, 401)  # of the bins in which cosines of pairs are counted
ONE_DIRECTION = 1 - 1e-9  # above this mean cosine, the vectors of different texts are equal up to rounding


def log_densities(x: Float[Tensor, "n d"]) -> Float[np.ndarray, " n"]:
    """Return log mean_{j != i} exp(-2 || x_i/|x_i| - x_j/|x_j| ||^2) of each row, in [-8, 0].

    This is a kernel density on the sphere (von Mises-Fisher, concentration 4) up to a constant. Uniformity (Wang &
    Isola, ICML 2020) has the same kernel: it is the log of the mean of these densities.
    """
    unit = directions(x, "density")
    if len(unit) < 2:
        raise ValueError(f"a density needs at least two vectors, got {len(unit)}")
    sums = torch.cat([(4 * rows @ unit.T - 4).exp().sum(1) for rows in unit.split(BLOCK)])
    return ((sums - 1) / (len(unit) - 1)).log().cpu().numpy()  # less the row's own kernel, exp(0)


def cosines_of_pairs(x: Float[Tensor, "n d"]) -> Float[np.ndarray, " p"]:
    """Return the cosines of all n (n - 1) / 2 pairs."""
    unit = directions(x, "cosines")
    later = torch.ones(len(unit), len(unit), dtype=torch.bool, device=unit.device).triu(1)
    return (unit @ unit.T)[later].clamp(-1, 1).cpu().numpy()


def spread(x: Float[Tensor, "n c d"]) -> float:
    """Return the mean squared distance between the c vectors of a sentence, over that between vectors of two sentences.

    Only directions count. The result is 0 if each sentence's vectors are equal, 1 if they lie as far apart as others'.
    """
    n, c, d = x.shape
    if n < 2 or c < 2:
        raise ValueError(f"spread needs at least two sentences of two vectors each, got {n} of {c}")
    unit = directions(x.reshape(n * c, d), "positives").reshape(n, c, d)
    same = float(unit.sum(1).square().sum())  # cosines within sentences, including each vector with itself
    every = float(unit.sum((0, 1)).square().sum())
    within, between = (same - n * c) / (n * c * (c - 1)), (every - same) / (n * (n - 1) * c * c)
    if between > ONE_DIRECTION:
        raise ValueError("spread is undefined: the vectors of different sentences have one direction")
    return (1 - within) / (1 - between)


def principal_plane(x: Float[Tensor, "n d"]) -> Float[np.ndarray, "n 2"]:
    """Project the centred directions onto their first two principal axes."""
    unit = directions(x, "plane")
    centred = unit - unit.mean(0)
    axes = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -2:].flip(1)
    return (centred @ axes).float().cpu().numpy()
