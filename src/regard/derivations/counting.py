"""Multiplications and divisions, counted in explicit loops or by the shapes of matrices."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from jaxtyping import Float64
from torch import Tensor

from regard.operations import OperatorMode


class Counter:
    """Arithmetic on matrices, one scalar operation at a time; additions aren't counted."""

    def __init__(self) -> None:
        self.count = 0

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply two numbers."""
        self.count += 1
        return a * b

    def divided(self, a: Tensor, b: Tensor) -> Tensor:
        """Divide two numbers."""
        self.count += 1
        return a / b

    def dot(self, a: Float64[Tensor, " d"], b: Float64[Tensor, " d"]) -> Float64[Tensor, ""]:
        """Return Σ a_i b_i, in d multiplications."""
        total = a.new_zeros(())
        for first, second in zip(a, b, strict=True):
            total = total + self.times(first, second)
        return total

    def product(
        self, a: Float64[Tensor, "n m"], b: Float64[Tensor, "m p"]
    ) -> Float64[Tensor, "n p"]:
        """Return the matrix product, in n·m·p multiplications."""
        return torch.stack([torch.stack([self.dot(row, column) for column in b.T]) for row in a])

    def scaled(
        self, a: Float64[Tensor, "n m"], divisor: Float64[Tensor, "..."]
    ) -> Float64[Tensor, "n m"]:
        """Divide by broadcast divisors, entry by entry, in n·m divisions."""
        pairs = zip(a.flatten(), divisor.expand_as(a).flatten(), strict=True)
        return torch.stack([self.divided(top, bottom) for top, bottom in pairs]).view_as(a)

    def times_rows(
        self, factors: Float64[Tensor, " n"], rows: Float64[Tensor, "n m"]
    ) -> Float64[Tensor, "n m"]:
        """Multiply each row by a number, in n·m multiplications."""
        return torch.stack(
            [
                torch.stack([self.times(factor, entry) for entry in row])
                for factor, row in zip(factors, rows, strict=True)
            ]
        )


Program: TypeAlias = Callable[[Counter], object]


def operations(program: Program) -> Float64[Tensor, ""]:
    """Count the multiplications and divisions of a program."""
    counter = Counter()
    program(counter)
    return torch.tensor(float(counter.count), dtype=torch.float64)


class OfMatrices(OperatorMode):
    """Count the multiplications of matrix products and the divisions of matrices.

    Zero entries of the first matrix, such as those of a diagonal matrix, aren't counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.mm.default:
            self.count += int(args[0].count_nonzero()) * args[1].shape[1]
        if func is torch.ops.aten.div.Tensor and args[0].ndim == 2:
            self.count += args[0].numel()
        return result
