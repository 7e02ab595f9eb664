"""Positions of the input: a vector per position, added to the embedding or concatenated."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn

from regard.positions.rotary import frequencies


class Learned(nn.Module):
    """One learned vector per position (Gehring et al., 2017), initialized as zero.

    >>> positions = torch.arange(5)
    >>> Learned(length=64, d=8)(positions).shape
    torch.Size([5, 8])
    """

    def __init__(self, *, length: int, d: int, offset: int = 0) -> None:
        """`length` positions of width `d`, after `offset` unused vectors."""
        super().__init__()
        self.offset = offset
        self.vectors = nn.Parameter(torch.zeros(offset + length, d))

    def forward(self, positions: Int[Tensor, "*rows n"]) -> Float[Tensor, "*rows n d"]:
        """Return the vectors of the given positions, each below `length`."""
        return F.embedding(positions + self.offset if self.offset else positions, self.vectors)


class _Fixed(nn.Module):
    """One constant vector per position, which isn't saved with the weights."""

    vectors: Tensor

    def __init__(self, vectors: Float[Tensor, "length d"]) -> None:
        super().__init__()
        self.register_buffer("vectors", vectors, persistent=False)

    def forward(self, positions: Int[Tensor, "*rows n"]) -> Float[Tensor, "*rows n d"]:
        """Return the vectors of positions, each below `length`, in torch's default precision."""
        return self.vectors[positions].to(torch.get_default_dtype())


class Sinusoidal(_Fixed):
    """sin(t·ω_k) at 2k and cos(t·ω_k) at 2k + 1 (Vaswani et al., 2017, §3.5).

    >>> Sinusoidal(length=64, d=4)(torch.tensor([0, 1]))
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """

    def __init__(self, *, length: int, d: int, base: float = 10_000.0) -> None:
        """`length` positions of even width `d`, with ω_k = base^(-2k/d).

        Raises:
            ValueError: `d` is odd.
        """
        times = torch.arange(length, dtype=torch.float64)
        angles = torch.outer(times, frequencies(d, base))
        super().__init__(torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1))


class OneHot(_Fixed):
    """Position t is the unit vector along coordinate t.

    >>> OneHot(length=3, d=4)(torch.tensor([0, 2]))
    tensor([[1., 0., 0., 0.],
            [0., 0., 1., 0.]])
    """

    def __init__(self, *, length: int, d: int) -> None:
        """`length` positions of width `d`.

        Raises:
            ValueError: `d` is below `length`.
        """
        if d < length:
            raise ValueError(f"{length} positions need {length} unit vectors, and d = {d} has {d}")
        super().__init__(torch.eye(length, d))


def shift_matrix(d: int, steps: int = 1, *, base: float = 10_000.0) -> Float64[Tensor, "d d"]:
    """Return M^steps with p(t + steps) = M^steps p(t) for sinusoidal p and every t.

    It rotates each pair (sin(t·ω), cos(t·ω)) by steps·ω (Vaswani et al., 2017, §3.5).

    Raises:
        ValueError: `d` is odd.

    >>> p = Sinusoidal(length=64, d=8)
    >>> later = shift_matrix(8, steps=3).float() @ p(torch.tensor(2))
    >>> torch.allclose(later, p(torch.tensor(5)), atol=1e-6)
    True
    """
    angles = steps * frequencies(d, base)
    even = torch.arange(0, d, 2)
    matrix = torch.zeros(d, d, dtype=torch.float64)
    matrix[even, even] = matrix[even + 1, even + 1] = angles.cos()
    matrix[even, even + 1] = angles.sin()
    matrix[even + 1, even] = -angles.sin()
    return matrix
