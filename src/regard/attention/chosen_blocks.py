"""Attention of each query to a few chosen blocks of keys, without n × n scores.

Queries are sorted by chosen block into tiles, each with one block of keys, as in Lu et al., 2025,
arXiv:2502.13189, Algorithm 1. The outputs of a query's tiles are merged by the log-sum-exp of their
scores, and the gradient is computed from it, as in FlashAttention (Dao, 2023, arXiv:2307.08691).

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
"""Queries per tile: of 16 to 256, the fastest or close to it for blocks of 16 to 512 keys."""
SCORES = 1 << 18
"""Scores computed at a time, so that they stay in a core's cache."""


@dataclass(frozen=True)
class Tiles:
    """Tiles of queries, each with one block of keys; incomplete tiles are padded with zeros."""

    queries: Int[Tensor, "tiles size"]
    """Flat indices of queries over all rows; the number of queries denotes padding."""
    blocks: Int[Tensor, " tiles"]
    """Flat indices of blocks over all rows."""
    later: Int[Tensor, "tiles size"]
    """Positions of the queries relative to the first key of the block."""

    def parts(self, size: int) -> "list[Tiles]":
        """Split into parts with at most `SCORES` scores, for blocks of `size` keys."""
        step = max(1, SCORES // (TILE * size))
        split = [x.split(step) for x in (self.queries, self.blocks, self.later)]
        return [Tiles(*part) for part in zip(*split, strict=True)]


def sort(
    choices: Int[Tensor, "r n c"], kept: Bool[Tensor, "r n c"], size: int
) -> tuple[Tiles, Int[Tensor, "r*n c"]]:
    """Sort queries into tiles by their kept choices.

    Return the tiles, and the flat index of each choice in them: past the last one if not kept.
    """
    rows, n, _ = choices.shape
    number = -(-n // size)
    row, query, choice = kept.nonzero(as_tuple=True)
    block, order = (row * number + choices[row, query, choice]).sort(stable=True)
    counts = block.bincount(minlength=rows * number)
    tiles = -(-counts // TILE)
    place = torch.arange(len(block), device=block.device)
    place = place - (counts.cumsum(0) - counts)[block]
    place = (tiles.cumsum(0) - tiles)[block] * TILE + place
    blocks = torch.arange(len(counts), device=block.device).repeat_interleave(tiles)
    queries = torch.full((len(blocks) * TILE,), rows * n, device=block.device)
    queries[place] = (row * n + query)[order]
    places = torch.full(choices.shape, len(queries), device=block.device)
    places[row[order], query[order], choice[order]] = place
    queries = queries.view(-1, TILE)
    later = queries % n - (blocks % number * size)[:, None]
    return Tiles(queries, blocks, later.masked_fill(queries == rows * n, 0)), places.flatten(0, 1)


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

    The scores are q·k: scale the queries first. `kept` must include each query's own block, and no
    block twice.
    """
    n = query.shape[1]
    with without_autocast(query):
        blocks = (F.pad(x, (0, 0, 0, -n % size)).unflatten(1, (-1, size)) for x in (key, value))
        keys, values = (x.flatten(0, 1) for x in blocks)
        queries = F.pad(query.flatten(0, 1), (0, 0, 0, 1))
        tiles, places = sort(choices, kept, size)
        out: Tensor = _Tiled.apply(  # type: ignore[no-untyped-call]
            queries, keys, values, tiles, places
        )
        return out.view(*query.shape[:2], out.shape[-1])


class _Tiled(torch.autograd.Function):
    """Softmax attention of queries to the keys of all their tiles."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Float[Tensor, "queries+1 d"],
        keys: Float[Tensor, "blocks size d"],
        values: Float[Tensor, "blocks size e"],
        tiles: Tiles,
        places: Int[Tensor, "queries c"],
    ) -> Float[Tensor, "queries e"]:
        parts = [_part(query, keys, values, part) for part in tiles.parts(keys.shape[1])]
        out, logs = (torch.cat(x).flatten(0, 1) for x in zip(*parts, strict=True))
        each = F.pad(logs, (0, 1), value=-inf)[places]
        log_sums = each.logsumexp(-1, keepdim=True)
        shares = (each - log_sums).exp().unsqueeze(-1)
        wide = (shares * _take(F.pad(out, (0, 0, 0, 1)), places)).sum(1)
        ctx.save_for_backward(query, keys, values, wide, log_sums, places)
        ctx.tiles = tiles
        return wide.to(values.dtype)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad: Float[Tensor, "queries e"]
    ) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, keys, values, out, log_sums, places = ctx.saved_tensors
        of_keys, of_values = (
            torch.zeros(x.shape, dtype=out.dtype, device=x.device) for x in (keys, values)
        )
        mean = F.pad((grad * out).sum(-1), (0, 1))  # of dα, weighted by α
        grad, log_sums = F.pad(grad, (0, 0, 0, 1)), F.pad(log_sums[:, 0], (0, 1))
        of_queries = []
        for part in ctx.tiles.parts(keys.shape[1]):
            at, some = part.queries, _take(grad, part.queries)
            weights = (_scores(query, keys, part) - log_sums[at].unsqueeze(-1)).exp()
            slopes = at_least_float32(some @ values.index_select(0, part.blocks).mT) - mean[
                at
            ].unsqueeze(-1)
            of_scores = (weights * slopes).to(query.dtype)
            of_queries.append(at_least_float32(of_scores @ keys.index_select(0, part.blocks)))
            of_keys.index_add_(0, part.blocks, at_least_float32(of_scores.mT @ _take(query, at)))
            of_values.index_add_(0, part.blocks, at_least_float32(weights.to(grad.dtype).mT @ some))
        added = _take(F.pad(torch.cat(of_queries).flatten(0, 1), (0, 0, 0, 1)), places).sum(1)
        of_query = F.pad(added, (0, 0, 0, 1)).to(query.dtype)
        return of_query, of_keys.to(keys.dtype), of_values.to(values.dtype), None, None


def _take(x: Float[Tensor, "n d"], at: Int[Tensor, "a b"]) -> Float[Tensor, "a b d"]:
    """Return x[at] in half the time."""
    return x.index_select(0, at.flatten()).view(*at.shape, x.shape[-1])


def _scores(query: Tensor, keys: Tensor, part: Tiles) -> Float[Tensor, "tiles size keys"]:
    """Return q·k of tiles, −∞ for keys after the query."""
    scores = at_least_float32(_take(query, part.queries) @ keys.index_select(0, part.blocks).mT)
    places = torch.arange(keys.shape[1], device=keys.device)
    return scores.masked_fill_(places > part.later.unsqueeze(-1), -inf)


def _part(
    query: Tensor, keys: Tensor, values: Tensor, part: Tiles
) -> tuple[Float[Tensor, "tiles size e"], Float[Tensor, "tiles size"]]:
    """Return softmax attention within tiles, and the log-sum-exp of its scores."""
    scores = _scores(query, keys, part)
    logs = scores.logsumexp(-1)
    weights = (scores - logs.unsqueeze(-1)).exp().to(values.dtype)
    return at_least_float32(weights @ values.index_select(0, part.blocks)), logs
