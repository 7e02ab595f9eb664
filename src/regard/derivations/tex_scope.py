"""Meanings of the letters of a line: inputs, functions, indices and random variables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from regard.derivations.tex_algebra import Unsupported

_MOST = 2**20
"""Largest number of quadrature points."""


@dataclass(frozen=True)
class FromZero:
    """An input indexed from 0; others are indexed from 1."""

    entries: Tensor


Letter: TypeAlias = Tensor | FromZero | Callable[..., Tensor]
"""An input, or a function of its subscripts or arguments."""
Drawn: TypeAlias = tuple[str, tuple[int, ...]]
"""A random variable, or the part of one at an index."""


@dataclass(frozen=True)
class Normal:
    """Independent normal entries, by Gauss–Hermite quadrature."""

    mean: Tensor
    deviation: Tensor | float
    nodes: int
    """Nodes for each entry: exact for polynomials of degree below 2·nodes."""

    def part(self, index: tuple[int, ...]) -> "Points":
        """Return points and weights of a part, which is independent of all others."""
        mean = self.mean[tuple(i - 1 for i in index)]
        places, weights = _gauss_hermite(self.nodes)
        grid = _grid([places] * mean.numel()).view(-1, *mean.shape)
        weight = _grid([weights] * mean.numel()).prod(1)
        return Points(mean + self.deviation * grid, weight)


@cache
def _gauss_hermite(nodes: int) -> tuple[Float64[Tensor, " nodes"], Float64[Tensor, " nodes"]]:
    """Return points of a standard normal entry, and their probabilities."""
    places, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return torch.from_numpy(places), torch.from_numpy(weights / weights.sum())


@dataclass(frozen=True)
class Points:
    """A discrete random variable: values with probabilities; entries may be dependent."""

    values: Float64[Tensor, "points *shape"]
    weights: Float64[Tensor, " points"]


Law: TypeAlias = Normal | Points


def drawn(laws: Mapping[str, Law], name: str, index: tuple[int, ...]) -> tuple[Drawn, Points]:
    """Return the random variable that contains a part of a letter, and its points."""
    law = laws[name]
    return ((name, ()), law) if isinstance(law, Points) else ((name, index), law.part(index))


def joint(laws: Mapping[Drawn, Points]) -> tuple[dict[Drawn, Tensor], Float64[Tensor, " points"]]:
    """Return all combinations of independent variables, with their probabilities."""
    if not laws:
        return {}, torch.ones(1, dtype=torch.float64)
    places = _grid([torch.arange(len(law.weights)) for law in laws.values()])
    values = {key: law.values[places[:, i]] for i, (key, law) in enumerate(laws.items())}
    weights = prod(
        (law.weights[places[:, i]] for i, law in enumerate(laws.values())),
        start=torch.ones(len(places), dtype=torch.float64),
    )
    return values, weights


def _grid(axes: list[Tensor]) -> Tensor:
    """Return all combinations of the entries of axes, one per row."""
    if not axes:
        return torch.ones(1, 0, dtype=torch.float64)
    if prod(map(len, axes)) > _MOST:
        raise Unsupported("too many random entries for a quadrature")
    return torch.stack([axis.flatten() for axis in torch.meshgrid(*axes, indexing="ij")], 1)


@dataclass(frozen=True)
class Scope:
    """Everything that lines may refer to."""

    letters: Mapping[str, Letter]
    indices: Mapping[str, range] = field(default_factory=dict)
    """Values of free indices, also for sums without bounds."""
    laws: Mapping[str, Law] = field(default_factory=dict)
    """Distributions of letters inside expectations."""
    defined: Mapping[str, str] = field(default_factory=dict)
    r"""Letters (`p`) and functions (`phi(u)`) → their definition in TeX."""
