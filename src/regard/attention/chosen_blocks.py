"""Attention of each query to the few blocks of keys that it chose, without n × n scores.

Queries are sorted by the blocks that they chose, into tiles of queries with one block of keys, as
in Lu et al., 2025, arXiv:2502.13189, Algorithm 1. A query's blocks are merged by the logarithms of
their sums, as in FlashAttention (Dao, 2023, arXiv:2307.08691), which also gives the gradient.

Shapes: r rows of n queries and keys (a row is a head of an example), c choices of each query.
"""

from dataclasses import dataclass
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.base import at_least_float32, without_autocast

TILE = 32
"""Queries per tile; of 16 to 256, the fastest or near it for blocks of 16 to 512 keys."""
SCORES = 1 << 18
"""Scores computed at a time, so that they stay in a core's cache."""


@dataclass(frozen=True)
class Tiles:
    """Queries with one block of keys; a tile that isn't full ends with query n."""

    queries: Int[Tensor, "tiles size"]
    """Positions in all rows of n + 1 queries."""
    blocks: Int[Tensor, " tiles"]
    """Positions in all rows of blocks."""
    later: Int[Tensor, "tiles size"]
    """Positions of the queries from the first key of the block."""

    @staticmethod
    def of(choices: Int[Tensor, "r n c"], kept: Bool[Tensor, "r n c"], size: int) -> "Tiles":
        """Sort the queries of n tokens by those of their choices that are kept."""
        rows, n, _ = choices.shape
        number = -(-n // size)
        row, query, choice = kept.nonzero(as_tuple=True)
        block = row * number + choices[row, query, choice]
        block, order = block.sort(stable=True)
        counts = block.bincount(minlength=rows * number)
        tiles = -(-counts // TILE)
        place = torch.arange(len(block), device=block.device)
        place = place - (counts.cumsum(0) - counts)[block]
        tile = (tiles.cumsum(0) - tiles)[block] + place // TILE
        blocks = torch.arange(len(counts), device=block.device).repeat_interleave(tiles)
        positions = torch.full((len(blocks), TILE), n, device=block.device)
        positions[tile, place % TILE] = query[order]
        queries = positions + (blocks // number * (n + 1))[:, None]
        return Tiles(queries, blocks, positions - (blocks % number * size)[:, None])

    def parts(self, size: int) -> "list[Tiles]":
        """Return parts with at most `SCORES` scores for blocks of `size` keys."""
        step = max(1, SCORES // (TILE * size))
        split = [x.split(step) for x in (self.queries, self.blocks, self.later)]
        return [Tiles(*part) for part in zip(*split, strict=True)]


def attend(
    query: Float[Tensor, "r n d"],
    key: Float[Tensor, "r n d"],
    value: Float[Tensor, "r n e"],
    choices: Int[Tensor, "r n c"],
    kept: Bool[Tensor, "r n c"],
    *,
    size: int,
) -> Float[Tensor, "r n e"]:
    """Return causal softmax attention to the chosen blocks of `size` keys.

    The scores are q·k: scale the queries before. A query keeps its own block, and each block once.
    """
    n = query.shape[1]
    tiles = Tiles.of(choices, kept, size)
    with without_autocast(query):
        blocks = (F.pad(x, (0, 0, 0, -n % size)).unflatten(1, (-1, size)) for x in (key, value))
        padded = F.pad(query, (0, 0, 0, 1)).flatten(0, 1)
        out: Tensor = _Tiled.apply(  # type: ignore[no-untyped-call]
            padded, *(x.flatten(0, 1) for x in blocks), tiles
        )
        return out.view(-1, n + 1, out.shape[-1])[:, :n]


class _Tiled(torch.autograd.Function):
    """Softmax attention of queries to the keys of all their tiles."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Float[Tensor, "queries d"],
        keys: Float[Tensor, "blocks size d"],
        values: Float[Tensor, "blocks size e"],
        tiles: Tiles,
    ) -> Float[Tensor, "queries e"]:
        parts = [_part(query, keys, values, part) for part in tiles.parts(keys.shape[1])]
        out, logs = (torch.cat(x) for x in zip(*parts, strict=True))
        at, each = tiles.queries.flatten(), logs.flatten()
        highest = each.new_full((len(query),), -inf).scatter_reduce(0, at, each, "amax")
        sums = torch.zeros_like(highest).index_add(0, at, (each - highest[at]).exp())
        log_sums = highest + sums.log()
        shares = (logs - log_sums[tiles.queries]).exp().unsqueeze(-1)
        wide = out.new_zeros(len(query), out.shape[-1])
        wide = wide.index_add(0, at, (out * shares).flatten(0, 1))
        ctx.save_for_backward(query, keys, values, wide, log_sums)
        ctx.tiles = tiles
        return wide.to(values.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Float[Tensor, "queries e"]) -> tuple[Tensor, Tensor, Tensor, None]:
        query, keys, values, out, log_sums = ctx.saved_tensors
        of_query, of_keys, of_values = (
            torch.zeros(x.shape, dtype=out.dtype, device=x.device) for x in (query, keys, values)
        )
        mean = (grad * out).sum(-1, keepdim=True)  # of dα, weighted by α
        for part in ctx.tiles.parts(keys.shape[1]):
            at, some = part.queries, grad[part.queries]
            weights = (_scores(query, keys, part) - log_sums[at].unsqueeze(-1)).exp()
            slopes = at_least_float32(some @ values[part.blocks].mT) - mean[at]
            of_scores = (weights * slopes).to(query.dtype)
            added = at_least_float32(of_scores @ keys[part.blocks])
            of_query.index_add_(0, at.flatten(), added.flatten(0, 1))
            of_keys.index_add_(0, part.blocks, at_least_float32(of_scores.mT @ query[at]))
            of_values.index_add_(0, part.blocks, at_least_float32(weights.to(grad.dtype).mT @ some))
        return of_query.to(query.dtype), of_keys.to(keys.dtype), of_values.to(values.dtype), None


def _scores(query: Tensor, keys: Tensor, part: Tiles) -> Float[Tensor, "tiles size keys"]:
    """Return q·k of tiles, −∞ for keys after the query."""
    scores = at_least_float32(query[part.queries] @ keys[part.blocks].mT)
    places = torch.arange(keys.shape[1], device=keys.device)
    return scores.masked_fill_(places > part.later.unsqueeze(-1), -inf)


def _part(
    query: Tensor, keys: Tensor, values: Tensor, part: Tiles
) -> tuple[Float[Tensor, "tiles size e"], Float[Tensor, "tiles size"]]:
    """Return softmax attention within tiles, and the logarithms of its sums."""
    scores = _scores(query, keys, part)
    logs = scores.logsumexp(-1)
    weights = (scores - logs.unsqueeze(-1)).exp().to(values.dtype)
    return at_least_float32(weights @ values[part.blocks]), logs
