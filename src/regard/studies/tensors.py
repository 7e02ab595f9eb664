"""Tensors of studies: random draws and models, matrices as parameters, derivatives, errors."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from regard.errors import UserError

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)
Rows = tuple[tuple[float, ...], ...]
"""A matrix as a parameter."""


def normal(seed: int, *shape: int) -> Tensor:
    """Draw a float64 tensor of this shape from N(0, 1)."""
    return draw_normal(torch.Generator().manual_seed(seed), *shape)


def draw_normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw the next float64 tensor of this shape from N(0, 1)."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def slow_walks(
    draws: int, n: int, d: int, *, reach: float, seed: int | tuple[int, ...]
) -> Float[Tensor, "draws 1 n d"]:
    """Draw normal numbers of variance 1 with a correlation of 1/e at a distance of `reach` tokens.

    With a reach of 0 all are independent.
    """
    kept = math.exp(-1 / reach) if reach else 0.0
    walks = np.random.default_rng(seed).standard_normal((n, draws, 1, d))
    walks[1:] *= math.sqrt(1 - kept**2)
    for i in range(1, n):
        walks[i] += kept * walks[i - 1]
    return torch.from_numpy(walks).permute(1, 2, 0, 3)


def seeded(make: Callable[[], T], seed: int) -> T:
    """Return `make()` with torch's global generator seeded, and restore the generator."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def untrained(make: Callable[[], M], seed: int) -> M:
    """Return a float64 model without dropout and gradients, whose layers keep the size of inputs.

    With the usual initial weights, attention is almost uniform; these weights have visible effects.
    """
    model = seeded(make, seed)  # its weights are replaced
    draw = torch.Generator().manual_seed(seed)
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if parameter.ndim > 1:
                inputs = module.in_features if isinstance(module, nn.Linear) else 1
                nn.init.normal_(parameter, std=inputs**-0.5, generator=draw)
            elif isinstance(module, nn.Linear):
                nn.init.zeros_(parameter)
    return model.double().eval().requires_grad_(False)


def matrix(
    where: str,
    rows: Sequence[Sequence[float]],
    height: int | None = None,
    width: int | None = None,
    limit: int = 1000,
) -> Float64[Tensor, "n m"]:
    """Return a parameter as a matrix.

    Raises:
        UserError: it has entries that aren't finite, rows that are empty, longer than `limit` or
            of different length, or another size than `height` and `width`.
    """
    found = (len(rows), len(rows[0]))
    if any(len(row) != found[1] for row in rows) or not 1 <= found[1] <= limit:
        raise UserError(
            f"{where}: rows of {', '.join(str(len(row)) for row in rows)} numbers; write 1 to "
            f"{limit} in each, equally many"
        )
    fitting = (height or found[0], width or found[1])
    if found != fitting:
        raise UserError(
            f"{where}: is {found[0]}×{found[1]}, which doesn't fit the others; make it "
            f"{fitting[0]}×{fitting[1]}"
        )
    values = torch.tensor(rows, dtype=torch.float64)
    if not values.isfinite().all():
        raise UserError(f"{where}: not all numbers are finite; write finite ones")
    return values


def vector_text(values: Tensor, form: str = "g") -> str:
    """Return the entries of a vector in brackets."""
    return "[" + ", ".join(f"{value:{form}}" for value in values.tolist()) + "]"


@torch.no_grad()
def central_differences(
    loss: Callable[[], Tensor], weights: Float[Tensor, " w"], step: float
) -> Float[Tensor, " w"]:
    """Return the derivative of a loss by each weight; weights are changed in place and restored."""
    gradient = torch.zeros_like(weights)
    for i, value in enumerate(weights.clone()):
        weights[i] = value + step
        above = loss()
        weights[i] = value - step
        gradient[i] = (above - loss()) / (2 * step)
        weights[i] = value
    return gradient


def largest(x: Tensor) -> float:
    """Return the largest absolute value."""
    return float(x.abs().max())


def mean_error(values: Float[Tensor, " draws"]) -> float:
    """Return the standard error of the mean of independent draws."""
    return float(values.std()) / math.sqrt(len(values))


def share_error(p: float, draws: int) -> float:
    """Return the standard error of the share of independent draws with probability p."""
    return math.sqrt(p * (1 - p) / draws)


def relative_error(found: Tensor, exact: Tensor) -> float:
    """Return ‖found − exact‖/‖exact‖ over all entries."""
    return float((found - exact).norm() / exact.norm())


def map_distance(
    first: Float[Tensor, "*heads queries keys"], second: Float[Tensor, "*heads queries keys"]
) -> Float[Tensor, "*heads"]:
    """Return half the sum of absolute differences in a row, averaged over rows.

    0 if two attention maps are equal, 1 if they share no key.
    """
    return (first - second).abs().sum(-1).mean(-1) / 2
