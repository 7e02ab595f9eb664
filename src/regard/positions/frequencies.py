"""The angular frequencies that sinusoidal and rotary positions share."""

import torch
from jaxtyping import Float64
from torch import Tensor


def frequencies(d: int, base: float) -> Float64[Tensor, " half"]:
    """ω_k = base^(-2k/d) for k from 0 to d/2 - 1: wavelengths from 2π to almost 2π · base.

    Raises:
        ValueError: `d` is odd or below 2.
    """
    if d < 2 or d % 2:
        raise ValueError(f"sines and cosines come in pairs: d must be even and positive, not {d}")
    return base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
