"""Mixture of block attention: each query attends to its own block and the most similar others."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention import reference
from regard.attention.backends import repeat_kv
from regard.attention.base import at_least_float32, without_autocast
from regard.attention.mask import Mask
from regard.attention.score_config import MobaConfig
from regard.attention.softmax import PositionedBias, ScoreAttention, Softmax, highest
from regard.attention.state import KeyValueCache
from regard.attention.types import AnyBias, DenseBias, Keys, Queries, Weights


@dataclass(frozen=True)
class Places:
    """The blocks of a row's tokens, counted from 0; rows broadcast."""

    of_keys: Int[Tensor, "#batch keys"]
    of_queries: Int[Tensor, "#batch queries"]
    first: Int[Tensor, "#batch queries"]
    """The first block of a query's document."""
    number: int
    """Number of blocks."""


class MoBA(Softmax):
    """Softmax over the query's own block of keys and the earlier ones with the highest q·k̄.

    Lu et al., 2025, arXiv:2502.13189; k̄ is the mean key of a block. Blocks begin anew
    at each document, and those equal to the last one chosen are chosen too.
    """

    name = "moba"
    supports = MobaConfig.supports

    def __init__(self, *, block_size: int, blocks: int, **options: Any) -> None:
        """`blocks` is the number of blocks that a query attends to, with its own."""
        super().__init__(**options)
        self.block_size, self.blocks = block_size, blocks

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """Softmax over the keys of the chosen blocks."""
        allowed = reference.allowed(query, key, mask)
        wide_query, wide_key = reference.pairs(query, key)
        wide_query, wide_key = wide_query[:, :, :, 0], wide_key[:, :, 0]
        batch, heads, n, _ = query.shape
        kept = torch.zeros_like(allowed)
        for b in range(batch):
            ids = [0] * n if mask.document_ids is None else mask.document_ids[b].tolist()
            real = n if mask.key_lengths is None else int(mask.key_lengths[b])
            for i in range(n):
                start = min(j for j in range(n) if ids[j] == ids[i])
                own = start + (i - start) // self.block_size * self.block_size
                blocks = [range(j, j + self.block_size) for j in range(start, own, self.block_size)]
                for h in range(heads):
                    scores = {
                        block: float(wide_query[b, h, i] @ wide_key[b, h, seen].mean(0))
                        for block in blocks
                        if (seen := [j for j in block if j < real])
                    }
                    best = sorted(scores.values(), reverse=True)[: self.blocks - 1]
                    chosen = [block for block in scores if best and scores[block] >= best[-1]]
                    for block in [*chosen, range(own, i + 1)]:
                        for j in block:
                            kept[b, h, i, j] = allowed[b, h, i, j]
        return reference.softmax(query, key, kept, bias, scale=1 / math.sqrt(query.shape[-1]))

    def allowed(self, mask: Mask | None, query: Queries, key: Keys) -> Tensor | None:
        dense, keys = super().allowed(mask, query, key), key.shape[2]
        assert mask is not None
        assert dense is not None
        hidden = None if mask.key_lengths is None else mask.padding(keys, key.device)
        return self._chosen(query, key, self._places(mask, keys, key.device), hidden) & dense

    def _forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> Tensor:
        return ScoreAttention._forward(self, query, key, value, mask, bias)

    def _attend_cache(
        self, query: Tensor, cache: KeyValueCache, before: KeyValueCache, bias: AnyBias | None
    ) -> Tensor:
        keys, values = cache.filled()
        positions = before.positions(query.shape[2])
        slots = torch.arange(keys.shape[2], device=keys.device)
        of_queries = positions // self.block_size
        number = -(-keys.shape[2] // self.block_size)
        places = Places(slots[None] // self.block_size, of_queries, 0 * of_queries, number)
        seen = (slots <= positions[:, :, None])[:, None] & self._chosen(query, keys, places, None)
        added = None if bias is None else PositionedBias(bias, cache.inside(positions), slots)
        return self._attend(query.to(keys.dtype), keys, values, seen, added).to(query.dtype)

    def _places(self, mask: Mask, n: int, device: torch.device) -> Places:
        """Return the blocks of whole rows, which begin anew at each document."""
        at, ids = torch.arange(n, device=device)[None], mask.document_ids
        if ids is None:
            blocks = at // self.block_size
            return Places(blocks, blocks, torch.zeros_like(blocks), -(-n // self.block_size))
        begins = ids.diff(dim=1, prepend=ids[:, :1] - 1) != 0
        starts = torch.where(begins, at, 0).cummax(1).values
        blocks = ((at - starts) % self.block_size == 0).cumsum(1) - 1
        number = n if torch.compiler.is_compiling() else int(blocks.max()) + 1
        return Places(blocks, blocks, blocks.gather(1, starts), number)

    def _chosen(
        self, query: Queries, key: Keys, places: Places, hidden: Tensor | None
    ) -> Bool[Tensor, "batch heads queries keys"]:
        """Return whether a key is in the query's own block, or in a chosen one before it."""
        query, key = at_least_float32(query), at_least_float32(repeat_kv(key, query.shape[1]))
        each = torch.arange(places.number, device=key.device)
        inside = places.of_keys[:, :, None] == each
        inside = inside if hidden is None else inside & ~hidden[:, :, None]
        members = inside.to(key.dtype).mT[:, None]
        with without_autocast(query):
            means = (members @ key) / members.sum(-1, keepdim=True).clamp_min(1)
            scores = query @ means.mT
        own = places.of_queries[:, :, None]
        earlier = ((each < own) & (each >= places.first[:, :, None]))[:, None]
        earlier = earlier & (members.sum(-1) > 0)[:, :, None]
        chosen = (each == own)[:, None] & torch.ones_like(scores, dtype=torch.bool)
        if self.blocks > 1:
            chosen = chosen | (highest(scores, earlier, self.blocks - 1) & earlier)
        of_keys = places.of_keys[:, None, None].expand(*scores.shape[:3], -1)
        return chosen.gather(-1, of_keys)
