"""Random tensors and modules, matrices as parameters and text, numerical derivatives, errors."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from regard.errors import UserError

T = TypeVar("T")
Rows = tuple[tuple[float, ...], ...]
"""A matrix as a parameter."""


def normal(seed: int, *shape: int) -> Tensor:
    """Draw a float64 tensor of this shape from N(0, 1)."""
    return draw_normal(torch.Generator().manual_seed(seed), *shape)


def draw_normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw the next float64 tensor of this shape from N(0, 1)."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def seeded(make: Callable[[], T], seed: int) -> T:
    """Return `make()`, drawn with torch's generator at a seed, and restore the generator."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def matrix(
    where: str, rows: Sequence[Sequence[float]], height: int | None = None, width: int | None = None
) -> Float64[Tensor, "n m"]:
    """Return a parameter as a matrix.

    Raises:
        UserError: its rows differ in length, or it hasn't the size that fits the others.
    """
    if len({len(row) for row in rows}) > 1 or not rows[0]:
        raise UserError(f"{where}: rows are empty or differ in length; make them the same")
    found = (len(rows), len(rows[0]))
    fitting = (height or found[0], width or found[1])
    if found != fitting:
        raise UserError(
            f"{where}: is {found[0]}×{found[1]}, which doesn't fit the others; make it "
            f"{fitting[0]}×{fitting[1]}"
        )
    return torch.tensor(rows, dtype=torch.float64)


def vector_text(values: Tensor, form: str = "g") -> str:
    """Return the numbers of a vector in brackets."""
    return "[" + ", ".join(f"{value:{form}}" for value in values.tolist()) + "]"


@torch.no_grad()
def central_differences(
    loss: Callable[[], Tensor], weights: Float[Tensor, " w"], step: float
) -> Float[Tensor, " w"]:
    """Return the loss's derivative by each weight. Weights are changed in place and restored."""
    slopes = torch.zeros_like(weights)
    for i, value in enumerate(weights.clone()):
        weights[i] = value + step
        above = loss()
        weights[i] = value - step
        slopes[i] = (above - loss()) / (2 * step)
        weights[i] = value
    return slopes


def largest(x: Tensor) -> float:
    """Return the largest absolute value."""
    return float(x.abs().max())


def relative_error(found: Tensor, exact: Tensor) -> float:
    """Return ‖found − exact‖/‖exact‖, over all entries."""
    return float((found - exact).norm() / exact.norm())
