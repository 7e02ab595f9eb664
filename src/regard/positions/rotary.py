"""Rotary positions: queries and keys are rotated, so that q·k depends on the distance alone."""

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn


class Rotary(nn.Module):
    """Rotate coordinates i and i + d/2 by position · base^(-2i/d) (Su et al., 2021, eq. 15)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, *, length: int, d: int, base: float = 10_000.0) -> None:
        """For `length` positions and heads of even width `d`.

        Raises:
            ValueError: `d` is odd.
        """
        super().__init__()
        times = torch.arange(length, dtype=torch.float64)
        angles = torch.outer(times, frequencies(d, base))
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1), persistent=False)
        self.register_buffer("sin", torch.cat([-angles.sin(), angles.sin()], -1), persistent=False)

    def forward(
        self, positions: Int[Tensor, "rows n"], dtype: torch.dtype
    ) -> tuple[Float[Tensor, "rows 1 n d"], Float[Tensor, "rows 1 n d"]]:
        """Cosines and signed sines for `rotate`, one row for all or one for each."""
        return self.cos[positions][:, None].to(dtype), self.sin[positions][:, None].to(dtype)


def rotate(
    x: Float[Tensor, "batch heads n d"],
    turn: tuple[Float[Tensor, "rows 1 n d"], Float[Tensor, "rows 1 n d"]],
) -> Float[Tensor, "batch heads n d"]:
    """Rotate queries or keys to their positions, in the precision of the cosines."""
    cos, signed_sin = turn
    turned = torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), signed_sin)
    return turned.to(x.dtype)


def frequencies(d: int, base: float) -> Float64[Tensor, " half"]:
    """ω_k = base^(-2k/d) for k from 0 to d/2 - 1: wavelengths from 2π to almost 2π · base.

    Raises:
        ValueError: `d` is odd or below 2.
    """
    if d < 2 or d % 2:
        raise ValueError(f"sines and cosines come in pairs: d must be even and positive, not {d}")
    return base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
