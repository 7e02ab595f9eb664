"""Random inputs of derivations."""

from collections.abc import Mapping

import torch
from jaxtyping import Float64
from torch import Generator, Tensor


def size(generator: Generator, low: int, high: int) -> int:
    """Return a random size between two bounds, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def sizes(**named: int) -> dict[str, Float64[Tensor, ""]]:
    """Return sizes as tensors, for lines that compute with them."""
    return {name: torch.tensor(float(n), dtype=torch.float64) for name, n in named.items()}


def number(generator: Generator, low: float, high: float) -> Float64[Tensor, ""]:
    """Return a random number between two bounds."""
    return low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64)


def normal(generator: Generator, *shape: int) -> Float64[Tensor, "..."]:
    """Return standard normal entries."""
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def ones(shapes: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Float64[Tensor, "n m"]]:
    """Return matrices of ones, for costs, which depend only on sizes."""
    return {name: torch.ones(int(n), int(m)) for name, (n, m) in shapes.items()}


def orthonormal(generator: Generator, n: int, d: int) -> Float64[Tensor, "n d"]:
    """Return n random orthonormal rows, n ≤ d."""
    rows: Tensor = torch.linalg.qr(normal(generator, d, n))[0].mT
    return rows


def two_of(generator: Generator, n: int) -> tuple[Tensor, Tensor]:
    """Return two different indices below n."""
    a, b = torch.randperm(n, generator=generator)[:2]
    return a, b
