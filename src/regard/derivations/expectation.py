"""Expectations by quadrature, exact up to rounding, without sampling."""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

Function: TypeAlias = Callable[[Float64[Tensor, "points d"]], Float64[Tensor, "points ..."]]


def expect(
    f: Function,
    mean: Float64[Tensor, " d"],
    deviation: Float64[Tensor, "#d"] | float = 1.0,
    *,
    nodes: int,
) -> Float64[Tensor, "..."]:
    """Return E[f(z)] for z ~ N(mean, deviation²) with independent entries.

    Gauss–Hermite quadrature on a grid of nodes^d points: exact for polynomials of degree below
    2·nodes in each entry.
    """
    places, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(nodes))
    weights, d = weights / math.sqrt(2 * math.pi), len(mean)
    return _total(f(mean + deviation * _grid(places, d)), _grid(weights, d).prod(1))


def integrate(
    f: Function, low: float, high: float, *, d: int = 1, nodes: int
) -> Float64[Tensor, "..."]:
    """Return the integral of f over the cube [low, high]^d, by Gauss–Legendre quadrature."""
    places, weights = legendre(low, high, nodes)
    return _total(f(_grid(places, d)), _grid(weights, d).prod(1))


def legendre(
    low: float, high: float, nodes: int
) -> tuple[Float64[Tensor, " nodes"], Float64[Tensor, " nodes"]]:
    """Return points and weights of Gauss–Legendre quadrature on an interval."""
    places, weights = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(nodes))
    half = (high - low) / 2
    return low + half * (places + 1), half * weights


def density(
    z: Float64[Tensor, "points d"], mean: Float64[Tensor, "#d"] | float = 0.0, variance: float = 1.0
) -> Float64[Tensor, " points"]:
    """Return the density of N(mean, variance·I)."""
    scale = (2 * math.pi * variance) ** (-z.shape[1] / 2)
    values: Tensor = scale * (-(z - mean).square().sum(1) / (2 * variance)).exp()
    return values


def _grid(entries: Float64[Tensor, " nodes"], d: int) -> Float64[Tensor, "points d"]:
    """Return all rows of d entries."""
    axes = torch.meshgrid(*[entries] * d, indexing="ij")
    return torch.stack([axis.flatten() for axis in axes], 1)


def _total(
    values: Float64[Tensor, "points ..."], weights: Float64[Tensor, " points"]
) -> Float64[Tensor, "..."]:
    total: Tensor = torch.tensordot(weights, values, dims=1)
    return total
