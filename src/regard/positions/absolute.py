"""Positions that are added to the token embeddings."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class Learned(nn.Module):
    """One learned vector a position (Gehring et al., 2017), zero at first."""

    def __init__(self, *, length: int, d: int) -> None:
        """`length` positions of width `d`."""
        super().__init__()
        self.vectors = nn.Parameter(torch.zeros(length, d))

    def forward(self, positions: Int[Tensor, "*rows n"]) -> Float[Tensor, "*rows n d"]:
        """The vectors of the given positions, each below `length`."""
        return self.vectors[positions]
