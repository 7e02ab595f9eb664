"""Positions in keys and values: vectors for the distance between query and key."""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.types import KeyPositions, Outputs, Queries, QueryPositions, Weights
from regard.positions.bias import clipped, distances


class ShawVectors(nn.Module):
    """Vectors a^K and a^V for each clipped distance, shared by all heads (Shaw et al., 2018).

    No tensor of queries × keys × d is made: each of the 2·clip + 1 vectors is multiplied once
    (§3.3, eq. 5); products are gathered, and weights added up, by distance.

    >>> from regard.attention import Softmax
    >>> query, key, value = torch.randn(3, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> Softmax()(query, key, value, bias=ShawVectors(d=8, clip=2)).shape
    torch.Size([1, 2, 5, 8])
    """

    def __init__(self, *, d: int, e: int | None = None, clip: int) -> None:
        """Vectors of width `d` for keys and `e` (or `d`) for values; `clip` limits the distance.

        Raises:
            ValueError: `clip` is negative.
        """
        super().__init__()
        if clip < 0:
            raise ValueError(f"a clip can't be negative: {clip}")
        self.clip = clip
        self.keys = nn.Parameter(torch.empty(2 * clip + 1, d))
        self.values = nn.Parameter(torch.empty(2 * clip + 1, d if e is None else e))
        nn.init.normal_(self.keys, std=0.02)
        nn.init.normal_(self.values, std=0.02)

    def scores(
        self, query: Queries, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Weights:
        """Return q_i · a^K_ij, without the 1/√d (eq. 4)."""
        products = query @ self.keys.to(query.dtype).T
        entry = self._entry(query_positions, key_positions)
        return products.gather(-1, entry.expand(*query.shape[:-1], -1))

    def gather(
        self, weights: Weights, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Outputs:
        """Return Σ_j α_ij a^V_ij (eq. 3)."""
        entry = self._entry(query_positions, key_positions)
        collected = weights.new_zeros(*weights.shape[:-1], len(self.values))
        collected = collected.scatter_add(-1, entry.expand_as(weights), weights)
        return collected @ self.values.to(weights.dtype)

    def _entry(
        self, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Int[Tensor, "*rows 1 queries keys"]:
        """Return the index of the vector of each query and key, for all heads."""
        return clipped(distances(query_positions, key_positions), self.clip)[..., None, :, :]
