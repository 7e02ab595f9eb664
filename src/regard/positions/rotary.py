"""Rotary positions: queries and keys are rotated, so that q·k depends on the distance alone."""

import math
from typing import TypeAlias

import torch
from jaxtyping import Float, Float64, Int, Shaped
from torch import Tensor, nn

Rotation: TypeAlias = tuple[Float[Tensor, "rows 1 n r"], Float[Tensor, "rows 1 n r"]]
"""Cosines and signed sines for `rotate`, one row for all or one for each."""


class Rotary(nn.Module):
    """Rotate coordinates i and i + r/2 by position · frequency i (Su et al., 2021, eq. 15).

    >>> rotary = Rotary(frequencies(8, 10_000.0), length=64)
    >>> query, key = torch.randn(2, 1, 1, 1, 8)  # batch, heads, tokens, width
    >>> near, far = (rotary(torch.tensor([[t]]), torch.float32) for t in (3, 40))
    >>> first, later = (rotary(torch.tensor([[t]]), torch.float32) for t in (0, 37))
    >>> one = rotate(query, near) @ rotate(key, first).mT
    >>> other = rotate(query, far) @ rotate(key, later).mT  # at the same distance
    >>> torch.allclose(one, other, atol=1e-4)
    True
    """

    turns: Tensor
    """Cosines and signed sines of all positions: (2, length, r)."""

    def __init__(self, frequencies: Float64[Tensor, " half"], *, length: int) -> None:
        """For `length` positions, and r = 2 · half coordinates."""
        super().__init__()
        self.frequencies = frequencies
        angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
        self.register_buffer("turns", torch.stack(_cos_sin(angles)), persistent=False)

    def forward(self, positions: Int[Tensor, "rows n"], dtype: torch.dtype) -> Rotation:
        """Return the rotation of each position, which is below `length`."""
        cos, signed_sin = self.turns[:, positions].unsqueeze(2).to(dtype)
        return cos, signed_sin

    def at(self, positions: Float64[Tensor, "rows n"], dtype: torch.dtype) -> Rotation:
        """Return the rotation of positions that may be negative, fractions, or beyond `length`."""
        return _rotation(positions, self.frequencies, dtype)


class DynamicRotary(nn.Module):
    """Rotary positions whose base increases with the length of a row ("dynamic NTK").

    Beyond the original length L, base · (factor · n / L - (factor - 1))^(d / (d - 2)) for n tokens,
    as in transformers 5.23, `modeling_rope_utils.py`. As there, keys in a decoding state keep their
    rotation.

    >>> rotary = DynamicRotary(d=8, base=10_000.0, factor=2.0, original_length=4)
    >>> turn = rotary(torch.arange(6)[None], torch.float32)
    >>> rotate(torch.randn(1, 2, 6, 8), turn).shape  # batch, heads, tokens, width
    torch.Size([1, 2, 6, 8])
    """

    def __init__(self, *, d: int, base: float, factor: float, original_length: int) -> None:
        """For `d` coordinates.

        Raises:
            ValueError: `d` is odd or below 4.
        """
        super().__init__()
        if d < 4 or d % 2:
            raise ValueError(f"dynamic scaling needs an even d of at least 4, not {d}")
        self.d, self.base, self.factor, self.original_length = d, base, factor, original_length

    def forward(self, positions: Int[Tensor, "rows n"], dtype: torch.dtype) -> Rotation:
        """Return the rotation of each position."""
        length = (positions.amax(-1) + 1).clamp_min(self.original_length).double()
        growth = self.factor * length / self.original_length - (self.factor - 1)
        base = self.base * growth ** (self.d / (self.d - 2))
        return _rotation(positions, frequencies(self.d, base[:, None, None, None]), dtype)


def _rotation(
    positions: Shaped[Tensor, "rows n"],
    frequencies: Float64[Tensor, "*#rows half"],
    dtype: torch.dtype,
) -> Rotation:
    cos, signed_sin = _cos_sin(positions[:, None, :, None] * frequencies.to(positions.device))
    return cos.to(dtype), signed_sin.to(dtype)


def _cos_sin(
    angles: Float64[Tensor, "*shape half"],
) -> tuple[Float64[Tensor, "*shape r"], Float64[Tensor, "*shape r"]]:
    sin = angles.sin()
    return torch.cat([angles.cos()] * 2, -1), torch.cat([-sin, sin], -1)


def rotate(x: Float[Tensor, "batch heads n d"], turn: Rotation) -> Float[Tensor, "batch heads n d"]:
    """Rotate the first r ≤ d coordinates of queries or keys, in the precision of the cosines.

    >>> turn = Rotary(frequencies(4, 10_000.0), length=64)(torch.arange(2)[None], torch.float32)
    >>> rotate(torch.ones(1, 1, 2, 4), turn)[0, 0]  # batch, heads, tokens, width
    tensor([[ 1.0000,  1.0000,  1.0000,  1.0000],
            [-0.3012,  0.9900,  1.3818,  1.0099]])
    """
    cos, signed_sin = turn
    r = cos.shape[-1]
    if r < x.shape[-1]:
        return torch.cat([rotate(x[..., :r], turn), x[..., r:]], -1)
    turned = torch.addcmul(x * cos, x.roll(r // 2, -1), signed_sin)
    return turned.to(x.dtype)


def frequencies(d: int, base: float | Float64[Tensor, "*rows 1"]) -> Float64[Tensor, "*rows half"]:
    """Return ω_k = base^(-2k/d) for k < d/2: wavelengths from 2π to almost 2π · base.

    Raises:
        ValueError: `d` is odd or below 2.

    >>> frequencies(4, 10_000.0)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    if d < 2 or d % 2:
        raise ValueError(f"sines and cosines come in pairs: d must be even and positive, not {d}")
    device = base.device if isinstance(base, Tensor) else None
    found: Tensor = base ** (-torch.arange(0, d, 2, dtype=torch.float64, device=device) / d)
    return found


def llama3_frequencies(
    frequencies: Float64[Tensor, " half"],
    *,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_length: int,
) -> Float64[Tensor, " half"]:
    """Scale frequencies for longer texts: Llama 3.1 (transformers 5.23, `modeling_rope_utils.py`).

    With t turns within the original length, they are divided by the factor where
    t < low_freq_factor, kept where t > high_freq_factor, and interpolated between.

    >>> options = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192)
    >>> old = frequencies(8, 500_000.0)
    >>> llama3_frequencies(old, **options) / old
    tensor([1.0000, 1.0000, 0.3711, 0.1250], dtype=torch.float64)
    """
    turns = original_length * frequencies / (2 * math.pi)
    kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
    return (1 - kept) * frequencies / factor + kept * frequencies
