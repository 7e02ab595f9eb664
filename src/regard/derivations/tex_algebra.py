"""Products, sums and powers of numbers, vectors, rows and matrices in a line of TeX."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor


class Unsupported(ValueError):
    """Notation that isn't supported."""


@dataclass(frozen=True)
class Row:
    """A transposed vector."""

    entries: Tensor


Value: TypeAlias = Tensor | Row

FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    r"\sin": torch.sin,
    r"\cos": torch.cos,
    r"\cosh": torch.cosh,
    r"\exp": torch.exp,
    r"\ln": torch.log,
    r"\Phi": torch.special.ndtr,
    r"\Gamma": lambda x: torch.lgamma(x).exp(),
}
"""Elementwise functions of numbers, vectors and matrices."""


def number(value: float) -> Tensor:
    """Return a number as a tensor."""
    return torch.tensor(float(value), dtype=torch.float64)


def entries(value: Value) -> Tensor:
    """Return the entries of a value, transposed or not."""
    return value.entries if isinstance(value, Row) else value


def add(a: Value, b: Value) -> Value:
    """Return a sum. A number is added to each entry, and 0 to anything."""
    if isinstance(a, Row) != isinstance(b, Row) and entries(a).ndim and entries(b).ndim:
        raise Unsupported("a row and a column in a sum")
    total = entries(a) + entries(b)
    return Row(total) if isinstance(a, Row) or isinstance(b, Row) else total


def total(terms: Sequence[Value]) -> Value:
    """Return the sum of terms, 0 for none."""
    made: Value = number(0)
    for term in terms:
        made = add(made, term)
    return made


def product(terms: Sequence[Value]) -> Value:
    """Return the product of terms, 1 for none."""
    made: Value = number(1)
    for term in terms:
        made = multiply(made, term)
    return made


def multiply(a: Value, b: Value) -> Value:
    """Return a product of two factors side by side."""
    if not entries(a).ndim or not entries(b).ndim:
        scaled = entries(a) * entries(b)
        return Row(scaled) if isinstance(a, Row) or isinstance(b, Row) else scaled
    if isinstance(a, Row):
        if isinstance(b, Row):
            raise Unsupported("a row with a row behind it")
        made = a.entries @ b
        return made if b.ndim == 1 else Row(made)
    if isinstance(b, Row):
        if a.ndim != 1:
            raise Unsupported("a matrix with a row behind it")
        return torch.outer(a, b.entries)
    if a.ndim == 1:
        raise Unsupported("a vector with a vector or matrix behind it")
    return a @ b


def dot(a: Value, b: Value) -> Value:
    r"""Return a product with `\cdot`: of vectors, their scalar product."""
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.ndim == b.ndim == 1:
        return a @ b
    return multiply(a, b)


def divide(a: Value, b: Value) -> Value:
    """Return a value over a number."""
    if isinstance(b, Row) or b.ndim:
        raise Unsupported("a division by a vector or matrix")
    return Row(a.entries / b) if isinstance(a, Row) else a / b


def transpose(value: Value) -> Value:
    """Return a transposed vector or matrix."""
    if isinstance(value, Row):
        return value.entries
    if value.ndim == 1:
        return Row(value)
    if value.ndim != 2:
        raise Unsupported("a transposed number")
    return value.T


def power(base: Value, exponent: Value) -> Value:
    """Return the power of a number, or an integer power of a square matrix."""
    if isinstance(base, Row) or isinstance(exponent, Row) or base.ndim == 1 or exponent.ndim:
        raise Unsupported("a power of a vector")
    if base.ndim == 2:
        matrix: Tensor = torch.linalg.matrix_power(base, integer(exponent))
        return matrix
    return base**exponent


def integer(value: Value) -> int:
    """Return an integer value as int."""
    if isinstance(value, Row) or value.ndim or not float(value).is_integer():
        raise Unsupported("not an integer")
    return round(float(value))


def columns(values: Sequence[Value]) -> Value:
    """Return numbers as a row, or vectors as columns of a matrix; 0 may be a zero vector."""
    tensors = [entries(value) for value in values]
    if not any(one.ndim for one in tensors):
        return Row(torch.stack(tensors))
    return torch.stack(torch.broadcast_tensors(*tensors), 1)
