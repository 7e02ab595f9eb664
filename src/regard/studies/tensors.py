"""Random tensors, matrices as parameters and as text, and the size of differences."""

from collections.abc import Sequence

import torch
from jaxtyping import Float64
from torch import Tensor

from regard.errors import UserError

Rows = tuple[tuple[float, ...], ...]
"""A matrix as a parameter."""


def normal(seed: int, *shape: int) -> Tensor:
    """Draw a float64 tensor of this shape from N(0, 1)."""
    return draw_normal(torch.Generator().manual_seed(seed), *shape)


def draw_normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw the next float64 tensor of this shape from N(0, 1)."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


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


def largest(x: Tensor) -> float:
    """Return the largest absolute value."""
    return float(x.abs().max())


def relative_error(found: Tensor, exact: Tensor) -> float:
    """Return ‖found − exact‖/‖exact‖, over all entries."""
    return float((found - exact).norm() / exact.norm())
