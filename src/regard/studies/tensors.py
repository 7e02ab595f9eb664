"""Random tensors, and the size of differences."""

import torch
from torch import Tensor


def normal(seed: int, *shape: int) -> Tensor:
    """Draw a float64 tensor of this shape from N(0, 1)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def largest(x: Tensor) -> float:
    """Return the largest absolute value."""
    return float(x.abs().max())


def relative_error(found: Tensor, exact: Tensor) -> float:
    """Return ‖found − exact‖/‖exact‖, over all entries."""
    return float((found - exact).norm() / exact.norm())
